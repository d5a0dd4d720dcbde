//! A viewer's position in a stream of packets.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::BytesMut;
use tracing::warn;
use viewer_proto::relay::{Ahead, Next, Stream};
use wire::{Bytes, ClassId};

use super::listening::Heard;
use crate::registry::published::{Found, Published, Run};
use crate::store::segment::{OpenSegment, Segment};

/// A viewer's position in a stream of packets.
#[derive(Debug)]
pub struct PacketReader {
    published: Heard<Published>,
    /// Number of the next packet.
    next: u64,
    open: Option<Open>,
}

/// The tracefile that the position is in. It stays readable, whatever becomes of its name.
#[derive(Debug)]
struct Open {
    segment: Arc<Segment>,
    files: OpenSegment,
    /// Where the last packet that the viewer was told of ends.
    given: Bytes,
}

/// Bytes of a tracefile.
#[derive(Debug)]
pub struct Packet {
    file: Arc<File>,
    offset: Bytes,
    left: u32,
}

impl PacketReader {
    pub(super) fn new(published: Heard<Published>, next: u64) -> Self {
        Self {
            published,
            next,
            open: None,
        }
    }

    /// Opens the tracefile of a run, unless it is open.
    fn open(&mut self, run: &Run) -> io::Result<Option<&mut Open>> {
        let is_open = |open: &Open| Arc::ptr_eq(&open.segment, &run.segment);
        if !self.open.as_ref().is_some_and(is_open) {
            let files = run.segment.open()?;
            // It may have been replaced just before it was opened by its name.
            if !self.published.holds(&run.segment) {
                return Ok(None);
            }
            let segment = Arc::clone(&run.segment);
            self.open = Some(Open {
                segment,
                files,
                given: Bytes(0),
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
                Found::Quiet(until) => return Next::Quiet { until },
                Found::Over => return Next::Over,
            };
            let read = self.open(&run).and_then(|open| {
                let Some(open) = open else { return Ok(None) };
                let entry = open.files.entry(packet - run.first)?;
                let len = entry.packet.packet_size.to_bytes().unwrap_or_default();
                open.given = open.given.max(Bytes(entry.offset.0.saturating_add(len.0)));
                Ok(Some(entry))
            });
            match read {
                Ok(Some(entry)) => {
                    self.next = packet + 1;
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
                }
            }
        }
    }

    fn ahead(&self) -> Ahead {
        self.published.ahead(self.next)
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
        (end <= open.given.0).then(|| Packet {
            file: Arc::clone(open.files.data()),
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
