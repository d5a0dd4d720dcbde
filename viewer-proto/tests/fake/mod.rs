//! A relay in memory, whose state is set by the tests.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use bytes::BytesMut;
use viewer_proto::relay::{
    Ahead, Metadata, NewStream, Next, Position, Relay, Session, SessionFacts, Stream,
};
use viewer_proto::server::Change;
use viewer_proto::session::{ListedSession, Seek, TraceFormat};
use viewer_proto::stream::StreamRecord;
use wire::{
    Bits, Bytes, ClassId, FixedText, Micros, PacketIndex, SessionId, StreamId, Text, Timestamp,
    TraceId, ViewerId,
};

/// A stream of the relay in memory, shared by all positions in it.
#[derive(Default)]
pub(crate) struct Data {
    pub(crate) id: u64,
    pub(crate) packets: RefCell<Vec<PacketIndex>>,
    pub(crate) beacon: Cell<Option<u64>>,
    /// A part of the next packet has arrived.
    pub(crate) arriving: Cell<bool>,
    /// Packets from this one on are withheld.
    pub(crate) withheld_from: Cell<Option<usize>>,
    pub(crate) class: Cell<Option<u64>>,
    pub(crate) over: Cell<bool>,
}

#[derive(Default)]
pub(crate) struct Letters {
    pub(crate) id: u64,
    pub(crate) bytes: RefCell<Vec<u8>>,
    pub(crate) over: Cell<bool>,
}

pub(crate) enum Published {
    Data(Rc<Data>),
    Metadata(Rc<Letters>),
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) live: Cell<bool>,
    pub(crate) ctf2: Cell<bool>,
    pub(crate) gone: Cell<bool>,
    pub(crate) rotating: Cell<bool>,
    pub(crate) viewers: Cell<u32>,
    pub(crate) published: RefCell<Vec<Published>>,
    /// The changes that are subscribed to.
    pub(crate) subscriptions: RefCell<HashSet<Change>>,
    /// Whether beacons are reported.
    pub(crate) wants_beacons: Cell<bool>,
}

/// A relay with one live session, and no streams.
pub(crate) fn world() -> Rc<World> {
    Rc::new(World {
        live: Cell::new(true),
        ..World::default()
    })
}

impl Data {
    /// Adds a packet with these times.
    pub(crate) fn push(&self, begin: u64, end: u64) {
        self.packets.borrow_mut().push(PacketIndex {
            packet_size: Bits(32768),
            content_size: Bits(672),
            begin: Timestamp(begin),
            end: Timestamp(end),
            ..PacketIndex::default()
        });
    }
}

impl World {
    fn set_subscribed(&self, to: Change, on: bool) {
        let mut subscriptions = self.subscriptions.borrow_mut();
        if on {
            subscriptions.insert(to);
        } else {
            subscriptions.remove(&to);
        }
    }

    fn trace_format(&self) -> TraceFormat {
        if self.ctf2.get() {
            TraceFormat::Ctf2
        } else {
            TraceFormat::Ctf1
        }
    }

    pub(crate) fn stream(&self) -> Rc<Data> {
        let id = self.published.borrow().len() as u64 + 1;
        let data = Rc::new(Data {
            id,
            class: Cell::new(Some(0)),
            ..Data::default()
        });
        self.published
            .borrow_mut()
            .push(Published::Data(Rc::clone(&data)));
        data
    }

    pub(crate) fn metadata(&self, text: &[u8]) -> Rc<Letters> {
        let id = self.published.borrow().len() as u64 + 1;
        let metadata = Rc::new(Letters {
            id,
            bytes: text.to_vec().into(),
            ..Letters::default()
        });
        self.published
            .borrow_mut()
            .push(Published::Metadata(Rc::clone(&metadata)));
        metadata
    }
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Rc<World>);

pub(crate) struct Attached {
    world: Rc<World>,
    given: usize,
    /// Number of streams that are read from their current end.
    seek_last: usize,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.world.viewers.set(self.world.viewers.get() - 1);
    }
}

pub(crate) struct At {
    world: Rc<World>,
    data: Rc<Data>,
    next: usize,
}

pub(crate) struct TextAt {
    world: Rc<World>,
    text: Rc<Letters>,
    sent: usize,
}

pub(crate) const SESSION: SessionId = SessionId(1);

impl Relay for Fake {
    type Session = Attached;

    fn sessions(&self) -> Vec<ListedSession> {
        vec![ListedSession {
            session: SESSION,
            live_timer: Micros(1000),
            viewers: self.0.viewers.get(),
            streams: 0,
            host: Text::from("host"),
            name: Text::from("name"),
            trace_format: self.0.trace_format(),
        }]
    }

    fn find(&self, session: SessionId) -> Option<SessionFacts> {
        (session == SESSION && !self.0.gone.get()).then(|| SessionFacts {
            is_live: self.0.live.get(),
            trace_format: self.0.trace_format(),
        })
    }

