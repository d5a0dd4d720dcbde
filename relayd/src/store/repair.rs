//! Repair of the traces that a killed relay has left in the output directory, before the next relay listens.
//!
//! An index file of this relay ends in a beacon until its stream is closed; index files of `lttng-relayd` never do. A
//! beacon in a trace that no relay has locked therefore shows that the relay which wrote it has died. The repair then
//!
//! - truncates the tracefile behind the last packet that has an entry, because a partial packet at the end makes
//!   Babeltrace refuse the whole trace,
//! - removes entries that point past the end of the tracefile, and a partial entry, from the index file,
//! - removes the beacon, and the index file if it has no entry.
//!
//! The repair changes nothing else: no file without a beacon, no target of a symbolic link, no trace that a relay has
//! locked. Directories are opened relative to the descriptors of their parents (openat(2)), so that a directory that is
//! replaced by a link meanwhile does not lead out of the output.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ctf::index::{Beacon, IndexFormat, IndexHeader, MAX_ENTRY_BYTES};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::retry_on_intr;
use tracing::{info, warn};
use wire::Field;

use super::chunk::is_being_deleted;
use super::is_locked;
use crate::limits::MAX_OUTPUT_DEPTH;

/// Name of the directory of index files beside tracefiles.
const INDEX_DIRECTORY: &str = "index";

/// The counters of a repair.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    /// Index files from which a beacon, a partial entry or entries without a packet were removed.
    pub indexes: u64,
    /// Tracefiles that were truncated.
    pub tracefiles: u64,
    /// Bytes by which tracefiles were truncated.
    pub bytes: u64,
    /// Chunks whose deletion was completed.
    pub chunks: u64,
}

