//! Flushes packets, remembers what of the rings is in them, and releases that when they are
//! delivered.

use tokio::time::Instant;
use tracing::debug;

use super::super::producer::ProducerRing;
use super::super::ring_reader::{RingPoint, Role};
use super::RingSession;
use crate::limits::IDLE_BEACON_INTERVAL;
use crate::queue::{Delivery, DeliveryReceipt, SessionClosed};

/// What may be released when packets are delivered.
#[derive(Debug)]
pub(super) struct Undelivered {
    /// The receipt of the packets.
    receipt: DeliveryReceipt,
    rings: Vec<Releasable>,
    /// Number of lost events of no ring that are reported with these packets and earlier ones.
    lost_without_ring: u64,
}

/// A point of a ring that may be released.
#[derive(Debug, Clone, Copy)]
struct Releasable {
    ring: u32,
    point: RingPoint,
    /// Whether nothing will follow.
    is_last: bool,
}

impl RingSession {
    /// Whether the live timer has run out, or a ring needs the space of what was read.
    pub(super) fn is_flush_due(&mut self) -> bool {
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
    pub(super) async fn flush(&mut self) -> Result<(), SessionClosed> {
        self.last_flush = Instant::now();
        let now = self.watermark.time();
        if let Some(output) = &mut self.output {
            let even_if_idle = output.last_idle_flush.elapsed() >= IDLE_BEACON_INTERVAL;
            if even_if_idle {
                output.last_idle_flush = Instant::now();
            }
            output.packets.flush(now, even_if_idle).await?;
        }
        let mut rings = Vec::new();
        for (number, ring) in self.producer.rings() {
            let ProducerRing::Open(reader) = ring else {
                continue;
            };
            let point = reader.point();
            let is_last = reader.is_ended() && reader.unread() == 0;
            let is_new = self.handed_over.get(number) != Some(&point);
            if is_new || (is_last && !self.ending.contains(number)) {
                let ring = *number;
                rings.push(Releasable {
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
        let lost_without_ring = self.producer.meta().reported_lost();
        if !rings.is_empty() || lost_without_ring != self.handed_over_lost {
            self.handed_over_lost = lost_without_ring;
            let next = DeliveryReceipt::default();
            if let Some(output) = &mut self.output {
                output.packets.set_receipt(Some(next.clone()));
            }
            let receipt = std::mem::replace(&mut self.receipt, next);
            self.undelivered.push_back(Undelivered {
                receipt,
                rings,
                lost_without_ring,
            });
        }
        Ok(())
    }

    /// Releases what is delivered. With `may_force`, also what is only in memory, if a ring would
    /// become full otherwise and there is no spool.
    pub(super) fn release_delivered(&mut self, may_force: bool) {
        while let Some(first) = self.undelivered.front() {
            match first.receipt.delivery() {
                Delivery::Delivered => {}
                // While no relay is there, the ring would become full, and the program would
                // discard its newest events. In memory here they are sent later, unless this
                // process dies.
                Delivery::Pending if may_force && self.needs_space(&first.rings) => {}
                // In order: a later point of a ring would release what an earlier receipt still
                // keeps.
                Delivery::Pending | Delivery::Lost => return,
            }
            let Some(first) = self.undelivered.pop_front() else {
                return;
            };
            if self.context.role == Role::Drainer {
                self.release(&first.rings);
                let released = self.producer.meta().release_lost(first.lost_without_ring);
                if let Err(error) = released {
                    let process = self.identity.directory.as_str();
                    debug!(process, %error, "losses of no ring not released");
                }
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
}
