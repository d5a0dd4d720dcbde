//! Reads the packets of a stream from its files, one after the other.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::error::DirectoryError;
use super::streams::{PacketPlace, PacketSummary, StreamFiles};

/// A packet that has not been read.
#[derive(Debug, Clone)]
pub struct UnreadPacket {
    /// The file that holds the packet.
    pub file: Arc<File>,
    /// The offset of the packet in the file, in bytes.
    pub offset: u64,
    /// The size in bytes, with padding.
    pub bytes: u64,
}

/// A file of packets as it was when a reader opened it.
#[derive(Debug)]
pub struct DataFile {
    path: Arc<Path>,
    /// The numbers of the device and of the file.
    file: (u64, u64),
    length: u64,
    /// Absent where the file system does not know it.
    modified: Option<SystemTime>,
}

/// Reads the packets of one stream. Holds at most one file open.
///
/// Packets are copied out of the page cache rather than mapped: a file that shrinks while it is
/// read is an error then, and not the end of the program.
#[derive(Debug)]
pub struct StreamReader {
    packets: std::vec::IntoIter<PacketPlace>,
    open: Option<Arc<File>>,
    /// The file that was opened last.
    file: Option<Arc<DataFile>>,
    current: Option<PacketPlace>,
    broken: Option<Arc<DirectoryError>>,
    ahead: ReadAhead,
}

/// Bytes of the open file that have been read with an earlier packet: reading small packets one by
/// one would be more calls of the system than anything else.
#[derive(Debug, Default)]
struct ReadAhead {
    /// The most bytes that are read at a time; 0 if packets are read one by one.
    max: usize,
    bytes: Vec<u8>,
    /// The place of the bytes in the file, and their number.
    offset: u64,
    length: usize,
}

impl StreamReader {
    /// A reader at the first packet of `stream`.
    #[must_use]
    pub fn new(stream: &StreamFiles) -> Self {
        Self::of_packets(stream, 0..stream.packets())
    }

    /// A reader of those packets of `stream` that have these numbers. What is wrong after the last
    /// packet of the stream is an error after this packet only.
    #[must_use]
    pub fn of_packets(stream: &StreamFiles, packets: Range<usize>) -> Self {
        let is_to_end = packets.end >= stream.packets();
        let packets = stream.packets.get(packets).unwrap_or_default().to_vec();
        Self {
            packets: packets.into_iter(),
            open: None,
            file: None,
            current: None,
            broken: stream.broken.clone().filter(|_| is_to_end),
            ahead: ReadAhead::default(),
        }
    }

    /// Reads several small packets that follow one another at a time, up to `max` bytes, and keeps
    /// them until they are asked for.
    pub fn read_ahead(&mut self, max: usize) {
        self.ahead = ReadAhead {
            max,
            ..ReadAhead::default()
        };
    }

    /// The size and times of the packet that [`next`](Self::next) would read; `None` after the
    /// last.
    #[must_use]
    pub fn peek(&self) -> Option<PacketSummary> {
        self.packets.as_slice().first().map(PacketSummary::of)
    }

    /// Replaces the contents of `bytes` by the next packet. Returns false after the last packet.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else than packets.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool, Arc<DirectoryError>> {
        let Some(packet) = self.packets.next() else {
            return self.broken.take().map_or(Ok(false), Err);
        };
        let read = self.read(&packet, bytes);
        // Also if it could not be read: the caller asks for the place of the error.
        self.current = Some(packet);
        read.map(|()| true).map_err(Arc::new)
    }

    /// Skips the next packet without reading it, and returns its place; `None` after the last
    /// packet.
    ///
    /// # Errors
    /// If the file cannot be opened, or holds something else than packets.
    pub fn next_unread(&mut self) -> Result<Option<UnreadPacket>, Arc<DirectoryError>> {
        let Some(packet) = self.packets.next() else {
            return self.broken.take().map_or(Ok(None), Err);
        };
        let file = self.open(&packet);
        let (offset, bytes) = (packet.offset, packet.bytes);
        // Also if its file cannot be opened, as in `next`.
        self.current = Some(packet);
        Ok(Some(UnreadPacket {
            file: file.map_err(Arc::new)?,
            offset,
            bytes,
        }))
    }

    /// Closes the file that is open. The next packet opens its file again.
    pub fn close_file(&mut self) {
        self.open = None;
        self.ahead.length = 0;
    }

    /// The place of the packet that was read last: its file, and the offset in bytes. `None` before
    /// the first.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, u64)> {
        let current = self.current.as_ref()?;
        Some((&current.file, current.offset))
    }

    /// The place of the packet that was read last, to read it again. `None` before the first.
    #[must_use]
    pub fn data_file(&self) -> Option<(Arc<DataFile>, u64)> {
        let current = self.current.as_ref()?;
        Some((Arc::clone(self.file.as_ref()?), current.offset))
    }

    fn read(&mut self, packet: &PacketPlace, bytes: &mut Vec<u8>) -> Result<(), DirectoryError> {
        let file = self.open(packet)?;
        let next = self.packets.as_slice().first();
        let is_adjacent = next.is_some_and(|next| {
            next.file == packet.file && next.offset == packet.offset.saturating_add(packet.bytes)
        });
        if let Some(read) = self.ahead.packet(&file, packet, is_adjacent) {
            bytes.clear();
            bytes.extend_from_slice(read);
            return Ok(());
        }
        read_at(&file, packet.offset, packet.bytes, bytes).map_err(|source| failed(packet, source))
    }

    /// Opens the file of a packet, unless it is the one that is open.
    fn open(&mut self, packet: &PacketPlace) -> Result<Arc<File>, DirectoryError> {
        let known = self.file.as_ref();
        let is_known = known.is_some_and(|known| known.path == packet.file);
        if let Some(file) = self.open.as_ref().filter(|_| is_known) {
            return Ok(Arc::clone(file));
        }
        let file = File::open(&packet.file).map_err(|source| failed(packet, source))?;
        if !is_known {
            let opened = DataFile::new(&packet.file, &file);
            self.file = Some(Arc::new(opened.map_err(|source| failed(packet, source))?));
        }
        let file = Arc::new(file);
        // The bytes that were read ahead are those of the file before.
        self.ahead.length = 0;
        self.open = Some(Arc::clone(&file));
        Ok(file)
    }
}

