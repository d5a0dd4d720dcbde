//! Decodes what was read from a data connection, and hands it to its streams.

use relay_proto::DataEvent;

use super::{DataTask, READ_BUFFER};
use crate::limits::MAX_PACKETS_TOGETHER;

impl DataTask {
    /// Decodes the first `len` bytes of the read buffer, and returns it. What is left is kept until
    /// more arrives.
    pub(super) fn decode_buffer(&mut self, buffer: Vec<u8>, len: usize) {
        let left = self.decode(buffer.get(..len).unwrap_or_default());
        self.keep_undecoded(buffer.get(len - left..len).unwrap_or_default());
        READ_BUFFER.set(buffer);
    }

    /// Decodes bytes and hands the events to their streams. Then the entries that have become ready
    /// are written. Returns how many bytes are left.
    pub(super) fn decode(&mut self, input: &[u8]) -> usize {
        let left = self.decode_events(input);
        self.write_ready_entries();
        left
    }

    pub(super) fn decode_events(&mut self, mut input: &[u8]) -> usize {
        while self.pause.is_none() {
            if self.handle_packets_together(&mut input) {
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
            let handled = connection.handle_event(event);
            self.pause_or_end(handled);
        }
        input.len()
    }

    /// Keeps bytes that were received and not decoded, after those that are held.
    pub(super) fn keep_undecoded(&mut self, bytes: &[u8]) {
        self.undecoded.clear();
        if !self.held.is_empty() {
            self.undecoded = std::mem::take(&mut self.held);
        }
        self.undecoded.extend_from_slice(bytes);
    }

    /// Handles packets that were read as a whole, if there are several. Returns whether packets
    /// were handled: none before the first packet of the connection.
    fn handle_packets_together(&mut self, input: &mut &[u8]) -> bool {
        let mut rest = *input;
        let has_two = self.decoder.whole_packet(&mut rest).is_some()
            && self.decoder.whole_packet(&mut rest).is_some();
        let connection = self.connection.as_mut().filter(|_| has_two);
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
}
