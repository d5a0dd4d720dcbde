//! Finds the files that a session of an earlier relay has left, and the numbers of their packets.
//! To be used after the repair, which has moved chunks to their places and removed torn packets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use wire::{Bytes, ChunkId, ClassId, FileName, SeqNum, Timestamp, TracePath};

use super::record::{LoggedArchive, LoggedChunk, SeqMark, StreamNames, TracefileKey};
use crate::limits::{MAX_REBUILT_ENTRIES, MAX_REPAIRED_METADATA};
use crate::store::chunk::{ARCHIVES, Chunk, INDEX_DIRECTORY};
use crate::store::metadata::MetadataSource;
use crate::store::pool::Pool;
use crate::store::reopenable_file::ReopenableFile;
use crate::store::repair::index::{end_of, format_of, read_entry, valid_entries};
use crate::store::repair::packets::PacketReader;
use crate::store::segment::Segment;
use crate::store::session_log::StreamKey;
use crate::store::sync::file::SyncOrder;

/// The files that a session has left.
#[derive(Debug)]
pub struct FoundSession {
    /// The streams that the session has had.
    pub streams: Vec<FoundStream>,
    /// Chunks of which no files are left.
    pub deleted: Vec<Arc<Chunk>>,
}

/// The files of one stream.
#[derive(Debug)]
pub struct FoundStream {
    /// Key of the stream.
    pub key: StreamKey,
    /// Directory below the chunk.
    pub path: TracePath,
    /// Name of the file.
    pub name: FileName,
    /// What is in the files.
    pub content: FoundContent,
}

/// The content of a stream's files, oldest first.
#[derive(Debug)]
pub enum FoundContent {
    /// Packets.
    Packets(Vec<FoundRun>),
    /// The metadata of each chunk, and its length.
    Metadata(Vec<(Arc<MetadataSource>, Bytes)>),
}

/// The packets of one tracefile.
#[derive(Debug)]
pub struct FoundRun {
    /// The tracefile and its index file.
    pub segment: Arc<Segment>,
    /// Class of the stream.
    pub class: ClassId,
    /// Number of packets in the run.
    pub packets: u64,
    /// End of the last packet in the tracefile.
    pub end: Bytes,
    /// The packets whose number is not one more than that of the packet before, among them the
    /// first one: place in the tracefile, and number.
    pub seqs: Vec<(u64, SeqNum)>,
    /// Offset and length of each packet, if there is no index file.
    pub extents: Vec<(Bytes, Bytes)>,
}

/// A tracefile with packets, before its packets have numbers.
struct Tracefile {
    /// Number of the first packet, if the log says it.
    logged: Option<SeqNum>,
    /// Chunk and begin of the first packet, by which tracefiles are ordered that were not logged.
    order: (Option<ChunkId>, Timestamp),
    marks: Vec<SeqMark>,
    run: FoundRun,
}

/// The files of a session's chunks, by the numbers of the chunks.
type Chunks = BTreeMap<Option<ChunkId>, Arc<Chunk>>;

