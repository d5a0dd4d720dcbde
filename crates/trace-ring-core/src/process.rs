//! The process: its directory, its event classes and its filter.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::classes::ClassTable;
use crate::clock::CounterClock;
use crate::clock::source::now;
use crate::filter::Filter;
use crate::format::{
    Control, EventClass, META_CLOCK_OFFSET_OFFSET, META_COMMITTED_OFFSET, META_LOST_OFFSET,
    MetaHeader,
};
use crate::memory::FilterWords;
use crate::process_directory::ProcessDirectory;
use crate::settings::Settings;

/// A process that traces. Lives for ever; a forked child makes its own.
#[derive(Debug)]
pub(crate) struct Process {
    /// From 1; counts the processes in this line of ancestors that traced.
    pub(crate) generation: u32,
    pub(crate) settings: Settings,
    pub(crate) directory: ProcessDirectory,
    /// `None`: events have the time of the clock call.
    pub(crate) clock: Option<CounterClock>,
    classes: Mutex<ClassTable>,
    filter: Mutex<FilterState>,
}

#[derive(Debug)]
struct FilterState {
    /// Generation of `control` when the filter was read.
    generation: u32,
    filter: Filter,
}

impl Process {
    /// Makes the directory of the calling process. `lost` is the number of events that were lost
    /// before.
    ///
    /// # Errors
    /// When the directory cannot be made, or the kernel gives no random bytes.
    pub(crate) fn create(
        settings: Settings,
        generation: u32,
        filter_generation: u32,
        lost: u64,
    ) -> std::io::Result<Self> {
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
            lost_no_ring: lost,
        };
        let control = Control {
            generation: filter_generation,
            directives: settings.directives.clone(),
        };
        let filter = Filter::parse(&control.directives).map_err(std::io::Error::other)?;
        let name = format!("{}-{}-{suffix}", header.pid, header.start_ticks);
        let (directory, meta) =
            ProcessDirectory::create(&settings.run_directory, &name, &header, &control)?;
        let clock = settings.wants_counter.then(CounterClock::of_system);
        Ok(Self {
            generation,
            clock: clock.flatten(),
            settings,
            directory,
            classes: Mutex::new(ClassTable::new(meta)),
            filter: Mutex::new(FilterState {
                generation: control.generation,
                filter,
            }),
        })
    }

    /// Whether the filter lets a call site's events pass, with the filter's generation.
    pub(crate) fn is_enabled(&self, target: &str, severity: crate::Severity) -> (bool, u32) {
        let mut state = lock(&self.filter);
        let generation = FilterWords::of(&self.directory.control).generation();
        if generation != state.generation {
            state.generation = generation;
            // A filter that cannot be read, or that is just being changed, leaves the old one in
            // force: its writer changes the generation after the text, so that a complete one is
            // looked at again.
            if let Ok(control) = Control::decode(&self.directory.control.to_vec())
                && let Ok(filter) = Filter::parse(&control.directives)
            {
                state.filter = filter;
            }
        }
        (state.filter.is_enabled(target, severity), state.generation)
    }

    /// Returns the id of an event class, which is written to `meta` if it is new. `None` when it
    /// cannot be.
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

    /// Counts an event that no ring can count.
    pub(crate) fn count_lost(&self) {
        let _ = self
            .lost_word()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
                Some(u64::from_le(value).wrapping_add(1).to_le())
            });
    }

    /// Events that were lost and that no ring counts.
    pub(crate) fn lost(&self) -> u64 {
        u64::from_le(self.lost_word().load(Ordering::Relaxed))
    }

    fn lost_word(&self) -> &AtomicU64 {
        self.directory.meta_header.u64_at(META_LOST_OFFSET)
    }
}

/// Locks a mutex, also after a panic elsewhere: the states that the locks protect are whole between
/// statements.
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
    // The name in parentheses may hold anything; the start time is the 20th field after it.
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

/// Returns a kernel name of at most 15 bytes, padded with NUL.
pub(crate) fn pad_name(name: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    for (target, byte) in padded.iter_mut().zip(name.iter().take(15)) {
        *target = *byte;
    }
    padded
}
