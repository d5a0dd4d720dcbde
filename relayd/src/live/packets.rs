//! A viewer's position in a stream of packets.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use ctf::index::{Entry, IndexFormat};
use parking_lot::Mutex;
use tracing::{debug, warn};
use viewer_proto::relay::{Ahead, Next, Stream};
use wire::{Bytes, ClassId, Timestamp};

use super::file_calls::{FileCalls, ReadFile};
use super::subscribed::Subscribed;
use crate::limits::{MAX_SKIPPED_TRACEFILES, MAX_TRACEFILES_OWED};
use crate::publish::published::{PacketLookup, Published, PublishedRun};
use crate::publish::viewer_lag::ReadPosition;
use crate::publish::watermark::Watermark;
use crate::store::index_file::read_entries;
use crate::store::segment::Segment;

/// A viewer's position in a stream of packets.
#[derive(Debug)]
pub struct PacketReader {
    published: Subscribed<Published>,
    watermark: Arc<Watermark>,
    /// Number of the stream among those of its session, in the order of announcement.
    rank: u64,
    /// Number of the next packet, counted from the first packet of the stream.
    next: u64,
    /// Time of the last beacon that the viewer was given, in cycles. None if it was given none.
    last_beacon: Option<Timestamp>,
    /// The next packet's number and index entry, if the packet was withheld when it was requested:
    /// other streams must be announced to the viewer first.
    withheld: Option<(u64, Entry)>,
    /// Read position that the viewer lag is computed from.
    position: Arc<ReadPosition>,
    /// The tracefile of the position, after older ones with packets that the viewer has the index
    /// of and has not fetched. A viewer with many pipelined requests may fetch packets of several
    /// tracefiles.
    open: VecDeque<OpenTracefile>,
    calls: Arc<FileCalls>,
}

/// A tracefile that the viewer has been given indexes of.
#[derive(Debug)]
struct OpenTracefile {
    segment: Arc<Segment>,
    /// Offset of the tracefile in the stream, in bytes.
    begin: Bytes,
    /// The files, open while the viewer may fetch packets from them, even after they have been
    /// renamed or deleted. None otherwise: many viewers wait at the end of many streams.
    files: Mutex<Option<Files>>,
    /// Entries that have been read ahead, and the number of the first of them in the tracefile.
    read_ahead: (u64, std::vec::IntoIter<Entry>),
    /// Offset in the stream of the end of the last packet that the viewer has been given the index
    /// of.
    given: Bytes,
    /// Whether the viewer has fetched the last packet that it has been given the index of.
    was_fetched: AtomicBool,
}

/// The data and index file of a tracefile, as one viewer reads them.
#[derive(Debug)]
struct Files {
    data: Arc<ReadFile>,
    index: ReadFile,
    format: IndexFormat,
}

impl Files {
    /// The files that the writer has open, or the same files opened again by name.
    fn open(segment: &Segment, calls: &Arc<FileCalls>) -> io::Result<Self> {
        let files = match segment.opened_by_writer() {
            Some(files) => files,
            None => calls.run(|| segment.open())?,
        };
        // Streams without indexes are not announced to viewers.
        let index = files.index;
        let (index, format) = index.ok_or_else(|| io::Error::other("the stream has no index"))?;
        Ok(Self {
            data: Arc::new(ReadFile::new(files.data, calls)),
            index: ReadFile::new(index, calls),
            format,
        })
    }

    /// Reads the entries of `count` packets from number `first` of the tracefile on; fewer if they
    /// are many.
    fn entries(&self, first: u64, count: u64) -> io::Result<Vec<Entry>> {
        let read = |bytes: &mut [u8], offset| self.index.read_exact_at(bytes, offset);
        read_entries(read, self.format, first, count)
    }
}

impl OpenTracefile {
    /// Releases the entries read ahead, and the files if the viewer has fetched all packets that it
    /// was given.
    fn release(&mut self) {
        self.read_ahead = Default::default();
        if self.was_fetched.load(Ordering::Relaxed) {
            *self.files.get_mut() = None;
        }
    }

