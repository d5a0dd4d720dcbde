//! Writes the packets of one stream in sequence: the packet in flight, the early packets that wait
//! for it, and the bytes that the disk had no space for. Knows no indexes, viewers or rotations:
//! `stream_writer` decides when a tracefile begins and when missing packets are given up.

use relay_proto::WholePacket;
use wire::SeqNum;

use super::reorder::{EarlyPacket, Reorder, ReorderWindow};
use crate::store::StoreError;
use crate::store::pipe::Pipe;
use crate::store::stream_files::{PacketPlace, StreamFiles};

/// The number of a data connection, which is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// The packets of one stream on their way to its tracefiles.
#[derive(Debug)]
pub(super) struct PacketWriter {
    /// The files of the stream. The stream writer also writes entries and beacons to them.
    pub(super) files: StreamFiles,
    /// The early packets. Only [`finish_packet`](Self::finish_packet) and
    /// [`write_packets`](Self::write_packets) advance it.
    pub(super) reorder: Reorder,
    in_flight: Option<InFlight>,
    /// The rest of the packet in flight, from the first byte that did not fit on the disk.
    unwritten: Option<Unwritten>,
}

/// The packet whose bytes are written to the tracefile as they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) seq: SeqNum,
    /// The connection on which the packet's bytes arrive.
    pub(super) connection: ConnectionId,
}

/// The bytes of the packet in flight that could not be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// Bytes of the packet without padding, if the tracefile for it has not been begun yet.
    pub(super) begins: Option<u32>,
    pub(super) bytes: Vec<u8>,
    /// Number of zeros after the bytes. None: the packet has more bytes.
    pub(super) padding: Option<u32>,
}

impl PacketWriter {
    pub(super) fn new(files: StreamFiles, window: ReorderWindow) -> Self {
        Self {
            files,
            reorder: Reorder::new(window),
            in_flight: None,
            unwritten: None,
        }
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether no packet is in flight and none waits for one before it.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.reorder.is_empty()
    }

    // The packet in flight.

    pub(super) fn start_packet(&mut self, seq: SeqNum, connection: ConnectionId) {
        self.in_flight = Some(InFlight { seq, connection });
    }

    /// Whether this packet is in flight on this connection. It is not if it took too long and was
    /// given up.
    pub(super) fn is_in_flight(&self, seq: SeqNum, connection: ConnectionId) -> bool {
        self.in_flight == Some(InFlight { seq, connection })
    }

    /// Whether the packet in flight arrives on this connection.
    pub(super) fn is_from(&self, connection: ConnectionId) -> bool {
        let in_flight = self.in_flight.as_ref();
        in_flight.is_some_and(|packet| packet.connection == connection)
    }

    /// Writes the next bytes of the packet in flight.
    pub(super) fn append_payload(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.files.append_payload(bytes)
    }

    /// Moves the next bytes of the packet in flight, up to `len`, from a pipe to the tracefile.
    /// Returns how many. The others, if they cannot be written, are to be read from the pipe and
    /// [appended](Self::append_payload), which tells why.
    pub(super) fn splice_payload(&mut self, pipe: &mut Pipe, len: usize) -> usize {
        self.files.splice_payload(pipe, len).unwrap_or(0)
    }

    /// Writes the last bytes of the packet in flight, which is `seq`, followed by `padding` zeros.
    pub(super) fn finish_packet(
        &mut self,
        seq: SeqNum,
        bytes: &[u8],
        padding: u32,
    ) -> Result<PacketPlace, StoreError> {
        let place = self.files.finish_packet(bytes, padding)?;
        // Not before the write has succeeded: a packet whose last bytes are kept stays in flight.
        self.in_flight = None;
        self.reorder.advance_past(seq);
        Ok(place)
    }

    /// Writes whole packets, the next ones in sequence, by one write. Returns their places. No
    /// packet may be in flight.
    pub(super) fn write_packets<'a>(
        &mut self,
        packets: impl Iterator<Item = WholePacket<'a>> + Clone,
    ) -> Result<Vec<PacketPlace>, StoreError> {
        let bytes = |packet: WholePacket<'a>| (packet.payload, packet.header.padding_size);
        let places = self.files.append_packets(packets.clone().map(bytes))?;
        if let Some(last) = packets.last() {
            self.reorder.advance_past(last.header.seq);
        }
        Ok(places)
    }

    /// Drops the packet in flight and removes its bytes from the tracefile. None: no packet was in
    /// flight.
    pub(super) fn drop_in_flight(&mut self) -> Option<SeqNum> {
        let packet = self.in_flight.take()?;
        self.drop_unwritten();
        self.files.drop_packet();
        Some(packet.seq)
    }

    // Bytes without space on the disk.

    /// Whether bytes of the packet in flight are kept. Later bytes must then be kept as well.
    pub(super) fn has_unwritten(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Keeps bytes of the packet in flight that cannot be written, after those that are kept
    /// already.
    pub(super) fn keep_unwritten(
        &mut self,
        begins: Option<u32>,
        bytes: &[u8],
        padding: Option<u32>,
    ) {
        let kept = self.unwritten.get_or_insert(Unwritten {
            begins,
            bytes: Vec::new(),
            padding: None,
        });
        kept.bytes.extend_from_slice(bytes);
        kept.padding = kept.padding.or(padding);
    }

    /// Takes the kept bytes and their packet, to be written now.
    pub(super) fn take_unwritten(&mut self) -> Option<(Unwritten, InFlight)> {
        self.unwritten.take().zip(self.in_flight)
    }

    pub(super) fn drop_unwritten(&mut self) {
        self.unwritten = None;
    }

    // Early packets.

    /// Takes the early packet that is the next in sequence. None while another is in flight.
    pub(super) fn take_ready_packet(&mut self) -> Option<EarlyPacket> {
        match self.in_flight {
            Some(_) => None,
            None => self.reorder.take_ready_packet(),
        }
    }

    /// Writes an early packet that is the next in sequence.
    pub(super) fn write_early_packet(
        &mut self,
        early: &EarlyPacket,
    ) -> Result<PacketPlace, StoreError> {
        self.finish_packet(early.seq, &early.payload, early.padding)
    }
}

