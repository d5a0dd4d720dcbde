//! Archives of trace directories, for tests.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes as Buffer;
use ctf::decode::PacketHead;
use ctf::directory::{StreamFiles, StreamReader, TraceDirectory};
use ctf::index::Entry;
use wire::{Bits, Bytes, ChunkId, ClassId, FileName, InstanceId, PacketIndex};
use wire::{PacketSeqNum, SeqNum, Text, Timestamp, TracePath};

use crate::document::{CreatedDocument, EndedDocument, OwnerDocument};
use crate::name::{BootId, DayObject, FORMAT, SessionKey, SessionObject, escape};
use crate::object::ObjectWriter;
use crate::record::{
    ChunkRecord, ChunkState, ObjectKind, ObjectRecord, Record, SessionRecord, StreamKey,
    StreamRecord,
};
use crate::store::Store;

/// The day on which the sessions were created, and that time.
const DAY: &str = "2026-11-27";
const CREATED: u64 = 1_795_773_600_000_000_000;
/// The run of the relay that writes the archive.
pub const BOOT: BootId = BootId([9; 16]);

/// A session that is being archived: directories become its chunks, each in a part.
#[derive(Debug)]
pub struct SessionArchive {
    store: Arc<dyn Store>,
    session: SessionRecord,
    /// Blocks are closed when they have this many bytes of packets.
    pub block_bytes: u64,
    parts: u32,
    commits: u64,
    /// The names of the streams and the numbers after their last packets, metadata first.
    streams: Vec<(StreamRecord, u64)>,
}

/// Archives the traces in a directory as a session that has ended.
///
/// # Panics
/// If that fails.
pub async fn archive_directory(
    store: &Arc<dyn Store>,
    directory: &Path,
    host: &str,
    name: &str,
) -> SessionKey {
    let mut session = SessionArchive::new(store, 1, host, name);
    session.add_directory(directory, None).await;
    session.end().await
}

impl SessionArchive {
    /// A session without data. The sessions of an archive have different numbers.
    #[must_use]
    pub fn new(store: &Arc<dyn Store>, number: u64, host: &str, name: &str) -> Self {
        Self {
            store: Arc::clone(store),
            session: SessionRecord {
                session: SessionKey {
                    producer: [7; 16],
                    id: number,
                },
                created: CREATED + number * 1_000_000_000,
                live_timer: 1_000_000,
                ctf_version: 1,
                host: Text::from(host),
                name: Text::from(name),
            },
            block_bytes: 256 << 10,
            parts: 0,
            commits: 0,
            streams: Vec::new(),
        }
    }

    /// Archives the traces in a directory as one chunk, in a part.
    ///
    /// # Panics
    /// If that fails.
    pub async fn add_directory(&mut self, directory: &Path, chunk: Option<ChunkId>) {
        let mut part = self.begin_part(chunk, ChunkState::Ended);
        self.add_traces(&mut part, directory, chunk);
        self.write_part(part).await;
    }

    /// Archives the traces in a directory in the relay's log, as a session that is running.
    ///
    /// # Panics
    /// If that fails.
    pub async fn add_to_log(&mut self, directory: &Path, chunk: Option<ChunkId>) {
        let number = self.commits;
        self.commits += 1;
        let mut commit = self.begin_object(ObjectKind::Commit, number, chunk, ChunkState::Open);
        self.add_traces(&mut commit, directory, chunk);
        let name = BOOT.commit(number);
        self.create(&name, commit.finish().expect("an object"))
            .await;
    }

    fn add_traces(&mut self, part: &mut ObjectWriter, directory: &Path, chunk: Option<ChunkId>) {
        for path in ctf::directory::traces_below(directory).expect("a directory") {
            let opened = ctf::directory::open(&[&path]).expect("a trace");
            let below = path.strip_prefix(directory).expect("a path below it");
            let below = Text::from(below.to_str().expect("UTF-8"));
            let trace_path = TracePath::parse(&below).expect("a path of a trace");
            for trace in &opened.traces {
                self.add_trace(part, trace, &trace_path, chunk);
            }
        }
    }