/// Repairs every trace below the output directory that was not closed and that no relay has locked.
///
/// What cannot be repaired is logged and left as it is: the relay records nevertheless.
#[must_use]
pub fn repair(output: &Path) -> Repaired {
    let mut repair = Repair {
        path: output.to_owned(),
        repaired: Repaired::default(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(output, flags, Mode::empty())) {
        Ok(directory) => repair.repair_directory(&directory, 0),
        Err(error) => repair.failed(error.into()),
    }
    repair.repaired
}

#[derive(Debug)]
struct Repair {
    /// Path of the directory or file that is being examined, for the log.
    path: PathBuf,
    repaired: Repaired,
}

impl Repair {
    fn failed(&self, error: io::Error) {
        warn!(path = %self.path.display(), %error, "trace not repaired");
    }

    /// Calls `then` while `path` is that of `name` in the current directory.
    fn at_name(&mut self, name: &[u8], then: impl FnOnce(&mut Self)) {
        self.path.push(std::ffi::OsStr::from_bytes(name));
        then(self);
        self.path.pop();
    }

    fn repair_directory(&mut self, directory: &OwnedFd, depth: usize) {
        let names = match names_in(directory, FileType::Directory) {
            Ok(names) => names,
            Err(error) => return self.failed(error),
        };
        for name in names {
            self.at_name(&name, |repair| {
                if is_being_deleted(&name) {
                    return repair.finish_deletion();
                }
                let opened = match open_directory(directory, &name) {
                    Ok(opened) => opened,
                    Err(error) => return repair.failed(error),
                };
                if name == INDEX_DIRECTORY.as_bytes() {
                    repair.repair_trace(directory, &opened);
                } else if depth < MAX_OUTPUT_DEPTH {
                    repair.repair_directory(&opened, depth + 1);
                }
            });
        }
    }

    /// Completes the deletion of a chunk, which the death of the relay has interrupted.
    fn finish_deletion(&mut self) {
        match std::fs::remove_dir_all(&self.path) {
            Ok(()) => self.repaired.chunks += 1,
            Err(error) => self.failed(error),
        }
    }

    /// Repairs the trace in a directory. Each of its index files has a tracefile.
    fn repair_trace(&mut self, trace: &OwnedFd, index: &OwnedFd) {
        // A relay that writes the trace keeps its metadata locked, even while its idle tracefiles are closed.
        let metadata = open_file(trace.as_fd(), b"metadata", OFlags::RDONLY);
        if metadata.is_ok_and(|metadata| is_locked(&metadata)) {
            return;
        }
        let names = match names_in(index, FileType::RegularFile) {
            Ok(names) => names,
            Err(error) => return self.failed(error),
        };
        for name in names {
            let Some(data) = name.strip_suffix(b".idx") else {
                continue;
            };
            self.at_name(&name, |repair| {
                if let Err(error) = repair.repair_tracefile(trace, data, index, &name) {
                    repair.failed(error);
                }
            });
        }
    }

    fn repair_tracefile(
        &mut self,
        trace: &OwnedFd,
        data_name: &[u8],
        index: &OwnedFd,
        index_name: &[u8],
    ) -> io::Result<()> {
        // Few index files end in a beacon. The tracefiles of all others need not be opened.
        let index_file = open_file(index.as_fd(), index_name, OFlags::RDWR)?;
        let Some(format) = format_if_unclosed(&index_file)? else {
            return Ok(());
        };
        let data = open_file(trace.as_fd(), data_name, OFlags::RDWR)?;
        if is_locked(&data) {
            return Ok(());
        }
        let data_len = data.metadata()?.len();
        let (entries, indexed_len) = valid_entries(&index_file, format, data_len)?;
        let excess = data_len.saturating_sub(indexed_len);
        if excess > 0 {
            // Before the index file loses its beacon: if this relay dies in between, the next one repairs the rest.
            data.set_len(indexed_len)?;
            self.repaired.tracefiles += 1;
            self.repaired.bytes += excess;
        }
        if entries == 0 {
            unlinkat(index, index_name, AtFlags::empty())?;
        } else {
            index_file.set_len(format.position(entries))?;
        }
        self.repaired.indexes += 1;
        info!(index = %self.path.display(), entries, cut = excess, "trace of a relay that was killed repaired");
        Ok(())
    }
}

/// The format of an index file that was not closed. None if it was closed, or if another relay wrote it.
fn format_if_unclosed(index: &File) -> io::Result<Option<IndexFormat>> {
    let len = index.metadata()?.len();
    let Some(tail) = len.checked_sub(Beacon::SIZE as u64) else {
        return Ok(None);
    };
    if tail < IndexHeader::SIZE as u64 {
        return Ok(None);
    }
    let mut bytes = [0; Beacon::SIZE];
    index.read_exact_at(&mut bytes, tail)?;
    if Beacon::at_front(&bytes).is_none() {
        return Ok(None);
    }
    let mut header = [0; IndexHeader::SIZE];
    index.read_exact_at(&mut header, 0)?;
    let formats = [IndexFormat::V1_0, IndexFormat::V1_1];
    let is_it = |format: &IndexFormat| format.header_bytes() == header;
    Ok(formats.into_iter().find(is_it))
}

/// Number of entries whose packets lie within the first `data_len` bytes of the tracefile, and the end of the last of
/// these packets. The index file ends in a beacon.
///
/// # Errors
/// If the packets do not lie one after the other. Such entries cannot be trusted, and nothing may be truncated by them.
fn valid_entries(index: &File, format: IndexFormat, data_len: u64) -> io::Result<(u64, u64)> {
    let frame = format.position(0) + Beacon::SIZE as u64;
    let count = index.metadata()?.len().saturating_sub(frame) / format.entry_len() as u64;
    let mut last_end = 0;
    let mut bytes = [0; MAX_ENTRY_BYTES];
    let (bytes, _) = bytes.split_at_mut(format.entry_len());
    for number in 0..count {
        index.read_exact_at(bytes, format.position(number))?;
        let entry = format.decode(bytes).map_err(io::Error::other)?;
        if entry.offset.0 < last_end {
            let text = format!("entry {number} points into the packet before it");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let size = entry.packet.packet_size.to_bytes().unwrap_or_default();
        let end = entry.offset.0.saturating_add(size.0);
        if end > data_len {
            return Ok((number, last_end));
        }
        last_end = end;
    }
    Ok((count, last_end))
}

fn open_directory(in_directory: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| {
        openat(in_directory, name, flags, Mode::empty())
    })?)
}

