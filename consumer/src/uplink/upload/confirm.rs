//! Asks which packets the relay has (`GET_POSITION`, or `DATA_PENDING`), and sends the commands
//! that must wait for the answer: beacons and closes of streams.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::index::SendIndex;
use relay_proto::resume::GetPosition;
use relay_proto::stream::{CloseStream, DataPending};
use wire::{Bits, InstanceId, PacketIndex, PacketSeqNum, SeqNum, StreamId, Timestamp};

use super::{AwaitedReply, SessionUpload};
use crate::limits::{
    CONFIRM_AFTER_BYTES, CONFIRM_AFTER_PACKETS, CONFIRM_RETRY_INTERVAL, DURABLE_RETRY_INTERVAL,
    MAX_COMMANDS_IN_FLIGHT,
};
use crate::queue::StreamKey;
use crate::uplink::error::UplinkError;
use crate::uplink::session_state::{SessionState, StreamState};

impl SessionUpload {
    /// Asks about the packets of streams of which enough has been sent, or of all streams if
    /// nothing more is to be sent.
    pub(super) fn ask_confirmations(
        &mut self,
        state: &mut SessionState,
        is_idle: bool,
        now: Instant,
    ) -> Result<(), UplinkError> {
        if self.ask_again.is_some_and(|at| at <= now) {
            self.ask_again = None;
            self.streams_to_ask.append(&mut self.streams_to_ask_again);
        }
        // Packets that are not written yet would be reported as pending.
        let has_written = is_idle && self.out.data.is_empty();
        let mut asked = Vec::new();
        for &key in &self.streams_to_ask {
            let Some(stream) = state.streams.get_mut(&key) else {
                asked.push(key);
                continue;
            };
            let relay_state = &mut stream.relay_state;
            let is_enough = relay_state.in_flight >= CONFIRM_AFTER_PACKETS
                || relay_state.unasked_bytes >= CONFIRM_AFTER_BYTES;
            if has_written || is_enough || self.due_streams.contains(&key) {
                relay_state.asked = Some(relay_state.sent);
                relay_state.unasked_bytes = 0;
                asked.push(key);
            }
        }
        for key in asked {
            self.streams_to_ask.remove(&key);
            let relay_state = state.streams.get(&key).map(|stream| &stream.relay_state);
            let Some((relay_state, (relay, before))) =
                relay_state.and_then(|of| Some((of, of.stream_id.zip(of.asked)?)))
            else {
                continue;
            };
            let ask = if self.opened.is_resumable {
                Command::GetPosition(GetPosition { stream: relay })
            } else {
                Command::DataPending(DataPending {
                    stream: relay,
                    last: relay_state.last_seq(),
                })
            };
            let stream = key;
            self.send_command(&ask, AwaitedReply::Confirmed { stream, before })?;
        }
        Ok(())
    }

    /// Handles the relay's answer that it has written the packets before the first number, and that
    /// those before the second are durable. Asks again if that is not all that was asked for.
    pub(super) fn handle_position(
        &mut self,
        key: StreamKey,
        written: u64,
        durable: u64,
        state: &mut SessionState,
        now: Instant,
    ) {
        self.confirm_before(key, durable, state);
        let Some(stream) = state.streams.get_mut(&key) else {
            return;
        };
        let relay_state = &mut stream.relay_state;
        relay_state.written = relay_state.written.max(written);
        let asked = relay_state.asked.take().unwrap_or(0);
        if durable < asked {
            self.streams_to_ask_again.insert(key);
            // What is written becomes durable when the relay syncs its files, in a second or so.
            let interval = if written < asked {
                CONFIRM_RETRY_INTERVAL
            } else {
                DURABLE_RETRY_INTERVAL
            };
            let at = now + interval;
            self.ask_again = Some(self.ask_again.map_or(at, |earlier| earlier.min(at)));
        } else if relay_state.in_flight > 0 {
            self.streams_to_ask.insert(key);
        }
    }

    /// Releases the packets of a stream before this one, which are durable at the relay.
    pub(super) fn confirm_before(
        &mut self,
        key: StreamKey,
        durable: u64,
        state: &mut SessionState,
    ) {
        let SessionState {
            streams, counters, ..
        } = state;
        let Some(stream) = streams.get_mut(&key) else {
            return;
        };
        while let Some(kept) = stream.unconfirmed.pop_front_if(|kept| kept.seq < durable) {
            stream.acknowledged = kept.seq + 1;
            let in_flight = &mut stream.relay_state.in_flight;
            // Nothing is in flight on this connection if the relay had closed the stream before.
            *in_flight = in_flight.saturating_sub(1);
            let bytes = kept.packet().map_or(0, |(bytes, _)| bytes.len() as u64);
            // An abandoned packet has been counted as lost.
            if !kept.is_abandoned {
                counters.acknowledged.add(1);
                counters.acknowledged_bytes.add(bytes);
            }
            counters.queued_packets.subtract(1);
            counters.queued_bytes.subtract(bytes);
            kept.queued.acknowledge();
        }
    }

    /// Sends the beacons and closes that are due, of streams without packets in flight.
    pub(super) fn send_due_beacons_and_closes(
        &mut self,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        if self.due_streams.is_empty() || !self.has_resent() || self.adding > 0 {
            return Ok(());
        }
        for key in std::mem::take(&mut self.due_streams) {
            let Some(stream) = state.streams.get_mut(&key) else {
                continue;
            };
            let is_closing = stream.closing.is_some() && !stream.relay_state.close_sent;
            let (true, Some(relay)) = (
                stream.relay_state.beacon_due || is_closing,
                stream.relay_state.stream_id,
            ) else {
                continue;
            };
            // A relay ignores the beacon of a stream while it waits for a packet of it.
            if !stream.is_all_written() || self.awaited.len() >= MAX_COMMANDS_IN_FLIGHT {
                self.due_streams.insert(key);
                continue;
            }
            let last = stream.relay_state.last_seq();
            if std::mem::take(&mut stream.relay_state.beacon_due)
                && let Some(until) = stream.idle_until
            {
                let beacon = beacon(relay, last, stream, until);
                self.send_command(&Command::SendIndex(beacon), AwaitedReply::Done)?;
            }
            if is_closing && !stream.is_all_confirmed() {
                // A relay forgets a closed stream, and could not be asked whether its packets are
                // durable.
                self.due_streams.insert(key);
            } else if is_closing {
                stream.relay_state.close_sent = true;
                let close = CloseStream {
                    stream: relay,
                    last,
                };
                self.send_command(&Command::CloseStream(close), AwaitedReply::Closed(key))?;
            }
        }
        Ok(())
    }
}

/// Makes the beacon that no packet of the stream begins before `until`.
fn beacon(
    relay: StreamId,
    last: Option<SeqNum>,
    stream: &StreamState,
    until: Timestamp,
) -> SendIndex {
    SendIndex {
        stream: relay,
        seq: last,
        packet: PacketIndex {
            // By this a relay tells a beacon from the index of a packet.
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
