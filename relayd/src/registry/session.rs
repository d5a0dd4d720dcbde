//! One producer's session: its streams, who of them viewers may see, and its end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use relay_proto::session::TraceFormat;
use tracing::{debug, warn};
use viewer_proto::stream::StreamRecord;
use wire::{FixedText, Micros, SessionId, StreamId, Text, Timestamp, TraceId, TracePath};

use super::announced::{Announced, Content, Listed};
use super::audience::Audience;
use super::news::{Ear, Ears};
use super::promises::Promises;
use super::recording::Recording;
use super::stream::Stream;
use super::tally::Totals;
use crate::limits::{
    BEACONS_ON_DISK, METADATA_PATIENCE, MOST_METADATA_STREAMS, MOST_STREAMS, TICK,
};

/// What a session is, from its beginning on.
#[derive(Debug)]
pub struct Identity {
    /// Its number.
    pub id: SessionId,
    /// Its name.
    pub name: Text,
    /// The traced host.
    pub host: Text,
    /// How often it sends what it has.
    pub live_timer: Micros,
    /// What its trace is written in.
    pub trace_format: TraceFormat,
    /// Where it is written, below the relay's output. None if each stream says so itself.
    pub directory: Option<TracePath>,
    /// Where its control connection comes from.
    pub producer: IpAddr,
}

/// One producer's session.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    recording: Arc<Recording>,
    streams: Mutex<Streams>,
    announced: Mutex<Announced>,
    /// [`Announced::next`], to be looked at without the lock.
    announced_next: AtomicU64,
    viewers: AtomicU32,
    audience: Audience,
    producer_gone: AtomicBool,
    has_failed: AtomicBool,
    ears: Mutex<Ears>,
    /// The stream whose beacon is to be put on disk next.
    next_beacon: Mutex<StreamId>,
    promises: Arc<Promises>,
}

#[derive(Debug, Default)]
struct Streams {
    open: BTreeMap<StreamId, Entry>,
    traces: HashMap<TracePath, Trace>,
    /// Streams that viewers have not been told of.
    unannounced: Vec<Unannounced>,
    data_connections: usize,
    /// Where the first data connection came from.
    data_from: Option<IpAddr>,
    /// What those have left that are no longer open.
    past: Totals,
}

#[derive(Debug)]
struct Entry {
    stream: Stream,
    path: TracePath,
    /// The producer has said that its batch of streams is complete.
    was_sent: bool,
}

/// The streams in one directory.
#[derive(Debug, Clone, Copy)]
struct Trace {
    id: TraceId,
    /// Some metadata of it has come.
    is_described: bool,
}

#[derive(Debug)]
struct Unannounced {
    path: TracePath,
    was_sent: bool,
    listed: Arc<Listed>,
    /// The latest time that the producer had spoken of when it was added.
    since: Timestamp,
    /// Ticks that viewers are held back for its sake.
    patience: u32,
}

impl Unannounced {
    /// Whether viewers are held back so that they can be told of it before they are past its
    /// beginning.
    fn is_awaited(&self) -> bool {
        // Asked for its packets after the end, behind which none comes.
        let may_have_packets = match &self.listed.content {
            Content::Packets(packets) => !packets.is_over() || packets.next_packet().0 > 0,
            Content::Metadata(_) => false,
        };
        self.patience > 0 && may_have_packets
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { id, name, host, .. } = &self.identity;
        write!(f, "{id} ({host}/{name})")
    }
}

impl Streams {
    /// Streams that ended before viewers could be told of them, and traces without streams, are
    /// forgotten before they are too many.
    fn forget_the_past(&mut self) {
        if self.unannounced.len() >= MOST_STREAMS {
            self.unannounced.retain(|stream| !stream.listed.has_ended());
        }
        if self.traces.len() >= MOST_STREAMS {
            let open = self.open.values().map(|entry| &entry.path);
            let told_later = self.unannounced.iter().map(|stream| &stream.path);
            let used: HashSet<_> = open.chain(told_later).collect();
            self.traces.retain(|path, _| used.contains(path));
        }
    }
}

