//! Packets as traces in CTF: an archive of the directories that `--sink ctf` would write.

use std::collections::HashMap;
use std::io::{self, BufWriter, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tar::{Builder, EntryType, Header};
use viewer::attach::{StreamKey, TraceKey};
use viewer::trace_tree::{self, Tree};

use super::packet_log::{LoggedPacket, LoggedTrace};

/// The archive is written in pieces of about so many bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes an archive of the packets, in which the packets of each stream have the order that they
/// have here.
///
/// # Errors
/// If `out` takes nothing more, or packets in memory have changed.
pub(super) fn write(packets: &[LoggedPacket], out: impl Write) -> io::Result<()> {
    let now = jiff::Timestamp::now().as_second().try_into().unwrap_or(0);
    let mut tree = ArchiveTree::default();
    let mut archive = Builder::new(BufWriter::with_capacity(BUFFER_BYTES, out));
    for (trace, streams) in by_trace(packets) {
        let directory = trace_tree::create_trace(&mut tree, Path::new(""), &trace.info.name)?;
        // Before the streams, one of which may be called the same.
        tree.create_file(&directory.join("metadata"))?;
        let metadata = trace.metadata_from(0);
        let mut header = header(metadata.len(), now);
        archive.append_data(&mut header, directory.join("metadata"), &*metadata)?;
        for packets in streams {
            let Some(first) = packets.first() else {
                continue;
            };
            let (path, ()) = trace_tree::create_stream(&mut tree, &directory, &first.stream.name)?;
            // The header comes first, and needs the size: it is known without decompressing
            // anything.
            let mut header = self::header(packets.iter().map(|packet| packet.size).sum(), now);
            // Decompressed one by one as they are written: together they may need much memory.
            let reader = PacketReader {
                packets: packets.iter(),
                current: Cursor::default(),
            };
            archive.append_data(&mut header, path, reader)?;
        }
    }
    archive.into_inner()?.flush()
}

/// The packets of each stream of each trace, in the order in which they came first.
fn by_trace(packets: &[LoggedPacket]) -> Vec<(Arc<LoggedTrace>, Vec<Vec<&LoggedPacket>>)> {
    let mut traces: Vec<(Arc<LoggedTrace>, Vec<Vec<&LoggedPacket>>)> = Vec::new();
    let mut trace_places: HashMap<TraceKey, usize> = HashMap::new();
    let mut stream_places: HashMap<StreamKey, usize> = HashMap::new();
    for packet in packets {
        let trace = *trace_places
            .entry(packet.trace.info.key)
            .or_insert_with(|| {
                traces.push((Arc::clone(&packet.trace), Vec::new()));
                traces.len() - 1
            });
        let Some((_, streams)) = traces.get_mut(trace) else {
            continue;
        };
        let stream = *stream_places.entry(packet.stream.key).or_insert_with(|| {
            streams.push(Vec::new());
            streams.len() - 1
        });
        if let Some(stream) = streams.get_mut(stream) {
            stream.push(packet);
        }
    }
    traces
}

fn header(bytes: usize, now: u64) -> Header {
    // With the extension of GNU, names may have any length.
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes.try_into().unwrap_or(u64::MAX));
    header.set_mode(0o644);
    header.set_mtime(now);
    header
}

/// Reads packets one after the other; one of them is in memory at a time.
struct PacketReader<'a, I: Iterator<Item = &'a &'a LoggedPacket>> {
    packets: I,
    current: Cursor<Vec<u8>>,
}

impl<'a, I: Iterator<Item = &'a &'a LoggedPacket>> Read for PacketReader<'a, I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            match self.packets.next() {
                Some(packet) => self.current = Cursor::new(packet.bytes()?),
                None => return Ok(0),
            }
        }
    }
}

/// The directories and files of the archive, by path. The value is true for a directory.
#[derive(Default)]
struct ArchiveTree(HashMap<PathBuf, bool>);

impl ArchiveTree {
    fn create(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        if self.0.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.0.insert(path.to_owned(), is_directory);
        Ok(())
    }
}

impl Tree for ArchiveTree {
    type File = ();

    fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, true)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.get(path).copied().unwrap_or(false))
    }

    fn create_file(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet_log::PacketLog;
    use viewer::attach::{MemoryBudget, Packet, Reservation};
    use viewer::test_support::TestOrigin;

    /// Paths and contents of the files of an archive.
    fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        let file = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (path, bytes)
        };
        entries.map(file).collect()
    }

    #[test]
    fn archive_has_a_directory_for_each_trace_and_a_file_for_each_stream() {
        let log = PacketLog::new(1 << 20, Arc::default());
        let add = |origin: &TestOrigin, bytes: &[u8]| {
            let packet =
                Packet::in_memory(bytes.to_vec(), Reservation::none(&MemoryBudget::default()));
            let stream = Arc::new(origin.stream.clone());
            log.add_packet(&packet, origin.trace.key, &stream).unwrap();
        };
        let one = TestOrigin::new("host/../session", "ust/channel_0");
        let same_name = TestOrigin {
            trace: one.trace.clone(),
            ..TestOrigin::new("", "channel_0")
        };
        let other = TestOrigin::new("host/../session", "metadata");
        log.add_metadata(b"one", &one.trace);
        log.add_metadata(b"other", &other.trace);
        add(&one, b"first ");
        add(&other, b"x");
        add(&same_name, b"same name");
        add(&one, b"second");
        let mut archive = Vec::new();
        write(
            &log.packets_between((0, 0), usize::MAX).unwrap(),
            &mut archive,
        )
        .unwrap();
        let expected: [(&str, &[u8]); 5] = [
            ("host/_./session/metadata", b"one"),
            ("host/_./session/channel_0", b"first second"),
            ("host/_./session/channel_0-2", b"same name"),
            ("host/_./session-2/metadata", b"other"),
            ("host/_./session-2/metadata_", b"x"),
        ];
        let expected = expected.map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
        assert_eq!(files(&archive), expected);
    }
}