impl LoggedArchive {
    /// Finds the files of the session below the output.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub fn find_files(&self, output: &Path, pool: &Arc<Pool>) -> io::Result<FoundSession> {
        let session = match &self.directory {
            Some(directory) => output.join(directory),
            None => output.to_owned(),
        };
        let (mut chunks, mut deleted) = (Chunks::new(), Vec::new());
        for (id, place) in self.place_chunks(&session)? {
            let chunk = Chunk::found(id, place.as_deref());
            match place {
                Some(_) => _ = chunks.insert(id, chunk),
                None => deleted.push(chunk),
            }
        }
        let streams = self.streams.iter().map(|(key, names)| {
            let content = if key.is_metadata {
                FoundContent::Metadata(find_metadata(names, &chunks, pool)?)
            } else {
                FoundContent::Packets(self.find_packets(key.number, names, &chunks, pool)?)
            };
            Ok(FoundStream {
                key: *key,
                path: names.path.clone(),
                name: names.name.clone(),
                content,
            })
        });
        Ok(FoundSession {
            streams: streams.collect::<io::Result<_>>()?,
            deleted,
        })
    }

    /// The directory of each chunk. None: it was deleted, or has never had files.
    fn place_chunks(&self, session: &Path) -> io::Result<Vec<(Option<ChunkId>, Option<PathBuf>)>> {
        let dated = names_in(session)?;
        let archives = session.join(ARCHIVES);
        let archived = names_in(&archives)?;
        let place = |chunk: &LoggedChunk, id: ChunkId| {
            if let Some(name) = &chunk.name {
                return Some(session.join(name)).filter(|path| path.is_dir());
            }
            let began = chunk.began.as_bytes();
            let (begin, end) = ([began, b"-"].concat(), format!("-{}", id.0));
            let is_archive = |name: &&PathBuf| {
                let name = name.as_os_str().as_bytes();
                name.starts_with(&begin) && name.ends_with(end.as_bytes())
            };
            if let Some(name) = archived.iter().find(is_archive) {
                return Some(archives.join(name));
            }
            let own = [began, end.as_bytes()].concat();
            let is_own = |name: &&PathBuf| name.as_os_str().as_bytes() == own;
            dated.iter().find(is_own).map(|name| session.join(name))
        };
        let mut places: Vec<_> = self
            .chunks
            .iter()
            .map(|(id, chunk)| (*id, id.and_then(|id| place(chunk, id))))
            .collect();
        // The directory of the session itself is that of at most one chunk: the last one that is
        // nowhere else.
        let is_in_session = |(id, place): &&mut (Option<ChunkId>, Option<PathBuf>)| {
            let chunk = self.chunks.get(id);
            let may_be = chunk.is_some_and(|chunk| !chunk.is_deleted && chunk.name.is_none());
            place.is_none() && may_be
        };
        if let Some((_, place)) = places.iter_mut().rev().find(is_in_session) {
            *place = Some(session.to_owned());
        }
        Ok(places)
    }

    /// The packets of a stream, oldest first.
    fn find_packets(
        &self,
        stream: u64,
        names: &StreamNames,
        chunks: &Chunks,
        pool: &Arc<Pool>,
    ) -> io::Result<Vec<FoundRun>> {
        let mut found = Vec::new();
        for (id, chunk) in chunks {
            for file in numbers(names, chunk)? {
                let found_here = match find_tracefile(names, file, chunk, pool)? {
                    None => self.find_unindexed(names, file, chunk, pool)?,
                    indexed => indexed,
                };
                let Some((run, begin)) = found_here else {
                    continue;
                };
                let key = TracefileKey {
                    stream,
                    chunk: *id,
                    file,
                };
                let marks = self.marks.get(&key).cloned().unwrap_or_default();
                let first = marks.first().filter(|mark| mark.packets == 0);
                found.push(Tracefile {
                    logged: first.map(|mark| mark.seq),
                    order: (*id, begin),
                    marks,
                    run,
                });
            }
        }
        // Those without a mark are the last ones: the relay died before an entry was written.
        found.sort_by_key(|file| (file.logged.map_or(u64::MAX, |seq| seq.0), file.order));
        let mut next = 0;
        for file in &mut found {
            file.number_packets(&mut next)?;
        }
        Ok(found.into_iter().map(|file| file.run).collect())
    }
}

impl LoggedArchive {
    /// A tracefile of a producer that sends no indexes, and the begin of its first packet. None:
    /// there is none, or it has an index file.
    fn find_unindexed(
        &self,
        names: &StreamNames,
        file: u64,
        chunk: &Arc<Chunk>,
        pool: &Arc<Pool>,
    ) -> io::Result<Option<(FoundRun, Timestamp)>> {
        let (data, index) = open_tracefile(names, file, chunk, pool)?;
        let Some(data) = data.filter(|_| index.is_none()) else {
            return Ok(None);
        };
        let data_file = data.opened()?;
        let len = data_file.metadata()?.len();
        if len == 0 {
            return Ok(None);
        }
        let reader = self.packet_reader(names, chunk, pool)?;
        let (mut end, mut extents) = (0, Vec::new());
        let mut first: Option<Entry> = None;
        while end < len {
            let entry = match &reader {
                Some(reader) if extents.len() < MAX_REBUILT_ENTRIES => {
                    reader.entry_at(data_file, end, len)?
                }
                _ => None,
            };
            let no_packet = || io::Error::other(format!("no packet at byte {end} of a tracefile"));
            let entry = entry.ok_or_else(no_packet)?;
            extents.push((Bytes(end), Bytes(end_of(&entry) - end)));
            end = end_of(&entry);
            first.get_or_insert(entry);
        }
        let run = FoundRun {
            segment: Arc::new(Segment::new(file, &data, None)),
            class: first.map_or(ClassId(0), |entry| entry.packet.class),
            packets: extents.len() as u64,
            end: Bytes(end),
            seqs: Vec::new(),
            extents,
        };
        let begin = first.map_or(Timestamp(0), |entry| entry.packet.begin);
        Ok(Some((run, begin)))
    }