impl Session {
    /// A session without streams.
    #[must_use]
    pub fn new(identity: Identity, recording: Arc<Recording>) -> Self {
        Self {
            identity,
            recording,
            streams: Mutex::default(),
            announced: Mutex::default(),
            announced_next: AtomicU64::new(0),
            viewers: AtomicU32::new(0),
            audience: Audience::default(),
            producer_gone: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            ears: Mutex::default(),
            next_beacon: Mutex::default(),
            promises: Arc::default(),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.identity.id
    }

    /// What it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The recording that it belongs to.
    #[must_use]
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// Whether the other one is being written to the directory of this one, or above or below it, and
    /// they are not of one recording.
    #[must_use]
    pub fn is_hindered_by(&self, other: &Self) -> bool {
        let (Some(own), Some(theirs)) = (&self.identity.directory, &other.identity.directory)
        else {
            return false;
        };
        let (own, theirs): (&Path, &Path) = (own.as_ref(), theirs.as_ref());
        (own.starts_with(theirs) || theirs.starts_with(own))
            && !Arc::ptr_eq(&self.recording, &other.recording)
            && other.recording.is_written()
    }

    /// Viewers attached to it.
    #[must_use]
    pub fn viewers(&self) -> &AtomicU32 {
        &self.viewers
    }

    /// How far they are behind.
    #[must_use]
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// How many streams of packets are open, and what has come of all that it ever had.
    #[must_use]
    pub fn totals(&self) -> (usize, Totals) {
        let streams = self.streams.lock();
        let (mut open, mut totals) = (0, streams.past);
        for entry in streams.open.values() {
            if let Stream::Data(stream) = &entry.stream {
                open += 1;
                totals += stream.tally().totals();
            }
        }
        (open, totals)
    }

    /// Whether its producer is gone, so that no stream will be added.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.producer_gone.load(Ordering::Acquire)
    }

    // Streams.

