//! The reader of one tracefile, by its index file.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ctf::decode::PacketHead;
use ctf::index::{Entry, FollowError, FollowEvent, IndexFollower};
use ctf::metadata::Trace;
use rustix::fs::OFlags;

use super::scan::{FileId, FoundFile, FoundTrace};
use crate::attach::packet::MAX_PACKET_BYTES;
use crate::attach::{MemoryBudget, Packet};

/// Age of a file from which its lock is tried: a writer that finds a reader's lock on a file that
/// it has just created continues without a lock of its own.
pub(super) const LOCK_GRACE_PERIOD: Duration = Duration::from_millis(100);
/// Bytes of a packet that are read to find its stream: no header and context is longer.
const MAX_PACKET_HEAD_BYTES: u64 = 4096;

/// The path of a trace without the directories of chunks, and a file name in it.
pub(super) type TracefileName = (PathBuf, OsString);

/// The reader of one tracefile, all packets of which are of one stream.
#[derive(Debug)]
pub(super) struct TracefileReader {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    /// Path of its trace without the directories of chunks.
    trace_path: PathBuf,
    /// The directory in which the tracefile was found.
    pub(super) directory: FileId,
    /// The time at which the first packet begins, in cycles. None: no packet is known yet.
    pub(super) begin: Option<u64>,
    /// The number of the last scan that has found the tracefile.
    pub(super) seen: u64,
    found: Instant,
    data: Option<Arc<File>>,
    /// The index file, and what its path led to before it was opened.
    index: Option<(IndexFollower, Option<FileId>)>,
}

/// Why a tracefile cannot be read.
#[derive(Debug)]
pub(super) enum TracefileError {
    /// The file is not where it was.
    Moved,
    /// The system or the file itself is the reason, which this says.
    Unreadable(String),
}

impl TracefileReader {
    pub(super) fn new(found: &FoundFile, trace: &FoundTrace, scan: u64) -> Self {
        Self {
            path: found.path.clone(),
            id: found.id,
            trace_path: trace.trace_path.clone(),
            directory: trace.id,
            begin: None,
            seen: scan,
            found: Instant::now(),
            data: None,
            index: None,
        }
    }