    fn attach(&self, _: SessionId, seek: Seek) -> Option<Attached> {
        self.0.viewers.set(self.0.viewers.get() + 1);
        let seek_last = match seek {
            Seek::Beginning => 0,
            Seek::Last => self.0.published.borrow().len(),
        };
        Some(Attached {
            world: Rc::clone(&self.0),
            given: 0,
            seek_last,
        })
    }

    fn next_viewer(&self) -> ViewerId {
        ViewerId(1)
    }

    fn set_subscribed(&self, on: bool) {
        self.0.set_subscribed(Change::Sessions, on);
    }

    fn set_beacon_interest(&self, on: bool) {
        self.0.wants_beacons.set(on);
    }
}

impl Session for Attached {
    type Stream = At;
    type Metadata = TextAt;

    fn has_new_streams(&self) -> bool {
        self.given < self.world.published.borrow().len()
    }

    fn new_streams(&mut self) -> Vec<NewStream<At, TextAt>> {
        let published = self.world.published.borrow();
        let new = published
            .get(self.given..)
            .unwrap_or_default()
            .iter()
            .map(|published| {
                let (id, channel, position) = match published {
                    Published::Data(data) => {
                        let next = if data.id <= self.seek_last as u64 {
                            data.packets.borrow().len()
                        } else {
                            0
                        };
                        let at = At {
                            world: Rc::clone(&self.world),
                            data: Rc::clone(data),
                            next,
                        };
                        (data.id, "chan_0", Position::Packets(at))
                    }
                    Published::Metadata(text) => {
                        let at = TextAt {
                            world: Rc::clone(&self.world),
                            text: Rc::clone(text),
                            sent: 0,
                        };
                        (text.id, "metadata", Position::Metadata(at))
                    }
                };
                let record = StreamRecord {
                    stream: StreamId(id),
                    trace: TraceId(1),
                    is_metadata: u32::from(channel == "metadata"),
                    path: FixedText(Text::from("ust")),
                    channel: FixedText(Text::from(channel)),
                };
                NewStream { record, position }
            });
        let new = new.collect();
        self.given = published.len();
        new
    }

    fn is_rotating(&self) -> bool {
        self.world.rotating.get()
    }

    fn is_over(&self) -> bool {
        self.world.gone.get()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.world.set_subscribed(Change::Session(SESSION), on);
    }

    fn leave(&mut self) {}
}

impl At {
    fn is_withheld(&self) -> bool {
        let is_there = self.next < self.data.packets.borrow().len();
        let from = self.data.withheld_from.get();
        is_there && from.is_some_and(|from| self.next >= from)
    }
}

impl Stream for At {
    type Packet = (Bytes, u32);

    fn next(&mut self) -> Next {
        if self.is_withheld() {
            return Next::Quiet { until: None };
        }
        if let Some(&index) = self.data.packets.borrow().get(self.next) {
            self.next += 1;
            return Next::Packet {
                offset: Bytes(4096 * (self.next as u64 - 1)),
                index,
            };
        }
        if self.data.over.get() {
            return Next::Over;
        }
        Next::Quiet {
            until: self.data.beacon.get().map(Timestamp),
        }
    }

    fn ahead(&self) -> Ahead {
        let end = self.data.packets.borrow().len();
        if self.is_withheld() {
            return Ahead::Withheld;
        }
        if self.next < end {
            let (position, end) = (self.next as u64, end as u64);
            return Ahead::Packets { position, end };
        }
        if self.data.over.get() {
            return Ahead::Over;
        }
        Ahead::Quiet {
            until: self.data.beacon.get().map(Timestamp),
        }
    }

    fn is_arriving(&self) -> bool {
        self.data.arriving.get()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.world
            .set_subscribed(Change::Stream(StreamId(self.data.id)), on);
    }

    fn class(&self) -> Option<ClassId> {
        self.data.class.get().map(ClassId)
    }

    fn packet(&self, offset: Bytes, len: u32) -> Option<(Bytes, u32)> {
        let end = offset.0.saturating_add(len.into());
        (end <= 4096 * self.next as u64).then_some((offset, len))
    }
}

impl Metadata for TextAt {
    fn has_unread(&self) -> bool {
        self.sent < self.text.bytes.borrow().len()
    }

    fn read(&mut self, to: &mut BytesMut) -> std::io::Result<()> {
        // In small pieces, as a relay reads that bounds its memory.
        let bytes = self.text.bytes.borrow();
        let end = bytes.len().min(self.sent + 4);
        to.extend_from_slice(bytes.get(self.sent..end).unwrap_or_default());
        self.sent = end;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.text.over.get()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.world
            .set_subscribed(Change::Stream(StreamId(self.text.id)), on);
    }
}
