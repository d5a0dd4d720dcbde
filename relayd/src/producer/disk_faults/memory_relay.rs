//! A relay without sockets, and connections of a producer to it, for tests.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use relay_proto::{DataEvent, DataHeader, WholePacket};
use wire::{Bits, Bytes, ChunkId, EpochSeconds, Flagged, PacketIndex, SeqNum};

use crate::producer::data_connection::DataConnection;
use crate::producer::*;
use crate::registry::RegistrySettings;
use crate::registry::archive_feed::ArchiveFeed;
use crate::store::disk::plan;
use crate::store::disk_faults::Packets;
use crate::store::pipe::Pipe;
use crate::store::pool::Pool;
use crate::store::repair::{repair, repair_at};
use crate::store::session_log::SessionLog;
use crate::store::sync::Syncer;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A relay without sockets.
pub(in crate::producer) struct MemoryRelay {
    /// The packets that producers send.
    pub(in crate::producer) packets: Arc<Packets>,
    pub(in crate::producer) registry: Arc<Registry>,
    syncer: Option<Arc<Syncer>>,
}

impl MemoryRelay {
    /// Starts on the output of one before that was killed, which it repairs.
    pub(in crate::producer) fn start(output: &Path, syncer: Option<Arc<Syncer>>) -> Self {
        let _ = repair(output, &SessionLog::trace_directories(output));
        Self::start_repaired(output, syncer)
    }

    /// Starts on the output of one before that lost its power.
    pub(in crate::producer) fn start_after_power_loss(output: &Path) -> Self {
        let _ = repair_at(output, &SessionLog::trace_directories(output), None);
        Self::start_repaired(output, None)
    }

    fn start_repaired(output: &Path, syncer: Option<Arc<Syncer>>) -> Self {
        let synced = |syncer: &Arc<Syncer>| Pool::with_syncer(100, Arc::clone(syncer));
        let pool = syncer.as_ref().map_or_else(|| Pool::new(100), synced);
        Self::start_with(output, pool, syncer, None)
    }

    pub(in crate::producer) fn start_with(
        output: &Path,
        pool: Arc<Pool>,
        syncer: Option<Arc<Syncer>>,
        archive: Option<Arc<ArchiveFeed>>,
    ) -> Self {
        let registry = Registry::new(RegistrySettings {
            resume_timeout: Duration::from_secs(600),
            archive,
            ..RegistrySettings::new(output.to_owned(), pool)
        });
        restore_sessions(&registry, Instant::now());
        registry.archive_unfinished();
        Self {
            packets: Arc::new(Packets::new()),
            registry,
            syncer,
        }
    }

    pub(in crate::producer) fn packet(
        &self,
        (channel, _, number): Sent,
    ) -> &(Vec<u8>, PacketIndex) {
        // There are packets of two streams, which several channels send.
        let packets = &self.packets.packets;
        &packets[channel % packets.len()][usize::try_from(number).unwrap()]
    }

    /// Syncs what was written, as a reply to a producer waits for it.
    pub(in crate::producer) fn sync(&self) {
        if let Some(syncer) = &self.syncer {
            syncer.run_round();
        }
    }
}

/// A packet: its channel, the number of the stream, and its own.
pub(in crate::producer) type Sent = (usize, StreamId, u64);

fn header((_, stream, number): Sent, bytes: &[u8]) -> DataHeader {
    DataHeader {
        circuit: 0,
        stream,
        seq: SeqNum(number),
        data_size: u32::try_from(bytes.len()).unwrap(),
        padding_size: 0,
    }
}

/// The connections of a producer to a relay.
pub(in crate::producer) struct Connections<R> {
    pub(in crate::producer) relay: R,
    pub(in crate::producer) control: Producer,
    data: DataConnection,
}

/// The command that opens a stream of this channel, from its first packet on.
pub(in crate::producer) fn opened(key: u64, channel: &str, size: u64, count: u64) -> OpenStream {
    let stream = AddStream {
        channel: channel.into(),
        path: "ust/uid".into(),
        tracefile_size: Bytes(size),
        tracefile_count: count,
        chunk: Some(ChunkId(0)),
    };
    let first = SeqNum(0);
    OpenStream { key, first, stream }
}

impl<R: Deref<Target = MemoryRelay>> Connections<R> {
    /// Connects. `ended` is cancelled when the relay ends the connections.
    pub(in crate::producer) fn new(relay: R, ended: CancellationToken) -> Self {
        let registry = Arc::clone(&relay.registry);
        Self {
            control: Producer::new(Arc::clone(&registry), ADDRESS, ended),
            data: DataConnection::new(registry, ADDRESS),
            relay,
        }
    }

    /// Ends the connections. A session that is not complete is to be resumed if they `failed`.
    pub(in crate::producer) fn end(self, failed: bool, now: Instant) {
        self.data.end();
        self.control.end(failed, now);
    }

    pub(in crate::producer) fn packet_bytes(&self) -> u64 {
        self.relay.packets.packets[0][0].0.len() as u64
    }

