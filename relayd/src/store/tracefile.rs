//! The bytes of packets, one after the other. A packet is whole or absent: the file is truncated
//! again if the rest of a packet never arrives.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use tracing::warn;
use wire::Bytes;

use super::disk;
use super::pipe::Pipe;
use super::pool::{Claim, PooledFile};
use super::reopenable_file::ReopenableFile;

/// Longest padding in bytes that is written as zeros. Longer padding becomes a hole, so that a peer
/// that announces gigabytes of it costs neither time nor disk space.
const WRITTEN_PADDING: usize = 4 << 10;
static ZEROS: [u8; WRITTEN_PADDING] = [0; WRITTEN_PADDING];

/// A tracefile being written.
#[derive(Debug)]
pub(super) struct Tracefile {
    file: ReopenableFile,
    claim: Claim,
    lock: LockState,
    /// End of the last whole packet.
    whole: u64,
    /// Bytes that have been written of the packet in flight.
    in_flight: u64,
    /// Whether the file may be longer, because it could not be truncated.
    has_excess: bool,
}

/// Whether the writer of a tracefile holds its exclusive lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockState {
    Held,
    /// The file is closed, or a reader holds a shared lock, by which readers test whether the file
    /// is being written. The next write tries again.
    Missing,
    /// The file system has no locks. The relay records nevertheless.
    Unsupported,
}

/// The position and length of a packet in its tracefile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Position of the first byte.
    pub offset: Bytes,
    /// Length of the packet, padding included.
    pub len: Bytes,
}

impl Extent {
    /// End of the packet.
    pub(super) fn end(self) -> Bytes {
        Bytes(self.offset.0 + self.len.0)
    }
}

impl Tracefile {
    /// Locks and claims an empty file that is open. The lock shows that the file is being written.
    /// It is advisory: only relays and readers that follow a relay's files respect it.
    pub(super) fn new(file: ReopenableFile) -> Self {
        let location = file.location();
        Self {
            claim: location.pool().claim(location.id()),
            lock: file
                .handle()
                .map_or(LockState::Missing, |file| try_lock(file)),
            file,
            whole: 0,
            in_flight: 0,
            has_excess: false,
        }
    }

    /// Continues after the packets that a relay before this one has written, the last of which
    /// ends at `end`.
    pub(super) fn restore(&mut self, end: Bytes) {
        self.truncate(end);
    }

    /// The file, for readers.
    pub(super) fn file(&self) -> &ReopenableFile {
        &self.file
    }

    /// Gives up the name of the file, because another file of the same stream replaces it.
    pub(super) fn give_up_name(&mut self) {
        self.unlock();
        self.claim.release();
    }

    /// Closes the file until it is [reopened](Self::reopen), except while a packet is in flight.
    /// Returns whether it is closed.
    pub(super) fn close_files(&mut self) -> bool {
        if self.in_flight == 0 {
            self.unlock();
            self.file.close();
        }
        self.file.handle().is_none()
    }

    /// Reopens and locks the file if it is closed. Returns whether it was.
    ///
    /// # Errors
    /// If it cannot be opened, or its name belongs to another file.
    pub(super) fn reopen(&mut self) -> io::Result<bool> {
        let was_closed = self.file.reopen()?;
        if was_closed {
            self.lock = try_lock(self.file.opened()?);
        }
        Ok(was_closed)
    }

    /// Drops the handle of the file, even while a packet is in flight, until the next is
    /// [adopted](Self::adopt). Another holder keeps the file open and so locked, since flock(2)
    /// locks belong to the open file.
    pub(super) fn release(&mut self) {
        self.file.close();
    }

    /// Continues with a handle that was opened at the file's location.
    pub(super) fn adopt(&mut self, file: Arc<PooledFile>) {
        // The other holder may have reopened the file since, and then it is not locked.
        self.lock = try_lock(self.file.adopt(file));
    }

    fn retry_lock(&mut self) {
        if self.lock == LockState::Missing
            && let Ok(file) = self.file.opened()
        {
            self.lock = try_lock(file);
        }
    }

    fn unlock(&mut self) {
        if let Ok(file) = self.file.opened() {
            // Explicitly: readers may keep the file open for longer, and with it a lock that
            // close(2) does not release. An error only means that the file system has no locks.
            let _ = file_lock::unlock(file);
        }
        if self.lock == LockState::Held {
            self.lock = LockState::Missing;
        }
    }

    /// End of the last whole packet, in bytes.
    pub(super) fn size(&self) -> Bytes {
        Bytes(self.whole)
    }

