//! Packets that have been received as a whole, several at a time: those of one stream are written
//! together.

use relay_proto::{DataEvent, DataHeader, WholePacket};
use wire::{Bytes, Field};

use super::DataConnection;
use crate::ingest::error::PositionedError;

/// A packet that has been received as a whole.
#[derive(Debug, Clone, Copy)]
struct ReceivedPacket<'a> {
    /// Position of its header among all bytes of the connection.
    at: Bytes,
    packet: WholePacket<'a>,
}

impl DataConnection {
    /// Handles packets that follow each other and have been received as a whole, while no other is
    /// being received, and after the first packet of the connection. Those of each stream are
    /// written together where that is possible. Then the others are handled one by one, until the
    /// connection is paused: the bytes of those that are left then are returned, to be received
    /// again when the pause is over.
    ///
    /// # Errors
    /// If a packet is invalid or cannot be written. The connection cannot continue.
    pub fn handle_packets<'a>(
        &mut self,
        packets: impl Iterator<Item = WholePacket<'a>>,
    ) -> Result<Vec<u8>, PositionedError> {
        let mut end = self.at;
        let mut received: Vec<_> = packets
            .map(|packet| {
                let at = end;
                end.0 += (DataHeader::SIZE + packet.payload.len()) as u64;
                ReceivedPacket { at, packet }
            })
            .collect();
        // Stable: those of a stream stay in order.
        received.sort_by_key(|received| received.packet.header.stream);
        let (mut left, mut written) = (Vec::new(), Ok(()));
        for of_stream in
            received.chunk_by(|one, next| one.packet.header.stream == next.packet.header.stream)
        {
            match self.write_packets_of_stream(of_stream) {
                Ok(true) => {}
                Ok(false) => left.extend_from_slice(of_stream),
                // The packets of other streams are handled nevertheless.
                Err(error) => written = written.and(Err(error)),
            }
        }
        // In the order of arrival, as if no packet had been written before others.
        left.sort_by_key(|received| received.at.0);
        let mut held = Vec::new();
        for ReceivedPacket { at, packet } in left {
            if self.is_paused() {
                packet.header.write(&mut held);
                held.extend_from_slice(packet.payload);
                continue;
            }
            self.at = at;
            self.handle_event(DataEvent::Begin(packet.header))?;
            let (bytes, last) = (packet.payload, true);
            self.handle_event(DataEvent::Payload { bytes, last })?;
        }
        // What is returned counts when it is received again.
        self.at = Bytes(end.0 - held.len() as u64);
        written.map(|()| held)
    }

    /// Writes packets of one stream together. Returns whether it did.
    fn write_packets_of_stream(
        &mut self,
        received: &[ReceivedPacket<'_>],
    ) -> Result<bool, PositionedError> {
        let Some(&ReceivedPacket { at, packet }) = received.first() else {
            return Ok(true);
        };
        // The error is reported after the packets before this one have been handled.
        let Ok(stream) = self.find_stream(packet.header.stream) else {
            return Ok(false);
        };
        let packets = received.iter().map(|received| received.packet);
        let written = stream.lock().write_packets(packets);
        if !written.map_err(|source| PositionedError { at, source })? {
            return Ok(false);
        }
        if let Some(session) = &self.session {
            session.arrivals().record_packets(received.len() as u64);
        }
        self.track_pause(&stream);
        self.unflushed.push(stream);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use relay_proto::DataDecoder;
    use relay_proto::index::SendIndex;
    use relay_proto::relay::Relay as _;
    use relay_proto::stream::{AddStream, CloseStream};
    use wire::{Bits, ClassId, PacketIndex, SeqNum, StreamId, Timestamp};

    use super::super::super::tests::{chunk, registry, stream, with_session};
    use super::*;
    use crate::limits::MAX_PENDING_PACKETS;
    use crate::store::pool::Pool;

    /// What is wrong with one of the packets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        Twice,
        UnknownStream,
    }

    /// A generator of numbers below a limit.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        }
    }

    /// Headers of packets of two streams, and the one that has a fault.
    fn headers(seed: u64, streams: [StreamId; 2]) -> (Vec<DataHeader>, Fault) {
        let mut below = numbers(seed);
        let mut next = [0; 2];
        let mut headers: Vec<_> = (0..40)
            .map(|number| {
                // The first packet that arrives is taken for the first of its stream: so the first
                // two stay in place.
                let at = usize::from(number == 1 || number > 1 && below(3) == 0);
                next[at] += 1;
                DataHeader {
                    circuit: 0,
                    stream: streams[at],
                    seq: SeqNum(next[at] - 1),
                    data_size: u32::try_from(below(60)).unwrap(),
                    padding_size: [0, 3, 5000][usize::from(below(4) == 0) << (below(9) / 8)],
                }
            })
            .collect();
        for _ in 0..below(3) {
            let at = usize::try_from(below(30)).unwrap() + 2;
            headers.swap(at, at + 3);
        }
        let at = usize::try_from(below(30)).unwrap() + 8;
        let fault = match below(4) {
            0 => {
                headers[at] = headers[at - 5];
                Fault::Twice
            }
            1 => {
                headers[at].stream = StreamId(9999);
                Fault::UnknownStream
            }
            _ => Fault::None,
        };
        (headers, fault)
    }

    fn index(header: &DataHeader) -> SendIndex {
        let size = Bits(8 * header.packet_bytes());
        SendIndex {
            stream: header.stream,
            seq: Some(header.seq),
            packet: PacketIndex {
                packet_size: size,
                content_size: size,
                begin: Timestamp(header.seq.0),
                end: Timestamp(header.seq.0),
                events_discarded: 0,
                class: ClassId(0),
                instance: None,
                packet_seq: None,
            },
        }
    }

    fn add_files(directory: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add_files(&path, files);
            } else {
                let name = path.file_name().unwrap().to_str().unwrap();
                files.insert(name.to_owned(), fs::read(&path).unwrap());
            }
        }
    }

    /// Sends packets one by one, or several together. Returns the files, and the error.
    fn record(seed: u64, together: bool) -> (BTreeMap<String, Vec<u8>>, Option<String>, Fault) {
        let output = tempfile::tempdir().unwrap();
        let registry = registry(output.path(), Duration::ZERO, Pool::new(100));
        let mut producer = with_session(&registry, "packets");
        producer.create_chunk(chunk()).unwrap();
        let sized = AddStream {
            tracefile_size: Bytes(200),
            ..stream("sized")
        };
        let streams = [stream("plain"), sized].map(|stream| producer.add_stream(stream).unwrap());
        producer.streams_sent().unwrap();
        let mut connection = DataConnection::new(Arc::clone(&registry), producer.address);
        let (headers, fault) = headers(seed, streams);
        let payloads: Vec<_> = headers
            .iter()
            .map(|header| vec![b'a' + (header.seq.0 % 26) as u8; header.data_size as usize])
            .collect();
        let packets: Vec<_> = (headers.iter().zip(&payloads))
            .map(|(header, payload)| WholePacket {
                header: *header,
                payload,
            })
            .collect();
        let mut below = numbers(seed + 1);
        let (mut left, mut error) = (&packets[..], None);
        while !left.is_empty() && error.is_none() {
            let (some, rest) =
                left.split_at(left.len().min(usize::try_from(below(12)).unwrap() + 1));
            left = rest;
            let handled = match together {
                true if connection.session().is_some() => connection
                    .handle_packets(some.iter().copied())
                    .map(|held| assert!(held.is_empty(), "the connection is not paused")),
                _ => some.iter().try_for_each(|packet| {
                    connection.handle_event(DataEvent::Begin(packet.header))?;
                    let (bytes, last) = (packet.payload, true);
                    connection.handle_event(DataEvent::Payload { bytes, last })
                }),
            };
            connection.write_ready_entries().unwrap();
            error = handled.err();
        }
        let error = error.map(|error| format!("{}: {}", error.at.0, error.source));
        if fault == Fault::None {
            for header in headers.iter().filter(|header| header.packet_bytes() > 0) {
                producer.add_index(index(header)).unwrap();
                producer.write_ready_entries().unwrap();
            }
            for stream in streams {
                let last = None;
                producer.close_stream(CloseStream { stream, last }).unwrap();
            }
        }
        connection.end();
        let mut files = BTreeMap::new();
        add_files(output.path(), &mut files);
        (files, error, fault)
    }

    #[test]
    fn packets_behind_a_pause_are_returned_in_order_to_be_received_again() {
        let output = tempfile::tempdir().unwrap();
        let registry = registry(output.path(), Duration::ZERO, Pool::new(100));
        let mut producer = with_session(&registry, "ahead");
        producer.create_chunk(chunk()).unwrap();
        let stream = producer.add_stream(stream("plain")).unwrap();
        producer.streams_sent().unwrap();
        let mut connection = DataConnection::new(Arc::clone(&registry), producer.address);
        let packet = |seq| WholePacket {
            header: DataHeader {
                circuit: 0,
                stream,
                seq: SeqNum(seq),
                data_size: 1,
                padding_size: 0,
            },
            payload: b"x",
        };
        let max = MAX_PENDING_PACKETS as u64;
        // Not a divisor of the limit: the pause is in the middle of the last packets.
        let (mut sent, mut held) = (0, Vec::new());
        while held.is_empty() {
            let packets = (sent..sent + 100).map(packet);
            sent += 100;
            held = connection.handle_packets(packets).unwrap();
            assert_eq!(connection.is_paused(), sent >= max);
        }
        assert_eq!(connection.at, Bytes(max * (DataHeader::SIZE as u64 + 1)));
        let (decoder, mut bytes) = (DataDecoder::default(), &held[..]);
        let left: Vec<_> = std::iter::from_fn(|| decoder.whole_packet(&mut bytes)).collect();
        assert_eq!(left, (max..sent).map(packet).collect::<Vec<_>>());
        for seq in 0..max {
            producer.add_index(index(&packet(seq).header)).unwrap();
        }
        connection.resume().unwrap();
        assert!(!connection.is_paused());
        let held = connection.handle_packets(left.into_iter()).unwrap();
        assert!(held.is_empty() && !connection.is_paused());
        assert_eq!(connection.at, Bytes(sent * (DataHeader::SIZE as u64 + 1)));
    }

    #[test]
    fn packets_that_are_handled_together_leave_the_files_and_errors_of_packets_handled_one_by_one()
    {
        let mut faults = 0;
        for seed in 0..300 {
            let (together, one_by_one) = (record(seed, true), record(seed, false));
            assert_eq!(together.1, one_by_one.1, "{seed}");
            assert_eq!(together.2 == Fault::None, together.1.is_none(), "{seed}");
            if together.2 == Fault::None {
                assert!(together.0.len() > 4, "{:?}", together.0.keys());
                let names = together.0.keys().chain(one_by_one.0.keys());
                for name in names {
                    let files = [&together.0, &one_by_one.0].map(|files| files.get(name));
                    let lens = files.map(|file| file.map(Vec::len));
                    assert!(files[0] == files[1], "{seed}: {name} has lengths {lens:?}");
                }
            } else {
                faults += 1;
            }
        }
        assert!((100..200).contains(&faults), "{faults}");
    }
}
