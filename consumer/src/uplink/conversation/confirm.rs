//! Whether packets have arrived; and what may only be said when they have.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::index::SendIndex;
use relay_proto::stream::{CloseStream, DataPending};
use wire::{Bits, InstanceId, PacketIndex, PacketSeqNum, SeqNum, StreamId, Timestamp};

use super::{Awaited, Conversation};
use crate::limits::{CONFIRM_BYTES, CONFIRM_PACKETS, CONFIRM_PAUSE, MOST_IN_FLIGHT};
use crate::queue::StreamKey;
use crate::uplink::catalogue::{Catalogue, Stream};
use crate::uplink::error::UplinkError;

impl Conversation {
    /// Asks about the packets of streams where it is time to.
    pub(super) fn ask(
        &mut self,
        book: &mut Catalogue,
        is_idle: bool,
        now: Instant,
    ) -> Result<(), UplinkError> {
        if self.ask_again.is_some_and(|at| at <= now) {
            self.ask_again = None;
            self.to_ask.append(&mut self.to_ask_again);
        }
        let has_written = is_idle && self.out.data.is_empty();
        let mut asked = Vec::new();
        for &key in &self.to_ask {
            let Some(stream) = book.streams.get_mut(&key) else {
                asked.push(key);
                continue;
            };
            let here = &mut stream.here;
            let is_enough = here.sent - here.confirmed >= CONFIRM_PACKETS
                || here.unasked_bytes >= CONFIRM_BYTES;
            if has_written || is_enough || self.due.contains(&key) {
                here.asked = Some(here.sent);
                here.unasked_bytes = 0;
                asked.push(key);
            }
        }
        for key in asked {
            self.to_ask.remove(&key);
            let here = book.streams.get(&key).map(|stream| &stream.here);
            let Some((relay, before)) = here.and_then(|here| here.relay.zip(here.asked)) else {
                continue;
            };
            let last = before.checked_sub(1).map(SeqNum);
            let ask = DataPending {
                stream: relay,
                last,
            };
            let stream = key;
            self.send(
                &Command::DataPending(ask),
                Awaited::Confirmed { stream, before },
            )?;
        }
        Ok(())
    }

    pub(super) fn confirmed(
        &mut self,
        key: StreamKey,
        before: u64,
        is_pending: bool,
        book: &mut Catalogue,
        now: Instant,
    ) {
        let Catalogue {
            streams, counters, ..
        } = book;
        let Some(stream) = streams.get_mut(&key) else {
            return;
        };
        stream.here.asked = None;
        if is_pending {
            self.to_ask_again.insert(key);
            self.ask_again.get_or_insert(now + CONFIRM_PAUSE);
            return;
        }
        while stream.here.confirmed < before
            && let Some(kept) = stream.unconfirmed.pop_front()
        {
            stream.here.confirmed += 1;
            let bytes = kept.packet().map_or(0, |(bytes, _)| bytes.len() as u64);
            counters.acknowledged.add(1);
            counters.acknowledged_bytes.add(bytes);
            counters.queued_packets.take(1);
            counters.queued_bytes.take(bytes);
        }
        if stream.here.sent > stream.here.confirmed {
            self.to_ask.insert(key);
        }
    }

    /// Beacons and ends of streams, of those that have nothing under way.
    pub(super) fn do_what_is_due(&mut self, book: &mut Catalogue) -> Result<(), UplinkError> {
        if self.due.is_empty() || !self.again.is_empty() || self.adding > 0 {
            return Ok(());
        }
        for key in std::mem::take(&mut self.due) {
            let Some(stream) = book.streams.get_mut(&key) else {
                continue;
            };
            let is_closing = stream.closing.is_some() && !stream.here.close_sent;
            let (true, Some(relay)) = (stream.here.beacon_due || is_closing, stream.here.relay)
            else {
                continue;
            };
            if !stream.is_settled() || self.awaited.len() >= MOST_IN_FLIGHT {
                self.due.insert(key);
                continue;
            }
            let last = stream.here.sent.checked_sub(1).map(SeqNum);
            if std::mem::take(&mut stream.here.beacon_due)
                && let Some(until) = stream.quiet_until
            {
                let beacon = beacon(relay, last, stream, until);
                self.send(&Command::SendIndex(beacon), Awaited::Done)?;
            }
            if is_closing {
                stream.here.close_sent = true;
                let close = CloseStream {
                    stream: relay,
                    last,
                };
                self.send(&Command::CloseStream(close), Awaited::Closed(key))?;
            }
        }
        Ok(())
    }
}

/// The word that nothing comes on a stream before `until`.
fn beacon(relay: StreamId, last: Option<SeqNum>, stream: &Stream, until: Timestamp) -> SendIndex {
    SendIndex {
        stream: relay,
        seq: last,
        packet: PacketIndex {
            packet_size: Bits(0),
            content_size: Bits(0),
            begin: Timestamp(0),
            end: until,
            events_discarded: 0,
            class: stream.class,
            instance: Some(InstanceId(0)),
            packet_seq: Some(PacketSeqNum(0)),
        },
    }
}
