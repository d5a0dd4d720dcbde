//! What is mapped in each process: binaries by their addresses, as the events of a trace say it.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Longest path of a binary in bytes: `PATH_MAX` of Linux. Longer ones are no files.
const MAX_PATH_BYTES: usize = 4096;
/// Longest name of a file with debug information in bytes: `NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;
/// Longest build id in bytes. That of SHA-1 has 20, the longest that linkers offer 32.
const MAX_BUILD_ID_BYTES: usize = 64;
/// Memory of all mappings in bytes, about. A process has 5 to 500 mappings of about 200 bytes. With
/// more, the processes that have come first are forgotten.
const MAX_BYTES: usize = 64 << 20;
/// Largest number of processes. Those whose mappings are all gone are still counted.
const MAX_PROCESSES: u32 = 1 << 16;
/// Memory of a mapping in bytes, without its texts.
const MAPPING_BYTES: usize = 256;
/// Largest number of mappings of a process that are gone and still known; with more, the oldest are
/// forgotten.
const MAX_PAST_MAPPINGS: usize = 4096;

/// A process of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessKey {
    /// The number of the trace.
    pub trace: u64,
    /// The id of the process. Absent if the trace does not say it.
    pub process: Option<i64>,
}

/// The id of a build, as a trace says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildId {
    /// The bytes of the id.
    pub bytes: Vec<u8>,
    /// Whether nothing is known of the binary unless its file is that build. Otherwise, its name is
    /// still shown. `babeltrace2` looks only at ids in a statedump.
    pub is_required: bool,
}

/// The file with the debug information of a binary, as its section `.gnu_debuglink` says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DebugLink {
    /// The name of the file, without a directory.
    pub name: Vec<u8>,
    /// The CRC-32 of the whole file.
    pub crc: u32,
}

/// A program or a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The path on the traced host.
    pub path: Vec<u8>,
    /// Whether addresses in the file count from where it is mapped.
    pub is_pic: bool,
    /// The id of the build, if it has one.
    pub build_id: Option<BuildId>,
    /// The separate file with debug information, if the binary names one.
    pub debug_link: Option<DebugLink>,
    /// The hash of all that, made once because each address is looked up with its binary.
    hash: u64,
}

impl Hash for Binary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A binary in the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The lowest address.
    pub base: u64,
    /// The number of bytes.
    pub size: u64,
    /// What is mapped.
    pub binary: Arc<Binary>,
    /// The first time in nanoseconds; the lowest one with [`Past::Forgotten`].
    from: i64,
    /// The time in nanoseconds from which it is gone.
    until: i64,
}

impl Mapping {
    fn contains(&self, address: u64, time: i64) -> bool {
        let offset = address.checked_sub(self.base);
        let is_there = self.from <= time && time < self.until;
        is_there && offset.is_some_and(|offset| offset < self.size)
    }

    fn bytes(&self) -> usize {
        let Binary {
            path,
            build_id,
            debug_link,
            ..
        } = &*self.binary;
        let texts = [
            path.len(),
            build_id.as_ref().map_or(0, |id| id.bytes.len()),
            debug_link.as_ref().map_or(0, |link| link.name.len()),
        ];
        MAPPING_BYTES + texts.into_iter().sum::<usize>()
    }
}

/// What an event says about the mappings of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingEvent {
    /// All that is mapped is told anew. (`lttng_ust_statedump:start`)
    Restart,
    /// A binary is mapped. (`bin_info`, `load`, `dlopen`, `dlmopen`)
    Map {
        /// The lowest address.
        base: u64,
        /// The number of bytes; 0 for what has no file.
        size: u64,
        /// The path of the binary.
        path: Vec<u8>,
        /// Whether addresses in the file count from where it is mapped.
        is_pic: bool,
    },
    /// The binary at this address is no longer mapped. (`unload`)
    Unmap(u64),
    /// The id of the build of the binary at this address. (`build_id`)
    Build(u64, BuildId),
    /// The debug link of the binary at this address. (`debug_link`)
    Link(u64, DebugLink),
}

/// Whether mappings that are gone are still known, for events of earlier times.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Events are asked for in the order in which they are applied.
    #[default]
    Forgotten,
    /// Events of any time are asked for.
    Kept,
}

/// The mappings of a process.
#[derive(Debug, Default)]
struct Process {
    /// What is mapped now, by the lowest address.
    mapped: BTreeMap<u64, Mapping>,
    /// What is gone, in the order in which it went.
    past: VecDeque<Mapping>,
}

impl Process {
    fn bytes(&self) -> usize {
        let all = self.mapped.values().chain(&self.past);
        all.map(Mapping::bytes).sum()
    }
}

/// The mappings of all processes. Bounded: with too many, those of the processes that have come
/// first are forgotten.
#[derive(Debug, Default)]
pub struct ProcessTable {
    past: Past,
    /// Gives binaries their hashes.
    hasher: RandomState,
    processes: HashMap<ProcessKey, Process>,
    /// The processes in the order in which they came.
    order: VecDeque<ProcessKey>,
    bytes: usize,
}

