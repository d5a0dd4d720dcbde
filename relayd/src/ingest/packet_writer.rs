//! Writes the packets of one stream in sequence: which packet is in flight, which early ones wait for it, and what the
//! disk had no space for. Knows nothing of indexes, viewers or rotation: `stream_writer` decides when to begin a
//! tracefile and when to give up what is missing.

use wire::SeqNum;

use super::reorder::{EarlyPacket, LostPackets, Reorder, ReorderWindow, Turn};
use crate::store::StoreError;
use crate::store::stream_files::{PacketPlace, StreamFiles};

/// The number of a data connection, never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// The packets of one stream on their way to its tracefiles.
#[derive(Debug)]
pub(super) struct PacketWriter {
    /// The files of the stream. Entries and beacons go to them too, on the word of the stream writer.
    pub(super) files: StreamFiles,
    reorder: Reorder,
    in_flight: Option<InFlight>,
    /// The rest of the packet in flight, from the first byte on that there was no space for.
    unwritten: Option<Unwritten>,
}

/// The packet whose bytes go to the tracefile as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) seq: SeqNum,
    /// The connection that its bytes come on.
    pub(super) connection: ConnectionId,
}

/// The bytes of the packet in flight that could not be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// A tracefile is still to be begun for a packet of so many sent bytes.
    pub(super) begins: Option<u32>,
    pub(super) bytes: Vec<u8>,
    /// The bytes are the last of the packet, and so many zeros follow them.
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

    /// Whether it is a packet's turn.
    pub(super) fn turn(&self, seq: SeqNum) -> Turn {
        self.reorder.turn(seq)
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

    /// Whether this packet is in flight on this connection. It is not if it took too long and was given up.
    pub(super) fn is_in_flight(&self, seq: SeqNum, connection: ConnectionId) -> bool {
        self.in_flight == Some(InFlight { seq, connection })
    }

    /// Whether the packet in flight comes on this connection.
    pub(super) fn is_from(&self, connection: ConnectionId) -> bool {
        let in_flight = self.in_flight.as_ref();
        in_flight.is_some_and(|packet| packet.connection == connection)
    }

    /// Writes the next bytes of the packet in flight.
    pub(super) fn append_payload(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.files.append_payload(bytes)
    }

    /// Writes the last bytes of the packet in flight, which is `seq`, and so many zeros.
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

    /// Drops the packet in flight and takes its bytes out of the tracefile again.
    pub(super) fn drop_in_flight(&mut self) -> Option<SeqNum> {
        let packet = self.in_flight.take()?;
        self.drop_unwritten();
        self.files.drop_packet();
        Some(packet.seq)
    }

    // What there was no space for.

    /// Whether bytes of the packet in flight are kept: what follows them must not be written before.
    pub(super) fn has_unwritten(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Keeps what cannot be written of the packet in flight, behind what is kept of it already.
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

    /// The kept bytes and the packet that they are of, to be written now.
    pub(super) fn take_unwritten(&mut self) -> Option<(Unwritten, InFlight)> {
        self.unwritten.take().zip(self.in_flight)
    }

    pub(super) fn drop_unwritten(&mut self) {
        self.unwritten = None;
    }

    // Early packets.

    pub(super) fn keep_early_packet(&mut self, early: EarlyPacket) {
        self.reorder.keep_packet(early);
    }

    pub(super) fn has_early_packet(&self, seq: SeqNum) -> bool {
        self.reorder.has_packet(seq)
    }

    /// The early packet whose turn has come. None while another is in flight.
    pub(super) fn take_ready_packet(&mut self) -> Option<EarlyPacket> {
        match self.in_flight {
            Some(_) => None,
            None => self.reorder.take_ready_packet(),
        }
    }

    /// Writes an early packet whose turn has come.
    pub(super) fn write_early_packet(
        &mut self,
        early: &EarlyPacket,
    ) -> Result<PacketPlace, StoreError> {
        self.finish_packet(early.seq, &early.payload, early.padding)
    }

    /// Whether the early packets, with so many bytes more on the way, are more than the window allows.
    pub(super) fn is_window_full(&self, more: usize) -> bool {
        self.reorder.is_full(more)
    }

    /// Number of early packets that wait, and of their bytes.
    pub(super) fn early_packets(&self) -> (u64, u64) {
        let (packets, bytes) = self.reorder.waiting_packets();
        (packets as u64, bytes.0)
    }

    /// Gives up the packets that are missing before the first early one, or before `arriving` if that comes first.
    /// None if nothing is missing there. The packet in flight, which is one of them, is to be dropped.
    pub(super) fn give_up_missing(&mut self, arriving: Option<SeqNum>) -> Option<LostPackets> {
        self.reorder.give_up_missing(arriving)
    }
}

#[cfg(test)]
mod tests {
    use wire::{Bytes, FileName, Text, TracePath};

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
        let files = StreamFiles::create(layout, Pool::new(9), Chunk::whole_output(output)).unwrap();
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
        assert_eq!(writer.turn(SeqNum(2)), Turn::Early);
        writer.keep_early_packet(early(2, b"third"));
        writer.start_packet(SeqNum(1), CONNECTION);
        assert!(writer.is_in_flight(SeqNum(1), CONNECTION) && !writer.is_idle());
        let place = writer.finish_packet(SeqNum(1), b"second", 1).unwrap();
        assert_eq!((place.packet_len(), place.end()), (Bytes(7), Bytes(13)));
        let ready = writer.take_ready_packet().unwrap();
        writer.write_early_packet(&ready).unwrap();
        assert!(writer.is_idle() && writer.early_packets() == (0, 0));
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
