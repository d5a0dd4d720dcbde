//! Reads the packets of a stream from its files, one after the other.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::streams::{PacketPlace, StreamFiles};
use super::traces::DirectoryError;

/// Reads the packets of one stream. Holds at most one file open.
///
/// Packets are copied out of the page cache rather than mapped: a file that shrinks while it is
/// read is an error then, and not the end of the program.
#[derive(Debug)]
pub struct StreamReader {
    packets: std::vec::IntoIter<PacketPlace>,
    open: Option<(Arc<Path>, File)>,
    current: Option<PacketPlace>,
    broken: Option<Arc<DirectoryError>>,
}

impl StreamReader {
    /// At the first packet of `stream`.
    #[must_use]
    pub fn new(stream: &StreamFiles) -> Self {
        Self {
            packets: stream.packets.clone().into_iter(),
            open: None,
            current: None,
            broken: stream.broken.clone(),
        }
    }

    /// Reads the next packet into `bytes`, in place of what is there. False: there is none.
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

    /// Where the packet lies that was read last: its file, and the offset in bytes.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, u64)> {
        let current = self.current.as_ref()?;
        Some((&current.file, current.offset))
    }

    fn read(&mut self, packet: &PacketPlace, bytes: &mut Vec<u8>) -> Result<(), DirectoryError> {
        let failed = |source| DirectoryError::Read {
            path: packet.file.to_path_buf(),
            source,
        };
        if self
            .open
            .as_ref()
            .is_none_or(|(path, _)| *path != packet.file)
        {
            let file = File::open(&packet.file).map_err(failed)?;
            self.open = Some((Arc::clone(&packet.file), file));
        }
        let length = usize::try_from(packet.bytes).unwrap_or(usize::MAX);
        bytes.resize(length, 0);
        match &self.open {
            Some((_, file)) => file.read_exact_at(bytes, packet.offset).map_err(failed),
            None => Ok(()),
        }
    }
}
