//! What is loaded, and when it is written: each object before the first function of it.
//!
//! A thread keeps the objects of the functions that it has called, and compares a number that
//! changes in a forked child, when the filter is changed (which repeats the list), and when
//! `dlclose` is called. Otherwise the loader is asked for its counts, which costs less than a
//! microsecond: at the first call of an object's functions after each of these changes. That finds
//! what `dlopen` has loaded, which cannot be intercepted without a change of what it does, because
//! it looks at its caller.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use trace_ring_core::{count_lost, generations, init, set_default_filter};

use crate::events;
use crate::object::Object;
use crate::system::{LoaderCounts, list_loaded_objects, run_around_forks};

/// Bits of a state that count calls of `dlclose`, and those with the generation of the filter. The
/// rest is the generation of the process.
const CLOSE_BITS: u32 = 24;
const FILTER_BITS: u32 = 24;

/// How long a thread waits for another one that asks the loader. It does not wait for ever: it may
/// itself have a lock of the loader, if a function that `dl_iterate_phdr` calls is instrumented.
const LOCK_TIMEOUT: Duration = Duration::from_millis(20);

/// Places for objects in a thread, chosen by address.
const CACHE_SIZE: usize = 16;

static OBJECTS: Mutex<Objects> = Mutex::new(Objects::new());
/// Calls of `dlclose` that have not returned, and all that were made.
static CLOSING: AtomicU32 = AtomicU32::new(0);
static CLOSED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // None of these has a destructor: a thread uses them up to its last instruction.
    static CACHE: [Cell<Option<&'static Object>>; CACHE_SIZE] =
        const { [const { Cell::new(None) }; CACHE_SIZE] };
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
    static HAS_TIMED_OUT: Cell<bool> = const { Cell::new(false) };
    static HELD_IN_FORK: Cell<ManuallyDrop<Option<Held>>> =
        const { Cell::new(ManuallyDrop::new(None)) };
}

