//! An index file that is still being written. Beside `directory` the only module of this crate that
//! opens files.
#![allow(
    clippy::disallowed_types,
    reason = "the lock that keeps entries whole is part of the format, and is on the file"
)]

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;
use wire::{Field, Timestamp};

use super::check::{Checker, IndexError, Layout};
use super::format::{Beacon, Entry, IndexHeader};

/// Bytes of one read, some 200 entries: few, because the writer waits for the lock meanwhile, and
/// because a viewer follows thousands of files with a buffer each.
const READ_BYTES: usize = 16 << 10;

/// Reads the entries of a growing index file. The follower never blocks: the caller decides when to
/// [`poll`](Self::poll). The times of a packet may be reversed, because its clock may begin again
/// at 0 in it: a follower has no other way to find the packets after it.
#[derive(Debug)]
pub struct IndexFollower {
    path: PathBuf,
    file: File,
    /// `None` until the header has been written.
    checker: Option<(Layout, Checker)>,
    beacon: Option<Timestamp>,
    ends_in_beacon: bool,
    buffer: Vec<u8>,
}

/// The result of one [`poll`](IndexFollower::poll) of a followed index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEvent {
    /// No new entry or beacon.
    None,
    /// The next entries, perhaps not all of them.
    Entries(Vec<Entry>),
    /// The stream will have no event before this time, in cycles.
    Beacon(Timestamp),
    /// The path no longer leads to the file, and all of its entries have been returned: it was
    /// removed, replaced, or moved with its directory. A file that was moved may still grow, which
    /// [`is_being_written`] of the data stream file shows; a further poll returns what was added.
    Gone,
}

/// The reason why an index file cannot be followed further.
#[derive(Debug, Error)]
pub enum FollowError {
    /// The file system refuses access to the file.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The path of the index file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file holds an entry or a header that cannot be right.
    #[error("{}", .path.display())]
    Index {
        /// The path of the index file.
        path: PathBuf,
        /// The defect of the index.
        source: IndexError,
    },
    /// The file has become shorter than what has been read of it.
    #[error("{} has become shorter", .path.display())]
    Shorter {
        /// The path of the index file.
        path: PathBuf,
    },
}