    /// The entry with this number in the tracefile. All entries before `end` are written.
    fn entry(&mut self, number: u64, end: u64) -> io::Result<Entry> {
        let (next, entries) = &mut self.read_ahead;
        let is_read = *next == number;
        if let Some(entry) = entries.next().filter(|_| is_read) {
            *next += 1;
            return Ok(entry);
        }
        let Some(files) = self.files.get_mut() else {
            return Err(io::Error::other("the files have been released"));
        };
        // An entry that cannot be read must not hide those before it.
        let read = files.entries(number, end - number);
        let mut entries = read.or_else(|_| files.entries(number, 1))?.into_iter();
        let entry = entries.next();
        self.read_ahead = (number + 1, entries);
        entry.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Bytes of a tracefile that are sent to the viewer.
#[derive(Debug)]
pub struct Packet {
    file: Arc<ReadFile>,
    /// Offset of the next byte in the tracefile.
    offset: Bytes,
    /// Bytes that have not been read.
    left: u32,
}

impl PacketReader {
    pub(super) fn new(
        published: Subscribed<Published>,
        watermark: Arc<Watermark>,
        rank: u64,
        next: u64,
        position: Arc<ReadPosition>,
        calls: Arc<FileCalls>,
    ) -> Self {
        Self {
            published,
            watermark,
            rank,
            next,
            last_beacon: None,
            withheld: None,
            position,
            open: VecDeque::new(),
            calls,
        }
    }

    /// Releases files and buffers while there is no next packet.
    fn release_files(&mut self) {
        self.open.iter_mut().for_each(OpenTracefile::release);
    }

    /// Whether the packet with this number was withheld and still must be.
    fn is_withheld(&self, packet: u64) -> bool {
        self.withheld.as_ref().is_some_and(|(number, entry)| {
            *number == packet && !self.watermark.allows_packet(entry.packet.end)
        })
    }

    /// Limits a beacon to the session's watermark. A limited beacon is never before the last one
    /// given.
    fn limit_beacon(&self, beacon: Option<Timestamp>) -> Option<Timestamp> {
        let within = self.watermark.clamp_beacon(beacon, self.rank);
        if within == beacon {
            return beacon;
        }
        within.max(self.last_beacon)
    }

    /// The index entry of a packet. None if its tracefile has been replaced or deleted.
    fn packet_entry(&mut self, packet: u64, run: &PublishedRun) -> io::Result<Option<Entry>> {
        let withheld = self.withheld.take();
        let Some(open) = self.open_tracefile(run)? else {
            return Ok(None);
        };
        match withheld {
            Some((number, entry)) if number == packet => Ok(Some(entry)),
            _ => open
                .entry(packet - run.first, run.end() - run.first)
                .map(Some),
        }
    }

    /// Takes the index of a packet for the viewer, and moves past the packet.
    fn give_index(&mut self, packet: u64, begin: Bytes, entry: &Entry) -> Next {
        let index = entry.packet;
        let offset = Bytes(begin.0.saturating_add(entry.offset.0));
        let len = index.packet_size.to_bytes().unwrap_or_default();
        let mut end = Bytes(offset.0.saturating_add(len.0));
        if let Some(open) = self.open.back_mut() {
            end = end.max(open.given);
            open.given = end;
            open.was_fetched.store(false, Ordering::Relaxed);
        }
        self.next = packet + 1;
        self.position.set(self.next, end);
        Next::Packet { offset, index }
    }

    /// Moves past the packets of a tracefile that cannot be read.
    fn skip_tracefile(&mut self, run: &PublishedRun) {
        self.next = self.next.max(run.end());
        self.position.set(self.next, run.begin);
    }

    /// Opens the tracefile of a run, unless it is open. None if it has been replaced or deleted.
    fn open_tracefile(&mut self, run: &PublishedRun) -> io::Result<Option<&mut OpenTracefile>> {
        let is_it = |open: &OpenTracefile| Arc::ptr_eq(&open.segment, &run.segment);
        let is_open = |open: &mut OpenTracefile| is_it(open) && open.files.get_mut().is_some();
        if !self.open.back_mut().is_some_and(is_open) {
            let files = Files::open(&run.segment, &self.calls)?;
            // The file may have been replaced just before it was opened by name.
            if !self.published.has_tracefile(&run.segment) {
                return Ok(None);
            }
            let again = self.open.pop_back_if(|open| is_it(open));
            self.open
                .retain(|open| !open.was_fetched.load(Ordering::Relaxed));
            // Older tracefiles than the last are closed, and reopened by name if the viewer asks
            // for them.
            let older = self.open.len().saturating_sub(1);
            for open in self.open.iter_mut().take(older) {
                *open.files.get_mut() = None;
            }
            // A viewer that fetches nothing must not make the list grow.
            if self.open.len() >= MAX_TRACEFILES_OWED {
                self.open.pop_front();
            }
            self.open.push_back(OpenTracefile {
                segment: Arc::clone(&run.segment),
                begin: run.begin,
                files: Mutex::new(Some(files)),
                read_ahead: Default::default(),
                given: again.map_or(run.begin, |open| open.given),
                was_fetched: AtomicBool::new(false),
            });
        }
        Ok(self.open.back_mut())
    }
}

impl Stream for PacketReader {
    type Packet = Packet;

    fn next(&mut self) -> Next {
        // Each iteration finds an answer or moves past a tracefile.
        for _ in 0..MAX_SKIPPED_TRACEFILES {
            let (packet, run) = match self.published.find_packet(self.next) {
                PacketLookup::Packet { packet, run } => (packet, run),
                PacketLookup::Quiet(until) => {
                    self.release_files();
                    let until = self.limit_beacon(until);
                    self.last_beacon = until;
                    return Next::Quiet { until };
                }
                PacketLookup::Over => {
                    self.release_files();
                    return Next::Over;
                }
            };
            if self.is_withheld(packet) {
                return Next::Quiet { until: None };
            }
            match self.packet_entry(packet, &run) {
                Ok(Some(entry)) if self.watermark.allows_packet(entry.packet.end) => {
                    return self.give_index(packet, run.begin, &entry);
                }
                Ok(Some(entry)) => {
                    self.withheld = Some((packet, entry));
                    self.release_files();
                    return Next::Quiet { until: None };
                }
                // The tracefile was replaced or deleted since it was found.
                Ok(None) => self.skip_tracefile(&run),
                Err(error) => {
                    // Another program has removed the file, or the disk has failed. A warning is
                    // logged once per tracefile, because every viewer fails at it.
                    if run.segment.is_first_failure() {
                        warn!(packet, %error, "cannot read tracefile; its packets are skipped for viewers");
                    } else {
                        debug!(packet, %error, "cannot read tracefile; its packets are skipped for a viewer");
                    }
                    self.skip_tracefile(&run);
                }
            }
        }
        // So many are enough at once: the viewer asks again, and others are served meanwhile.
        Next::Quiet { until: None }
    }

    fn ahead(&self) -> Ahead {
        match self.published.ahead(self.next) {
            Ahead::Quiet { until } => Ahead::Quiet {
                until: self.limit_beacon(until),
            },
            Ahead::Packets { position, .. } if self.is_withheld(position) => Ahead::Withheld,
            ahead => ahead,
        }
    }

    fn is_arriving(&self) -> bool {
        self.published.is_arriving()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.published.set_subscribed(on);
    }

    fn class(&self) -> Option<ClassId> {
        self.published.class()
    }

    fn packet(&self, offset: Bytes, len: u32) -> Option<Packet> {
        // The newest first, because most packets are fetched right after their index.
        let mut open = self.open.iter().rev();
        let open = open.find(|open| open.begin <= offset)?;
        let end = offset.0.checked_add(u64::from(len))?;
        if end > open.given.0 {
            return None;
        }
        let mut files = open.files.lock();
        let data = match &*files {
            Some(files) => Arc::clone(&files.data),
            None => {
                // The packet is fetched again after the files were closed. Another file may have
                // the name by now.
                let again = Files::open(&open.segment, &self.calls).ok()?;
                if !self.published.has_tracefile(&open.segment) {
                    return None;
                }
                Arc::clone(&again.data)
            }
        };
        if end == open.given.0 {
            open.was_fetched.store(true, Ordering::Relaxed);
            // Otherwise they stay open for the next packet of the tracefile.
            if data.is_pool_full() {
                *files = None;
            }
        }
        Some(Packet {
            file: data,
            offset: Bytes(offset.0 - open.begin.0),
            left: len,
        })
    }
}

impl Packet {
    /// Bytes that have not been read.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left as usize
    }

    /// Appends the packet to `to`.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read. Then nothing is appended.
    pub fn read(&mut self, to: &mut BytesMut) -> io::Result<()> {
        let start = to.len();
        to.resize(start + self.left(), 0);
        let (_, bytes) = to.split_at_mut(start);
        let read = self.peek(bytes).map(<[u8]>::len);
        match read {
            Ok(len) => self.advance(len),
            Err(_) => to.truncate(start),
        }
        read.map(drop)
    }

    /// Reads the next bytes into `buffer`, as many as fit. The packet stays where it is.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub fn peek<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let len = self.left().min(buffer.len());
        let (bytes, _) = buffer.split_at_mut(len);
        self.file.read_exact_at(bytes, self.offset.0)?;
        Ok(bytes)
    }

    /// Whether [`send`](Self::send) does not block on a disk. Known when a part of the tracefile
    /// has been read.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    /// Sends the next bytes to a socket that is not blocking, up to `max` of them, without copying
    /// them. Returns how many it has taken, and moves past them.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has no room, `UnexpectedEof` if the file ends before; else the
    /// connection is lost, or the file cannot be read.
    pub fn send(&mut self, socket: impl AsFd, max: usize) -> io::Result<usize> {
        let sent = self
            .file
            .send(socket, self.offset.0, self.left().min(max))?;
        // The end of the file, which is shorter than its index says.
        if sent == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.advance(sent);
        Ok(sent)
    }

    /// Moves past the next `len` bytes.
    pub fn advance(&mut self, len: usize) {
        self.offset.0 += len as u64;
        self.left = u32::try_from(len).map_or(0, |len| self.left.saturating_sub(len));
    }
}
