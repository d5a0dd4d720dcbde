//! The process as a producer: set up at the first event (or by `init`), and again in a forked child.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::classes::ClassTable;
use crate::filter::Filter;
use crate::format::{
    CONTROL_GENERATION_OFFSET, Control, EventClass, META_CLOCK_OFFSET_OFFSET,
    META_COMMITTED_OFFSET, META_LOST_OFFSET, MetaHeader,
};
use crate::memory::{ForkWords, Published, map_fork_words, now};
use crate::process_directory::ProcessDirectory;
use crate::rings::Rings;
use crate::settings::Settings;
use crate::thread::Busy;

/// Generation of a process that does not trace.
const GENERATION_OFF: u32 = u32::MAX;

/// A process that traces. Lives for ever; a forked child makes its own.
#[derive(Debug)]
pub(crate) struct Process {
    /// From 1; counts the processes in this line of ancestors that traced.
    pub(crate) generation: u32,
    pub(crate) settings: Settings,
    pub(crate) directory: ProcessDirectory,
    pub(crate) rings: Rings,
    classes: Mutex<ClassTable>,
    filter: Mutex<FilterState>,
}

#[derive(Debug)]
struct FilterState {
    /// Generation of `control` when the filter was read.
    generation: u32,
    filter: Filter,
}

static FORK_WORDS: Published<ForkWords> = Published::new();
static PROCESS: Published<Process> = Published::new();
/// Generation word of `control`: of this process, or of the parent until a forked child has its own.
static CONTROL_GENERATION: Published<AtomicU32> = Published::new();
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
/// Events lost while there was no `meta` to count them in.
static LOST_WITHOUT_META: AtomicU64 = AtomicU64::new(0);
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Generation of the running process, 0 when it must be set up.
#[inline]
pub(crate) fn generation() -> u32 {
    FORK_WORDS
        .get()
        .map_or(0, |words| words.generation.load(Ordering::Acquire))
}

/// Generation of the filter, `None` before the process has been set up.
#[inline]
pub(crate) fn filter_generation() -> Option<u32> {
    CONTROL_GENERATION
        .get()
        .map(|word| u32::from_le(word.load(Ordering::Relaxed)))
}

/// The process, which is set up if it is not. `None` when tracing is off. The caller is in a slow path.
pub(crate) fn current(busy: &Busy) -> Option<&'static Process> {
    let words = match FORK_WORDS.get() {
        Some(words) => words,
        None => FORK_WORDS.get_or_set(map_fork_words().unwrap_or_else(|error| {
            report(&format!("cannot map memory: {error}; tracing is off"));
            static OFF: ForkWords = ForkWords {
                generation: AtomicU32::new(GENERATION_OFF),
                lock: AtomicU32::new(0),
            };
            &OFF
        })),
    };
    if words.generation.load(Ordering::Acquire) == 0 {
        while words
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::thread::yield_now();
        }
        if words.generation.load(Ordering::Acquire) == 0 {
            let generation = set_up(busy).map_or(GENERATION_OFF, |process| process.generation);
            words.generation.store(generation, Ordering::Release);
        }
        words.lock.store(0, Ordering::Release);
    }
    let is_on = words.generation.load(Ordering::Acquire) != GENERATION_OFF;
    PROCESS.get().filter(|_| is_on)
}

fn set_up(_: &Busy) -> Option<&'static Process> {
    /// What call sites compare with when tracing is off.
    static OFF: AtomicU32 = AtomicU32::new(1);

    HAS_REPORTED.store(false, Ordering::Relaxed);
    let settings = Settings::from_environment();
    for warning in &settings.warnings {
        report(warning);
    }
    let process = settings.mode.and_then(|_| {
        let parent = settings.run_directory.clone();
        create(settings)
            .map_err(|error| {
                let parent = parent.display();
                report(&format!(
                    "cannot make a directory in {parent}: {error}; tracing is off"
                ));
            })
            .ok()
    });
    match process {
        Some(process) => {
            let process: &'static Process = Box::leak(Box::new(process));
            CONTROL_GENERATION.set(process.directory.control.u32_at(CONTROL_GENERATION_OFFSET));
            PROCESS.set(process);
            Some(process)
        }
        None => {
            // Differs from every generation that a parent's call sites have kept only by chance; they ask `current` when
            // they begin an event, and get nothing.
            CONTROL_GENERATION.set(&OFF);
            None
        }
    }
}