    /// Writes the next bytes of the packet in flight.
    ///
    /// # Errors
    /// If they cannot be written. None of them remains in the file then.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.retry_lock();
        let at = self.whole + self.in_flight;
        disk::write_all_at(self.file.opened()?, bytes, at)
            .inspect_err(|_| self.truncate_packet(self.in_flight))?;
        self.in_flight += bytes.len() as u64;
        self.file.mark_written(bytes.len() as u64);
        Ok(())
    }

    /// Moves the next bytes of the packet in flight, up to `len`, from a pipe to the file. Returns
    /// how many: none, or not all, if they cannot be written. None of the others remains in the
    /// file then.
    pub(super) fn splice(&mut self, pipe: &mut Pipe, len: usize) -> io::Result<usize> {
        self.retry_lock();
        let at = self.whole + self.in_flight;
        let moved = pipe.write_at(self.file.opened()?, len, at);
        self.in_flight += moved as u64;
        self.file.mark_written(moved as u64);
        Ok(moved)
    }

    /// Position of the next bytes of the packet in flight.
    pub(super) fn position(&self) -> u64 {
        self.whole + self.in_flight
    }

    /// Truncates the packet in flight to `len` bytes, because the next ones could not be written.
    /// Their remains would do no harm, but occupy space on a disk that is probably full.
    fn truncate_packet(&self, len: u64) {
        if let Ok(file) = self.file.opened() {
            // An error leaves the remains, over which the next attempt writes.
            let _ = disk::set_len(file, self.whole + len);
        }
    }

    /// Writes the last bytes of the packet, followed by `padding` zeros. The packet is whole then.
    ///
    /// # Errors
    /// If they cannot be written. The packet stays in flight, and none of these bytes remains in
    /// the file.
    pub(super) fn finish_packet(&mut self, bytes: &[u8], padding: u32) -> io::Result<Extent> {
        let before = self.in_flight;
        if let Err(error) = self.append_last(bytes, padding) {
            self.in_flight = before;
            self.truncate_packet(before);
            return Err(error);
        }
        let extent = Extent {
            offset: Bytes(self.whole),
            len: Bytes(self.in_flight),
        };
        self.whole += self.in_flight;
        self.in_flight = 0;
        Ok(extent)
    }

    fn append_last(&mut self, bytes: &[u8], padding: u32) -> io::Result<()> {
        let zeros = ZEROS.get(..padding as usize);
        self.append_both(bytes, zeros.unwrap_or_default())?;
        if zeros.is_none() {
            self.in_flight += u64::from(padding);
            disk::set_len(self.file.opened()?, self.whole + self.in_flight)?;
            self.file.mark_written(0);
        }
        Ok(())
    }

    /// Writes both pieces, by a single pwritev(2) unless that writes only a part.
    fn append_both(&mut self, bytes: &[u8], zeros: &[u8]) -> io::Result<()> {
        if zeros.is_empty() {
            return self.append(bytes);
        }
        self.retry_lock();
        let at = self.whole + self.in_flight;
        let both = [IoSlice::new(bytes), IoSlice::new(zeros)];
        let file = self.file.opened()?;
        let written = disk::write_vectored_at(file, &both, at)?;
        self.in_flight += written as u64;
        self.file.mark_written(written as u64);
        // A disk that is nearly full takes a part only. Writing the rest tells why.
        match bytes.get(written..) {
            Some(rest) if !rest.is_empty() => {
                self.append(rest)?;
                self.append(zeros)
            }
            _ => self.append(zeros.get(written - bytes.len()..).unwrap_or_default()),
        }
    }

    /// Writes whole packets by a single pwritev(2): the bytes of each, and the number of zeros that
    /// follow them. Returns where the first one begins. No packet may be in flight.
    ///
    /// # Errors
    /// If they cannot be written like that. None of their bytes remains in the file.
    pub(super) fn append_packets<'a>(
        &mut self,
        packets: impl Iterator<Item = (&'a [u8], u32)>,
    ) -> io::Result<Bytes> {
        let (mut slices, mut len) = (Vec::new(), 0);
        for (bytes, padding) in packets {
            // Longer padding is a hole, for which the packets have to be written one by one.
            let zeros = ZEROS.get(..padding as usize);
            let zeros = zeros.ok_or(io::ErrorKind::Unsupported)?;
            let pieces = [bytes, zeros].into_iter();
            slices.extend(pieces.filter(|piece| !piece.is_empty()).map(IoSlice::new));
            len += bytes.len() + zeros.len();
        }
        self.retry_lock();
        let written = disk::write_vectored_at(self.file.opened()?, &slices, self.whole);
        match written {
            Ok(written) if written == len => {}
            failed => {
                self.truncate_packet(0);
                return Err(failed.err().unwrap_or(io::ErrorKind::WriteZero.into()));
            }
        }
        self.file.mark_written(len as u64);
        let offset = Bytes(self.whole);
        self.whole += len as u64;
        Ok(offset)
    }

    /// Drops the packet in flight and truncates the file to the last whole packet.
    pub(super) fn drop_packet(&mut self) {
        if self.in_flight > 0 {
            self.in_flight = 0;
            self.truncate(Bytes(self.whole));
        }
    }

    /// Truncates the file to `end`.
    pub(super) fn truncate(&mut self, end: Bytes) {
        self.whole = end.0;
        self.file.mark_written(0);
        let truncated = self.file.opened();
        let truncated = truncated.and_then(|file| disk::set_len(file, end.0));
        self.has_excess = truncated.is_err();
        if let Err(error) = truncated {
            // Harmless to readers that follow the index: no entry points at the excess bytes.
            warn!(%error, "tracefile not truncated: readers go by its index");
        }
    }

    /// Truncates the file to the last whole packet if that failed before.
    pub(super) fn remove_excess(&mut self) {
        if self.has_excess && self.reopen().is_ok() {
            self.truncate(Bytes(self.whole));
        }
    }
}

