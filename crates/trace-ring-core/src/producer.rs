//! The process as a producer: set up at the first event (or by `init`), and again in a forked
//! child.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::busy::Busy;
use crate::memory::{FilterWords, ForkWords, Published, PublishedFrom, map_fork_words};
use crate::process::Process;
use crate::report;
use crate::rings::Rings;
use crate::settings::Settings;

/// Generation of a process that does not trace, and of its filter.
const GENERATION_OFF: u32 = u32::MAX;

/// The process and its rings.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) process: Process,
    pub(crate) rings: Rings,
}

static FORK_WORDS: Published<ForkWords> = Published::new();
static PRODUCER: Published<Producer> = Published::new();
/// The filter: of this process, or of the parent until a forked child has its own.
static FILTER: PublishedFrom<FilterWords> = PublishedFrom::new(&NO_FILTER);
/// The filter of a process that has not been set up: every call site asks.
static NO_FILTER: FilterWords = FilterWords::new(0, u32::MAX);
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
/// Events lost while there was no `meta` to count them in.
static LOST_WITHOUT_META: AtomicU64 = AtomicU64::new(0);

/// Returns the generation of the running process, 0 when it must be set up.
#[inline]
pub(crate) fn generation() -> u32 {
    FORK_WORDS
        .get()
        .map_or(0, |words| words.generation.load(Ordering::Acquire))
}

/// What a forked child does once it has a filter.
#[cfg(feature = "tracing")]
static IN_NEW_PROCESS: Published<fn()> = Published::new();

/// Sets that `run` is called in each forked child that is set up from now on.
#[cfg(feature = "tracing")]
pub(crate) fn run_in_new_processes(run: &'static fn()) {
    IN_NEW_PROCESS.set(run);
}

/// Returns what decides first whether an event passes.
#[inline]
pub(crate) fn filter_words() -> &'static FilterWords {
    FILTER.get()
}

/// Returns the producer, which is set up if it is not. `None` when tracing is off. The caller is in
/// a slow path.
pub(crate) fn set_up(_: &Busy) -> Option<&'static Producer> {
    let words = match FORK_WORDS.get() {
        Some(words) => words,
        None => FORK_WORDS.get_or_set(map_fork_words().unwrap_or_else(|error| {
            report::report(&format!("cannot map memory: {error}; tracing is off"));
            static OFF: ForkWords = ForkWords {
                generation: AtomicU32::new(GENERATION_OFF),
                lock: AtomicU32::new(0),
            };
            &OFF
        })),
    };
    if words.generation.load(Ordering::Acquire) == 0 {
        // No `Mutex`: the words are zero again in a forked child, even if another thread of the
        // parent held the lock.
        while words
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::thread::yield_now();
        }
        if words.generation.load(Ordering::Acquire) == 0 {
            words.generation.store(create(), Ordering::Release);
        }
        words.lock.store(0, Ordering::Release);
    }
    current()
}

/// Returns the producer of this very process, if it has been set up and traces.
pub(crate) fn current() -> Option<&'static Producer> {
    let generation = generation();
    PRODUCER
        .get()
        .filter(|producer| producer.process.generation == generation)
}

/// Makes a producer; returns its generation.
fn create() -> u32 {
    /// What call sites compare with when tracing is off.
    static OFF: FilterWords = FilterWords::new(GENERATION_OFF, 0);

    report::reset();
    let settings = Settings::from_environment();
    for warning in &settings.warnings {
        report::report(warning);
    }
    let run_directory = settings.run_directory.clone();
    let process = settings.mode.and_then(|_| {
        let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
        // A call site of a forked child holds an answer for its parent's filter: the generation
        // must differ.
        let filter_generation = filter_words().generation().wrapping_add(1).max(1);
        let lost = LOST_WITHOUT_META.swap(0, Ordering::Relaxed);
        Process::create(settings, generation, filter_generation, lost)
            .map_err(|error| {
                let parent = run_directory.display();
                report::report(&format!(
                    "cannot make a directory in {parent}: {error}; tracing is off"
                ));
            })
            .ok()
    });
    let Some(process) = process else {
        FILTER.set(&OFF);
        return GENERATION_OFF;
    };
    let producer: &'static Producer = Box::leak(Box::new(Producer {
        process,
        rings: Rings::default(),
    }));
    let process = &producer.process;
    if process.settings.wants_counter && process.clock.is_none() {
        report::report(
            "TRACE_RING_CLOCK=counter: the kernel does not use the processor's counter for its \
             clock; using monotonic",
        );
    }
    FILTER.set(FilterWords::of(&process.directory.control));
    PRODUCER.set(producer);
    #[cfg(feature = "tracing")]
    if let Some(watch_filter) = IN_NEW_PROCESS.get() {
        watch_filter();
    }
    process.generation
}

/// Counts an event that no ring can count.
pub(crate) fn count_lost_without_ring() {
    match current() {
        Some(producer) => producer.process.count_lost(),
        None => {
            LOST_WITHOUT_META.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Events counted by [`count_lost_without_ring`].
pub(crate) fn lost_without_ring() -> u64 {
    current().map_or_else(
        || LOST_WITHOUT_META.load(Ordering::Relaxed),
        |producer| producer.process.lost(),
    )
}