    /// A reader of the packets of a stream in a chunk. None: there is no metadata that can be used.
    fn packet_reader(
        &self,
        names: &StreamNames,
        chunk: &Arc<Chunk>,
        pool: &Arc<Pool>,
    ) -> io::Result<Option<PacketReader>> {
        let mut streams = self.streams.iter();
        let of_trace = streams.find(|(key, own)| key.is_metadata && own.path == names.path);
        let Some((_, StreamNames { path, name, .. })) = of_trace else {
            return Ok(None);
        };
        let (path, order): (&Path, _) = (path.as_ref(), SyncOrder::Data);
        let file = ReopenableFile::open_for_reading(pool, chunk, path, name, order)?;
        let Some(file) = file else { return Ok(None) };
        let len = file.opened()?.metadata()?.len();
        if len > MAX_REPAIRED_METADATA {
            return Ok(None);
        }
        let mut text = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.opened()?.read_exact_at(&mut text, 0)?;
        Ok(PacketReader::new(&text))
    }
}

impl FoundRun {
    /// Number, offset and length of each packet that has no index.
    pub fn unindexed_packets(&self) -> impl Iterator<Item = (SeqNum, Bytes, Bytes)> + '_ {
        (0..).zip(&self.extents).map(|(packet, (offset, len))| {
            let after = self.seqs.partition_point(|(place, _)| *place <= packet);
            let mark = after.checked_sub(1).and_then(|mark| self.seqs.get(mark));
            let (place, seq) = mark.copied().unwrap_or((0, SeqNum(0)));
            (SeqNum(seq.0 + (packet - place)), *offset, *len)
        })
    }
}

impl Tracefile {
    /// Numbers the packets from `next` on, unless the log says more of them.
    fn number_packets(&mut self, next: &mut u64) -> io::Result<()> {
        let run = &mut self.run;
        run.seqs.push((0, SeqNum(*next)));
        let mut last = (0, *next);
        for mark in &self.marks {
            let between = mark.packets.saturating_sub(last.0);
            // Of packets that are not there, or with numbers that those before them have.
            if mark.packets >= run.packets || mark.seq.0 < last.1.saturating_add(between) {
                continue;
            }
            last = (mark.packets, mark.seq.0);
            match run.seqs.last_mut() {
                Some(same) if same.0 == mark.packets => same.1 = mark.seq,
                _ => run.seqs.push((mark.packets, mark.seq)),
            }
        }
        let end = last.1.checked_add(run.packets - last.0);
        *next = end.ok_or_else(|| io::Error::other("its log has impossible numbers of packets"))?;
        Ok(())
    }
}

/// The names of the directories in a directory. None if it does not exist.
fn names_in(directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.insert(PathBuf::from(entry.file_name()));
        }
    }
    Ok(names)
}

/// The numbers of the tracefiles of a stream that have an index file in a chunk, or of all if none
/// has. 0: that without a number.
fn numbers(names: &StreamNames, chunk: &Chunk) -> io::Result<Vec<u64>> {
    if !names.is_numbered {
        return Ok(vec![0]);
    }
    let directory: &Path = names.path.as_ref();
    let indexed = numbers_in(names, chunk, &directory.join(INDEX_DIRECTORY), b".idx")?;
    match indexed.is_empty() {
        true => numbers_in(names, chunk, directory, b""),
        false => Ok(indexed),
    }
}