    /// Whether it may have one stream more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.streams.lock().open.len() < MOST_STREAMS
    }

    /// Whether it may have one metadata stream more.
    #[must_use]
    pub fn has_room_for_metadata(&self) -> bool {
        let streams = self.streams.lock();
        let is_metadata = |entry: &&Entry| matches!(entry.stream, Stream::Metadata(_));
        streams.open.len() < MOST_METADATA_STREAMS
            || streams.open.values().filter(is_metadata).count() < MOST_METADATA_STREAMS
    }

    /// Adds a stream. Viewers hear of it later. `new_trace` numbers its trace, if it is the first.
    pub fn add_stream(
        &self,
        stream: Stream,
        path: TracePath,
        channel: Text,
        new_trace: impl FnOnce() -> TraceId,
    ) {
        let mut streams = self.streams.lock();
        streams.forget_the_past();
        let new_trace = || Trace {
            id: new_trace(),
            is_described: false,
        };
        let trace = *streams.traces.entry(path.clone()).or_insert_with(new_trace);
        let record = StreamRecord {
            stream: stream.id(),
            trace: trace.id,
            is_metadata: u32::from(matches!(stream, Stream::Metadata(_))),
            path: FixedText(path.to_text()),
            channel: FixedText(channel),
        };
        let listed = Arc::new(Listed {
            record,
            content: stream.content(),
        });
        streams.open.insert(
            stream.id(),
            Entry {
                stream,
                path: path.clone(),
                was_sent: false,
            },
        );
        let period = self.identity.live_timer.period().unwrap_or_default();
        let patience = (METADATA_PATIENCE + 3 * period).as_millis() / TICK.as_millis();
        let since = self.promises.latest();
        if matches!(listed.content, Content::Packets(_)) {
            self.promises.hold_back(since);
        }
        streams.unannounced.push(Unannounced {
            path,
            was_sent: false,
            listed,
            since,
            patience: u32::try_from(patience).unwrap_or(u32::MAX),
        });
    }

    /// One of its streams, as long as it takes something.
    #[must_use]
    pub fn stream(&self, id: StreamId) -> Option<Stream> {
        self.streams
            .lock()
            .open
            .get(&id)
            .map(|entry| &entry.stream)
            .filter(|stream| !stream.is_closed())
            .cloned()
    }

    /// All of them.
    #[must_use]
    pub fn streams(&self) -> Vec<Stream> {
        self.streams
            .lock()
            .open
            .values()
            .map(|entry| entry.stream.clone())
            .collect()
    }

    /// Its open streams that the producer has published.
    #[must_use]
    pub fn published_streams(&self) -> usize {
        self.streams
            .lock()
            .open
            .values()
            .filter(|entry| entry.was_sent && !entry.stream.is_closed())
            .count()
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.lock().open.is_empty()
    }

    /// Drops the streams that have been closed. Gives the numbers of those of packets.
    ///
    /// Closed metadata stays as long as its trace has streams of packets, since its file is locked
    /// meanwhile: to those who follow the files that says that streams that are put aside go on.
    #[must_use]
    pub fn forget_closed(&self) -> Vec<StreamId> {
        let mut closed = Vec::new();
        let mut described = Vec::new();
        let mut streams = self.streams.lock();
        let Streams { open, past, .. } = &mut *streams;
        open.retain(|id, entry| {
            let is_closed = entry.stream.is_closed();
            match &entry.stream {
                Stream::Data(stream) if is_closed => {
                    closed.push(*id);
                    *past += stream.tally().totals().past();
                    false
                }
                Stream::Metadata(_) if is_closed => {
                    described.push(*id);
                    true
                }
                _ => true,
            }
        });
        for id in described {
            let trace = open.get(&id).map(|entry| entry.path.clone());
            let goes_on = |entry: &Entry| {
                matches!(entry.stream, Stream::Data(_)) && Some(&entry.path) == trace.as_ref()
            };
            if !open.values().any(goes_on) {
                open.remove(&id);
            }
        }
        self.limit_promises(&streams);
        closed
    }

    /// Whether any stream has been left out of the round of questions about data under way.
    #[must_use]
    pub fn leaves_out_streams(&self) -> bool {
        let streams = self.streams.lock();
        streams
            .open
            .values()
            .any(|entry| !entry.stream.is_closed() && entry.stream.was_left_out())
    }

    // What viewers are told.

    /// The producer has published the streams that it added so far.
    pub fn streams_sent(&self) {
        let mut streams = self.streams.lock();
        streams
            .open
            .values_mut()
            .for_each(|entry| entry.was_sent = true);
        streams
            .unannounced
            .iter_mut()
            .for_each(|stream| stream.was_sent = true);
        self.announce(&mut streams);
    }

    /// Some metadata has come of the trace in this directory.
    pub fn described(&self, trace: &TracePath) {
        let mut streams = self.streams.lock();
        match streams.traces.get_mut(trace) {
            Some(trace) if !trace.is_described => trace.is_described = true,
            _ => return,
        }
        self.announce(&mut streams);
    }

    /// Lets viewers see what has been published and can be decoded. Viewers do not fare well with
    /// streams whose metadata they cannot get.
    fn announce(&self, streams: &mut Streams) {
        let Streams {
            traces,
            unannounced,
            ..
        } = streams;
        let mut announced = self.announced.lock();
        unannounced.retain(|stream| {
            let is_described = traces
                .get(&stream.path)
                .is_some_and(|trace| trace.is_described);
            let is_ready = stream.was_sent && is_described;
            if is_ready {
                announced.push(Arc::clone(&stream.listed));
            }
            !is_ready
        });
        self.announced_next
            .store(announced.next(), Ordering::Release);
        drop(announced);
        // Those who see that they may be promised more see the new streams too.
        self.limit_promises(streams);
        self.ears.lock().ring();
    }

    /// What its viewers may be promised.
    #[must_use]
    pub fn promises(&self) -> &Arc<Promises> {
        &self.promises
    }

    /// To be called whenever a stream may no longer be awaited.
    fn limit_promises(&self, streams: &Streams) {
        let unannounced = streams.unannounced.iter();
        let awaited = unannounced.filter(|stream| stream.is_awaited());
        let oldest = awaited.map(|stream| stream.since).min();
        if self.promises.limit(oldest) {
            // Packets may have been withheld from those who listen.
            self.ears.lock().ring();
        }
    }

    /// Some time has passed: streams whose metadata does not come hold back nobody for ever.
    pub fn lose_patience(&self) {
        self.shorten_patience(&mut self.streams.lock(), 1);
    }

    fn shorten_patience(&self, streams: &mut Streams, ticks: u32) {
        for stream in &mut streams.unannounced {
            stream.patience = stream.patience.saturating_sub(ticks);
        }
        self.limit_promises(streams);
    }

    /// From now on, this one hears of new streams and of the end.
    pub fn listen(&self, ear: &Arc<Ear>) {
        self.ears.lock().add(ear);
    }

    /// From now on, it does not.
    pub fn deafen(&self, ear: &Arc<Ear>) {
        self.ears.lock().remove(ear);
    }

    /// Number of the next stream that viewers will be told of.
    #[must_use]
    pub fn announced_next(&self) -> u64 {
        self.announced_next.load(Ordering::Acquire)
    }

    /// The streams that viewers may be told of, from a position on, each with its number.
    #[must_use]
    pub fn announced_from(&self, position: u64) -> Vec<(u64, Arc<Listed>)> {
        let announced = self.announced.lock();
        announced
            .from(position)
            .map(|(number, listed)| (number, Arc::clone(listed)))
            .collect()
    }

    // Connections, and the end.

    /// A data connection from this address is to carry packets of this session. Gives whether it may:
    /// numbers of streams are easily guessed. So it has to come from where the control connection
    /// does, or, since hosts may have several addresses, from where the first one did.
    #[must_use]
    pub fn data_begun(&self, from: IpAddr) -> bool {
        let mut streams = self.streams.lock();
        let first = *streams.data_from.get_or_insert(from);
        let may = from == first || from == self.identity.producer;
        streams.data_connections += usize::from(may);
        may
    }

    /// Whether there is such a connection.
    #[must_use]
    pub fn has_data_connection(&self) -> bool {
        self.streams.lock().data_connections > 0
    }

    /// Such a connection has ended. If it was the last, nothing that is missing will come.
    pub fn data_ended(&self) {
        let is_last = {
            let mut streams = self.streams.lock();
            streams.data_connections -= 1;
            streams.data_connections == 0
        };
        if !is_last {
            return;
        }
        for stream in self.streams() {
            if let Stream::Data(stream) = stream
                && let Err(error) = stream.data_ended()
            {
                warn!(session = %self, %error, "packets that waited are lost");
            }
        }
    }

    /// The control connection has ended: no stream will be added, and no index come. Packets whose
    /// index has come may still be under way, unless the connection has failed.
    pub fn control_ended(&self, failed: bool) {
        // No metadata will come any more.
        self.shorten_patience(&mut self.streams.lock(), u32::MAX);
        self.producer_gone.store(true, Ordering::Release);
        self.ears.lock().ring();
        if failed {
            return self.abort();
        }
        for stream in self.streams() {
            match stream {
                Stream::Data(stream) => stream.close(None),
                Stream::Metadata(stream) => stream.close(),
            }
        }
    }

    /// What it has cannot be written: closes every stream now, and says so to those who ask.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.abort();
    }

    /// Whether it has lost what it had, because that could not be taken or written.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// One of its connections has failed: closes every stream now.
    pub fn abort(&self) {
        for stream in self.streams() {
            match stream {
                Stream::Data(stream) => stream.abort(),
                Stream::Metadata(stream) => stream.close(),
            }
        }
    }

    /// Puts some beacons on disk, of each stream in its turn.
    pub fn write_beacons(&self) {
        if self.identity.live_timer.period().is_none() {
            return;
        }
        let turn = {
            let streams = self.streams.lock();
            let mut next = self.next_beacon.lock();
            let turn: Vec<Stream> = streams
                .open
                .range(*next..)
                .chain(streams.open.range(..*next))
                .take(BEACONS_ON_DISK)
                .map(|(_, entry)| entry.stream.clone())
                .collect();
            *next = turn
                .last()
                .map_or(StreamId(0), |last| StreamId(last.id().0 + 1));
            turn
        };
        for stream in turn {
            if let Stream::Data(stream) = stream
                && let Err(error) = stream.write_beacon()
            {
                // It is only said when the disk is full, and that others have said.
                if error.kind().is_want_of_space() {
                    debug!(session = %self, %error, "beacon not written");
                } else {
                    warn!(session = %self, %error, "beacon not written");
                }
            }
        }
    }
}
