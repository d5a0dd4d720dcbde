//! The metadata of a trace: one file that grows, and after a rotation another that begins with all
//! of it again.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use ctf::Metadata;
use ctf::write::metadata_packets;
use rustix::fs::OFlags;

use super::tracefile_reader::{LOCK_GRACE_PERIOD, is_locked};

/// A metadata file that grows.
#[derive(Debug)]
pub(super) struct GrowingMetadataFile {
    file: File,
    found: Instant,
    pub(super) metadata: Metadata,
    /// The bytes of the file so far.
    pub(super) bytes: Vec<u8>,
    /// The text of the metadata so far, out of its packets.
    pub(super) text: Vec<u8>,
    /// The reason why the file cannot be read further. Absent while it can.
    pub(super) broken: Option<String>,
}

impl GrowingMetadataFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: regular_file::open(path, OFlags::RDONLY)?,
            found: Instant::now(),
            metadata: Metadata::new(),
            bytes: Vec::new(),
            text: Vec::new(),
            broken: None,
        })
    }

    /// Reads what has been appended to the file. Returns whether anything has.
    pub(super) fn grow(&mut self) -> bool {
        let before = self.bytes.len();
        if self.broken.is_some() {
            return false;
        }
        if let Err(error) = self.file.read_to_end(&mut self.bytes) {
            self.broken = Some(error.to_string());
        }
        // Bytes that came before an error are good, and packets may need them.
        let new = self.bytes.get(before..).unwrap_or_default();
        match self.metadata.extend(new) {
            Ok(()) => self.text.extend_from_slice(self.metadata.text()),
            Err(error) => self.broken = Some(crate::with_sources(&error)),
        }
        self.bytes.len() > before
    }

    /// Whether the metadata declares a stream: before it does, no packet can be read.
    pub(super) fn is_usable(&self) -> bool {
        self.metadata.trace().streams().next().is_some()
    }

    /// Whether the relay holds its lock on the file, or may not have taken it yet.
    pub(super) fn is_being_written(&self) -> bool {
        self.is_new() || is_locked(&self.file)
    }

    /// Whether the relay holds its lock on the file.
    pub(super) fn is_locked(&self) -> bool {
        !self.is_new() && is_locked(&self.file)
    }

    /// The relay takes the lock before it writes anything: only an empty file may not be locked
    /// yet.
    fn is_new(&self) -> bool {
        self.bytes.is_empty() && self.found.elapsed() < LOCK_GRACE_PERIOD
    }
}

/// The metadata of a trace that has been sent to the reader.
#[derive(Debug, Default)]
pub(super) struct AnnouncedMetadata {
    text: Vec<u8>,
    /// Bytes of the first chunk's file that have been sent; later chunks have their packets cut
    /// elsewhere.
    bytes: usize,
}

impl AnnouncedMetadata {
    /// Returns what `file` has beyond all that was sent. The file of the first chunk is sent as it
    /// is.
    pub(super) fn take_new(&mut self, file: &GrowingMetadataFile, is_first: bool) -> Vec<u8> {
        let new = if is_first {
            let new = file.bytes.get(self.bytes..).unwrap_or_default().to_vec();
            self.bytes = file.bytes.len();
            new
        } else {
            let Some(new) = file.text.strip_prefix(&*self.text) else {
                return Vec::new();
            };
            let uuid = file.metadata.trace().uuid();
            match (std::str::from_utf8(new), uuid) {
                (Ok(text), Some(uuid)) if file.metadata.is_packetised() => {
                    metadata_packets(uuid, text)
                }
                // Half a character: the rest of it is written later.
                (Err(_), _) => return Vec::new(),
                _ => new.to_vec(),
            }
        };
        self.text.clone_from(&file.text);
        new
    }

    /// Whether the file can be of another chunk of the same trace.
    pub(super) fn agrees_with(&self, file: &GrowingMetadataFile) -> bool {
        self.text.starts_with(&file.text) || file.text.starts_with(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ctf::model::Uuid;
    use ctf::write::{EventDeclaration, MetadataText, TraceDeclaration};

    use super::*;

    const UUID: Uuid = Uuid([5; 16]);

    #[test]
    fn metadata_of_a_later_chunk_is_sent_only_from_where_the_first_ends() {
        let mut text = MetadataText::new(&TraceDeclaration::new(UUID, "test"));
        let stream = text.stream(0).unwrap();
        let event = |text: &mut MetadataText, id, name| {
            text.event(&stream, &EventDeclaration::new(id, name))
                .unwrap();
            metadata_packets(UUID, text.take_new())
        };
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let mut first = File::create(path("first")).unwrap();
        first.write_all(&event(&mut text, 0, "a")).unwrap();
        let mut growing = GrowingMetadataFile::open(&path("first")).unwrap();
        let (mut announced, mut sent) = (AnnouncedMetadata::default(), Metadata::new());
        assert!(growing.grow() && growing.is_usable());
        sent.extend(&announced.take_new(&growing, true)).unwrap();
        // Half of a packet is no reason to wait: the reader takes it as it comes.
        let more = event(&mut text, 1, "b");
        for part in more.chunks(50) {
            first.write_all(part).unwrap();
            assert!(growing.grow());
            sent.extend(&announced.take_new(&growing, true)).unwrap();
        }
        assert!(!growing.grow());
        event(&mut text, 2, "c");
        std::fs::write(path("second"), metadata_packets(UUID, text.as_str())).unwrap();
        let mut other = GrowingMetadataFile::open(&path("second")).unwrap();
        other.grow();
        assert!(announced.agrees_with(&other));
        sent.extend(&announced.take_new(&other, false)).unwrap();
        assert_eq!(announced.take_new(&other, false), b"");
        let stream = sent.trace().stream(0).unwrap();
        let names = [0, 1, 2].map(|id| stream.event(id).unwrap().name().unwrap());
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_malformed_metadata_file_is_reported_as_unusable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata");
        std::fs::write(&path, "trace { major = 1; minor = ; };").unwrap();
        let mut file = GrowingMetadataFile::open(&path).unwrap();
        file.grow();
        assert!(file.broken.is_some() && !file.is_usable());
    }
}
