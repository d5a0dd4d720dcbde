//! The session of one traced process: drains its rings on a timer and at its death, and packetizes the events.
//!
//! A ring's events stay in the ring until their packets are delivered ([`DeliveryReceipt`]): the producer is told only
//! then, so that a consumer that dies loses none. A consumer that dies between the delivery and the message to the
//! producer leaves a few events to its successor that it has delivered already.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use ctf::write::{DeclaredStreamClass, EventRecord, PacketSize};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trace_ring_core::format::Mode;
use tracing::{debug, info, warn};
use wire::Timestamp;

use super::classes::{CtfClasses, read_fields};
use super::producer::{Producer, ProducerRing};
use super::ring_reader::{ChunkEnd, RingPoint, Role};
use super::trace::{CHANNEL, PATH, STREAM_CLASS, TraceIdentity};
use super::user_rate::UserRate;
use super::{Context, Coverage, Overload};
use crate::limits::{
    BUSY_RING_POLL_INTERVAL, IDLE_BEACON_INTERVAL, MAX_EVENT_PACKET_BYTES, MAX_RING_TIME_LEAD,
    RING_GRACE_PERIOD, RING_POLL_INTERVAL, RING_WATERMARK_DELAY,
};
use crate::packetize::{HostClock, PacketizeError, Packetizer};
use crate::queue::{
    Delivery, DeliveryReceipt, SessionClosed, SessionEnd, SessionOutcome, StreamKey,
};

/// Chunks that are read from a ring before it is another's turn.
const CHUNKS_PER_TURN: usize = 4;

/// The reason why the reading of a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionResult {
    /// The process is dead, everything is delivered, and its directory is removed.
    Removed,
    /// The directory stays: the agent stops, or the session was given up.
    Kept,
}

/// The reader of one process, and its session, which is opened with the first event.
pub(super) struct RingSession {
    context: Arc<Context>,
    producer: Producer,
    identity: TraceIdentity,
    rate: UserRate,
    overload: Option<Overload>,
    output: Option<Output>,
    /// The receipt of the packets that were cut since the last flush.
    receipt: DeliveryReceipt,
    /// What may be released in the rings when a receipt says so, in the order of the flushes.
    undelivered: VecDeque<(DeliveryReceipt, Vec<Releasable>)>,
    /// For each ring, what was released, or waits for that.
    handed_over: HashMap<u32, RingPoint>,
    /// Rings from which nothing more will come, and that are to be released.
    ending: HashSet<u32>,
    /// Losses of the process that no ring counts.
    lost_without_ring: u64,
    last_flush: Instant,
    buffer: Vec<u8>,
}

/// A point of a ring that may be released.
#[derive(Debug, Clone, Copy)]
struct Releasable {
    ring: u32,
    point: RingPoint,
    /// Whether nothing will follow.
    is_last: bool,
}

/// The packets of a session that is open.
struct Output {
    packets: Packetizer,
    stream_class: DeclaredStreamClass,
    classes: CtfClasses,
    /// The streams of the rings that are open.
    streams: HashMap<u32, StreamKey>,
    /// Streams of rings whose thread has ended, for those of later threads.
    unused: Vec<StreamKey>,
    added: u32,
    size: PacketSize,
    last_idle_flush: Instant,
}

/// What a turn has found.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Whether there is more to be read at once.
    has_more: bool,
    /// Whether a ring fills fast.
    is_busy: bool,
}

impl RingSession {
    pub(super) fn new(context: Arc<Context>, producer: Producer, rate: UserRate) -> Self {
        let mut producer = producer;
        let identity = TraceIdentity::of(&mut producer, &context);
        Self {
            overload: context.settings.max_events_per_second.map(Overload::new),
            context,
            producer,
            identity,
            rate,
            output: None,
            receipt: DeliveryReceipt::default(),
            undelivered: VecDeque::new(),
            handed_over: HashMap::new(),
            ending: HashSet::new(),
            lost_without_ring: 0,
            last_flush: Instant::now(),
            buffer: Vec::new(),
        }
    }

    /// Reads the process until it is dead or `stop` is cancelled, then ends its session.
    pub(super) async fn run(mut self, stop: CancellationToken) -> SessionResult {
        let drained = self.drain(&stop).await;
        let is_dead = match &drained {
            Ok(is_dead) => *is_dead,
            Err(SessionClosed) => false,
        };
        let outcome = match self.output.take() {
            Some(output) => output.packets.finish(HostClock::now()).await,
            None => SessionOutcome {
                end: SessionEnd::Complete,
                ..SessionOutcome::default()
            },
        };
        self.receipt = DeliveryReceipt::default();
        self.release_delivered(false);
        let is_delivered = drained.is_ok()
            && outcome.lost == 0
            && matches!(outcome.end, SessionEnd::Complete | SessionEnd::Spooled(_));
        self.report(&outcome, is_delivered);
        if !is_dead || !is_delivered || self.context.role == Role::Observer {
            return SessionResult::Kept;
        }
        match self.producer.remove(&self.context.run) {
            Ok(()) => SessionResult::Removed,
            Err(error) => {
                let process = self.identity.directory.as_str();
                warn!(process, %error, "directory of a dead process not removed");
                SessionResult::Kept
            }
        }
    }