impl ProcessTable {
    /// A table without processes.
    #[must_use]
    pub fn new(past: Past) -> Self {
        Self {
            past,
            ..Self::default()
        }
    }

    /// Applies an event of a process. `time`: in nanoseconds.
    pub fn apply(&mut self, key: ProcessKey, time: i64, event: MappingEvent) {
        match event {
            MappingEvent::Restart => self.unmap(key, time, ..),
            MappingEvent::Map {
                base,
                size,
                path,
                is_pic,
            } => {
                // The vDSO has no size.
                if size > 0 && path.len() <= MAX_PATH_BYTES {
                    let hash = self.hasher.hash_one((&path, is_pic));
                    let binary = Binary {
                        path,
                        is_pic,
                        build_id: None,
                        debug_link: None,
                        hash,
                    };
                    let from = match self.past {
                        Past::Forgotten => i64::MIN,
                        Past::Kept => time,
                    };
                    let mapping = Mapping {
                        base,
                        size,
                        binary: Arc::new(binary),
                        from,
                        until: i64::MAX,
                    };
                    self.map(key, mapping);
                }
            }
            MappingEvent::Unmap(base) => self.unmap(key, time, base..=base),
            MappingEvent::Build(base, id) => {
                if (1..=MAX_BUILD_ID_BYTES).contains(&id.bytes.len()) {
                    self.change(key, base, |binary| binary.build_id = Some(id));
                }
            }
            MappingEvent::Link(base, link) => {
                if link.name.len() <= MAX_NAME_BYTES {
                    self.change(key, base, |binary| binary.debug_link = Some(link));
                }
            }
        }
    }

    /// What is mapped at an address of a process. `time`: in nanoseconds; of no effect with
    /// [`Past::Forgotten`].
    #[must_use]
    pub fn find(&self, key: ProcessKey, time: i64, address: u64) -> Option<&Mapping> {
        let process = self.processes.get(&key)?;
        // Nothing is mapped at the highest time itself.
        let time = time.min(i64::MAX - 1);
        let mut before = process.mapped.range(..=address);
        let now = before.next_back().map(|(_, mapping)| mapping);
        let past = process.past.iter().rev();
        let mut all = now.into_iter().chain(past);
        all.find(|mapping| mapping.contains(address, time))
    }

    /// Forgets the processes of a trace.
    pub fn forget_trace(&mut self, trace: u64) {
        let bytes = &mut self.bytes;
        self.processes.retain(|key, process| {
            let is_kept = key.trace != trace;
            if !is_kept {
                *bytes -= process.bytes();
            }
            is_kept
        });
        self.order.retain(|key| key.trace != trace);
    }