#[cfg(test)]
mod tests {
    use wire::{Bytes, FileName, Text, TracePath};

    use super::super::reorder::Turn;
    use super::*;
    use crate::store::chunk::Chunk;
    use crate::store::pool::Pool;
    use crate::store::stream_files::StreamLayout;

    const CONNECTION: ConnectionId = ConnectionId(1);

    fn writer(output: &std::path::Path) -> PacketWriter {
        let layout = StreamLayout {
            directory: TracePath::parse(&Text::from("ust")).unwrap(),
            name: FileName::parse(&Text::from("chan_0")).unwrap(),
            limits: None,
            index_format: None,
        };
        let files = StreamFiles::create(
            layout,
            Pool::new(9),
            Chunk::whole_output(output),
            std::sync::Arc::default(),
        )
        .unwrap();
        PacketWriter::new(files, ReorderWindow::default())
    }

    fn early(seq: u64, payload: &[u8]) -> EarlyPacket {
        EarlyPacket {
            seq: SeqNum(seq),
            payload: payload.to_vec().into(),
            padding: 0,
        }
    }

    #[test]
    fn an_early_packet_is_written_behind_the_one_in_flight() {
        let output = tempfile::tempdir().unwrap();
        let mut writer = writer(output.path());
        writer.start_packet(SeqNum(0), CONNECTION);
        writer.append_payload(b"fir").unwrap();
        assert!(writer.take_ready_packet().is_none());
        writer.finish_packet(SeqNum(0), b"st ", 0).unwrap();
        assert_eq!(writer.reorder.turn(SeqNum(2)), Turn::Early);
        writer.reorder.keep_packet(early(2, b"third"));
        writer.start_packet(SeqNum(1), CONNECTION);
        assert!(writer.is_in_flight(SeqNum(1), CONNECTION) && !writer.is_idle());
        let place = writer.finish_packet(SeqNum(1), b"second", 1).unwrap();
        assert_eq!((place.packet_len(), place.end()), (Bytes(7), Bytes(13)));
        let ready = writer.take_ready_packet().unwrap();
        writer.write_early_packet(&ready).unwrap();
        assert!(writer.is_idle() && writer.reorder.waiting_packets() == (0, Bytes(0)));
        let written = std::fs::read(output.path().join("ust/chan_0")).unwrap();
        assert_eq!(written, b"first second\0third");
    }

    #[test]
    fn a_packet_that_is_given_up_leaves_nothing_in_the_tracefile() {
        let output = tempfile::tempdir().unwrap();
        let mut writer = writer(output.path());
        writer.start_packet(SeqNum(7), CONNECTION);
        writer.append_payload(b"half of").unwrap();
        writer.keep_unwritten(None, b" a packet", None);
        assert!(writer.is_from(CONNECTION) && !writer.is_from(ConnectionId(2)));
        assert_eq!(writer.drop_in_flight(), Some(SeqNum(7)));
        assert!(!writer.has_unwritten() && writer.drop_in_flight().is_none());
        let written = std::fs::read(output.path().join("ust/chan_0")).unwrap();
        assert_eq!(written, b"");
    }

    #[test]
    fn bytes_without_space_are_kept_in_order_with_the_padding_behind_the_last() {
        let output = tempfile::tempdir().unwrap();
        let mut writer = writer(output.path());
        writer.start_packet(SeqNum(0), CONNECTION);
        writer.keep_unwritten(Some(9), b"", None);
        writer.keep_unwritten(None, b"some", None);
        writer.keep_unwritten(None, b" more", Some(3));
        let (kept, packet) = writer.take_unwritten().unwrap();
        assert_eq!((kept.begins, kept.padding), (Some(9), Some(3)));
        assert_eq!(kept.bytes, b"some more");
        assert_eq!(packet.seq, SeqNum(0));
        assert!(!writer.has_unwritten());
    }
}
