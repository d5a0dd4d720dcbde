//! A viewer's position in a stream of packets.

use std::collections::VecDeque;
use std::io;
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
use crate::publish::published::{Found, Published, Run};
use crate::publish::viewer_lag::ReadPosition;
use crate::publish::watermark::Watermark;
use crate::store::index_file::read_entries;
use crate::store::segment::Segment;

/// A viewer's position in a stream of packets.
#[derive(Debug)]
pub struct PacketReader {
    published: Subscribed<Published>,
    watermark: Arc<Watermark>,
    /// The number of the stream among those of its session.
    rank: u64,
    /// Number of the next packet.
    next: u64,
    /// Until when it was last said that the stream is quiet.
    quiet_until: Option<Timestamp>,
    /// The entry of the next packet and its number, if the packet was withheld when it was asked for:
    /// the viewer must be told of other streams first.
    withheld: Option<(u64, Entry)>,
    /// Where it is said how far the viewer is.
    position: Arc<ReadPosition>,
    /// The tracefile that the position is in, behind those of which the viewer is owed packets: who asks
    /// for many indexes at once asks for their packets when they may lie in several.
    open: VecDeque<Open>,
    calls: Arc<FileCalls>,
}

/// A tracefile of which the viewer has been told something.
#[derive(Debug)]
struct Open {
    segment: Arc<Segment>,
    /// Where in the stream it begins.
    begin: Bytes,
    /// As long as there is something that the viewer may want from them, whatever becomes of their
    /// names. Many viewers wait at the end of many streams.
    files: Mutex<Option<Files>>,
    /// Entries that have been read ahead, and the number of the first.
    read: (u64, std::vec::IntoIter<Entry>),
    /// Where in the stream the last packet that the viewer was told of ends.
    given: Bytes,
    /// The viewer has had that packet.
    was_taken: AtomicBool,
}

/// The files of a tracefile, as this viewer reads them.
#[derive(Debug)]
struct Files {
    data: Arc<ReadFile>,
    index: ReadFile,
    format: IndexFormat,
}

impl Files {
    /// Those that the writer has open, or the same opened again by name.
    fn open(segment: &Segment, calls: &Arc<FileCalls>) -> io::Result<Self> {
        let files = match segment.opened_by_writer() {
            Some(files) => files,
            None => calls.run(|| segment.open())?,
        };
        Ok(Self {
            data: Arc::new(ReadFile::new(files.data, calls)),
            index: ReadFile::new(files.index, calls),
            format: files.format,
        })
    }

    /// The entries of so many packets from this one on, counted from the first in the tracefile; fewer
    /// if they are many.
    fn entries(&self, first: u64, count: u64) -> io::Result<Vec<Entry>> {
        let read = |bytes: &mut [u8], offset| self.index.read_exact_at(bytes, offset);
        read_entries(read, self.format, first, count)
    }
}

impl Open {
    /// Lets go of what is read next, and of the files if the viewer has had what it was told of.
    fn let_go(&mut self) {
        self.read = Default::default();
        if self.was_taken.load(Ordering::Relaxed) {
            *self.files.get_mut() = None;
        }
    }

