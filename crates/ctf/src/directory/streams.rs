//! The data files of a trace: which of them are pieces of one stream, and where their packets lie.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DirectoryError;
use crate::decode::{Counter, DecodeError, PacketHead};
use crate::metadata::Trace;

/// Bytes of a packet that are read first to decode its head, far less than a packet: opening must
/// not read all data. If they do not suffice, four times as many are read, and so on.
const FIRST_READ: usize = 512;

/// A stream and the files that hold its packets.
#[derive(Debug, Clone)]
pub struct StreamFiles {
    /// The id of the stream class.
    pub class: u64,
    /// The number of the stream in its class: as its packets say, else in byte order of the paths.
    pub id: u64,
    /// The files of the stream, in byte order of their paths.
    pub files: Vec<Arc<Path>>,
    pub(crate) packets: Vec<PacketPlace>,
    /// Whether all packets have the class and the number of the first.
    is_uniform: bool,
    /// The error after the last good packet; `None` if all files are good to their ends.
    pub(crate) broken: Option<Arc<DirectoryError>>,
}

/// The place of a packet, and what its head says.
#[derive(Debug, Clone)]
pub(crate) struct PacketPlace {
    pub(crate) file: Arc<Path>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) begin: Option<u64>,
    pub(crate) end: Option<u64>,
    has_events: bool,
    sequence: Option<Counter>,
}

/// The size and times of a packet before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSummary {
    /// The size in bytes, with padding.
    pub bytes: u64,
    /// The time of the packet's beginning, in cycles of the stream's clock; `None` if packets do
    /// not say.
    pub begin: Option<u64>,
    /// The time of the packet's end, in cycles of the stream's clock; `None` if packets do not say.
    pub end: Option<u64>,
    /// Whether something lies after its header and context.
    pub has_events: bool,
}

impl PacketSummary {
    pub(super) fn of(place: &PacketPlace) -> Self {
        Self {
            bytes: place.bytes,
            begin: place.begin,
            end: place.end,
            has_events: place.has_events,
        }
    }
}

impl StreamFiles {
    /// The size of all its packets together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.packets.iter().map(|packet| packet.bytes).sum()
    }

    /// The number of its packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Whether all its packets say the same stream class and the same number.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// The sizes and times of its packets, in the order in which they are read.
    pub fn packet_summaries(
        &self,
    ) -> impl ExactSizeIterator<Item = PacketSummary> + DoubleEndedIterator {
        self.packets.iter().map(PacketSummary::of)
    }

    /// The earliest begin of a packet and the latest end, in cycles. They are those of the first
    /// and the last packet, unless times go back.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let begin = self.packets.iter().map(|packet| packet.begin).min()??;
        let end = self.packets.iter().filter_map(|packet| packet.end).max()?;
        Some((begin, end))
    }

    /// Puts the packets of several files in order, and keeps one of several copies of a packet. The
    /// packets of one file keep their order, which is that of recording, also where their times go
    /// back. Between files, the packets' numbers decide if they can be trusted, and else their
    /// begins.
    fn sort_and_dedup_packets(&mut self) {
        if self.files.len() < 2 {
            return;
        }
        let in_file_order = self.packets.clone();
        self.merge_files(|packet| packet.sequence.map(|number| number.value));
        if !self.is_numbered() {
            self.packets = in_file_order;
            self.merge_files(|packet| packet.begin);
        }
        self.packets
            .dedup_by(|second, first| first.is_copy_of(second));
    }

    /// Merges the packets of the files by their keys. One whose key is less than that of a packet
    /// before it in its file follows that packet.
    fn merge_files(&mut self, key: impl Fn(&PacketPlace) -> Option<u64>) {
        let mut of_file: Option<(Arc<Path>, Option<u64>)> = None;
        let packets = self.packets.drain(..).map(|packet| {
            let reached = match &of_file {
                // All packets of a file share the `Arc` of its path.
                Some((file, reached)) if Arc::ptr_eq(file, &packet.file) => *reached,
                _ => None,
            };
            let reached = reached.max(key(&packet));
            of_file = Some((Arc::clone(&packet.file), reached));
            (reached, packet)
        });
        let mut packets: Vec<_> = packets.collect();
        // A stable sort: of the copies of a packet, the one whose path sorts first stays first and
        // is kept.
        packets.sort_by_key(|(reached, _)| *reached);
        self.packets = packets.into_iter().map(|(_, packet)| packet).collect();
    }

    /// Whether the packets' numbers say their order: each packet has one, and none but its copies
    /// has the same. A counter that may have passed its largest value does not.
    fn is_numbered(&self) -> bool {
        let is_before = |one: &PacketPlace, next: &PacketPlace| match (one.sequence, next.sequence)
        {
            (Some(one), Some(next)) => one.value < next.value,
            _ => false,
        };
        let mut pairs = self.packets.windows(2);
        let is_increasing = pairs.all(|pair| match pair {
            [one, next] => is_before(one, next) || next.is_copy_of(one),
            _ => true,
        });
        let number = |packet: Option<&PacketPlace>| packet.and_then(|packet| packet.sequence);
        let ends = number(self.packets.first()).zip(number(self.packets.last()));
        // No underflow: the numbers increase.
        is_increasing
            && ends.is_some_and(|(first, last)| last.value - first.value <= last.largest() / 2)
    }
}