/// Opens a regular file. Does not wait for the other end if the name is that of a FIFO.
fn open_file(in_directory: BorrowedFd<'_>, name: &[u8], access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| openat(in_directory, name, flags, Mode::empty()))?;
    let file = File::from(opened);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Names of the files of this type in a directory, without `.` and `..`. The whole directory is read before anything in
/// it is changed, because POSIX leaves open whether a directory that changes while it is read shows the change.
fn names_in(directory: &OwnedFd, wanted: FileType) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let file_type = match entry.file_type() {
            // Some file systems do not store the type in the directory (readdir(3)).
            FileType::Unknown => {
                let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        let bytes = name.to_bytes();
        if file_type == wanted && !matches!(bytes, b"." | b"..") {
            names.push(bytes.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use ctf::index::Entry;
    use wire::{Bits, Bytes, ClassId, PacketIndex, Timestamp};

    use super::*;

    const PACKET: usize = 1000;

    /// An output directory with one trace.
    struct Output {
        directory: tempfile::TempDir,
    }

    impl Output {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let output = Self { directory };
            fs::create_dir_all(output.path("index")).unwrap();
            fs::write(output.path("metadata"), "/* CTF 1.8 */").unwrap();
            output
        }

        fn path(&self, name: &str) -> PathBuf {
            let trace = "host/session-20260101-000000/ust/uid/0/64-bit";
            self.directory.path().join(trace).join(name)
        }

        /// Writes a tracefile with a number of bytes, and its index file with a number of entries and this tail.
        fn stream(&self, name: &str, bytes: usize, entries: u64, tail: &[u8]) {
            fs::write(self.path(name), vec![1; bytes]).unwrap();
            let format = IndexFormat::V1_1;
            let mut index = format.header_bytes();
            for number in 0..entries {
                let mut bytes = [0; MAX_ENTRY_BYTES];
                index.extend(format.encode(&entry(number), &mut bytes));
            }
            index.extend(tail);
            fs::write(self.path(&format!("index/{name}.idx")), index).unwrap();
        }

        fn repair(&self) -> Repaired {
            repair(self.directory.path())
        }

        /// Lengths of the tracefile and of its index file. None: it does not exist.
        fn sizes(&self, name: &str) -> (Option<u64>, Option<u64>) {
            let len = |path: PathBuf| path.metadata().ok().map(|about| about.len());
            let index = self.path(&format!("index/{name}.idx"));
            (len(self.path(name)), len(index))
        }
    }

    fn entry(number: u64) -> Entry {
        let size = PACKET as u64;
        Entry {
            offset: Bytes(number * size),
            packet: PacketIndex {
                packet_size: Bits(size * 8),
                content_size: Bits(size * 8),
                begin: Timestamp(0),
                end: Timestamp(1),
                events_discarded: 0,
                class: ClassId(0),
                instance: None,
                packet_seq: None,
            },
        }
    }

    fn beacon() -> Vec<u8> {
        Beacon::new(Timestamp(0)).to_bytes()
    }

    #[test]
    fn a_tracefile_is_truncated_to_its_last_entry_and_the_beacon_removed() {
        let output = Output::new();
        output.stream("half_0", 2 * PACKET + 300, 2, &beacon());
        output.stream("whole_0", 3 * PACKET, 3, &beacon());
        let repaired = output.repair();
        assert_eq!(output.sizes("half_0"), (Some(2000), Some(16 + 2 * 72)));
        assert_eq!(output.sizes("whole_0"), (Some(3000), Some(16 + 3 * 72)));
        let want = Repaired {
            indexes: 2,
            tracefiles: 1,
            bytes: 300,
            chunks: 0,
        };
        assert_eq!(repaired, want);
        assert_eq!(
            output.repair(),
            Repaired::default(),
            "nothing is left to do"
        );
    }

    #[test]
    fn a_tracefile_without_entries_is_emptied_and_its_index_file_removed() {
        let output = Output::new();
        output.stream("first_0", 300, 0, &beacon());
        output.repair();
        assert_eq!(output.sizes("first_0"), (Some(0), None));
    }

    #[test]
    fn entries_beyond_the_tracefile_are_removed() {
        let output = Output::new();
        output.stream("short_0", 2 * PACKET + 1, 4, &beacon());
        // Half an entry before the beacon.
        output.stream("torn_0", 2 * PACKET, 2, &[&[1; 30][..], &beacon()].concat());
        output.repair();
        assert_eq!(output.sizes("short_0"), (Some(2000), Some(16 + 2 * 72)));
        assert_eq!(output.sizes("torn_0"), (Some(2000), Some(16 + 2 * 72)));
    }

    #[test]
    fn repair_leaves_closed_index_files_and_those_of_other_relays_alone() {
        let output = Output::new();
        output.stream("closed_0", 2 * PACKET + 300, 2, &[]);
        output.stream("strange_0", 2 * PACKET, 1, &beacon());
        let strange = output.path("index/strange_0.idx");
        let mut bytes = fs::read(&strange).unwrap();
        bytes[0] ^= 1;
        fs::write(&strange, bytes).unwrap();
        output.stream("overlapping_0", 3 * PACKET, 2, &beacon());
        let overlapping = output.path("index/overlapping_0.idx");
        let mut bytes = fs::read(&overlapping).unwrap();
        // The offset of the second entry.
        bytes[16 + 72..][..8].copy_from_slice(&500_u64.to_be_bytes());
        fs::write(&overlapping, bytes).unwrap();
        assert_eq!(output.repair(), Repaired::default());
        assert_eq!(output.sizes("closed_0"), (Some(2300), Some(16 + 2 * 72)));
        assert_eq!(output.sizes("strange_0").0, Some(2000));
        assert_eq!(output.sizes("overlapping_0").0, Some(3000));
    }

    #[test]
    fn a_trace_that_another_relay_writes_is_left_alone() {
        for locked in ["metadata", "busy_0"] {
            let output = Output::new();
            output.stream("busy_0", 2 * PACKET + 300, 2, &beacon());
            let file = File::open(output.path(locked)).unwrap();
            file.lock().unwrap();
            assert_eq!(output.repair(), Repaired::default(), "{locked}");
            file.unlock().unwrap();
            // The lock of a reader does not count.
            file.lock_shared().unwrap();
            assert_eq!(output.repair().tracefiles, 1, "{locked}");
        }
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let (output, other) = (Output::new(), Output::new());
        other.stream("mine_0", PACKET + 1, 1, &beacon());
        // Links to a directory, a tracefile and an index file of another output.
        symlink(other.directory.path(), output.directory.path().join("link")).unwrap();
        symlink(other.path("mine_0"), output.path("mine_0")).unwrap();
        fs::copy(
            other.path("index/mine_0.idx"),
            output.path("index/mine_0.idx"),
        )
        .unwrap();
        output.stream("own_0", PACKET, 1, &beacon());
        fs::remove_file(output.path("index/own_0.idx")).unwrap();
        symlink(
            other.path("index/mine_0.idx"),
            output.path("index/own_0.idx"),
        )
        .unwrap();
        assert_eq!(output.repair(), Repaired::default());
        let untouched = (Some(1001), Some(16 + 72 + 16));
        assert_eq!(other.sizes("mine_0"), untouched);
    }

    #[test]
    fn a_deletion_that_was_interrupted_is_completed() {
        let output = Output::new();
        let left = output.path("../../../../.tmp_deleted_chunk-77-0");
        fs::create_dir_all(left.join("ust")).unwrap();
        fs::write(left.join("ust/metadata"), "").unwrap();
        assert_eq!(output.repair().chunks, 1);
        assert!(!left.exists());
    }
}