    /// Returns whether the process is dead.
    async fn drain(&mut self, stop: &CancellationToken) -> Result<bool, SessionClosed> {
        let mut is_stopping = false;
        loop {
            // Before the turn: what a dead process has written is complete.
            let is_dead = self.producer.check_death().unwrap_or_else(|error| {
                debug!(%error, "lock of a process not checked");
                false
            });
            if stop.is_cancelled() && !is_stopping {
                is_stopping = true;
                self.producer.update();
                self.producer.freeze();
            }
            let turn = self.read_rings().await?;
            let is_last = (is_dead || is_stopping) && !turn.has_more;
            if is_last || self.is_flush_due() {
                self.flush().await?;
            }
            self.release_delivered(true);
            if is_last {
                if is_dead && !is_stopping {
                    self.wait_for_viewers(stop).await?;
                }
                return Ok(is_dead);
            }
            if turn.has_more || turn.is_busy {
                sleep(BUSY_RING_POLL_INTERVAL).await;
            } else {
                stop.run_until_cancelled(sleep(RING_POLL_INTERVAL)).await;
            }
        }
    }

    /// Leaves the session open for a moment: viewers find it only while it is.
    async fn wait_for_viewers(&mut self, stop: &CancellationToken) -> Result<(), SessionClosed> {
        if self.output.is_none() || !self.context.settings.is_live {
            return Ok(());
        }
        let until = Instant::now() + RING_GRACE_PERIOD;
        while Instant::now() < until && !stop.is_cancelled() {
            let pause = sleep(self.context.settings.live_timer.min(RING_GRACE_PERIOD));
            stop.run_until_cancelled(pause).await;
            self.flush().await?;
            self.release_delivered(true);
        }
        Ok(())
    }

    /// Reads a part of each ring.
    async fn read_rings(&mut self) -> Result<Turn, SessionClosed> {
        self.producer.update();
        if let Err(fault) = self.producer.meta().update() {
            debug!(process = self.identity.directory.as_str(), %fault, "meta not read");
        }
        let mut turn = Turn::default();
        let numbers: Vec<u32> = self.producer.rings().keys().copied().collect();
        for number in numbers {
            let Some(ProducerRing::Open(reader)) = self.producer.ring(number) else {
                continue;
            };
            if self.context.coverage == Coverage::Snapshot
                && reader.header().mode != Mode::Overwrite
            {
                continue;
            }
            turn.is_busy |= reader.unread() > reader.header().data_size() / 8;
            turn.has_more |= self.read_ring(number).await?;
        }
        let lost = self.producer.meta().header().lost_no_ring;
        let new = lost.saturating_sub(self.lost_without_ring);
        if new > 0 {
            self.lost_without_ring = lost;
            let first = self.producer.rings().keys().next().copied();
            self.report_lost(first.unwrap_or(0), new).await?;
        }
        Ok(turn)
    }

