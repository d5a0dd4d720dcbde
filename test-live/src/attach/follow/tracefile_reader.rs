//! Reads one tracefile by its index file.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ctf::decode::PacketHead;
use ctf::index::{Entry, FollowError, FollowEvent, IndexFollower};
use ctf::metadata::Trace;

use super::scan::{FileId, FoundFile};
use crate::attach::{MemoryBudget, Packet};

/// How old a file must be before its lock is tried: a writer that finds a reader's lock on
/// the file that it has just made goes on without its own.
pub(super) const LOCK_GRACE_PERIOD: Duration = Duration::from_millis(100);
/// Largest packet that is read, in bytes; the relay has the same limit.
const MAX_PACKET_BYTES: u64 = 1 << 30;
/// Bytes of a packet that are read to find its stream: no header and context is longer.
const MAX_PACKET_HEAD_BYTES: u64 = 4096;

/// The reader of one tracefile, all packets of which are of one stream.
#[derive(Debug)]
pub(super) struct TracefileReader {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    /// Path of its trace without the directories of chunks.
    pub(super) trace_path: PathBuf,
    /// The directory that it was found in.
    pub(super) directory: FileId,
    /// Where its first packet begins, in cycles. None: no packet is known yet.
    pub(super) begin: Option<u64>,
    /// The last scan that has found it.
    pub(super) seen: u64,
    found: Instant,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    data: Arc<File>,
    /// Also what its path led to before it was opened.
    index: Option<(IndexFollower, Option<FileId>)>,
}

/// Why a tracefile cannot be read.
#[derive(Debug)]
pub(super) enum TracefileError {
    /// It is not where it was.
    Moved,
    /// It cannot be read.
    Unreadable(String),
}

impl TracefileReader {
    pub(super) fn new(found: &FoundFile, trace_path: &Path, directory: FileId, scan: u64) -> Self {
        Self {
            path: found.path.clone(),
            id: found.id,
            trace_path: trace_path.to_owned(),
            directory,
            begin: None,
            seen: scan,
            found: Instant::now(),
            open: None,
        }
    }