impl DataFile {
    fn new(path: &Arc<Path>, file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self {
            path: Arc::clone(path),
            file: (about.dev(), about.ino()),
            length: about.len(),
            modified: about.modified().ok(),
        })
    }

    /// Reads `length` bytes at `offset` again.
    ///
    /// # Errors
    /// If the file cannot be read, or has changed since it was opened first.
    pub fn read_again(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let read = || {
            // To open a pipe would wait for its writer.
            if !fs::metadata(&self.path)?.is_file() {
                return Err(io::Error::other("it is no file now"));
            }
            let file = File::open(&self.path)?;
            let now = Self::new(&self.path, &file)?;
            // What is appended changes no packet that is there.
            let is_appended = now.length > self.length;
            let is_same = is_appended || (now.length, now.modified) == (self.length, self.modified);
            if now.file != self.file || !is_same {
                return Err(io::Error::other("the file has changed"));
            }
            let mut bytes = Vec::new();
            read_at(&file, offset, length as u64, &mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| {
            let path = self.path.display();
            io::Error::new(error.kind(), format!("cannot read {path} again: {error}"))
        })
    }
}

impl ReadAhead {
    /// The bytes of a packet, if they have been read, or if the packet is small and others follow
    /// it. `None` also if they cannot be read: then the packet is to be read alone.
    fn packet(&mut self, file: &File, packet: &PacketPlace, is_followed: bool) -> Option<&[u8]> {
        let length = usize::try_from(packet.bytes).ok()?;
        let end = self.offset.saturating_add(self.length as u64);
        let is_read =
            packet.offset >= self.offset && packet.offset.saturating_add(packet.bytes) <= end;
        if !is_read {
            // A packet of more than half the buffer leaves too little room for others to save a
            // call.
            if !is_followed || length > self.max / 2 {
                return None;
            }
            self.bytes.resize(self.max, 0);
            // First, so that after an error no bytes of another place are left.
            self.length = 0;
            self.length = file.read_at(&mut self.bytes, packet.offset).ok()?;
            self.offset = packet.offset;
        }
        let first = usize::try_from(packet.offset - self.offset).ok()?;
        self.bytes
            .get(..self.length)?
            .get(first..first.checked_add(length)?)
    }
}

fn failed(packet: &PacketPlace, source: io::Error) -> DirectoryError {
    DirectoryError::Read {
        path: packet.file.to_path_buf(),
        source,
    }
}

/// Replaces the contents of the buffer by `length` bytes of the file. Only what the buffer grows by
/// is filled with zeros before: packets mostly have the same size.
fn read_at(file: &File, offset: u64, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let whole = usize::try_from(length).unwrap_or(usize::MAX);
    let missing = whole.saturating_sub(bytes.len());
    // A sparse file may claim a packet of any size: an error is better than the end of the program.
    bytes
        .try_reserve_exact(missing)
        .map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(whole, 0);
    file.read_exact_at(bytes, offset)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_packet_is_read_again_until_its_file_changes_or_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path: Arc<Path> = directory.path().join("channel_0").into();
        fs::write(&path, b"onetwo").unwrap();
        let file = DataFile::new(&path, &File::open(&path).unwrap()).unwrap();
        assert_eq!(file.read_again(3, 3).unwrap(), b"two");
        assert!(file.read_again(3, 4).is_err());
        // What is appended changes no packet that is there.
        let mut appended = File::options().append(true).open(&path).unwrap();
        appended.write_all(b"three").unwrap();
        assert_eq!(file.read_again(3, 3).unwrap(), b"two");
        let file = DataFile::new(&path, &File::open(&path).unwrap()).unwrap();
        let written = File::options().write(true).open(&path).unwrap();
        let modified = file.modified.unwrap() + Duration::from_secs(1);
        written.set_modified(modified).unwrap();
        let error = file.read_again(3, 3).unwrap_err().to_string();
        assert!(
            error.ends_with("channel_0 again: the file has changed"),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = file.read_again(3, 3).unwrap_err().to_string();
        assert!(error.ends_with("it is no file now"), "{error}");
        fs::remove_dir(&path).unwrap();
        let error = file.read_again(3, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