/// The numbers in the names of files that begin with that of a stream and have this end.
fn numbers_in(
    names: &StreamNames,
    chunk: &Chunk,
    directory: &Path,
    end: &[u8],
) -> io::Result<Vec<u64>> {
    let entries = match chunk.with_path(directory, |path| std::fs::read_dir(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name
            .as_bytes()
            .strip_prefix(names.name.as_os_str().as_bytes())
            .and_then(|rest| rest.strip_prefix(b"_")?.strip_suffix(end))
            .and_then(|number| std::str::from_utf8(number).ok())
            .and_then(|text| {
                text.parse::<u64>()
                    .ok()
                    .filter(|own| own.to_string() == text)
            });
        numbers.extend(number);
    }
    Ok(numbers)
}

/// A tracefile and its index file, those that exist.
fn open_tracefile(
    names: &StreamNames,
    file: u64,
    chunk: &Arc<Chunk>,
    pool: &Arc<Pool>,
) -> io::Result<(Option<ReopenableFile>, Option<ReopenableFile>)> {
    let data_name = match names.is_numbered {
        true => names.name.with_suffix(&format!("_{file}")),
        false => Ok(names.name.clone()),
    };
    let data_name = data_name.map_err(io::Error::other)?;
    let index_name = data_name.with_suffix(".idx").map_err(io::Error::other)?;
    let directory: &Path = names.path.as_ref();
    let open = |directory: &Path, name, order| {
        ReopenableFile::open_for_reading(pool, chunk, directory, name, order)
    };
    let data = open(directory, &data_name, SyncOrder::Data)?;
    let index_directory = directory.join(INDEX_DIRECTORY);
    let index = open(&index_directory, &index_name, SyncOrder::Index)?;
    Ok((data, index))
}

/// A tracefile and the begin of its first packet. None: it does not exist, or has no packets.
fn find_tracefile(
    names: &StreamNames,
    file: u64,
    chunk: &Arc<Chunk>,
    pool: &Arc<Pool>,
) -> io::Result<Option<(FoundRun, Timestamp)>> {
    let (data, index) = open_tracefile(names, file, chunk, pool)?;
    let Some((data, index)) = data.zip(index) else {
        return Ok(None);
    };
    let (data_file, index_file) = (data.opened()?, index.opened()?);
    let Some(format) = format_of(index_file)? else {
        return Ok(None);
    };
    let data_len = data_file.metadata()?.len();
    let Some((packets, last)) = count_entries(index_file, format, data_len)? else {
        return Ok(None);
    };
    let begin = read_entry(index_file, format, 0)?.packet.begin;
    let run = FoundRun {
        segment: Arc::new(Segment::new(file, &data, Some((&index, format)))),
        class: last.packet.class,
        packets,
        end: Bytes(end_of(&last)),
        seqs: Vec::new(),
        extents: Vec::new(),
    };
    Ok(Some((run, begin)))
}

/// Number of entries of an index file, and the last one. None: it has none.
fn count_entries(
    index: &std::fs::File,
    format: IndexFormat,
    data_len: u64,
) -> io::Result<Option<(u64, Entry)>> {
    let bytes = index.metadata()?.len().saturating_sub(format.position(0));
    let entry_len = format.entry_len() as u64;
    let (count, rest) = (bytes / entry_len, bytes % entry_len);
    if rest == 0
        && let Some(last) = count.checked_sub(1)
        && let Ok(entry) = read_entry(index, format, last)
        && end_of(&entry) <= data_len
    {
        // What a relay has closed, and the repair has examined.
        return Ok(Some((count, entry)));
    }
    let valid = valid_entries(index, format, data_len)?;
    Ok(valid.last.map(|last| (valid.count, last)))
}

/// The metadata of a trace in each chunk.
fn find_metadata(
    names: &StreamNames,
    chunks: &Chunks,
    pool: &Arc<Pool>,
) -> io::Result<Vec<(Arc<MetadataSource>, Bytes)>> {
    let mut found = Vec::new();
    for chunk in chunks.values() {
        let directory: &Path = names.path.as_ref();
        let (name, order) = (&names.name, SyncOrder::Data);
        let file = ReopenableFile::open_for_reading(pool, chunk, directory, name, order)?;
        let Some(mut file) = file else { continue };
        let len = file.opened()?.metadata()?.len();
        if len > 0 {
            // A reader opens it again: there may be many.
            file.close();
            found.push((MetadataSource::new(file), Bytes(len)));
        }
    }
    Ok(found)
}
