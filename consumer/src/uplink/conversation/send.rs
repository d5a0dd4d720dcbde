//! What is sent: streams, metadata, packets.

use relay_proto::index::SendIndex;
use relay_proto::metadata::SendMetadata;
use relay_proto::stream::{AddStream, METADATA_CHANNEL, QuiescentControl};
use relay_proto::{Command, DataHeader};
use wire::{PacketSeqNum, SeqNum, Text};

use super::{Awaited, CHUNK, Conversation};
use crate::limits::{CONTROL_BYTES, METADATA_PIECE};
use crate::queue::{StreamKey, TraceKey};
use crate::uplink::catalogue::{Catalogue, Stream};
use crate::uplink::error::UplinkError;

impl Conversation {
    pub(super) fn add_stream(
        &mut self,
        key: StreamKey,
        book: &mut Catalogue,
    ) -> Result<(), UplinkError> {
        let Some(stream) = book.streams.get_mut(&key) else {
            return Ok(());
        };
        let Some(trace) = book.traces.get(&stream.trace) else {
            return Ok(());
        };
        stream.here.is_added = true;
        let add = AddStream {
            channel: stream.channel.clone(),
            path: trace.path.clone(),
            tracefile_size: self.opened.tracefiles.size,
            tracefile_count: self.opened.tracefiles.count,
            chunk: Some(CHUNK),
        };
        self.adding += 1;
        self.is_unannounced = true;
        if !trace.here.is_added {
            self.unannounced.insert(stream.trace);
        }
        self.send(&Command::AddStream(add), Awaited::StreamAdded(key))
    }

    /// Adds the metadata streams that are missing, and tells viewers of all that were added.
    pub(super) fn announce(&mut self, book: &mut Catalogue) -> Result<(), UplinkError> {
        self.is_unannounced = false;
        for key in std::mem::take(&mut self.unannounced) {
            let Some(trace) = book.traces.get_mut(&key) else {
                continue;
            };
            if std::mem::replace(&mut trace.here.is_added, true) {
                continue;
            }
            if !trace.metadata.is_empty() {
                self.undescribed.insert(key);
            }
            let add = AddStream {
                channel: Text::from(METADATA_CHANNEL),
                path: trace.path.clone(),
                tracefile_size: wire::Bytes(0),
                tracefile_count: 0,
                chunk: Some(CHUNK),
            };
            self.adding += 1;
            self.send(&Command::AddStream(add), Awaited::MetadataAdded(key))?;
        }
        self.send(&Command::StreamsSent, Awaited::Done)
    }

    /// Sends what a relay does not have of a trace's metadata. Whether that is all of it.
    pub(super) fn describe(
        &mut self,
        key: TraceKey,
        book: &mut Catalogue,
    ) -> Result<bool, UplinkError> {
        let Some(trace) = book.traces.get_mut(&key) else {
            return Ok(true);
        };
        let Some(stream) = trace.here.relay else {
            return Ok(false);
        };
        while let Some(bytes) = trace.metadata.get(trace.here.sent.0) {
            let (_, from) = trace.here.sent;
            let to = bytes.len().min(from + METADATA_PIECE);
            let text = bytes.get(from..to).unwrap_or_default();
            if text.is_empty() {
                trace.here.sent = (trace.here.sent.0 + 1, 0);
                continue;
            }
            if self.out.control.len() >= CONTROL_BYTES {
                return Ok(false);
            }
            let metadata = SendMetadata { stream, padding: 0 };
            self.opened
                .machine
                .send_metadata(metadata, text, &mut self.out.control)?;
            self.out.control.extend_from_slice(text);
            trace.here.sent.1 = to;
        }
        // Metadata has no answer; that of this command says that all before it has been taken.
        let _rooms = std::mem::take(&mut self.rooms);
        let quiescent = Command::QuiescentControl(QuiescentControl { stream });
        self.send(&quiescent, Awaited::Described { _rooms })?;
        Ok(true)
    }

    /// Sends the next packet of a stream that is not under way yet.
    pub(super) fn send_packet(
        &mut self,
        key: StreamKey,
        book: &mut Catalogue,
    ) -> Result<(), UplinkError> {
        let Some(stream) = book.streams.get_mut(&key) else {
            return Ok(());
        };
        let at = stream.under_way();
        let Stream {
            unconfirmed, here, ..
        } = stream;
        let (Some(kept), Some(relay)) = (unconfirmed.get(at), here.relay) else {
            return Ok(());
        };
        let Some((bytes, index)) = kept.packet() else {
            return Ok(());
        };
        let seq = SeqNum(here.sent);
        let size = index.packet_size.to_bytes().unwrap_or_default().0;
        let padding = size.saturating_sub(bytes.len() as u64);
        let header = DataHeader {
            circuit: 0,
            stream: relay,
            seq,
            data_size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            padding_size: u32::try_from(padding).unwrap_or(u32::MAX),
        };
        self.out.data.push(&header, bytes);
        here.sent += 1;
        here.unasked_bytes += bytes.len() as u64;
        if let Some(PacketSeqNum(number)) = index.packet_seq {
            here.next_packet_seq = number.saturating_add(1);
        }
        if here.asked.is_none() && !self.to_ask_again.contains(&key) {
            self.to_ask.insert(key);
        }
        let index = SendIndex {
            stream: relay,
            seq: Some(seq),
            packet: *index,
        };
        book.counters.sent.add(1);
        self.send(&Command::SendIndex(index), Awaited::Done)
    }
}