/// The list as a thread holds it while it forks.
type Held = (Busy, MutexGuard<'static, Objects>);

/// A call of `dlclose`. While there is one, each function asks the loader: the place of an object
/// that is gone may be taken before `dlclose` returns.
#[derive(Debug)]
pub(crate) struct Closing(());

impl Closing {
    pub(crate) fn begin() -> Self {
        // In this order: who sees the new state sees that a call is under way, until its end.
        CLOSING.fetch_add(1, Ordering::SeqCst);
        CLOSED.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        CLOSING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The thread asks the loader, until this is dropped. What a signal handler or an instrumented
/// allocator calls meanwhile is lost, and counted.
#[derive(Debug)]
struct Busy(());

impl Busy {
    fn enter() -> Option<Self> {
        // Lazily: dropping a `Busy` ends it.
        IS_BUSY.with(|is_busy| (!is_busy.replace(true)).then(|| Self(())))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        IS_BUSY.set(false);
    }
}

/// Returns the state of the process: equal states have the same list of objects.
#[inline(always)]
fn state() -> u64 {
    let (process, filter) = generations();
    let closed = CLOSED.load(Ordering::SeqCst);
    let low = |number: u32, bits: u32| u64::from(number) & ((1 << bits) - 1);
    u64::from(process) << (CLOSE_BITS + FILTER_BITS)
        | low(filter, FILTER_BITS) << CLOSE_BITS
        | low(closed, CLOSE_BITS)
}

/// Returns the part of a state that counts calls of `dlclose`.
fn closed_in(state: u64) -> u64 {
    state & ((1 << CLOSE_BITS) - 1)
}

#[inline(always)]
fn with_place<R>(
    address: u64,
    use_place: impl FnOnce(&Cell<Option<&'static Object>>) -> R,
) -> Option<R> {
    let page = usize::try_from(address >> 12).unwrap_or_default();
    CACHE.with(|cache| cache.get(page % CACHE_SIZE).map(use_place))
}

/// Whether the object around an address is known to be loaded and written. Costs a few nanoseconds.
#[inline(always)]
pub(crate) fn is_listed(address: u64) -> bool {
    let object = with_place(address, Cell::get).flatten();
    object.is_some_and(|object| object.contains(address) && object.listed() == state())
}

/// Writes what is loaded, as far as it is not written, before a function at this address is.
/// Returns whether the function can be written now.
#[cold]
pub(crate) fn list_object_of(address: u64) -> bool {
    let Some(_busy) = Busy::enter() else {
        count_lost();
        return false;
    };
    if generations().0 == 0 {
        set_default_filter(events::DEFAULT_FILTER);
        if !init() {
            return false;
        }
    }
    if !events::FUNC_ENTRY.is_enabled() {
        return false;
    }
    if let Some(mut objects) = lock_objects()
        && let Some(object) = objects.list(address)
    {
        with_place(address, |place| place.set(Some(object)));
    }
    true
}

/// Locks the list; `None` if that takes too long.
fn lock_objects() -> Option<MutexGuard<'static, Objects>> {
    let mut begin = None;
    loop {
        match OBJECTS.try_lock() {
            Ok(objects) => {
                HAS_TIMED_OUT.set(false);
                return Some(objects);
            }
            // The list is whole between statements.
            Err(TryLockError::Poisoned(objects)) => return Some(objects.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited = begin.get_or_insert_with(Instant::now).elapsed();
        if HAS_TIMED_OUT.get() || waited > LOCK_TIMEOUT {
            HAS_TIMED_OUT.set(true);
            return None;
        }
        std::thread::yield_now();
    }
}

/// The objects, as they were when the loader was last asked.
#[derive(Debug)]
struct Objects {
    counts: Option<LoaderCounts>,
    /// By address.
    loaded: Vec<&'static Object>,
    /// Objects that were unloaded: one that is loaded again takes no more memory.
    unloaded: Vec<&'static Object>,
    /// State in which the complete list was written, without its number of `dlclose`.
    listed: Option<u64>,
}

impl Objects {
    const fn new() -> Self {
        Self {
            counts: None,
            loaded: Vec::new(),
            unloaded: Vec::new(),
            listed: None,
        }
    }

    /// Writes what has changed, and returns the object around `address` if it is certain to stay
    /// there until the state changes.
    fn list(&mut self, address: u64) -> Option<&'static Object> {
        // The state comes first: a `dlclose` that begins later makes it old.
        let state = state();
        let is_closing = CLOSING.load(Ordering::SeqCst) != 0;
        let is_certain = |object: &&Object| {
            let listed = object.listed();
            !is_closing && listed != Object::NEVER && closed_in(listed) == closed_in(state)
        };
        let is_new_list = self.listed != Some(state >> CLOSE_BITS);
        // A forked child must not ask for what its parent knew: another thread of the parent may
        // have had the loader's lock.
        if self.find(address).filter(is_certain).is_none() {
            self.update(!is_new_list);
        }
        if is_new_list {
            handle_forks();
            events::write_list(self.loaded.iter().copied());
            self.listed = Some(state >> CLOSE_BITS);
        }
        let object = self.find(address).filter(|_| !is_closing)?;
        object.set_listed(state);
        Some(object)
    }

    fn find(&self, address: u64) -> Option<&'static Object> {
        let after = self
            .loaded
            .partition_point(|object| object.address <= address);
        let object = self.loaded.get(after.checked_sub(1)?).copied()?;
        object.contains(address).then_some(object)
    }

    /// Asks the loader. If `are_changes_written`, what was unloaded and loaded since is written.
    fn update(&mut self, are_changes_written: bool) {
        let Some((counts, found)) = list_loaded_objects(self.counts) else {
            return;
        };
        let before = std::mem::take(&mut self.loaded);
        let mut new = Vec::new();
        for object in found.into_iter().filter_map(Object::new) {
            let is_same = |other: &&Object| other.identity() == object.identity();
            if let Some(same) = before.iter().copied().find(is_same) {
                self.loaded.push(same);
                continue;
            }
            let known = self.unloaded.iter().position(is_same);
            let object = match known {
                Some(place) => self.unloaded.swap_remove(place),
                None => Box::leak(Box::new(object.with_path())),
            };
            self.loaded.push(object);
            new.push(object);
        }
        self.counts = Some(counts);
        self.loaded.sort_by_key(|object| object.address);
        let gone = before.into_iter().filter(|object| {
            self.find(object.address)
                .is_none_or(|now| !std::ptr::eq(now, *object))
        });
        let gone: Vec<_> = gone.collect();
        if are_changes_written {
            gone.iter().for_each(|object| events::write_unload(object));
            new.iter().for_each(|object| events::write_load(object));
        }
        self.unloaded.extend(gone);
    }
}

/// Sees to it that no forked child finds the list locked, or half changed, by a thread that it does
/// not have.
fn handle_forks() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        run_around_forks(lock_before_fork, unlock_in_parent, unlock_in_child);
    }
}

extern "C" fn lock_before_fork() {
    // A signal handler that forks while its thread has the lock: the child's thread has it, too.
    let Some(busy) = Busy::enter() else { return };
    if let Some(objects) = lock_objects() {
        HELD_IN_FORK.set(ManuallyDrop::new(Some((busy, objects))));
    }
}

extern "C" fn unlock_in_parent() {
    drop(ManuallyDrop::into_inner(
        HELD_IN_FORK.replace(ManuallyDrop::new(None)),
    ));
}

/// The child takes what its parent knew for certain: a thread that the child does not have may have
/// been in `dlopen` or `dlclose` and have the loader's lock for ever.
extern "C" fn unlock_in_child() {
    let held = ManuallyDrop::into_inner(HELD_IN_FORK.replace(ManuallyDrop::new(None)));
    let Some((_busy, objects)) = held else { return };
    CLOSING.store(0, Ordering::SeqCst);
    for object in &objects.loaded {
        object.set_listed(closed_in(state()));
    }
}
