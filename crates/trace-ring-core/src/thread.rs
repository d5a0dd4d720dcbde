//! What a thread keeps: a ring for each severity class, which an event takes while it is written.
//!
//! A ring that is taken is how a nested event is noticed: one that a signal handler or a formatter
//! begins in the middle of another. The thread-local state has no destructor, so that it can be
//! used to the last instruction of a thread; a guard beside it marks the rings as ended.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::thread::gettid;

use crate::busy::Busy;
use crate::format::SeverityClass;
use crate::memory::RingCounters;
use crate::producer::{Producer, count_lost_without_ring, current, generation, set_up};
use crate::thread_ring::ThreadRing;

thread_local! {
    static STATE: ThreadState = const { ThreadState::new() };
    static END: EndOfThread = const { EndOfThread };
}

struct ThreadState {
    normal: Slot,
    debug: Slot,
    /// The thread has taken the shared ring.
    has_shared_ring: Cell<bool>,
    /// Thread id as of `tid_generation`.
    tid: Cell<u32>,
    tid_generation: Cell<u32>,
}

/// The thread's ring for a severity class.
struct Slot {
    ring: Cell<ManuallyDrop<Option<Box<ThreadRing>>>>,
    /// Counters of the ring, for nested events.
    counters: Cell<ManuallyDrop<Option<RingCounters>>>,
    /// Generation of the process in which `source` was decided.
    generation: Cell<u32>,
    source: Cell<Source>,
}

/// Where a thread's events go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Nothing is decided before the first event.
    Undecided,
    /// The slot's own ring; the slot is empty while an event is being written.
    Own,
    /// The ring of all threads without their own.
    Shared,
    /// Nowhere: no ring could be made.
    Nowhere,
}

impl ThreadState {
    const fn new() -> Self {
        Self {
            normal: Slot::new(),
            debug: Slot::new(),
            has_shared_ring: Cell::new(false),
            tid: Cell::new(0),
            tid_generation: Cell::new(0),
        }
    }

    #[inline]
    fn slot(&self, class: SeverityClass) -> &Slot {
        if class == SeverityClass::Debug {
            &self.debug
        } else {
            &self.normal
        }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            ring: Cell::new(ManuallyDrop::new(None)),
            counters: Cell::new(ManuallyDrop::new(None)),
            generation: Cell::new(0),
            source: Cell::new(Source::Undecided),
        }
    }

    #[inline]
    fn take(&self) -> Option<Box<ThreadRing>> {
        ManuallyDrop::into_inner(self.ring.replace(ManuallyDrop::new(None)))
    }

    #[inline]
    fn put_back(&self, ring: Box<ThreadRing>) {
        self.ring.set(ManuallyDrop::new(Some(ring)));
    }

    /// Counts an event that came while the ring was taken.
    fn count_nested(&self) {
        match ManuallyDrop::into_inner(self.counters.replace(ManuallyDrop::new(None))) {
            Some(counters) => {
                counters.count_nested();
                self.counters.set(ManuallyDrop::new(Some(counters)));
            }
            None => count_lost_without_ring(),
        }
    }

    /// Leaves what a forked child has from its parent. Dropping it would unmap memory that is no
    /// longer its own.
    fn forget(&self) {
        self.ring.set(ManuallyDrop::new(None));
        self.counters.set(ManuallyDrop::new(None));
        self.source.set(Source::Undecided);
    }
}

/// Takes the ring for an event of this class. `None` when the event is lost, which has been
/// counted.
#[inline(always)]
pub(crate) fn take_ring(class: SeverityClass) -> Option<Box<ThreadRing>> {
    STATE.with(|state| {
        let slot = state.slot(class);
        let ring = slot.take();
        // The slot is empty before anything else happens, as a signal handler on this thread sees
        // it.
        compiler_fence(Ordering::SeqCst);
        match ring {
            Some(ring) if ring.generation == generation() => Some(ring),
            other => take_ring_slowly(state, slot, class, other),
        }
    })
}

/// Ends the use of a ring.
#[inline]
pub(crate) fn return_ring(ring: Box<ThreadRing>) {
    STATE.with(|state| {
        // The event is complete before a signal handler on this thread can take the ring.
        compiler_fence(Ordering::SeqCst);
        if ring.class == SeverityClass::All {
            match current().filter(|_| ring.generation == generation()) {
                Some(producer) => producer.rings.return_shared_ring(ring),
                None => std::mem::forget(ring),
            }
            state.has_shared_ring.set(false);
        } else {
            state.slot(ring.class).put_back(ring);
        }
    });
}

/// Returns the calling thread's id, which costs a system call once.
pub(crate) fn thread_id(generation: u32) -> u32 {
    STATE.with(|state| {
        // A forked child has another id, and another generation.
        if state.tid_generation.replace(generation) != generation {
            state
                .tid
                .set(gettid().as_raw_nonzero().get().unsigned_abs());
        }
        state.tid.get()
    })
}

#[cold]
fn take_ring_slowly(
    state: &ThreadState,
    slot: &Slot,
    class: SeverityClass,
    stale: Option<Box<ThreadRing>>,
) -> Option<Box<ThreadRing>> {
    // A ring from before a fork: dropping it would unmap memory of the parent.
    std::mem::forget(stale);
    let Some(busy) = Busy::enter() else {
        count_lost_without_ring();
        return None;
    };
    let Some(producer) = set_up(&busy) else {
        count_lost_without_ring();
        return None;
    };
    let Producer { process, rings } = producer;
    if slot.generation.replace(process.generation) != process.generation {
        slot.forget();
        state.has_shared_ring.set(false);
    }
    if slot.source.get() == Source::Undecided {
        // A thread whose destructors run already cannot mark another ring as ended.
        let can_end = END.try_with(|_| ()).is_ok();
        if let Some(ring) = can_end
            .then(|| rings.create_thread_ring(process, class))
            .flatten()
        {
            slot.source.set(Source::Own);
            slot.counters
                .set(ManuallyDrop::new(Some(ring.writer.memory().counters())));
            return Some(ring);
        }
        slot.source.set(Source::Shared);
    }
    // The ring is taken, so this event has come in the middle of another one of the thread.
    if slot.source.get() == Source::Own {
        slot.count_nested();
        return None;
    }
    // The thread has the shared ring already, and would wait for itself.
    if state.has_shared_ring.get() {
        count_lost_without_ring();
        return None;
    }
    if slot.source.get() == Source::Shared
        && let Some(ring) = rings.take_shared_ring(process)
    {
        state.has_shared_ring.set(true);
        return Some(ring);
    }
    slot.source.set(Source::Nowhere);
    count_lost_without_ring();
    None
}

/// Marks the thread's rings as ended. Later events of the thread (from destructors of other
/// thread-locals, or from exit handlers) go to the shared ring.
struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let Some(_busy) = Busy::enter() else { return };
        STATE.with(|state| {
            for slot in [&state.normal, &state.debug] {
                let Some(ring) = slot.take() else { continue };
                if let Some(producer) = current().filter(|_| ring.generation == generation()) {
                    slot.source.set(Source::Shared);
                    drop(ManuallyDrop::into_inner(
                        slot.counters.replace(ManuallyDrop::new(None)),
                    ));
                    producer.rings.end_ring(*ring);
                } else {
                    std::mem::forget(ring);
                }
            }
        });
    }
}