fn create(settings: Settings) -> std::io::Result<Process> {
    let mut random = [0; 20];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let (uuid, suffix) = random.split_first_chunk().unwrap_or((&[0; 16], &[]));
    let mut uuid: [u8; 16] = *uuid;
    // A random UUID (RFC 9562, version 4).
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut uuid;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    let suffix: String = suffix.iter().map(|byte| format!("{byte:02x}")).collect();
    let header = MetaHeader {
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
        start_ticks: start_ticks().unwrap_or_default(),
        uuid,
        boot_id: boot_id().unwrap_or_default(),
        process_name: process_name(),
        program: std::env::current_exe()
            .map(|path| path.into_os_string().into_encoded_bytes())
            .unwrap_or_default(),
        committed: 0,
        clock_offset: clock_offset(),
        lost_no_ring: LOST_WITHOUT_META.swap(0, Ordering::Relaxed),
    };
    // A call site of a forked child holds an answer for the parent's generation: the child's must differ.
    let control = Control {
        generation: filter_generation()
            .unwrap_or_default()
            .wrapping_add(1)
            .max(1),
        directives: settings.directives.clone(),
    };
    let filter = Filter::parse(&control.directives).map_err(std::io::Error::other)?;
    let name = format!("{}-{}-{suffix}", header.pid, header.start_ticks);
    let (directory, meta) =
        ProcessDirectory::create(&settings.run_directory, &name, &header, &control)?;
    Ok(Process {
        generation: LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1,
        settings,
        directory,
        rings: Rings::default(),
        classes: Mutex::new(ClassTable::new(meta)),
        filter: Mutex::new(FilterState {
            generation: control.generation,
            filter,
        }),
    })
}

impl Process {
    /// Whether the filter lets a call site's events pass, with the filter's generation.
    pub(crate) fn is_enabled(&self, target: &str, severity: crate::Severity) -> (bool, u32) {
        let mut state = lock(&self.filter);
        let word = self.directory.control.u32_at(CONTROL_GENERATION_OFFSET);
        let generation = u32::from_le(word.load(Ordering::Acquire));
        if generation != state.generation {
            state.generation = generation;
            // A filter that cannot be read, or that is just being changed, leaves the old one in force: its writer
            // changes the generation after the text, so that a complete one is looked at again.
            if let Ok(control) = Control::decode(&self.directory.control.to_vec())
                && let Ok(filter) = Filter::parse(&control.directives)
            {
                state.filter = filter;
            }
        }
        (state.filter.is_enabled(target, severity), state.generation)
    }

    /// The id of an event class, which is written to `meta` if it is new. `None` when it cannot be.
    pub(crate) fn register(&self, class: EventClass) -> Option<u32> {
        let committed = self.directory.meta_header.u64_at(META_COMMITTED_OFFSET);
        lock(&self.classes).register(class, &self.directory, committed)
    }

    /// Stores the offset of the realtime clock for readers on other hosts.
    pub(crate) fn sample_clock(&self) {
        let word = self.directory.meta_header.u64_at(META_CLOCK_OFFSET_OFFSET);
        word.store(
            u64::from_le_bytes(clock_offset().to_le_bytes()).to_le(),
            Ordering::Relaxed,
        );
    }
}

/// Counts an event that no ring can count.
pub(crate) fn count_lost_without_ring() {
    let generation = generation();
    match PROCESS
        .get()
        .filter(|process| process.generation == generation)
    {
        Some(process) => {
            let word = process.directory.meta_header.u64_at(META_LOST_OFFSET);
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
                Some(u64::from_le(value).wrapping_add(1).to_le())
            });
        }
        None => {
            LOST_WITHOUT_META.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Events counted by [`count_lost_without_ring`].
pub(crate) fn lost_without_ring() -> u64 {
    let generation = generation();
    let counted = PROCESS
        .get()
        .filter(|process| process.generation == generation)
        .map(|process| {
            u64::from_le(
                process
                    .directory
                    .meta_header
                    .u64_at(META_LOST_OFFSET)
                    .load(Ordering::Relaxed),
            )
        });
    counted.unwrap_or_else(|| LOST_WITHOUT_META.load(Ordering::Relaxed))
}

/// Writes one line to stderr, the first time in a process only.
pub(crate) fn report(message: &str) {
    if !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        // A program without stderr runs on, too.
        let _ = writeln!(std::io::stderr(), "trace-ring: {message}");
    }
}

/// Locks, also after a panic elsewhere: the states behind the locks are whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock_offset() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = time.tv_sec.wrapping_mul(1_000_000_000);
    seconds
        .wrapping_add(time.tv_nsec)
        .wrapping_sub_unsigned(now())
}

fn start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; the start time is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        if let [high, low] = pair {
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
    }
    (digits.len() == 32).then_some(id)
}

fn process_name() -> [u8; 16] {
    let name = std::fs::read(Path::new("/proc/self/comm")).unwrap_or_default();
    pad_name(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// A kernel name of at most 15 bytes, padded with NUL.
pub(crate) fn pad_name(name: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    for (target, byte) in padded.iter_mut().zip(name.iter().take(15)) {
        *target = *byte;
    }
    padded
}