    /// Says that the user has deleted a chunk.
    ///
    /// # Panics
    /// If that fails.
    pub async fn delete_chunk(&mut self, chunk: Option<ChunkId>) {
        let part = self.begin_part(chunk, ChunkState::Deleted);
        self.write_part(part).await;
    }

    /// Ends the session, and lists it. Returns its key.
    ///
    /// # Panics
    /// If that fails.
    pub async fn end(mut self) -> SessionKey {
        let mut part = self.begin_part(None, ChunkState::Ended);
        for (stream, next) in &self.streams {
            part.add_record(&Record::StreamEnd {
                stream: stream.stream,
                next: *next,
            });
        }
        let at = CREATED + 60_000_000_000;
        part.add_record(&Record::SessionEnd { at });
        self.write_part(part).await;
        let packets = self.streams.iter();
        let packets = packets.filter(|(stream, _)| !stream.stream.is_metadata);
        let document = EndedDocument {
            ended: at,
            packets: packets.map(|(_, next)| next).sum(),
            bytes: 0,
        };
        let document = serde_json::to_vec(&document).expect("JSON");
        self.list(true, document).await
    }

    /// Lists the session as one that has not ended. Returns its key.
    ///
    /// # Panics
    /// If that fails.
    pub async fn list_as_running(&self) -> SessionKey {
        self.list(false, Vec::new()).await
    }

    async fn list(&self, has_ended: bool, end: Vec<u8>) -> SessionKey {
        let key = self.session.session;
        let (host, name) = (&self.session.host, &self.session.name);
        let object = |is_end| DayObject {
            day: DAY.to_owned(),
            host: escape(host.as_bytes()),
            name: escape(name.as_bytes()),
            session: key,
            is_end,
        };
        let created = CreatedDocument {
            session: key.to_string(),
            host: host.to_string(),
            name: name.to_string(),
            created: self.session.created,
            live_timer: self.session.live_timer,
            ctf_version: self.session.ctf_version,
        };
        let owner = OwnerDocument {
            boot: BOOT.to_string(),
            since: CREATED,
            created: CREATED,
        };
        let json = |document| serde_json::to_vec(&document).expect("JSON");
        self.create(
            &object(false).to_string(),
            json(serde_json::to_value(created).expect("JSON")),
        )
        .await;
        self.create(
            &key.object(SessionObject::Owner(1)),
            json(serde_json::to_value(owner).expect("JSON")),
        )
        .await;
        if has_ended {
            self.create(&object(true).to_string(), end).await;
        }
        // Only the first session of an archive creates it.
        let format = Buffer::from_static(b"{\"version\":1}");
        let _ = self.store.create(FORMAT, format).await;
        key
    }

    fn begin_part(&self, chunk: Option<ChunkId>, state: ChunkState) -> ObjectWriter {
        self.begin_object(ObjectKind::Part, u64::from(self.parts), chunk, state)
    }

    fn begin_object(
        &self,
        kind: ObjectKind,
        number: u64,
        chunk: Option<ChunkId>,
        state: ChunkState,
    ) -> ObjectWriter {
        let mut part = ObjectWriter::new(ObjectRecord {
            kind,
            boot: BOOT,
            number,
        })
        .expect("memory");
        part.add_record(&Record::Session(self.session.clone()));
        part.add_record(&Record::Chunk(ChunkRecord { chunk, state }));
        for (stream, _) in &self.streams {
            part.add_record(&Record::Stream(stream.clone()));
        }
        part
    }

    async fn write_part(&mut self, part: ObjectWriter) {
        let object = SessionObject::Part {
            owner: 1,
            number: self.parts,
        };
        self.parts += 1;
        let name = self.session.session.object(object);
        self.create(&name, part.finish().expect("a part")).await;
    }

    async fn create(&self, name: &str, bytes: impl Into<Buffer>) {
        let created = self.store.create(name, bytes.into()).await;
        created.expect("a new object");
    }