    fn file_name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }

    pub(super) fn name(&self) -> TracefileName {
        (self.trace_path.clone(), self.file_name())
    }

    /// The name of the file without the number by which the tracefiles of a stream differ, if it
    /// has one.
    pub(super) fn stem(&self) -> TracefileName {
        let (trace_path, name) = self.name();
        match name.to_string_lossy().rsplit_once('_') {
            Some((stem, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                (trace_path, stem.into())
            }
            _ => (trace_path, name),
        }
    }

    pub(super) fn index_path(&self) -> PathBuf {
        let mut name = self.file_name();
        name.push(".idx");
        self.path.with_file_name("index").join(name)
    }

    /// Whether the file has been known for so short a time that its lock or index may still be
    /// missing.
    pub(super) fn is_within_lock_grace_period(&self) -> bool {
        self.found.elapsed() < LOCK_GRACE_PERIOD
    }

    /// Closes its files; they can be opened again.
    pub(super) fn close(&mut self) {
        (self.data, self.index) = (None, None);
    }

    /// Whether the relay holds its lock on the tracefile.
    pub(super) fn is_locked(&mut self) -> bool {
        self.open_data().is_ok_and(|data| is_locked(data))
    }

    /// Whether the file looks like a tracefile that the relay has closed while the stream is idle.
    /// One that was left incomplete by a killed relay looks the same; the lock on the metadata file
    /// decides.
    pub(super) fn looks_idle(&mut self) -> bool {
        let index = self.index.as_ref();
        let ends_in_beacon = index.is_none_or(|(index, _)| index.ends_in_beacon());
        ends_in_beacon && self.open_data().is_ok()
    }

    /// The time of the last write to the tracefile.
    pub(super) fn modified(&mut self) -> SystemTime {
        let metadata = self.open_data().ok().and_then(|data| data.metadata().ok());
        let modified = metadata.and_then(|metadata| metadata.modified().ok());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Polls the index once.
    pub(super) fn poll(&mut self) -> Result<FollowEvent, TracefileError> {
        self.open_data()?;
        let Some((index, _)) = self.open_index()? else {
            return Ok(FollowEvent::None);
        };
        let event = index.poll();
        let event =
            event.map_err(|error| TracefileError::Unreadable(crate::with_sources(&error)))?;
        if let (None, FollowEvent::Entries(entries)) = (self.begin, &event)
            && let Some(first) = entries.first()
        {
            if !self.is_own_index(first)? {
                // The index is opened again at the next poll, when the relay may have written this
                // one's.
                self.index = None;
                return Ok(FollowEvent::None);
            }
            self.begin = Some(first.packet.begin.0);
        }
        Ok(event)
    }

    /// Whether the index file is this one's, and not of a tracefile that it has just replaced: the
    /// relay removes that before it writes to this one.
    fn is_own_index(&mut self, first: &Entry) -> Result<bool, TracefileError> {
        let end = first.offset.0 + packet_bytes(first);
        let has_packet = self.open_data()?.metadata().is_ok_and(|of| of.len() >= end);
        let opened = self.index.as_ref().and_then(|(_, id)| *id);
        Ok(has_packet && opened.is_some() && FileId::at(&self.index_path()) == opened)
    }

    /// Sets `begin` if it has got a first packet meanwhile. Its packets are read from the first
    /// then.
    pub(super) fn update_begin(&mut self) {
        if self.begin.is_none() {
            // An error is reported when the file is read.
            let _ = self.poll();
            self.close();
        }
    }

    /// Reads a whole packet, or leaves it in its file if the memory budget has no room for it.
    pub(super) fn packet(
        &mut self,
        entry: &Entry,
        memory: &MemoryBudget,
    ) -> Result<Packet, TracefileError> {
        let size = packet_bytes(entry);
        if let Some(reservation) = memory.reserve(usize::try_from(size).unwrap_or(usize::MAX)) {
            let bytes = self.read(entry, MAX_PACKET_BYTES)?;
            return Ok(Packet::in_memory(bytes, reservation));
        }
        let file = Arc::clone(self.file_with_packet(entry)?);
        Ok(Packet::in_tracefile(file, entry.offset.0, size, memory))
    }

    /// The header and context of a packet.
    pub(super) fn head(&mut self, entry: &Entry, trace: &Trace) -> Option<PacketHead> {
        let bytes = self.read(entry, MAX_PACKET_HEAD_BYTES).ok()?;
        PacketHead::read(trace, &bytes, packet_bytes(entry)).ok()
    }

    /// Reads the first bytes of a packet, no more than `max`.
    fn read(&mut self, entry: &Entry, max: u64) -> Result<Vec<u8>, TracefileError> {
        let data = Arc::clone(self.file_with_packet(entry)?);
        let size = packet_bytes(entry).min(max);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let read = data.read_exact_at(&mut bytes, entry.offset.0);
        read.map_err(|error| self.packet_error(entry, &error))?;
        Ok(bytes)
    }

    /// The file with a packet, all of which is there: this is known before memory is reserved for
    /// it.
    fn file_with_packet(&mut self, entry: &Entry) -> Result<&Arc<File>, TracefileError> {
        let size = packet_bytes(entry);
        if size > MAX_PACKET_BYTES {
            return Err(self.packet_error(entry, &"it is too large"));
        }
        let metadata = self.open_data()?.metadata();
        let len = metadata.map_err(|error| self.packet_error(entry, &error))?;
        if entry.offset.0.saturating_add(size) > len.len() {
            return Err(self.packet_error(entry, &"it is not all there"));
        }
        self.open_data()
    }

    fn packet_error(&self, entry: &Entry, reason: &dyn Display) -> TracefileError {
        let (path, at) = (self.path.display(), entry.offset.0);
        TracefileError::Unreadable(format!(
            "cannot read a packet: {path}, byte {at}: {reason}; it is left out"
        ))
    }

    /// The index file, opened if it is not. None: there is none yet.
    fn open_index(
        &mut self,
    ) -> Result<Option<&mut (IndexFollower, Option<FileId>)>, TracefileError> {
        if self.index.is_none() {
            let path = self.index_path();
            // Asked before the file is opened, so that a file that replaces it later has another
            // identity.
            let id = FileId::at(&path);
            self.index = match IndexFollower::open(&path) {
                // A tracefile is replaced before its index file is: this one is not of the next.
                Ok(index) if FileId::at(&self.path) == Some(self.id) => Some((index, id)),
                Ok(_) => {
                    self.close();
                    return Err(TracefileError::Moved);
                }
                Err(FollowError::Io { source, .. }) if is_missing(&source) => None,
                Err(error) => return Err(TracefileError::Unreadable(crate::with_sources(&error))),
            };
        }
        Ok(self.index.as_mut())
    }

    /// The data file, opened if it is not.
    fn open_data(&mut self) -> Result<&Arc<File>, TracefileError> {
        let data = match self.data.take() {
            Some(data) => data,
            None => {
                let failed = |error: io::Error| match is_missing(&error) {
                    true => TracefileError::Moved,
                    false => TracefileError::Unreadable(format!(
                        "cannot read {}: {error}",
                        self.path.display()
                    )),
                };
                let data = regular_file::open(&self.path, OFlags::RDONLY).map_err(failed)?;
                // Another file may have taken the path since the scan.
                if FileId::of(&data.metadata().map_err(failed)?) != self.id {
                    return Err(TracefileError::Moved);
                }
                Arc::new(data)
            }
        };
        Ok(self.data.insert(data))
    }
}

/// The length of a packet with its padding, in bytes.
pub(super) fn packet_bytes(entry: &Entry) -> u64 {
    entry.packet.packet_size.0 / 8
}

/// Whether a writer holds its lock on the file. On a file system without locks no writer does.
pub(super) fn is_locked(file: &File) -> bool {
    // A shared lock, because other readers may try at the same time.
    let is_shared = file_lock::try_lock_shared(file);
    if matches!(is_shared, Ok(true)) {
        let _ = file_lock::unlock(file);
    }
    matches!(is_shared, Ok(false))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
