//! The rings of a process: which threads have one, which are left of ended threads, and the shared
//! one.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::thread::gettid;

use crate::clock::source::now;
use crate::format::{RING_STATE_ENDED, SeverityClass};
use crate::process::{Process, lock, pad_name};
use crate::protocol::RingWriter;
use crate::report::report;
use crate::thread_ring::ThreadRing;

/// Largest number of threads with a ring of their own, per severity class. With rings of 1 MiB a
/// process takes at most 129 MiB.
pub(crate) const MAX_RINGS_PER_CLASS: usize = 64;

/// The rings of one process.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    pool: Mutex<Pool>,
    shared: Mutex<SharedRing>,
    /// Notified when the shared ring is returned.
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    next_number: u32,
    /// Rings for INFO and above that exist: of living threads, and of ended ones until they are
    /// drained.
    normal_count: usize,
    debug_count: usize,
    /// Rings of ended threads that the drainer may not have released yet.
    ended: Vec<ThreadRing>,
}

/// The ring of all threads beyond the limit. One thread at a time takes it.
#[derive(Debug, Default)]
enum SharedRing {
    #[default]
    Unused,
    Free(Box<ThreadRing>),
    Taken,
    /// The ring could not be made.
    Failed,
}

impl Rings {
    /// Returns a ring for the calling thread. `None` when there are too many, or when none can be
    /// made: the thread then uses the shared ring.
    pub(crate) fn create_thread_ring(
        &self,
        process: &'static Process,
        class: SeverityClass,
    ) -> Option<Box<ThreadRing>> {
        let mut pool = lock(&self.pool);
        remove_released(process, &mut pool);
        if *pool.count(class) >= MAX_RINGS_PER_CLASS {
            return None;
        }
        let ring = create_ring(process, &mut pool, class)?;
        *pool.count(class) += 1;
        Some(ring)
    }

    /// Takes the shared ring, which is made at its first use. Waits while another thread has it.
    /// `None` when it cannot be made.
    pub(crate) fn take_shared_ring(&self, process: &'static Process) -> Option<Box<ThreadRing>> {
        let mut shared = lock(&self.shared);
        loop {
            match std::mem::replace(&mut *shared, SharedRing::Taken) {
                SharedRing::Free(ring) => return Some(ring),
                SharedRing::Unused => {
                    let ring = create_ring(process, &mut lock(&self.pool), SeverityClass::All);
                    if ring.is_none() {
                        // Not tried again for each event: it would fail again, and each attempt
                        // makes system calls.
                        *shared = SharedRing::Failed;
                    }
                    return ring;
                }
                SharedRing::Failed => {
                    *shared = SharedRing::Failed;
                    return None;
                }
                SharedRing::Taken => {
                    shared = self
                        .returned
                        .wait(shared)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Gives the shared ring to the next thread.
    pub(crate) fn return_shared_ring(&self, ring: Box<ThreadRing>) {
        *lock(&self.shared) = SharedRing::Free(ring);
        self.returned.notify_one();
    }

    /// Keeps the ring of an ended thread until it is drained.
    pub(crate) fn end_ring(&self, ring: ThreadRing) {
        ring.writer.memory().set_state(RING_STATE_ENDED);
        lock(&self.pool).ended.push(ring);
    }
}

fn remove_released(process: &Process, pool: &mut Pool) {
    let released = pool
        .ended
        .extract_if(.., |ring| ring.writer.memory().is_released());
    for ring in released.collect::<Vec<_>>() {
        process.directory.remove_ring(ring.number);
        let count = pool.count(ring.class);
        *count = count.saturating_sub(1);
    }
}

fn create_ring(
    process: &'static Process,
    pool: &mut Pool,
    class: SeverityClass,
) -> Option<Box<ThreadRing>> {
    let mut header = process.settings.ring_header(pool.next_number, class);
    let tid = gettid().as_raw_nonzero().get().unsigned_abs();
    if class != SeverityClass::All {
        header.tid = tid;
        header.thread_name = pad_name(rustix::thread::name().unwrap_or_default().to_bytes());
    }
    header.created = now();
    let memory = process
        .directory
        .create_ring(&header)
        .map_err(|error| report(&format!("cannot make a ring: {error}; events are lost")))
        .ok()?;
    pool.next_number += 1;
    Some(Box::new(ThreadRing {
        process,
        generation: process.generation,
        class,
        number: header.number,
        next_clock_sample: 0,
        clock: process.clock.as_ref(),
        last_time: header.created,
        writer: RingWriter::new(memory, &header),
    }))
}

impl Pool {
    fn count(&mut self, class: SeverityClass) -> &mut usize {
        match class {
            SeverityClass::Debug => &mut self.debug_count,
            SeverityClass::Normal | SeverityClass::All => &mut self.normal_count,
        }
    }
}