    /// Reads a part of one ring, and its losses. Returns whether there is more.
    async fn read_ring(&mut self, number: u32) -> Result<bool, SessionClosed> {
        let mut lost = 0_u64;
        let mut has_more = true;
        for _ in 0..CHUNKS_PER_TURN {
            if !self.rate.has_bytes(std::time::Instant::now()) {
                break;
            }
            match self.read_chunk(number).await? {
                Some(missing) => lost = lost.saturating_add(missing),
                None => {
                    has_more = false;
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return Ok(false);
        };
        // The counters are the process's: any number is possible.
        lost = lost.saturating_add(reader.take_lost());
        if lost > 0 {
            self.report_lost(number, lost).await?;
        }
        Ok(has_more)
    }

    /// Reads one chunk, and appends its events. Returns the number of events that are missing, or `None` if there is
    /// nothing to read.
    async fn read_chunk(&mut self, number: u32) -> Result<Option<u64>, SessionClosed> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return Ok(None);
        };
        let chunk = match reader.read_chunk(&mut buffer) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(None),
            Err(fault) => {
                self.producer.close_broken(number, &fault);
                return Ok(None);
            }
        };
        self.rate.take(buffer.len());
        let mut missing = chunk.overwritten;
        let mut records = chunk.records(&buffer);
        let mut end = ChunkEnd::default();
        for record in &mut records {
            let Ok(record) = record else {
                end.is_damaged = true;
                break;
            };
            end.events += 1;
            if !self.append(number, &record).await? {
                missing += 1;
            }
        }
        end.position = records.position();
        if let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) {
            reader.finish_chunk(&chunk, &buffer, end);
        }
        self.buffer = buffer;
        Ok(Some(missing))
    }

    /// Appends an event. Returns false if it cannot be shown.
    async fn append(
        &mut self,
        number: u32,
        record: &trace_ring_core::format::Record<'_>,
    ) -> Result<bool, SessionClosed> {
        if self.producer.meta().class(record.class).is_none() {
            // Declared after `meta` was read in this turn, or never.
            let _ = self.producer.meta().update();
        }
        let stream = self.stream(number).await?;
        let thread = match self.producer.ring(number) {
            Some(ProducerRing::Open(reader)) if reader.header().tid != 0 => reader.header().tid,
            _ => record.tid,
        };
        let Some(class) = self.producer.meta().class(record.class) else {
            return Ok(false);
        };
        let Some(fields) = read_fields(class, record.fields()) else {
            return Ok(false);
        };
        if let Some(overload) = &mut self.overload
            && !overload.admits(class.severity, std::time::Instant::now())
        {
            return Ok(false);
        }
        let Some(output) = &mut self.output else {
            return Ok(false);
        };
        let metadata = output.packets.metadata();
        let Some(declared) = output
            .classes
            .declare(class, metadata, &output.stream_class)
        else {
            return Ok(false);
        };
        let declared = declared.clone();
        let values: Vec<_> = fields.iter().map(|field| field.value()).collect();
        let event = EventRecord {
            time: self.identity.checked_time(record.timestamp),
            process: self.identity.pid,
            thread: i32::try_from(thread).unwrap_or(0),
            values: &values,
        };
        match output.packets.append(stream, &declared, event).await {
            Ok(()) => Ok(true),
            Err(PacketizeError::Event(_)) => Ok(false),
            Err(PacketizeError::SessionClosed(gone)) => Err(gone),
        }
    }

    /// Counts lost events in the packets behind those that were read until now.
    async fn report_lost(&mut self, number: u32, lost: u64) -> Result<(), SessionClosed> {
        let stream = self.stream(number).await?;
        let now = self.now();
        if let Some(output) = &mut self.output {
            // Readers see the losses between two packets: the events before them are in the first.
            output.packets.flush(now, false).await?;
            output.packets.cut_first_packet(stream, now).await?;
            output.packets.discard(stream, lost);
        }
        Ok(())
    }

    /// The stream of a ring. The session is opened with its first stream.
    async fn stream(&mut self, number: u32) -> Result<StreamKey, SessionClosed> {
        if self.output.is_none() {
            self.output = Some(self.open_session().await?);
        }
        let Some(output) = &mut self.output else {
            return Err(SessionClosed);
        };
        if let Some(stream) = output.streams.get(&number) {
            return Ok(*stream);
        }
        let stream = match output.unused.pop() {
            Some(stream) => stream,
            None => {
                let channel = format!("{CHANNEL}_{}", output.added);
                output.added += 1;
                let class = &output.stream_class;
                output
                    .packets
                    .add_stream(class, &channel, output.size)
                    .await?
            }
        };
        output.streams.insert(number, stream);
        Ok(stream)
    }

    async fn open_session(&mut self) -> Result<Output, SessionClosed> {
        let description = self.identity.session(&self.context.settings);
        info!(
            process = self.identity.directory.as_str(),
            session = description.name,
            "traced process"
        );
        let queue = self.context.opener.open_session(description)?;
        let activity = self.context.activity.clone();
        let declaration = &self.identity.declaration;
        let mut packets = Packetizer::new(declaration, PATH, queue, activity).await?;
        packets.set_receipt(Some(self.receipt.clone()));
        let stream_class = packets.declare_stream_class(STREAM_CLASS);
        Ok(Output {
            packets,
            stream_class: stream_class.expect("the first class of streams"),
            classes: CtfClasses::default(),
            streams: HashMap::new(),
            unused: Vec::new(),
            added: 0,
            size: PacketSize::new(self.context.settings.packet_bytes, MAX_EVENT_PACKET_BYTES),
            last_idle_flush: Instant::now(),
        })
    }

    /// The time of beacons and ends of packets.
    fn now(&self) -> Timestamp {
        let delay = u64::try_from(RING_WATERMARK_DELAY.as_nanos()).unwrap_or(0);
        Timestamp(HostClock::now().0.saturating_sub(delay))
    }

    /// Whether the live timer has run out, or a ring needs the space of what was read.
    fn is_flush_due(&mut self) -> bool {
        let handed_over = &self.handed_over;
        let is_filling = |(number, ring): (&u32, &ProducerRing)| match ring {
            ProducerRing::Open(reader) => {
                let handed_over = handed_over.get(number).map_or(0, |point| point.position);
                let kept = reader.point().position.saturating_sub(handed_over);
                kept > reader.header().data_size() / 8
            }
            ProducerRing::Closed => false,
        };
        self.last_flush.elapsed() >= self.context.settings.live_timer
            || self.producer.rings().iter().any(is_filling)
    }

    /// Cuts all packets, and remembers what may be released when they are delivered.
    async fn flush(&mut self) -> Result<(), SessionClosed> {
        self.last_flush = Instant::now();
        let now = self.now();
        if let Some(output) = &mut self.output {
            let even_if_idle = output.last_idle_flush.elapsed() >= IDLE_BEACON_INTERVAL;
            if even_if_idle {
                output.last_idle_flush = Instant::now();
            }
            output.packets.flush(now, even_if_idle).await?;
        }
        let mut releasable = Vec::new();
        for (number, ring) in self.producer.rings() {
            let ProducerRing::Open(reader) = ring else {
                continue;
            };
            let point = reader.point();
            let is_last = reader.is_ended() && reader.unread() == 0;
            let is_new = self.handed_over.get(number) != Some(&point);
            if is_new || (is_last && !self.ending.contains(number)) {
                let ring = *number;
                releasable.push(Releasable {
                    ring,
                    point,
                    is_last,
                });
                self.handed_over.insert(ring, point);
            }
            if is_last
                && self.ending.insert(*number)
                && let Some(output) = &mut self.output
                && let Some(stream) = output.streams.remove(number)
            {
                output.unused.push(stream);
            }
        }
        if !releasable.is_empty() {
            let next = DeliveryReceipt::default();
            if let Some(output) = &mut self.output {
                output.packets.set_receipt(Some(next.clone()));
            }
            let receipt = std::mem::replace(&mut self.receipt, next);
            self.undelivered.push_back((receipt, releasable));
        }
        Ok(())
    }

    /// Releases what is delivered. With `may_force`, also what is only in memory, if a ring would become full
    /// otherwise and there is no spool.
    fn release_delivered(&mut self, may_force: bool) {
        while let Some((receipt, releasable)) = self.undelivered.front() {
            match receipt.delivery() {
                Delivery::Delivered => {}
                Delivery::Pending if may_force && self.needs_space(releasable) => {}
                Delivery::Pending | Delivery::Lost => return,
            }
            let Some((_, releasable)) = self.undelivered.pop_front() else {
                return;
            };
            if self.context.role == Role::Drainer {
                self.release(&releasable);
            }
        }
    }

    /// Whether a ring is more than half full.
    fn needs_space(&self, releasable: &[Releasable]) -> bool {
        !self.context.settings.is_spooled
            && releasable
                .iter()
                .any(|one| match self.producer.ring(one.ring) {
                    Some(ProducerRing::Open(reader)) => {
                        let used = reader.used();
                        used > reader.header().data_size() / 2
                    }
                    _ => false,
                })
    }

    fn release(&mut self, releasable: &[Releasable]) {
        for one in releasable {
            let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&one.ring) else {
                continue;
            };
            if let Err(error) = reader.release(&one.point, one.is_last) {
                let process = self.identity.directory.as_str();
                debug!(process, ring = one.ring, %error, "ring not released");
            }
            if one.is_last {
                self.producer.close_ring(one.ring);
                self.handed_over.remove(&one.ring);
                self.ending.remove(&one.ring);
            }
        }
    }

    fn report(&self, outcome: &SessionOutcome, is_delivered: bool) {
        let process = self.identity.directory.as_str();
        match &outcome.end {
            _ if is_delivered => debug!(process, packets = outcome.acknowledged, "delivered"),
            SessionEnd::Failed(why) | SessionEnd::Spooled(why) => {
                warn!(
                    process,
                    lost = outcome.lost,
                    why,
                    "session given up; events stay in the rings"
                );
            }
            SessionEnd::Complete | SessionEnd::Abandoned => {
                warn!(
                    process,
                    "session given up: the uplink has stopped; events stay in the rings"
                );
            }
        }
    }
}

impl TraceIdentity {
    /// The time of an event, cut to the present if it is too far in the future.
    fn checked_time(&self, time: u64) -> Timestamp {
        if !self.is_of_this_boot {
            return Timestamp(time);
        }
        let now = HostClock::now().0;
        let lead = u64::try_from(MAX_RING_TIME_LEAD.as_nanos()).unwrap_or(0);
        Timestamp(if time > now.saturating_add(lead) {
            now
        } else {
            time
        })
    }
}