    fn map(&mut self, key: ProcessKey, mapping: Mapping) {
        let process = self.processes.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            Process::default()
        });
        // A library is told of again when it is opened again, and what is known of it still holds.
        if process.mapped.contains_key(&mapping.base) {
            return;
        }
        self.bytes += mapping.bytes();
        process.mapped.insert(mapping.base, mapping);
        self.forget_first();
    }

    fn unmap(&mut self, key: ProcessKey, time: i64, bases: impl RangeBounds<u64>) {
        let Some(process) = self.processes.get_mut(&key) else {
            return;
        };
        for (_, mapping) in process.mapped.extract_if(bases, |_, _| true) {
            let until = time;
            process.past.push_back(Mapping { until, ..mapping });
        }
        let most = match self.past {
            Past::Forgotten => 0,
            Past::Kept => MAX_PAST_MAPPINGS,
        };
        let too_many = process.past.len().saturating_sub(most);
        for forgotten in process.past.drain(..too_many) {
            self.bytes -= forgotten.bytes();
        }
    }

    fn change(&mut self, key: ProcessKey, base: u64, change: impl FnOnce(&mut Binary)) {
        let process = self.processes.get_mut(&key);
        let Some(mapping) = process.and_then(|process| process.mapped.get_mut(&base)) else {
            return;
        };
        self.bytes -= mapping.bytes();
        let binary = Arc::make_mut(&mut mapping.binary);
        change(binary);
        let Binary {
            path,
            is_pic,
            build_id,
            debug_link,
            ..
        } = &*binary;
        binary.hash = self.hasher.hash_one((path, is_pic, build_id, debug_link));
        self.bytes += mapping.bytes();
        self.forget_first();
    }

    fn forget_first(&mut self) {
        while (self.bytes > MAX_BYTES || self.order.len() > MAX_PROCESSES as usize)
            && let Some(first) = self.order.pop_front()
        {
            let removed = self.processes.remove(&first);
            self.bytes -= removed.map_or(0, |removed| removed.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessKey = ProcessKey {
        trace: 1,
        process: Some(7),
    };

    fn map(base: u64, size: u64, path: &str) -> MappingEvent {
        MappingEvent::Map {
            base,
            size,
            path: path.into(),
            is_pic: true,
        }
    }

    fn path_at(table: &ProcessTable, address: u64) -> Option<&str> {
        let found = table.find(PROCESS, 0, address)?;
        std::str::from_utf8(&found.binary.path).ok()
    }

    #[test]
    fn an_address_is_in_the_binary_that_is_mapped_around_it() {
        let mut table = ProcessTable::default();
        table.apply(PROCESS, 0, map(0x1000, 0x100, "/a"));
        table.apply(PROCESS, 0, map(0x1100, 0x100, "/b"));
        table.apply(PROCESS, 0, map(0x2000, 0, "[vdso]"));
        table.apply(PROCESS, 0, map(u64::MAX - 15, 16, "/end"));
        for (address, path) in [
            (0xFFF, None),
            (0x1000, Some("/a")),
            (0x10FF, Some("/a")),
            (0x1100, Some("/b")),
            (0x1200, None),
            (0x2000, None),
            (u64::MAX, Some("/end")),
        ] {
            assert_eq!(path_at(&table, address), path, "{address:#x}");
        }
        let other = ProcessKey {
            process: Some(8),
            ..PROCESS
        };
        assert_eq!(table.find(other, 0, 0x1000), None);
        table.apply(PROCESS, 0, MappingEvent::Unmap(0x1000));
        assert_eq!(path_at(&table, 0x1000), None);
        table.apply(PROCESS, 0, map(0x1000, 0x100, "/c"));
        assert_eq!(path_at(&table, 0x1000), Some("/c"));
        table.apply(PROCESS, 0, MappingEvent::Restart);
        assert_eq!(path_at(&table, 0x1000), None);
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn addresses_of_any_time_are_in_what_was_mapped_then() {
        let mut table = ProcessTable::new(Past::Kept);
        table.apply(PROCESS, 10, map(0x1000, 0x1000, "/a"));
        table.apply(PROCESS, 20, MappingEvent::Unmap(0x1000));
        table.apply(PROCESS, 30, map(0x1800, 0x1000, "/b"));
        table.apply(PROCESS, 40, MappingEvent::Restart);
        table.apply(PROCESS, 50, map(0x1000, 0x1000, "/c"));
        for (time, path) in [
            (9, None),
            (10, Some("/a")),
            (19, Some("/a")),
            (20, None),
            (30, Some("/b")),
            (40, None),
            (50, Some("/c")),
            (i64::MAX, Some("/c")),
        ] {
            let found = table.find(PROCESS, time, 0x1900);
            let found = found.map(|found| str::from_utf8(&found.binary.path).unwrap());
            assert_eq!(found, path, "{time}");
        }
        for time in 60..10_000 {
            table.apply(PROCESS, time, MappingEvent::Unmap(0x1000));
            table.apply(PROCESS, time, map(0x1000, 0x1000, "/d"));
        }
        assert_eq!(table.processes[&PROCESS].past.len(), MAX_PAST_MAPPINGS);
        table.forget_trace(PROCESS.trace);
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn what_is_known_of_a_binary_stays_when_it_is_told_of_again() {
        let mut table = ProcessTable::default();
        let id = BuildId {
            bytes: vec![1; 20],
            is_required: true,
        };
        // Before the binary, it is nobody's.
        table.apply(PROCESS, 0, MappingEvent::Build(0x1000, id.clone()));
        table.apply(PROCESS, 0, map(0x1000, 0x100, "/a"));
        assert_eq!(
            table.find(PROCESS, 0, 0x1000).unwrap().binary.build_id,
            None
        );
        table.apply(PROCESS, 0, MappingEvent::Build(0x1000, id.clone()));
        table.apply(PROCESS, 0, map(0x1000, 0x100, "/b"));
        let found = &table.find(PROCESS, 0, 0x1000).unwrap().binary;
        assert_eq!((&*found.path, &found.build_id), (&b"/a"[..], &Some(id)));
    }

    #[test]
    fn the_memory_of_mappings_is_bounded_and_the_first_processes_are_forgotten() {
        let mut table = ProcessTable::default();
        let path = "x".repeat(MAX_PATH_BYTES);
        table.apply(PROCESS, 0, map(0, 1, &format!("{path}x")));
        assert_eq!(table.bytes, 0);
        for process in 0..100 {
            let key = ProcessKey {
                trace: 1,
                process: Some(process),
            };
            for base in 0..1000 {
                table.apply(key, 0, map(base, 1, &path));
                assert!(table.bytes <= MAX_BYTES);
            }
        }
        assert!(table.processes.len() < 20);
        let last = ProcessKey {
            process: Some(99),
            ..PROCESS
        };
        assert!(table.find(last, 0, 999).is_some());
        table.forget_trace(1);
        assert_eq!((table.bytes, table.order.len()), (0, 0));
        for process in 0..i64::from(MAX_PROCESSES) + 10 {
            let key = ProcessKey {
                process: Some(process),
                ..PROCESS
            };
            table.apply(key, 0, map(0, 1, "/a"));
            table.apply(key, 0, MappingEvent::Unmap(0));
        }
        let most = MAX_PROCESSES as usize;
        assert_eq!((table.order.len(), table.processes.len()), (most, most));
    }
}
