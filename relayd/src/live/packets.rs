//! A viewer's position in a stream of packets.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use ctf::index::Entry;
use parking_lot::Mutex;
use tracing::warn;
use viewer_proto::relay::{Ahead, Next, Stream};
use wire::{Bytes, ClassId};

use super::listening::Heard;
use crate::registry::audience::Place;
use crate::registry::promises::Promises;
use crate::registry::published::{Found, Published, Run};
use crate::store::pool::PooledFile;
use crate::store::segment::{OpenSegment, Segment};

/// A viewer's position in a stream of packets.
#[derive(Debug)]
pub struct PacketReader {
    published: Heard<Published>,
    promises: Arc<Promises>,
    /// Number of the next packet.
    next: u64,
    /// Where it is said how far the viewer is.
    place: Arc<Place>,
    open: Option<Open>,
}

/// The tracefile that the position is in.
#[derive(Debug)]
struct Open {
    segment: Arc<Segment>,
    /// As long as there is something that the viewer may want from them, whatever becomes of their
    /// names. Many viewers wait at the end of many streams.
    files: Mutex<Option<OpenSegment>>,
    /// Where the last packet that the viewer was told of ends.
    given: Bytes,
    /// The viewer has had that packet.
    was_taken: AtomicBool,
}

impl Open {
    /// Lets go of the files if the viewer has had what it was told of.
    fn let_go(&self) {
        if self.was_taken.load(Ordering::Relaxed) {
            *self.files.lock() = None;
        }
    }

    fn entry(&self, number: u64) -> io::Result<Entry> {
        match &*self.files.lock() {
            Some(files) => files.entry(number),
            None => Err(io::Error::other("it has been let go of")),
        }
    }
}

/// Bytes of a tracefile.
#[derive(Debug)]
pub struct Packet {
    file: Arc<PooledFile>,
    offset: Bytes,
    left: u32,
}

impl PacketReader {
    pub(super) fn new(
        published: Heard<Published>,
        promises: Arc<Promises>,
        next: u64,
        place: Arc<Place>,
    ) -> Self {
        Self {
            published,
            promises,
            next,
            place,
            open: None,
        }
    }

    /// Opens the tracefile of a run, unless it is open.
    fn open(&mut self, run: &Run) -> io::Result<Option<&mut Open>> {
        let is_open =
            |open: &Open| Arc::ptr_eq(&open.segment, &run.segment) && open.files.lock().is_some();
        if !self.open.as_ref().is_some_and(is_open) {
            let files = run.segment.open()?;
            // It may have been replaced just before it was opened by its name.
            if !self.published.holds(&run.segment) {
                return Ok(None);
            }
            let last = self.open.take();
            let again = last.filter(|open| Arc::ptr_eq(&open.segment, &run.segment));
            self.open = Some(Open {
                segment: Arc::clone(&run.segment),
                files: Mutex::new(Some(files)),
                given: again.map_or(Bytes(0), |open| open.given),
                was_taken: AtomicBool::new(false),
            });
        }
        Ok(self.open.as_mut())
    }
}

impl Stream for PacketReader {
    type Packet = Packet;

    fn next(&mut self) -> Next {
        loop {
            let (packet, run) = match self.published.find(self.next) {
                Found::Packet { packet, run } => (packet, run),
                Found::Quiet(until) => {
                    self.open.iter().for_each(Open::let_go);
                    let until = self.promises.within(until);
                    return Next::Quiet { until };
                }
                Found::Over => return Next::Over,
            };
            let read = self.open(&run).and_then(|open| {
                let Some(open) = open else { return Ok(None) };
                let entry = open.entry(packet - run.first)?;
                let len = entry.packet.packet_size.to_bytes().unwrap_or_default();
                open.given = open.given.max(Bytes(entry.offset.0.saturating_add(len.0)));
                open.was_taken.store(false, Ordering::Relaxed);
                Ok(Some(entry))
            });
            match read {
                Ok(Some(entry)) => {
                    self.next = packet + 1;
                    let len = entry.packet.packet_size.to_bytes().unwrap_or_default();
                    let before = run.before.0.saturating_add(entry.offset.0);
                    self.place.at(self.next, before.saturating_add(len.0));
                    return Next::Packet {
                        offset: entry.offset,
                        index: entry.packet,
                    };
                }
                Ok(None) => {}
                Err(error) => {
                    // Somebody has removed the file, or the disk has failed.
                    warn!(packet, %error, "packets of a tracefile skipped for a viewer");
                    self.next = run.end();
                    self.place.at(self.next, run.before.0);
                }
            }
        }
    }

    fn ahead(&self) -> Ahead {
        match self.published.ahead(self.next) {
            Ahead::Quiet { until } => Ahead::Quiet {
                until: self.promises.within(until),
            },
            ahead => ahead,
        }
    }

    fn listen(&mut self, on: bool) {
        self.published.listen(on);
    }

    fn class(&self) -> Option<ClassId> {
        self.published.class()
    }

    fn packet(&self, offset: Bytes, len: u32) -> Option<Packet> {
        let open = self.open.as_ref()?;
        let end = offset.0.checked_add(u64::from(len))?;
        if end > open.given.0 {
            return None;
        }
        let mut files = open.files.lock();
        let data = match &*files {
            Some(files) => Arc::clone(files.data()),
            None => {
                // Asked for once more. By now another file may have the name.
                let again = open.segment.open().ok()?;
                if !self.published.holds(&open.segment) {
                    return None;
                }
                Arc::clone(again.data())
            }
        };
        if end == open.given.0 {
            open.was_taken.store(true, Ordering::Relaxed);
            if data.pool().is_full() {
                *files = None;
            }
        }
        Some(Packet {
            file: data,
            offset,
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