    pub(super) fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }

    /// Its name without the number that tells it from other tracefiles of the stream, if it has one.
    pub(super) fn stem(&self) -> String {
        let name = self.name().to_string_lossy().into_owned();
        match name.rsplit_once('_') {
            Some((stem, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                stem.to_owned()
            }
            _ => name,
        }
    }

    pub(super) fn index_path(&self) -> PathBuf {
        let mut name = self.name();
        name.push(".idx");
        self.path.with_file_name("index").join(name)
    }

    /// Whether it has been known for so short a time that much may still be missing.
    pub(super) fn is_within_lock_grace_period(&self) -> bool {
        self.found.elapsed() < LOCK_GRACE_PERIOD
    }

    /// Closes its files; they can be opened again.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Whether the relay holds its lock on it.
    pub(super) fn is_locked(&mut self) -> Result<bool, TracefileError> {
        Ok(is_locked(&self.open()?.data))
    }

    /// Whether it looks as one that the relay has put aside until there is more. So does one that it has
    /// left in the middle; the lock on its metadata tells.
    pub(super) fn is_put_aside(&mut self) -> bool {
        self.open().is_ok_and(|open| match &open.index {
            Some((index, _)) => index.ends_in_beacon(),
            None => true,
        })
    }

    /// When it was written last.
    pub(super) fn modified(&mut self) -> SystemTime {
        let about = self.open().ok().and_then(|open| open.data.metadata().ok());
        let modified = about.and_then(|about| about.modified().ok());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Looks into the index once.
    pub(super) fn poll(&mut self) -> Result<FollowEvent, TracefileError> {
        if self.open()?.index.is_none() {
            let index = self.open_index()?;
            self.open()?.index = index;
        }
        let open = self.open()?;
        let Some((index, _)) = &mut open.index else {
            return Ok(FollowEvent::None);
        };
        let event = index.poll();
        let event =
            event.map_err(|error| TracefileError::Unreadable(crate::with_sources(&error)))?;
        if let (None, FollowEvent::Entries(entries)) = (self.begin, &event)
            && let Some(first) = entries.first()
        {
            if !self.is_own_index(first)? {
                self.open()?.index = None;
                return Ok(FollowEvent::None);
            }
            self.begin = Some(first.packet.begin.0);
        }
        Ok(event)
    }

    /// Whether the index file is this one's, and not of a tracefile that it has just replaced: the relay
    /// removes that before it writes to this one.
    fn is_own_index(&mut self, first: &Entry) -> Result<bool, TracefileError> {
        let path = self.index_path();
        let open = self.open()?;
        let end = first.offset.0 + first.packet.packet_size.0 / 8;
        let has_packet = open.data.metadata().is_ok_and(|about| about.len() >= end);
        let opened = open.index.as_ref().and_then(|(_, id)| *id);
        Ok(has_packet && opened.is_some() && FileId::at(&path) == opened)
    }

    /// Looks whether it has got a first packet meanwhile. Its packets are read from the first then.
    pub(super) fn update_begin(&mut self) {
        if self.begin.is_none() {
            // What is wrong with it is found when its turn comes.
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

    /// What a packet says of itself.
    pub(super) fn head(&mut self, entry: &Entry, trace: &Trace) -> Option<PacketHead> {
        let bytes = self.read(entry, MAX_PACKET_HEAD_BYTES).ok()?;
        PacketHead::read(trace, &bytes, entry.packet.packet_size.0 / 8).ok()
    }

    fn read(&mut self, entry: &Entry, most: u64) -> Result<Vec<u8>, TracefileError> {
        let data = Arc::clone(self.file_with_packet(entry)?);
        let size = packet_bytes(entry).min(most);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        data.read_exact_at(&mut bytes, entry.offset.0)
            .map_err(|error| self.wrong(entry, &error.to_string()))?;
        Ok(bytes)
    }

    /// The file with a packet, all of which is there. Before memory is taken for it.
    fn file_with_packet(&mut self, entry: &Entry) -> Result<&Arc<File>, TracefileError> {
        let size = packet_bytes(entry);
        if size > MAX_PACKET_BYTES {
            return Err(self.wrong(entry, "it is too large"));
        }
        let len = self.open()?.data.metadata().map(|about| about.len());
        let len = len.map_err(|error| self.wrong(entry, &error.to_string()))?;
        if entry.offset.0.saturating_add(size) > len {
            return Err(self.wrong(entry, "it is not all there"));
        }
        Ok(&self.open()?.data)
    }

    fn wrong(&self, entry: &Entry, what: &str) -> TracefileError {
        let (path, at) = (self.path.display(), entry.offset.0);
        TracefileError::Unreadable(format!("{path}, packet at byte {at}: {what}"))
    }

    fn open(&mut self) -> Result<&mut Open, TracefileError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open {
                data: Arc::new(self.open_data()?),
                index: None,
            },
        };
        Ok(self.open.insert(open))
    }

    /// None: there is no index file yet.
    fn open_index(&mut self) -> Result<Option<(IndexFollower, Option<FileId>)>, TracefileError> {
        let path = self.index_path();
        let id = FileId::at(&path);
        match IndexFollower::open(&path) {
            // A tracefile is replaced before its index file is: this one is not of the next.
            Ok(index) if FileId::at(&self.path) == Some(self.id) => Ok(Some((index, id))),
            Ok(_) => {
                self.close();
                Err(TracefileError::Moved)
            }
            Err(FollowError::Io { source, .. }) if is_missing(&source) => Ok(None),
            Err(error) => Err(TracefileError::Unreadable(crate::with_sources(&error))),
        }
    }

    fn open_data(&self) -> Result<File, TracefileError> {
        let bad = |error: io::Error| {
            if is_missing(&error) {
                return TracefileError::Moved;
            }
            TracefileError::Unreadable(format!("cannot read {}: {error}", self.path.display()))
        };
        let data = File::open(&self.path).map_err(bad)?;
        let about = data.metadata().map_err(bad)?;
        if FileId::of(&about) == self.id {
            Ok(data)
        } else {
            Err(TracefileError::Moved)
        }
    }
}

pub(super) fn packet_bytes(entry: &Entry) -> u64 {
    entry.packet.packet_size.0 / 8
}

/// Whether somebody writes the file and says so. A file system without locks has nobody who does.
pub(super) fn is_locked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