    /// The entry with this number. All before `end` are there.
    fn entry(&mut self, number: u64, end: u64) -> io::Result<Entry> {
        let (next, entries) = &mut self.read;
        let is_read = *next == number;
        if let Some(entry) = entries.next().filter(|_| is_read) {
            *next += 1;
            return Ok(entry);
        }
        let Some(files) = self.files.get_mut() else {
            return Err(io::Error::other("it has been let go of"));
        };
        // One that cannot be read does not take those before it along.
        let read = files.entries(number, end - number);
        let mut entries = read.or_else(|_| files.entries(number, 1))?.into_iter();
        let entry = entries.next();
        self.read = (number + 1, entries);
        entry.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Bytes of a tracefile.
#[derive(Debug)]
pub struct Packet {
    file: Arc<ReadFile>,
    offset: Bytes,
    left: u32,
}

impl PacketReader {
    pub(super) fn new(
        published: Subscribed<Published>,
        (watermark, rank): (Arc<Watermark>, u64),
        next: u64,
        position: Arc<ReadPosition>,
        calls: Arc<FileCalls>,
    ) -> Self {
        Self {
            published,
            watermark,
            rank,
            next,
            quiet_until: None,
            withheld: None,
            position,
            open: VecDeque::new(),
            calls,
        }
    }

    /// Nothing comes for now.
    fn let_go(&mut self) {
        self.open.iter_mut().for_each(Open::let_go);
    }

    /// Whether the packet with this number, which has been found, was withheld and still is to be.
    fn is_withheld(&self, packet: u64) -> bool {
        self.withheld.as_ref().is_some_and(|(number, entry)| {
            *number == packet && !self.watermark.allows_packet(entry.packet.end)
        })
    }

    /// What may be promised of what a beacon says. One that is cut says no less than was said before.
    fn watermark(&self, beacon: Option<Timestamp>) -> Option<Timestamp> {
        let within = self.watermark.clamp_beacon(beacon, self.rank);
        if within == beacon {
            return beacon;
        }
        within.max(self.quiet_until)
    }

    /// The entry of a packet. None: its tracefile is no longer there.
    fn entry(&mut self, packet: u64, run: &Run) -> io::Result<Option<Entry>> {
        let withheld = self.withheld.take();
        let Some(open) = self.open(run)? else {
            return Ok(None);
        };
        match withheld {
            Some((number, entry)) if number == packet => Ok(Some(entry)),
            _ => open
                .entry(packet - run.first, run.end() - run.first)
                .map(Some),
        }
    }

    /// Moves past a packet, which the viewer is given.
    fn give(&mut self, packet: u64, begin: Bytes, entry: &Entry) -> Next {
        let index = entry.packet;
        let offset = Bytes(begin.0.saturating_add(entry.offset.0));
        let len = index.packet_size.to_bytes().unwrap_or_default();
        let mut end = Bytes(offset.0.saturating_add(len.0));
        if let Some(open) = self.open.back_mut() {
            end = end.max(open.given);
            open.given = end;
            open.was_taken.store(false, Ordering::Relaxed);
        }
        self.next = packet + 1;
        self.position.set(self.next, end);
        Next::Packet { offset, index }
    }

    /// Moves past packets that are no longer there.
    fn skip(&mut self, run: &Run) {
        self.next = self.next.max(run.end());
        self.position.set(self.next, run.begin);
    }

    /// Opens the tracefile of a run, unless it is open.
    fn open(&mut self, run: &Run) -> io::Result<Option<&mut Open>> {
        let is_it = |open: &Open| Arc::ptr_eq(&open.segment, &run.segment);
        let is_open = |open: &mut Open| is_it(open) && open.files.get_mut().is_some();
        if !self.open.back_mut().is_some_and(is_open) {
            let files = Files::open(&run.segment, &self.calls)?;
            // It may have been replaced just before it was opened by its name.
            if !self.published.has_tracefile(&run.segment) {
                return Ok(None);
            }
            let again = self.open.pop_back_if(|open| is_it(open));
            self.open
                .retain(|open| !open.was_taken.load(Ordering::Relaxed));
            // Of older ones than the last, names must do.
            let older = self.open.len().saturating_sub(1);
            for open in self.open.iter_mut().take(older) {
                *open.files.get_mut() = None;
            }
            if self.open.len() >= MAX_TRACEFILES_OWED {
                self.open.pop_front();
            }
            self.open.push_back(Open {
                segment: Arc::clone(&run.segment),
                begin: run.begin,
                files: Mutex::new(Some(files)),
                read: Default::default(),
                given: again.map_or(run.begin, |open| open.given),
                was_taken: AtomicBool::new(false),
            });
        }
        Ok(self.open.back_mut())
    }
}

impl Stream for PacketReader {
    type Packet = Packet;

    fn next(&mut self) -> Next {
        // Each time round, the position moves past a tracefile or an answer is found.
        for _ in 0..MAX_SKIPPED_TRACEFILES {
            let (packet, run) = match self.published.find_packet(self.next) {
                Found::Packet { packet, run } => (packet, run),
                Found::Quiet(until) => {
                    self.let_go();
                    let until = self.watermark(until);
                    self.quiet_until = until;
                    return Next::Quiet { until };
                }
                Found::Over => {
                    self.let_go();
                    return Next::Over;
                }
            };
            if self.is_withheld(packet) {
                return Next::Quiet { until: None };
            }
            match self.entry(packet, &run) {
                Ok(Some(entry)) if self.watermark.allows_packet(entry.packet.end) => {
                    return self.give(packet, run.begin, &entry);
                }
                Ok(Some(entry)) => {
                    self.withheld = Some((packet, entry));
                    self.let_go();
                    return Next::Quiet { until: None };
                }
                // Replaced or deleted since it was found.
                Ok(None) => self.skip(&run),
                Err(error) => {
                    // Somebody has removed the file, or the disk has failed.
                    if run.segment.is_first_failure() {
                        warn!(packet, %error, "packets of a tracefile skipped for its viewers");
                    } else {
                        debug!(packet, %error, "packets of a tracefile skipped for a viewer");
                    }
                    self.skip(&run);
                }
            }
        }
        Next::Quiet { until: None }
    }

    fn ahead(&self) -> Ahead {
        match self.published.ahead(self.next) {
            Ahead::Quiet { until } => Ahead::Quiet {
                until: self.watermark(until),
            },
            Ahead::Packets { position, .. } if self.is_withheld(position) => Ahead::Withheld,
            ahead => ahead,
        }
    }

    fn set_subscribed(&mut self, on: bool) {
        self.published.set_subscribed(on);
    }

    fn class(&self) -> Option<ClassId> {
        self.published.class()
    }

    fn packet(&self, offset: Bytes, len: u32) -> Option<Packet> {
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
                // Asked for once more. By now another file may have the name.
                let again = Files::open(&open.segment, &self.calls).ok()?;
                if !self.published.has_tracefile(&open.segment) {
                    return None;
                }
                Arc::clone(&again.data)
            }
        };
        if end == open.given.0 {
            open.was_taken.store(true, Ordering::Relaxed);
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

    /// Appends the next bytes, `most` of those that are left.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read. Then nothing is appended.
    pub fn read(&mut self, most: usize, to: &mut BytesMut) -> io::Result<()> {
        let start = to.len();
        to.resize(start + self.left().min(most), 0);
        let (_, piece) = to.split_at_mut(start);
        let (read, len) = (self.file.read_exact_at(piece, self.offset.0), piece.len());
        if let Err(error) = read {
            to.truncate(start);
            return Err(error);
        }
        self.offset.0 += len as u64;
        self.left -= u32::try_from(len).unwrap_or(self.left);
        Ok(())
    }
}
