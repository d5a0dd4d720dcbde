//! Reads the packets of a stream from its files, one after the other.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::error::DirectoryError;
use super::streams::{PacketPlace, StreamFiles};

/// The size and times of a packet before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextPacket {
    /// The size in bytes, with padding.
    pub bytes: u64,
    /// The time of the packet's beginning, in cycles of the stream's clock; `None` if packets do not say.
    pub begin: Option<u64>,
    /// The time of the packet's end, in cycles of the stream's clock; `None` if packets do not say.
    pub end: Option<u64>,
}

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

/// Reads the packets of one stream. Holds at most one file open.
///
/// Packets are copied out of the page cache rather than mapped: a file that shrinks while it is
/// read is an error then, and not the end of the program.
#[derive(Debug)]
pub struct StreamReader {
    packets: std::vec::IntoIter<PacketPlace>,
    open: Option<(Arc<Path>, Arc<File>)>,
    current: Option<PacketPlace>,
    broken: Option<Arc<DirectoryError>>,
}

impl StreamReader {
    /// A reader at the first packet of `stream`.
    #[must_use]
    pub fn new(stream: &StreamFiles) -> Self {
        Self {
            packets: stream.packets.clone().into_iter(),
            open: None,
            current: None,
            broken: stream.broken.clone(),
        }
    }

    /// The size and times of the packet that [`next`](Self::next) would read; `None` behind the last.
    #[must_use]
    pub fn peek(&self) -> Option<NextPacket> {
        let packet = self.packets.as_slice().first()?;
        Some(NextPacket {
            bytes: packet.bytes,
            begin: packet.begin,
            end: packet.end,
        })
    }

    /// Replaces the contents of `bytes` by the next packet. Returns false behind the last packet.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else than packets.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool, Arc<DirectoryError>> {
        let Some(packet) = self.packets.next() else {
            return self.broken.take().map_or(Ok(false), Err);
        };
        let read = self.read(&packet, bytes);
        self.current = Some(packet);
        read.map(|()| true).map_err(Arc::new)
    }

    /// Skips the next packet without reading it, and returns its place; `None` behind the last packet.
    ///
    /// # Errors
    /// If the file cannot be opened, or holds something else than packets.
    pub fn next_unread(&mut self) -> Result<Option<UnreadPacket>, Arc<DirectoryError>> {
        let Some(packet) = self.packets.next() else {
            return self.broken.take().map_or(Ok(None), Err);
        };
        let file = self.open(&packet);
        let (offset, bytes) = (packet.offset, packet.bytes);
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
    }

    /// The place of the packet that was read last: its file, and the offset in bytes. `None` before the
    /// first.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, u64)> {
        let current = self.current.as_ref()?;
        Some((&current.file, current.offset))
    }

    fn read(&mut self, packet: &PacketPlace, bytes: &mut Vec<u8>) -> Result<(), DirectoryError> {
        let file = self.open(packet)?;
        read_at(&file, packet.offset, packet.bytes, bytes).map_err(|source| failed(packet, source))
    }

    /// Opens the file of a packet, unless it is the one that is open.
    fn open(&mut self, packet: &PacketPlace) -> Result<Arc<File>, DirectoryError> {
        if let Some((path, file)) = &self.open
            && *path == packet.file
        {
            return Ok(Arc::clone(file));
        }
        let file = File::open(&packet.file).map_err(|source| failed(packet, source))?;
        let file = Arc::new(file);
        self.open = Some((Arc::clone(&packet.file), Arc::clone(&file)));
        Ok(file)
    }
}

fn failed(packet: &PacketPlace, source: io::Error) -> DirectoryError {
    DirectoryError::Read {
        path: packet.file.to_path_buf(),
        source,
    }
}

/// Replaces the contents of the buffer by `length` bytes of the file. Only what the buffer grows by is filled with zeros
/// before: packets mostly have the same size.
fn read_at(file: &File, offset: u64, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let whole = usize::try_from(length).unwrap_or(usize::MAX);
    let missing = whole.saturating_sub(bytes.len());
    bytes
        .try_reserve_exact(missing)
        .map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(whole, 0);
    file.read_exact_at(bytes, offset)
}
