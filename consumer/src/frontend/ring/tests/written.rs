//! Process directories that a test writes as `trace-ring` does.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use trace_ring_core::Severity;
use trace_ring_core::format::*;

use crate::frontend::ring::directory::{DirectoryName, RunDirectory};
use crate::packetize::HostClock;

/// Bytes of a sub-buffer of [`WrittenRing`].
pub(super) const SUB_BUFFER: u64 = 4096;
/// Number of sub-buffers of [`WrittenRing`].
pub(super) const SUB_BUFFERS: u64 = 4;
/// Bytes of all sub-buffers of [`WrittenRing`].
pub(super) const RING: u64 = SUB_BUFFER * SUB_BUFFERS;
/// Bytes of a record of [`WrittenRing::write`].
pub(super) const RECORD: u64 = 32;
/// Records in a sub-buffer.
pub(super) const RECORDS: u64 = SUB_BUFFER / RECORD;

/// The directory of a process that is alive as long as this value.
pub(super) struct WrittenProcess {
    pub(super) path: PathBuf,
    pub(super) name: DirectoryName,
    meta: File,
}

impl WrittenProcess {
    pub(super) fn new(run: &Path, pid: u32) -> Self {
        let name = format!("{pid}-17-00000000");
        let path = run.join(&name);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let header = MetaHeader {
            pid,
            uid: rustix::process::getuid().as_raw(),
            start_ticks: 17,
            uuid: [1; 16],
            boot_id: [0; 16],
            process_name: *b"written\0\0\0\0\0\0\0\0\0",
            program: b"/usr/bin/written".to_vec(),
            committed: 0,
            clock_offset: 0,
            lost_no_ring: 0,
        };
        let meta = create(&path.join(META_FILE), &header.encode());
        assert!(file_lock::try_lock_exclusive(&meta).unwrap());
        let control = Control {
            generation: 1,
            directives: "info".to_owned(),
        };
        create(&path.join(CONTROL_FILE), &control.encode().unwrap());
        let name = DirectoryName::parse(&name).unwrap();
        let process = Self { path, name, meta };
        process.declare(1);
        process
    }

    /// Declares a class with the fields of [`WrittenRing::write`].
    pub(super) fn declare(&self, id: u32) {
        let class = EventClass {
            id,
            severity: Severity::Info,
            line: 1,
            target: "target".into(),
            file: "file.rs".into(),
            name: format!("class{id}"),
            fields: vec![("number".into(), FieldType::U64)],
        };
        self.append(&class.encode());
    }

    /// Declares classes with these ids and so many fields without names.
    pub(super) fn declare_many(&self, ids: Range<u32>, fields: usize) {
        let mut class = EventClass {
            id: 0,
            severity: Severity::Info,
            line: 1,
            target: String::new(),
            file: String::new(),
            name: String::new(),
            fields: vec![(String::new(), FieldType::U64); fields],
        };
        let mut records = Vec::new();
        for id in ids {
            class.id = id;
            records.extend(class.encode());
        }
        self.append(&records);
    }

    /// Appends records to `meta`, and commits them.
    fn append(&self, records: &[u8]) {
        let offset = META_COMMITTED_OFFSET as u64;
        let mut committed = [0; 8];
        self.meta.read_exact_at(&mut committed, offset).unwrap();
        let committed = u64::from_le_bytes(committed);
        let end = META_HEADER_SIZE as u64 + committed;
        self.meta.write_all_at(records, end).unwrap();
        let committed = committed + records.len() as u64;
        self.meta
            .write_all_at(&committed.to_le_bytes(), offset)
            .unwrap();
    }

    pub(super) fn set_lost_without_ring(&self, lost: u64) {
        let offset = META_LOST_OFFSET as u64;
        self.meta.write_all_at(&lost.to_le_bytes(), offset).unwrap();
    }

    pub(super) fn ring(&self, number: u32, mode: Mode) -> WrittenRing {
        WrittenRing::new(&self.path, number, mode)
    }

    /// Lets the process die: its lock is gone, its files stay.
    pub(super) fn die(self) -> (PathBuf, DirectoryName) {
        (self.path, self.name)
    }

    pub(super) fn run_directory(&self) -> RunDirectory {
        RunDirectory::open(self.path.parent().unwrap()).unwrap()
    }
}

/// A ring, written as by one thread.
pub(super) struct WrittenRing {
    pub(super) file: File,
    pub(super) header: RingHeader,
    pub(super) commit: u64,
    pub(super) events: u64,
}

impl WrittenRing {
    fn new(process: &Path, number: u32, mode: Mode) -> Self {
        let header = RingHeader {
            number,
            sub_buffer_size: u32::try_from(SUB_BUFFER).unwrap(),
            sub_buffer_count: u32::try_from(SUB_BUFFERS).unwrap(),
            mode,
            severity_class: SeverityClass::Normal,
            tid: 100_000 + number,
            thread_name: *b"thread\0\0\0\0\0\0\0\0\0\0",
            created: 0,
        };
        let file = create(&process.join(ring_file_name(number)), &header.encode());
        file.set_len(header.file_size()).unwrap();
        let ring = Self {
            file,
            header,
            commit: 0,
            events: 0,
        };
        ring.set(RING_STATE_OFFSET, RING_STATE_LIVE.into());
        ring
    }

    /// Writes the event whose number is that of the events before it, and commits it.
    pub(super) fn write(&mut self) {
        let now = HostClock::now().0;
        self.write_at(1, now, &self.events.to_le_bytes());
    }

    /// Writes `count` such events.
    pub(super) fn write_many(&mut self, count: u64) {
        (0..count).for_each(|_| self.write());
    }

    pub(super) fn write_at(&mut self, class: u32, timestamp: u64, fields: &[u8]) {
        let size = (MIN_RECORD_SIZE + fields.len()) as u64;
        let room = SUB_BUFFER - self.commit % SUB_BUFFER;
        if size > room {
            if room >= 8 {
                let mark = END_MARK.to_le_bytes();
                self.put(self.commit, &mark);
            }
            self.commit += room;
        }
        if self.commit.is_multiple_of(SUB_BUFFER) {
            self.set(RING_RESERVE_OFFSET, self.commit + SUB_BUFFER);
            let entry = SubBufferEntry {
                sequence: self.commit / SUB_BUFFER + 1,
                events_before: self.events,
                lost_before: Lost::default(),
            };
            let offset = self.header.entry_offset_of(self.commit);
            self.file.write_all_at(&entry.encode(), offset).unwrap();
        }
        let header = RecordHeader {
            size: u32::try_from(size).unwrap(),
            position: self.commit,
            class,
            tid: 0,
            timestamp,
        };
        let mut record = Vec::new();
        for word in header.encode() {
            record.extend_from_slice(&word.to_le_bytes());
        }
        record.extend_from_slice(fields);
        self.put(self.commit, &record);
        self.commit += size.next_multiple_of(8);
        self.events += 1;
        self.set(RING_COMMIT_OFFSET, self.commit);
    }

    /// Writes bytes at a position.
    pub(super) fn put(&self, position: u64, bytes: &[u8]) {
        let offset = self.header.offset_of(position);
        self.file.write_all_at(bytes, offset).unwrap();
    }

    /// Sets a control word.
    pub(super) fn set(&self, offset: usize, word: u64) {
        self.file
            .write_all_at(&word.to_le_bytes(), offset as u64)
            .unwrap();
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, offset as u64).unwrap();
        u64::from_le_bytes(word)
    }
}

fn create(path: &Path, bytes: &[u8]) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path);
    let file = file.unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}