fn try_lock(file: &File) -> LockState {
    match file_lock::try_lock_exclusive(file) {
        Ok(true) => LockState::Held,
        Ok(false) => LockState::Missing,
        // A signal says nothing about the file system: the next write tries again.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => LockState::Missing,
        Err(_) => LockState::Unsupported,
    }
}

impl Drop for Tracefile {
    fn drop(&mut self) {
        self.unlock();
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::super::disk::plan::{self, Fault};
    use super::super::reopenable_file::{self, test_file};
    use super::*;

    fn tracefile() -> Tracefile {
        Tracefile::new(test_file().1)
    }

    fn contents(file: &Tracefile) -> Vec<u8> {
        reopenable_file::contents(file.file.opened().unwrap())
    }

    #[test]
    fn a_tracefile_that_was_closed_goes_on_where_it_was() {
        let (directory, file) = test_file();
        let path = directory.path().join("ust/file");
        let named = || File::open(&path).unwrap();
        let mut file = Tracefile::new(file);
        file.append(b"first").unwrap();
        assert!(!file.close_files());
        file.finish_packet(b"", 0).unwrap();
        assert!(file.close_files());
        assert!(named().try_lock().is_ok());
        assert!(file.append(b"second").is_err());
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "other").unwrap();
        assert!(file.reopen().is_err());
        std::fs::rename(&aside, &path).unwrap();
        assert!(file.reopen().unwrap());
        assert!(named().try_lock().is_err());
        file.finish_packet(b"second", 0).unwrap();
        assert_eq!(contents(&file), b"firstsecond");
    }

    #[test]
    fn a_tracefile_that_a_reader_had_locked_is_locked_by_the_next_append() {
        let (directory, file) = test_file();
        let mut file = Tracefile::new(file);
        assert!(file.close_files());
        let reader = File::open(directory.path().join("ust/file")).unwrap();
        reader.lock_shared().unwrap();
        file.reopen().unwrap();
        file.append(b"some").unwrap();
        reader.unlock().unwrap();
        file.finish_packet(b"more", 4).unwrap();
        assert!(reader.try_lock_shared().is_err());
    }

    #[test]
    fn packets_lie_one_after_the_other_with_their_padding() {
        let mut file = tracefile();
        file.append(b"first, ").unwrap();
        let first = file.finish_packet(b"in two", 3).unwrap();
        assert_eq!(
            first,
            Extent {
                offset: Bytes(0),
                len: Bytes(16)
            }
        );
        let second = file.finish_packet(b"second", 0).unwrap();
        assert_eq!(
            second,
            Extent {
                offset: Bytes(16),
                len: Bytes(6)
            }
        );
        let third = file.finish_packet(b"", 2).unwrap();
        assert_eq!(third.end(), Bytes(24));
        assert_eq!(contents(&file), b"first, in two\0\0\0second\0\0");
    }

    #[test]
    fn packets_that_are_written_together_lie_one_after_the_other_or_are_absent() {
        let mut file = tracefile();
        file.finish_packet(b"first", 0).unwrap();
        let packets = [(&b"second"[..], 2), (b"", 3), (b"last", 0)];
        let offset = file.append_packets(packets.into_iter()).unwrap();
        assert_eq!((offset, file.size()), (Bytes(5), Bytes(20)));
        let all = b"firstsecond\0\0\0\0\0last";
        assert_eq!(contents(&file), all);
        let (failed, _) = plan::run(Some((1, Fault::Error(Errno::NOSPC))), || {
            file.append_packets(packets.into_iter())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let too_long = [(&b"x"[..], 1 << 20)];
        assert!(file.append_packets(too_long.into_iter()).is_err());
        assert_eq!(contents(&file), all);
        assert_eq!(file.size(), Bytes(20));
    }

    #[test]
    fn long_padding_takes_no_space_on_the_disk() {
        use std::os::unix::fs::MetadataExt;
        let mut file = tracefile();
        let extent = file.finish_packet(b"x", 512 << 20).unwrap();
        assert_eq!(extent.len, Bytes((512 << 20) + 1));
        let metadata = file.file.opened().unwrap().metadata().unwrap();
        assert_eq!(metadata.len(), extent.len.0);
        assert!(metadata.blocks() < 100);
    }

    #[test]
    fn an_incomplete_packet_is_removed_from_its_tracefile() {
        let mut file = tracefile();
        file.finish_packet(b"whole", 0).unwrap();
        file.append(b"half of the nex").unwrap();
        file.drop_packet();
        assert_eq!(contents(&file), b"whole");
        file.finish_packet(b"next", 0).unwrap();
        assert_eq!(contents(&file), b"wholenext");
    }
}