impl IndexFollower {
    /// Opens an index file, before its first entry.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FollowError> {
        let file = open_regular(path).map_err(io_error(path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            checker: None,
            beacon: None,
            ends_in_beacon: false,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Reads what was added. Entries are returned before a beacon, and all of them before
    /// [`FollowEvent::Gone`]; a beacon is returned once.
    ///
    /// # Errors
    /// If the file cannot be read or is no valid index; every further poll fails with the same
    /// error.
    pub fn poll(&mut self) -> Result<FollowEvent, FollowError> {
        // Checked before reading, so that entries written before the file was removed are not
        // missed.
        let gone = self.is_gone()?;
        let Some(have) = self.read_locked()? else {
            return Ok(FollowEvent::None);
        };
        let event = self.parse_read_bytes(have)?;
        Ok(match event {
            FollowEvent::None if gone => FollowEvent::Gone,
            event => event,
        })
    }

    /// Whether the file ended in a beacon, or had no header yet, at the last poll. The relay closes
    /// the files of an idle stream, which releases their locks, only while that holds, and reopens
    /// them later.
    #[must_use]
    pub fn ends_in_beacon(&self) -> bool {
        self.ends_in_beacon || self.checker.is_none()
    }

    /// Reads after the last entry under a shared lock, because the writer holds an exclusive one
    /// while an entry is incomplete. `None` if the writer holds it now: the next poll reads what it
    /// has written.
    fn read_locked(&mut self) -> Result<Option<usize>, FollowError> {
        let error = io_error(&self.path);
        let position = match &self.checker {
            None => 0,
            Some((layout, checker)) => {
                IndexHeader::SIZE as u64 + checker.count * layout.stride as u64
            }
        };
        match self.file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        let read = self.read_at(position);
        // Before the result is looked at, so that an error leaves no lock.
        unlock(&self.file).map_err(io_error(&self.path))?;
        let (have, length) = read.map_err(error)?;
        if length < position {
            return Err(FollowError::Shorter {
                path: self.path.clone(),
            });
        }
        Ok(Some(have))
    }

    /// Fills the buffer from `position` on, as far as the file reaches. Also returns the length of
    /// the file.
    fn read_at(&mut self, position: u64) -> io::Result<(usize, u64)> {
        let mut have = 0;
        while let Some(free) = self.buffer.get_mut(have..)
            && !free.is_empty()
        {
            match self.file.read_at(free, position + have as u64) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((have, self.file.metadata()?.len()))
    }

    /// Parses the first `have` bytes of the buffer.
    fn parse_read_bytes(&mut self, have: usize) -> Result<FollowEvent, FollowError> {
        let error = |source| FollowError::Index {
            path: self.path.clone(),
            source,
        };
        let mut rest = self.buffer.get(..have).unwrap_or_default();
        let is_first = self.checker.is_none();
        if is_first {
            // The relay makes the file before it writes the header.
            if rest.len() < IndexHeader::SIZE {
                return Ok(FollowEvent::None);
            }
            let layout = Layout::of(rest).map_err(error)?;
            self.checker = Some((layout, Checker::new(layout)));
            rest = rest.get(IndexHeader::SIZE..).unwrap_or_default();
        }
        let Some((layout, checker)) = &mut self.checker else {
            return Ok(FollowEvent::None);
        };
        let mut entries = Vec::new();
        // After a bad entry nothing has been taken, so that it is found again the next time.
        let mut ahead = checker.clone();
        while let Some(entry) = ahead.check_entry(rest).map_err(error)? {
            entries.push(entry);
            rest = rest.get(layout.stride..).unwrap_or_default();
        }
        *checker = ahead;
        let until = Beacon::at_front(rest).map(|beacon| beacon.until);
        self.ends_in_beacon = until.is_some();
        if !entries.is_empty() {
            // A beacon after these entries is returned by the next poll, also if its time is that
            // of the last.
            self.beacon = None;
            return Ok(FollowEvent::Entries(entries));
        }
        if until.is_none() || until == self.beacon {
            return Ok(FollowEvent::None);
        }
        self.beacon = until;
        Ok(until.map_or(FollowEvent::None, FollowEvent::Beacon))
    }

    /// Whether the path no longer leads to the file.
    fn is_gone(&self) -> Result<bool, FollowError> {
        let ours = self.file.metadata().map_err(io_error(&self.path))?;
        match std::fs::metadata(&self.path) {
            // By device and inode: a rotation or another session may have put a new file there.
            Ok(named) => Ok((named.dev(), named.ino()) != (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(io_error(&self.path)(error)),
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FollowError + use<> {
    let path = path.to_owned();
    move |source| FollowError::Io { path, source }
}

/// Whether the relay still writes this data stream file. If not, its index file is complete.
///
/// The relay holds an exclusive lock on each file that it has open. The file of an idle stream,
/// which it has closed for now, has a beacon at the end of its index file, or no index file yet,
/// and the metadata file in the same directory is locked.
///
/// # Errors
/// If the file cannot be opened or locked.
pub fn is_being_written(data: &Path) -> io::Result<bool> {
    if is_locked(data)? {
        return Ok(true);
    }
    let directory = data.parent().unwrap_or(data);
    let mut index = data.file_name().unwrap_or_default().to_owned();
    index.push(".idx");
    let ends_in_beacon = match open_regular(&directory.join("index").join(index)) {
        Ok(index) => ends_in_beacon(&index)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if !ends_in_beacon {
        return Ok(false);
    }
    match is_locked(&directory.join("metadata")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        locked => locked,
    }
}

/// Releases the lock. A signal does not interrupt the call.
fn unlock(file: &File) -> io::Result<()> {
    loop {
        match file.unlock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Opens a regular file. To open a FIFO would take until somebody writes to it: the directory may
/// be another user's.
fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

fn is_locked(path: &Path) -> io::Result<bool> {
    let file = open_regular(path)?;
    // Closing the file releases the lock.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn ends_in_beacon(index: &File) -> io::Result<bool> {
    let mut tail = [0; Beacon::SIZE];
    let length = index.metadata()?.len();
    // The relay creates the file before it writes the header.
    if length < IndexHeader::SIZE as u64 {
        return Ok(true);
    }
    let Some(at) = length.checked_sub(tail.len() as u64) else {
        return Ok(false);
    };
    index.read_exact_at(&mut tail, at)?;
    Ok(Beacon::at_front(&tail).is_some())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::format::tests::{entry, file};
    use super::super::format::{IndexFormat, MAX_ENTRY_BYTES};
    use super::*;

    struct Growing {
        directory: tempfile::TempDir,
        file: File,
    }

    impl Growing {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = File::create_new(directory.path().join("x.idx")).unwrap();
            Self { directory, file }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("x.idx")
        }

        fn entry(&mut self, number: u64) {
            let mut bytes = [0; MAX_ENTRY_BYTES];
            let bytes = IndexFormat::V1_1.encode(&entry(number), &mut bytes);
            let at = IndexFormat::V1_1.position(number);
            self.file.write_all_at(bytes, at).unwrap();
        }
    }

    #[test]
    fn a_follower_gives_each_entry_and_beacon_once_in_order() {
        let mut growing = Growing::new();
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        assert!(follower.ends_in_beacon());
        let header = IndexFormat::V1_1.header_bytes();
        growing.file.write_all(&header[..9]).unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        growing.file.write_all(&header[9..]).unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        growing.entry(0);
        growing.entry(1);
        let beacon = |until| Beacon::new(Timestamp(until)).to_bytes();
        let end = IndexFormat::V1_1.position(2);
        growing.file.write_all_at(&beacon(5), end).unwrap();
        let both = FollowEvent::Entries(vec![entry(0), entry(1)]);
        assert_eq!(follower.poll().unwrap(), both);
        assert_eq!(follower.poll().unwrap(), FollowEvent::Beacon(Timestamp(5)));
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        growing.file.write_all_at(&beacon(6), end).unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::Beacon(Timestamp(6)));
        growing.entry(2);
        assert_eq!(
            follower.poll().unwrap(),
            FollowEvent::Entries(vec![entry(2)])
        );
    }

    #[test]
    fn a_follower_gives_all_entries_of_a_file_larger_than_its_read_buffer() {
        let growing = Growing::new();
        let entries: Vec<Entry> = (0..2000).map(entry).collect();
        std::fs::write(growing.path(), file(IndexFormat::V1_1, &entries)).unwrap();
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        let mut got = Vec::new();
        while let FollowEvent::Entries(some) = follower.poll().unwrap() {
            got.extend(some);
        }
        assert_eq!(got, entries);
    }

    #[test]
    fn a_replaced_index_file_is_read_to_its_end_before_gone_is_reported() {
        let mut growing = Growing::new();
        growing
            .file
            .write_all(&IndexFormat::V1_1.header_bytes())
            .unwrap();
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        growing.entry(0);
        std::fs::remove_file(growing.path()).unwrap();
        assert_eq!(
            follower.poll().unwrap(),
            FollowEvent::Entries(vec![entry(0)])
        );
        assert_eq!(follower.poll().unwrap(), FollowEvent::Gone);
        std::fs::write(growing.path(), b"another").unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::Gone);
    }

    #[test]
    fn a_follower_reads_nothing_while_the_writer_holds_the_lock() {
        let mut growing = Growing::new();
        growing
            .file
            .write_all(&IndexFormat::V1_1.header_bytes())
            .unwrap();
        growing.entry(0);
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        growing.file.lock().unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        growing.file.unlock().unwrap();
        assert_eq!(
            follower.poll().unwrap(),
            FollowEvent::Entries(vec![entry(0)])
        );
        growing.file.try_lock().unwrap();
    }

    #[test]
    fn a_truncated_or_contradictory_index_file_ends_its_follower_with_an_error() {
        let mut growing = Growing::new();
        let bytes = file(IndexFormat::V1_1, &[entry(0)]);
        growing.file.write_all(&bytes).unwrap();
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        assert!(matches!(follower.poll().unwrap(), FollowEvent::Entries(_)));
        growing.file.set_len(20).unwrap();
        assert!(matches!(follower.poll(), Err(FollowError::Shorter { .. })));
        let bytes = file(IndexFormat::V1_1, &[entry(0), entry(0)]);
        growing.file.write_all_at(&bytes, 0).unwrap();
        for _ in 0..2 {
            assert!(matches!(follower.poll(), Err(FollowError::Index { .. })));
        }
    }

    #[test]
    fn a_packet_in_which_the_clock_wraps_does_not_end_its_follower() {
        let mut growing = Growing::new();
        let mut wrapped = entry(0);
        (wrapped.packet.begin, wrapped.packet.end) = (Timestamp(u64::MAX), Timestamp(3));
        let bytes = file(IndexFormat::V1_1, &[wrapped, entry(1)]);
        growing.file.write_all(&bytes).unwrap();
        let mut follower = IndexFollower::open(&growing.path()).unwrap();
        let both = FollowEvent::Entries(vec![wrapped, entry(1)]);
        assert_eq!(follower.poll().unwrap(), both);
    }

    #[test]
    fn a_data_file_is_being_written_while_its_writer_holds_the_lock() {
        let growing = Growing::new();
        assert!(!is_being_written(&growing.path()).unwrap());
        growing.file.lock().unwrap();
        assert!(is_being_written(&growing.path()).unwrap());
    }

    #[test]
    fn a_fifo_in_the_place_of_an_index_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("index")).unwrap();
        let index = at("index/chan_0.idx");
        let made = std::process::Command::new("mkfifo").arg(&index).status();
        assert!(made.unwrap().success());
        File::create(at("chan_0")).unwrap();
        assert!(IndexFollower::open(&index).is_err());
        assert!(is_being_written(&at("chan_0")).is_err());
    }

    #[test]
    fn a_closed_data_file_is_being_written_while_its_metadata_file_is_locked() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("index")).unwrap();
        let (data, index) = (at("chan_0"), at("index/chan_0.idx"));
        File::create(&data).unwrap();
        assert!(!is_being_written(&data).unwrap());
        let metadata = File::create(at("metadata")).unwrap();
        metadata.lock().unwrap();
        assert!(is_being_written(&data).unwrap());
        let mut bytes = file(IndexFormat::V1_1, &[entry(0)]);
        std::fs::write(&index, []).unwrap();
        assert!(is_being_written(&data).unwrap());
        std::fs::write(&index, &bytes).unwrap();
        assert!(!is_being_written(&data).unwrap());
        bytes.extend(Beacon::new(Timestamp(0)).to_bytes());
        std::fs::write(&index, &bytes).unwrap();
        assert!(is_being_written(&data).unwrap());
        metadata.unlock().unwrap();
        assert!(!is_being_written(&data).unwrap());
    }
}
