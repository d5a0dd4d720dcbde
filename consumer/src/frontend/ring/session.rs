//! The session of one traced process: drains its rings on a timer and at its death. This file owns
//! the loop; `events` reads the records, `watermark` knows up to which time they are read, `output`
//! packetizes them, and `delivery` releases what is delivered.
//!
//! A ring's events stay in the ring until their packets are delivered ([`DeliveryReceipt`]): the
//! producer is told only then, so that a consumer that dies loses none. A consumer that dies
//! between the delivery and the message to the producer leaves a few events to its successor that
//! it has delivered already.

mod delivery;
mod events;
mod output;
mod watermark;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trace_ring_core::format::Mode;
use tracing::{debug, warn};

use super::producer::{Producer, ProducerRing};
use super::renewal::renew_filter_after_another_drainer;
use super::ring_reader::{RingPoint, Role};
use super::trace::TraceIdentity;
use super::user_rate::UserRate;
use super::{Context, Coverage, Overload};
use crate::limits::{BUSY_RING_POLL_INTERVAL, RING_GRACE_PERIOD, RING_POLL_INTERVAL};
use crate::packetize::HostClock;
use crate::queue::{DeliveryReceipt, SessionClosed, SessionEnd, SessionOutcome};
use delivery::Undelivered;
use output::Output;
use watermark::Watermark;

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
    /// What may be released when a receipt says so, in the order of the flushes.
    undelivered: VecDeque<Undelivered>,
    /// For each ring, what was released, or waits for that.
    handed_over: HashMap<u32, RingPoint>,
    /// Rings from which nothing more will come, and that are to be released.
    ending: HashSet<u32>,
    /// Number of losses that no ring counts and that were released, or wait for that.
    handed_over_lost: u64,
    last_flush: Instant,
    watermark: Watermark,
    buffer: Vec<u8>,
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
        let handed_over_lost = producer.meta().reported_lost();
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
            handed_over_lost,
            last_flush: Instant::now(),
            watermark: Watermark::default(),
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
        if self.context.role == Role::Drainer {
            self.producer.update();
            if let Err(fault) = renew_filter_after_another_drainer(&mut self.producer) {
                debug!(process = self.identity.directory.as_str(), %fault, "filter not renewed");
            }
        }
        loop {
            // Before the turn: what a dead process has written is complete.
            let is_dead = self.producer.check_death().unwrap_or_else(|error| {
                debug!(%error, "lock of a process not checked");
                false
            });
            if stop.is_cancelled() && !is_stopping {
                is_stopping = true;
                self.producer.update();
                // A process that lives may write faster than it is read, and the agent would never
                // stop.
                self.producer.freeze();
            }
            let turn = self.read_rings().await?;
            let is_last = (is_dead || is_stopping) && !turn.has_more;
            if is_last || self.is_flush_due() {
                self.flush().await?;
            }
            self.release_delivered(true);
            if is_last {
                // An agent that stops is waited for by its user or by the system.
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
            // All is read, and nothing will be written.
            self.watermark = Watermark::at(HostClock::now());
            self.flush().await?;
            self.release_delivered(true);
        }
        Ok(())
    }

    /// Reads a part of each ring.
    async fn read_rings(&mut self) -> Result<Turn, SessionClosed> {
        let begun = HostClock::now();
        self.producer.update();
        if let Err(fault) = self.producer.update_meta() {
            debug!(process = self.identity.directory.as_str(), %fault, "meta not read");
        }
        let mut turn = Turn::default();
        let is_snapshot = self.context.coverage == Coverage::Snapshot;
        let mut committed = Vec::new();
        for (number, ring) in self.producer.rings() {
            if let ProducerRing::Open(reader) = ring
                && (!is_snapshot || reader.header().mode == Mode::Overwrite)
            {
                committed.push((*number, reader.committed()));
            }
        }
        self.watermark.begin_turn(begun, &committed);
        for (number, _) in committed {
            let Some(ProducerRing::Open(reader)) = self.producer.ring(number) else {
                continue;
            };
            turn.is_busy |= reader.unread() > reader.header().data_size() / 8;
            turn.has_more |= self.read_ring(number).await?;
        }
        let producer = &self.producer;
        self.watermark
            .end_turn(|number| match producer.ring(number) {
                Some(ProducerRing::Open(reader)) => Some(reader.point().position),
                Some(ProducerRing::Closed) | None => None,
            });
        let lost = self.producer.meta().take_lost();
        if lost > 0 {
            let first = self.producer.rings().keys().next().copied();
            self.report_lost(first.unwrap_or(0), lost).await?;
        }
        Ok(turn)
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