impl PacketPlace {
    /// Whether this is the same packet in another file.
    fn is_copy_of(&self, other: &Self) -> bool {
        let what = |packet: &Self| (packet.bytes, packet.begin, packet.end, packet.sequence);
        what(self) == what(other) && self.file != other.file
    }
}

/// The streams of the trace in `directories`, by class and number. Directories that cannot be read
/// are added to `unreadable`.
pub(crate) fn streams_in(
    trace: &Trace,
    directories: &[PathBuf],
    unreadable: &mut Vec<DirectoryError>,
) -> Vec<StreamFiles> {
    let mut files = Vec::new();
    for directory in directories {
        match data_files(directory) {
            Ok(found) => files.extend(found),
            Err(error) => unreadable.push(error),
        }
    }
    // A file system returns files in any order, which must not number the streams.
    files.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    let mut numbered: BTreeMap<(u64, u64), StreamFiles> = BTreeMap::new();
    let mut alone = Vec::new();
    for path in files {
        let file = Scanned::new(trace, path.into());
        let new = |class, id| StreamFiles {
            class,
            id,
            files: Vec::new(),
            packets: Vec::new(),
            is_uniform: true,
            broken: None,
        };
        match file.stream_id {
            Some(id) => {
                let class = file.class;
                let stream = numbered.entry((class, id));
                file.join(stream.or_insert_with(|| new(class, id)));
            }
            None => {
                let mut stream = new(file.class, alone.len() as u64);
                file.join(&mut stream);
                alone.push(stream);
            }
        }
    }
    let mut streams: Vec<_> = numbered.into_values().chain(alone).collect();
    for stream in &mut streams {
        stream.sort_and_dedup_packets();
    }
    streams
}

/// The files of a trace directory that hold packets.
fn data_files(directory: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let failed = |source| DirectoryError::Read {
        path: directory.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if hidden || name == "metadata" {
            continue;
        }
        let about = fs::metadata(entry.path());
        // One that cannot be read is an error of its stream.
        if about.map_or(true, |about| about.is_file() && about.len() > 0) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// The packets of one data file.
struct Scanned {
    path: Arc<Path>,
    class: u64,
    stream_id: Option<u64>,
    packets: Vec<PacketPlace>,
    is_uniform: bool,
    broken: Option<DirectoryError>,
}

impl Scanned {
    fn new(trace: &Trace, path: Arc<Path>) -> Self {
        let mut scanned = Self {
            path: Arc::clone(&path),
            class: 0,
            stream_id: None,
            packets: Vec::new(),
            is_uniform: true,
            broken: None,
        };
        if let Err(error) = scanned.scan(trace) {
            scanned.broken = Some(error);
        }
        scanned
    }

    fn scan(&mut self, trace: &Trace) -> Result<(), DirectoryError> {
        let failed = |source| DirectoryError::Read {
            path: self.path.to_path_buf(),
            source,
        };
        let file = File::open(&self.path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut offset = 0;
        let mut bytes = Vec::new();
        while offset < length {
            let head = head_at(trace, &file, offset, length, &mut bytes).map_err(failed)?;
            let head = head.map_err(|source| DirectoryError::Packet {
                path: self.path.to_path_buf(),
                offset,
                source,
            })?;
            if self.packets.is_empty() {
                self.class = head.stream_class;
                self.stream_id = head.stream_id;
            }
            let of_first = (self.class, self.stream_id);
            self.is_uniform &= (head.stream_class, head.stream_id) == of_first;
            self.packets.push(PacketPlace {
                file: Arc::clone(&self.path),
                offset,
                bytes: head.packet_bytes(),
                begin: head.begin,
                end: head.end,
                has_events: head.content_bits > head.events_at,
                sequence: head.sequence,
            });
            // Never 0, or the loop would not end: `PacketHead::read` refuses an empty packet.
            offset += head.packet_bytes();
        }
        Ok(())
    }

    fn join(self, stream: &mut StreamFiles) {
        stream.files.push(self.path);
        stream.packets.extend(self.packets);
        stream.is_uniform &= self.is_uniform;
        if let Some(broken) = self.broken {
            stream.broken.get_or_insert(Arc::new(broken));
        }
    }
}

/// Reads as much of the packet at `offset` as its head takes, and decodes the head.
fn head_at(
    trace: &Trace,
    file: &File,
    offset: u64,
    length: u64,
    bytes: &mut Vec<u8>,
) -> io::Result<Result<PacketHead, DecodeError>> {
    let available = length - offset;
    let mut wanted = FIRST_READ;
    loop {
        let whole = usize::try_from(available).unwrap_or(usize::MAX);
        let take = wanted.min(whole);
        bytes.resize(take, 0);
        file.read_exact_at(bytes, offset)?;
        match PacketHead::read(trace, bytes, available) {
            Err(error) if error.is_cut() && take < whole => wanted = wanted.saturating_mul(4),
            read => return Ok(read),
        }
    }
}
