//! Asks whether packets have arrived (`DATA_PENDING`), and sends the commands that must wait for the answer:
//! beacons and closes of streams.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::index::SendIndex;
use relay_proto::stream::{CloseStream, DataPending};
use wire::{Bits, InstanceId, PacketIndex, PacketSeqNum, SeqNum, StreamId, Timestamp};

use super::{AwaitedReply, SessionUpload};
use crate::limits::{
    CONFIRM_AFTER_BYTES, CONFIRM_AFTER_PACKETS, CONFIRM_RETRY_INTERVAL, MAX_COMMANDS_IN_FLIGHT,
};
use crate::queue::StreamKey;
use crate::uplink::error::UplinkError;
use crate::uplink::session_state::{SessionState, StreamState};

impl SessionUpload {
    /// Asks about the packets of streams of which enough has been sent, or of all streams if nothing more is to be
    /// sent.
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
            let is_enough = relay_state.sent - relay_state.confirmed >= CONFIRM_AFTER_PACKETS
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
            let Some((relay, before)) =
                relay_state.and_then(|relay_state| relay_state.stream_id.zip(relay_state.asked))
            else {
                continue;
            };
            let last = before.checked_sub(1).map(SeqNum);
            let ask = DataPending {
                stream: relay,
                last,
            };
            let stream = key;
            self.send_command(
                &Command::DataPending(ask),
                AwaitedReply::Confirmed { stream, before },
            )?;
        }
        Ok(())
    }

    /// Releases the packets that the relay has confirmed, or schedules another question.
    pub(super) fn handle_confirmation(
        &mut self,
        key: StreamKey,
        before: u64,
        is_pending: bool,
        state: &mut SessionState,
        now: Instant,
    ) {
        let SessionState {
            streams, counters, ..
        } = state;
        let Some(stream) = streams.get_mut(&key) else {
            return;
        };
        stream.relay_state.asked = None;
        if is_pending {
            self.streams_to_ask_again.insert(key);
            self.ask_again.get_or_insert(now + CONFIRM_RETRY_INTERVAL);
            return;
        }
        while stream.relay_state.confirmed < before
            && let Some(kept) = stream.unconfirmed.pop_front()
        {
            stream.relay_state.confirmed += 1;
            let bytes = kept.packet().map_or(0, |(bytes, _)| bytes.len() as u64);
            counters.acknowledged.add(1);
            counters.acknowledged_bytes.add(bytes);
            counters.queued_packets.subtract(1);
            counters.queued_bytes.subtract(bytes);
        }
        if stream.relay_state.sent > stream.relay_state.confirmed {
            self.streams_to_ask.insert(key);
        }
    }

    /// Sends the beacons and closes that are due, of streams without packets in flight.
    pub(super) fn send_due_beacons_and_closes(
        &mut self,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        if self.due_streams.is_empty() || !self.resend_queue.is_empty() || self.adding > 0 {
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
            if !stream.is_all_confirmed() || self.awaited.len() >= MAX_COMMANDS_IN_FLIGHT {
                self.due_streams.insert(key);
                continue;
            }
            let last = stream.relay_state.sent.checked_sub(1).map(SeqNum);
            if std::mem::take(&mut stream.relay_state.beacon_due)
                && let Some(until) = stream.idle_until
            {
                let beacon = beacon(relay, last, stream, until);
                self.send_command(&Command::SendIndex(beacon), AwaitedReply::Done)?;
            }
            if is_closing {
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