    /// The place of a stream among all, which gets a record if it is new.
    fn stream(
        &mut self,
        part: &mut ObjectWriter,
        path: &TracePath,
        name: &str,
        is_metadata: bool,
    ) -> usize {
        let name = FileName::parse(&Text::from(name)).expect("a file name");
        let mut known = self.streams.iter();
        let is_it = |(stream, _): &(StreamRecord, u64)| {
            stream.stream.is_metadata == is_metadata && stream.path == *path && stream.name == name
        };
        if let Some(place) = known.position(is_it) {
            return place;
        }
        let stream = StreamRecord {
            stream: StreamKey {
                number: self.streams.len() as u64,
                is_metadata,
            },
            path: path.clone(),
            name,
        };
        part.add_record(&Record::Stream(stream.clone()));
        self.streams.push((stream, 0));
        self.streams.len() - 1
    }

    fn add_trace(
        &mut self,
        part: &mut ObjectWriter,
        trace: &TraceDirectory,
        path: &TracePath,
        chunk: Option<ChunkId>,
    ) {
        let place = self.stream(part, path, "metadata", true);
        let bytes = &trace.metadata_bytes;
        let (first, second) = bytes.split_at(bytes.len() / 2);
        for (offset, piece) in [(0, first), (first.len(), second)] {
            let offset = Bytes(offset as u64);
            part.add_metadata(place as u64, chunk, 0, offset, piece)
                .expect("a block");
        }
        if let Some((_, end)) = self.streams.get_mut(place) {
            *end = bytes.len() as u64;
        }
        for stream in &trace.streams {
            let file = stream.files.first().and_then(|file| file.file_name());
            let file = file.and_then(|file| file.to_str()).expect("a file name");
            let place = self.stream(part, path, file, false);
            self.add_packets(part, trace, stream, place, chunk);
        }
    }

    fn add_packets(
        &mut self,
        part: &mut ObjectWriter,
        trace: &TraceDirectory,
        stream: &StreamFiles,
        place: usize,
        chunk: Option<ChunkId>,
    ) {
        let mut reader = StreamReader::new(stream);
        let (mut packet, mut block, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let has_more = reader.next(&mut packet).expect("a packet");
            if has_more {
                let len = packet.len() as u64;
                let head = PacketHead::read(trace.metadata.trace(), &packet, len);
                entries.push(entry(&head.expect("a packet's head")));
                block.extend_from_slice(&packet);
            }
            let is_full = block.len() as u64 >= self.block_bytes || !has_more;
            if is_full && !entries.is_empty() {
                let (_, next) = self.streams.get_mut(place).expect("it is known");
                let first = SeqNum(*next);
                *next += entries.len() as u64;
                let added: Result<(), io::Error> =
                    part.add_packets(place as u64, chunk, first, &entries, |into| {
                        into.copy_from_slice(&block);
                        Ok(())
                    });
                added.expect("a block");
                entries.clear();
                block.clear();
            }
            if !has_more {
                return;
            }
        }
    }
}

fn entry(head: &PacketHead) -> Entry {
    Entry {
        offset: Bytes(0),
        packet: PacketIndex {
            packet_size: Bits(head.packet_bits),
            content_size: Bits(head.content_bits),
            begin: Timestamp(head.begin.unwrap_or(0)),
            end: Timestamp(head.end.unwrap_or(0)),
            events_discarded: head.discarded.map_or(0, |discarded| discarded.value),
            class: ClassId(head.stream_class),
            instance: head.stream_id.map(InstanceId),
            packet_seq: head.sequence.map(|sequence| PacketSeqNum(sequence.value)),
        },
    }
}

/// Changes a byte of an object in an archive that is a directory.
///
/// # Panics
/// If that fails.
pub fn corrupt_object(archive: &Path, name: &str, offset: usize) {
    let path = archive.join(name);
    let mut bytes = fs::read(&path).expect("an object");
    *bytes.get_mut(offset).expect("a byte") ^= 0xff;
    fs::write(&path, bytes).expect("to write");
}