    pub(in crate::producer) fn send_metadata(
        &mut self,
        stream: Option<StreamId>,
        next: u64,
    ) -> Result<(), Refusal> {
        let packets = Arc::clone(&self.relay.packets);
        let text = &packets.metadata;
        let Some(stream) = stream.filter(|_| next == 0) else {
            assert!(next == 0 || next == text.len() as u64, "a part of a piece");
            return Ok(());
        };
        let metadata = SendMetadata { stream, padding: 0 };
        self.control.begin_metadata(metadata, text.len() as u64)?;
        let (first, rest) = text.split_at(60);
        self.control.metadata_text(first)?;
        self.control.metadata_text(rest)?;
        self.control.end_metadata()?;
        self.finish()
    }

    /// Sends packets that are received together, then their indexes.
    pub(in crate::producer) fn send_together(&mut self, sent: Vec<Sent>) -> Result<(), Refusal> {
        let relay = &self.relay;
        let packets = sent.iter().map(|sent| {
            let (payload, _) = relay.packet(*sent);
            let header = header(*sent, payload);
            WholePacket { header, payload }
        });
        let handled = self.data.handle_packets(packets);
        let held = handled.map_err(|error| Refusal::new(ReturnCode::UNKNOWN, error))?;
        // There is only one fault, and what has failed is tried again.
        assert!(held.is_empty());
        sent.into_iter().try_for_each(|sent| self.send_index(sent))
    }

    pub(in crate::producer) fn send_packet(&mut self, sent: Sent) -> Result<(), Refusal> {
        let bytes = self.relay.packet(sent).0.clone();
        let (first, rest) = bytes.split_at(100);
        let header = header(sent, &bytes);
        let payload = |bytes, last| DataEvent::Payload { bytes, last };
        self.handle(DataEvent::Begin(header))?;
        // As if the packets with odd numbers were large.
        let left = match header.seq.0 % 2 {
            0 => first.to_vec(),
            _ => self.splice(first),
        };
        if !left.is_empty() {
            self.handle(payload(&left, false))?;
        }
        self.handle(payload(rest, true))?;
        self.send_index(sent)
    }

    fn send_index(&mut self, sent: Sent) -> Result<(), Refusal> {
        let (_, packet) = self.relay.packet(sent);
        let (_, stream, number) = sent;
        let (seq, packet) = (Some(SeqNum(number)), *packet);
        self.control.add_index(SendIndex {
            stream,
            seq,
            packet,
        })?;
        self.finish()
    }

    /// Sends a beacon of a stream without packets.
    pub(in crate::producer) fn send_beacon(&mut self, stream: StreamId) -> Result<(), Refusal> {
        self.control.add_index(SendIndex {
            stream,
            seq: None,
            packet: PacketIndex {
                packet_size: Bits(0),
                content_size: Bits(0),
                ..self.relay.packets.packets[0][0].1
            },
        })?;
        self.control.write_ready_entries()?;
        self.relay
            .registry
            .sessions()
            .iter()
            .for_each(|session| session.do_periodic_work());
        self.finish()
    }

    fn handle(&mut self, event: DataEvent<'_>) -> Result<(), Refusal> {
        let handled = self.data.handle_event(event);
        handled.map_err(|error| Refusal::new(ReturnCode::UNKNOWN, error))
    }

    /// Moves bytes of the packet to its tracefile through a pipe. Returns those that cannot be
    /// moved.
    fn splice(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut peer, source) = UnixStream::pair().unwrap();
        peer.write_all(bytes).unwrap();
        let mut pipe = Pipe::new(bytes.len()).unwrap();
        assert_eq!(pipe.fill(&source, bytes.len()).unwrap(), bytes.len());
        self.data.splice_payload(&mut pipe, bytes.len());
        let mut left = vec![0; pipe.len()];
        pipe.read(&mut left).unwrap();
        left
    }

    /// Writes what is ready, and what there was no space for.
    fn finish(&mut self) -> Result<(), Refusal> {
        let failed = |error| Refusal::new(ReturnCode::UNKNOWN, error);
        self.data.write_ready_entries().map_err(failed)?;
        self.control.write_ready_entries()?;
        // There is only one fault, so that an attempt succeeds.
        while self.data.is_paused() && !plan::is_dead() {
            self.data.resume().map_err(failed)?;
        }
        while !self.control.resume() && !plan::is_dead() {}
        Ok(())
    }

    pub(in crate::producer) fn close_chunk(&mut self) -> Result<(), Refusal> {
        let close = CloseTraceChunk {
            chunk: ChunkId(0),
            closed: EpochSeconds(1),
            command: Flagged(None),
        };
        self.control.close_chunk(close).map(|_| ())
    }

    /// Closes streams, each with the number of its last packet.
    pub(in crate::producer) fn close_streams(
        &mut self,
        streams: impl IntoIterator<Item = (Option<StreamId>, Option<SeqNum>)>,
    ) -> Result<(), Refusal> {
        for (stream, last) in streams {
            if let Some(stream) = stream {
                self.control.close_stream(CloseStream { stream, last })?;
                self.finish()?;
            }
        }
        self.relay.sync();
        self.control.check_synced()
    }
}
