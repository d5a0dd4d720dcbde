//! Decodes what was read from a data connection, and hands it to its streams.

use relay_proto::DataEvent;

use super::{Backlog, DataTask, READ_BUFFER};
use crate::limits::{ALONE_AFTER_READS, MAX_PACKET_BEFORE_COMMANDS, MAX_PACKETS_TOGETHER};
use crate::producer::data_connection::DataConnection;

impl DataTask {
    /// Decodes what was read. What is left becomes the backlog, or is kept until more arrives.
    pub(super) fn decode_buffer(&mut self, mut received: Backlog, may_stop: bool) {
        let (left, has_stopped) = self.decode(received.bytes(), may_stop);
        received.range.start = received.range.end - left;
        if has_stopped {
            self.backlog = Some(received);
            return;
        }
        self.keep_undecoded(received.bytes());
        READ_BUFFER.set(received.buffer);
    }

    /// Decodes bytes and hands the events to their streams. Then the entries that have become ready are written. Returns
    /// how many bytes are left, and whether it has stopped behind a packet so that commands are handled before the next one.
    pub(super) fn decode(&mut self, input: &[u8], may_stop: bool) -> (usize, bool) {
        let decoded = self.decode_events(input, may_stop);
        self.write_ready_entries();
        decoded
    }

    pub(super) fn decode_events(&mut self, mut input: &[u8], may_stop: bool) -> (usize, bool) {
        let mut has_stopped = false;
        while !has_stopped && self.pause.is_none() {
            if self.handle_packets_together(&mut input, may_stop) {
                continue;
            }
            let Some(connection) = &mut self.connection else {
                break;
            };
            let Some(event) = self.decoder.next(&mut input) else {
                break;
            };
            if let DataEvent::Begin(header) = event {
                self.last_packet = header.data_size as usize;
                self.coalescing.record_packet(header.data_size);
            }
            let is_whole = matches!(event, DataEvent::Payload { last: true, .. });
            let handled = connection.handle_event(event);
            let awaits_replies = connection.awaits_replies();
            self.pause_or_end(handled);
            has_stopped = may_stop
                && is_whole
                && self.stops_behind_packets(awaits_replies)
                && !input.is_empty();
        }
        (input.len(), has_stopped && self.pause.is_none())
    }

    /// Keeps bytes that were received and not decoded, behind those that are held.
    pub(super) fn keep_undecoded(&mut self, bytes: &[u8]) {
        self.undecoded.clear();
        if !self.held.is_empty() {
            self.undecoded = std::mem::take(&mut self.held);
        }
        self.undecoded.extend_from_slice(bytes);
    }

    /// Handles packets that were read as a whole, if there are several. Returns whether packets were handled: none before the
    /// first packet of the connection, and while commands are handled behind each packet.
    fn handle_packets_together(&mut self, input: &mut &[u8], may_stop: bool) -> bool {
        let mut rest = *input;
        let Some(first) = self.decoder.whole_packet(&mut rest) else {
            return false;
        };
        if self.decoder.whole_packet(&mut rest).is_none() {
            return false;
        }
        self.last_packet = first.payload.len();
        let awaits_replies = (self.connection.as_ref()).is_some_and(DataConnection::awaits_replies);
        if may_stop && self.stops_behind_packets(awaits_replies) {
            return false;
        }
        let connection = self.connection.as_mut();
        let Some(connection) = connection.filter(|own| own.session().is_some()) else {
            return false;
        };
        let packets = std::iter::from_fn(|| self.decoder.whole_packet(input));
        let packets = packets.take(MAX_PACKETS_TOGETHER).inspect(|packet| {
            self.last_packet = packet.payload.len();
            self.coalescing.record_packet(packet.header.data_size);
        });
        let handled = connection.handle_packets(packets);
        let handled = handled.map(|held| self.held = held);
        self.pause_or_end(handled);
        true
    }

    /// Whether commands are handled behind each packet: for a producer that waits for replies, alone on this worker. Others
    /// would need the buffer.
    pub(super) fn stops_behind_packets(&self, awaits_replies: bool) -> bool {
        awaits_replies
            && self.reads_alone >= ALONE_AFTER_READS
            && self.last_packet <= MAX_PACKET_BEFORE_COMMANDS
    }
}
