//! One data connection: hands the events that `relay-proto` decodes from its bytes to the streams
//! that they belong to. Reads no socket.

mod whole_packets;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use relay_proto::{DataEvent, DataHeader};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};
use wire::{Bytes, Field, SeqNum, SessionId, StreamId};

use crate::ingest::Resumed;
use crate::ingest::error::{IngestError, PositionedError};
use crate::ingest::reorder_budget::{EarlyBuffer, Exhausted};
use crate::ingest::stream::DataStream;
use crate::ingest::{Arrival, ConnectionId};
use crate::limits::MIN_PRUNED_STREAMS;
use crate::registry::Registry;
use crate::registry::arrivals::Arrivals;
use crate::registry::session::Session;
use crate::store::pipe::Pipe;

/// One data connection. The protocol does not say which session it belongs to: the stream of its
/// first packet does.
#[derive(Debug)]
pub struct DataConnection {
    id: ConnectionId,
    registry: Arc<Registry>,
    /// Address of the peer, in IPv4 form if it is an IPv4-mapped one.
    address: IpAddr,
    /// The session of the packets. None before the first packet.
    session: Option<Arc<Session>>,
    /// Number of the control connection to which the session belonged at the first packet.
    generation: u64,
    /// The session of the control connection that belongs to this connection. None: it is not known
    /// which that is.
    control_session: Option<Arc<OnceLock<SessionId>>>,
    /// Streams that have had packets on this connection: a cache of the registry's table.
    streams: HashMap<StreamId, Arc<DataStream>>,
    /// Size of `streams` at which closed ones are removed from it.
    prune_streams_at: usize,
    /// Bytes received so far, for error messages.
    at: Bytes,
    /// The packet being received, of a connection on which packets follow each other.
    packet: IncomingPacket,
    /// The number of the first packet of each stream, if it is known. Otherwise the first one that
    /// arrives is taken for the first.
    first_packet: Option<SeqNum>,
    /// Streams that have had packets since their ready entries were written.
    unflushed: Vec<Arc<DataStream>>,
    /// Streams that wait for space on the disk, or for the indexes of many packets. While there are
    /// any, no more is received.
    paused: BTreeMap<StreamId, Arc<DataStream>>,
}

/// A packet being received.
#[derive(Debug, Default)]
pub struct IncomingPacket(Packet);

#[derive(Debug, Default)]
enum Packet {
    #[default]
    None,
    /// The packet is the stream's next one: its bytes are appended to the tracefile as they arrive.
    Direct(Arc<DataStream>, DataHeader),
    /// Packets before this one are missing: its bytes are buffered.
    Early(Arc<DataStream>, DataHeader, EarlyBuffer),
    /// The packet was given up before it arrived: its bytes are discarded.
    Dropped,
}

impl DataConnection {
    /// A connection from `address` that has received nothing.
    #[must_use]
    pub fn new(registry: Arc<Registry>, address: IpAddr) -> Self {
        Self {
            id: registry.next_connection(),
            registry,
            address,
            session: None,
            generation: 0,
            control_session: None,
            streams: HashMap::new(),
            prune_streams_at: MIN_PRUNED_STREAMS,
            at: Bytes(0),
            packet: IncomingPacket::default(),
            first_packet: None,
            unflushed: Vec::new(),
            paused: BTreeMap::new(),
        }
    }

    /// Declares that the packets of each stream begin with this number. For connections on which
    /// packets overtake each other.
    #[must_use]
    pub fn with_first_packet(mut self, first: SeqNum) -> Self {
        self.first_packet = Some(first);
        self
    }

    /// Accepts only packets of this session, which the control connection opens before it has told
    /// its producer the number of any stream.
    #[must_use]
    pub fn with_control_session(mut self, session: Arc<OnceLock<SessionId>>) -> Self {
        self.control_session = Some(session);
        self
    }

    /// Id of the session. None before the first packet.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id())
    }

    /// Counters of what has arrived for the session so far. None before the first packet.
    #[must_use]
    pub fn arrivals(&self) -> Option<&Arrivals> {
        self.session.as_ref().map(|session| session.arrivals())
    }

    /// Name of the session, for the log. None before the first packet.
    #[must_use]
    pub fn session_name(&self) -> Option<String> {
        self.session.as_ref().map(|session| session.to_string())
    }

    /// The token that is cancelled to end all connections of the session. None before the first
    /// packet.
    #[must_use]
    pub fn connections(&self) -> Option<CancellationToken> {
        let session = self.session.as_ref()?;
        Some(session.connections())
    }

    /// Handles the next event of the connection.
    ///
    /// # Errors
    /// If a packet is invalid or cannot be written. The connection cannot continue, because only
    /// the lengths in the headers say where the next packet begins.
    pub fn handle_event(&mut self, event: DataEvent<'_>) -> Result<(), PositionedError> {
        // Taken out, because handling the event borrows the whole connection.
        let mut packet = std::mem::take(&mut self.packet);
        let handled = self.handle_event_of(&mut packet, event);
        self.packet = packet;
        handled
    }

    /// Moves bytes of the packet being received, up to `len`, from a pipe to its tracefile. Returns
    /// how many: none if packets before it are missing, for example. The others are to be read from
    /// the pipe and passed to [`handle_event`](Self::handle_event), as is the end of the packet,
    /// even if no bytes are left for it.
    pub fn splice_payload(&mut self, pipe: &mut Pipe, len: usize) -> usize {
        let Packet::Direct(stream, header) = &self.packet.0 else {
            return 0;
        };
        let moved = stream.lock().splice_payload(header.seq, self.id, pipe, len);
        self.at.0 += moved as u64;
        moved
    }

    /// Handles the next event of one of several packets that arrive at the same time.
    ///
    /// # Errors
    /// If the packet is invalid or cannot be written.
    pub fn handle_event_of(
        &mut self,
        packet: &mut IncomingPacket,
        event: DataEvent<'_>,
    ) -> Result<(), PositionedError> {
        let at = self.at;
        let handled = match event {
            DataEvent::Begin(header) => {
                self.at.0 += DataHeader::SIZE as u64;
                self.begin_packet(packet, header)
            }
            DataEvent::Payload { bytes, last } => {
                self.at.0 += bytes.len() as u64;
                self.receive_payload(packet, bytes, last)
            }
        };
        handled.map_err(|source| PositionedError { at, source })
    }

    /// Gives up a packet that its producer has abandoned before all of it had arrived.
    ///
    /// # Errors
    /// If packets that waited for it cannot be written.
    pub fn give_up_packet(&mut self, packet: IncomingPacket) -> Result<(), PositionedError> {
        let (stream, seq) = match packet.0 {
            Packet::None | Packet::Dropped => return Ok(()),
            Packet::Direct(stream, header) => (stream, header.seq),
            // The bytes that have arrived are dropped, which frees reorder memory.
            Packet::Early(stream, header, _) => (stream, header.seq),
        };
        let at = self.at;
        let abandoned = stream.lock().abandon_packet(seq, self.id);
        abandoned.map_err(|source| PositionedError { at, source })?;
        self.track_pause(&stream);
        if stream.is_closed() {
            self.remove_closed(&stream);
        }
        Ok(())
    }

    /// Drops a packet of which the rest will not arrive on this connection, but may arrive on
    /// another.
    pub fn drop_packet(&mut self, packet: IncomingPacket) {
        if let Packet::Direct(stream, _) = packet.0 {
            stream.lock().drop_packet_from(self.id);
        }
    }

    /// Writes the index entries that have become ready. To be called after all events of a read:
    /// entries of one stream are written together.
    ///
    /// # Errors
    /// If the entries cannot be written.
    pub fn write_ready_entries(&mut self) -> Result<(), PositionedError> {
        let at = self.at;
        let unflushed = std::mem::take(&mut self.unflushed);
        for stream in &unflushed {
            let flushed = stream.lock().flush_entries();
            flushed.map_err(|source| PositionedError { at, source })?;
            if stream.is_closed() {
                self.remove_closed(stream);
            }
            self.track_pause(stream);
        }
        // Keeps the allocation.
        self.unflushed = unflushed;
        self.unflushed.clear();
        Ok(())
    }

    /// Whether a stream waits for space on the disk, or for the indexes of many packets, so that no
    /// more may be received.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Whether the connection is paused, and not because a stream waits for space on the disk: the
    /// producer has yet to send indexes.
    #[must_use]
    pub fn awaits_indexes(&self) -> bool {
        self.is_paused() && !self.paused.values().any(|stream| stream.is_paused())
    }

    /// Tries again to write what there was no space for, and looks for the indexes that were
    /// missing. Afterwards [`is_paused`](Self::is_paused) says whether all of it has been written,
    /// and has its indexes.
    ///
    /// # Errors
    /// If writing fails for another reason than before.
    pub fn resume(&mut self) -> Result<(), PositionedError> {
        let at = self.at;
        for (id, stream) in std::mem::take(&mut self.paused) {
            let resumed = self.resume_stream(&stream);
            if !resumed.map_err(|source| PositionedError { at, source })? {
                self.paused.insert(id, stream);
            }
        }
        Ok(())
    }

    /// Returns whether the stream has written what it held, and has room for more packets.
    fn resume_stream(&mut self, stream: &DataStream) -> Result<bool, IngestError> {
        let session = self.session_name();
        let mut writer = stream.lock();
        let resumed = writer.resume();
        let lacks_indexes = writer.lacks_indexes();
        // Unlocked, because the registry may forget the stream below.
        drop(writer);
        match resumed? {
            Resumed::No(why) => {
                if let Some(why) = why {
                    warn!(session, %why, "producer paused");
                }
                return Ok(false);
            }
            // A warning, like the pause: a log at the default level shows both.
            Resumed::Yes { was_reported: true } => {
                warn!(session, stream = %stream.id(), "producer resumed");
            }
            Resumed::Yes {
                was_reported: false,
            }
            | Resumed::Already => {}
        }
        if stream.is_closed() {
            self.remove_closed(stream);
        }
        Ok(!lacks_indexes)
    }

    fn remove_closed(&mut self, closed: &DataStream) {
        self.streams.remove(&closed.id());
        if let Some(session) = &self.session {
            self.registry.forget_closed(session, &[closed.id()]);
        }
    }

    /// Ends the connection. An incomplete packet is dropped.
    pub fn end(mut self) {
        self.close(Session::remove_data_connection);
    }

    /// Ends the connection because of an error, and aborts its session. Returns false if there was
    /// no session to abort: no packet had arrived, the session was over because its producer died
    /// in the middle of a packet, or the session has, or had, other connections after this one.
    pub fn abort_session(mut self) -> bool {
        let session = self.session.as_ref();
        let is_kept = |session: &&Arc<Session>| {
            session.is_resumable() || !session.is_owned_by(self.generation)
        };
        if let Some(session) = session.filter(is_kept) {
            // The producer learns from the loss of its connections that it has to send the packet
            // again.
            session.cancel_connections(self.generation);
            self.close(Session::remove_data_connection);
            return false;
        }
        let aborts = session.is_some_and(|session| !session.is_over());
        self.close(|session| {
            session.fail();
            session.remove_data_connection();
            true
        });
        aborts
    }

    /// Ends the connection and calls `then`, which returns whether it may have closed streams of
    /// the session.
    fn close(&mut self, then: impl FnOnce(&Session) -> bool) {
        let packet = std::mem::take(&mut self.packet);
        self.drop_packet(packet);
        if let Err(error) = self.write_ready_entries() {
            let session = self.session_name();
            error!(session, %error, "index entries not written at the end of a data connection");
        }
        if let Some(session) = self.session.take()
            && then(&session)
        {
            self.registry.forget_all_closed(&session);
        }
    }

    fn begin_packet(
        &mut self,
        packet: &mut IncomingPacket,
        header: DataHeader,
    ) -> Result<(), IngestError> {
        let stream = self.find_stream(header.stream)?;
        if let Some(session) = &self.session {
            session.arrivals().record_packets(1);
        }
        let arrival = stream.lock().begin_packet(&header, self.id)?;
        self.track_pause(&stream);
        packet.0 = match arrival {
            Arrival::Direct => Packet::Direct(stream, header),
            Arrival::Early => {
                let session = self.session.as_ref();
                let budget = session.map(|session| session.reorder_budget());
                let kept = budget.map(EarlyBuffer::new).unwrap_or_default();
                Packet::Early(stream, header, kept)
            }
            Arrival::Late => Packet::Dropped,
        };
        Ok(())
    }

    fn receive_payload(
        &mut self,
        packet: &mut IncomingPacket,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), IngestError> {
        match &mut packet.0 {
            Packet::None | Packet::Dropped => {}
            Packet::Direct(stream, header) => {
                let padding = last.then_some(header.padding_size);
                let mut writer = stream.lock();
                writer.write_payload(header.seq, self.id, bytes, padding)?;
                if writer.lacks_indexes() {
                    self.paused.insert(stream.id(), Arc::clone(stream));
                }
            }
            Packet::Early(stream, header, kept) => {
                let (stream, header, kept) = (Arc::clone(stream), *header, std::mem::take(kept));
                packet.0 = self.receive_early_payload(stream, header, kept, bytes, last)?;
            }
        }
        if let Packet::Direct(stream, _) | Packet::Early(stream, ..) = &packet.0
            && stream.is_paused()
        {
            let stream = Arc::clone(stream);
            self.track_pause(&stream);
        }
        if last {
            self.finish_packet(std::mem::take(packet));
        }
        Ok(())
    }

    /// Buffers bytes of an early packet. Returns the new state of the packet, which is no longer
    /// early if the packets before it have arrived or been given up.
    fn receive_early_payload(
        &mut self,
        stream: Arc<DataStream>,
        header: DataHeader,
        mut kept: EarlyBuffer,
        bytes: &[u8],
        last: bool,
    ) -> Result<Packet, IngestError> {
        let size = header.data_size as usize;
        let mut extended = kept.try_extend(bytes, size);
        if let Err(exhausted) = extended {
            self.free_reorder_memory(exhausted);
            extended = kept.try_extend(bytes, size);
        }
        let is_kept = extended.is_ok();
        let arrival = if is_kept {
            let len = kept.len();
            stream.lock().recheck_early_packet(&header, self.id, len)?
        } else {
            stream.lock().hasten_early_packet(&header, self.id)?
        };
        if arrival == Arrival::Early && !is_kept {
            // The stream is paused for want of disk space. These bytes exceed the budget, but no
            // more are read.
            kept.extend(bytes, size);
        }
        match arrival {
            Arrival::Early if last => {
                kept.complete();
                let payload = std::mem::take(&mut kept);
                stream.lock().add_early_packet(&header, payload)?;
            }
            Arrival::Early => {}
            Arrival::Direct => {
                let padding = last.then_some(header.padding_size);
                let mut writer = stream.lock();
                if is_kept {
                    writer.write_payload(header.seq, self.id, &kept, padding)?;
                } else {
                    // Two writes, because the budget has no room to put them together.
                    writer.write_payload(header.seq, self.id, &kept, None)?;
                    writer.write_payload(header.seq, self.id, bytes, padding)?;
                }
                drop(writer);
                return Ok(Packet::Direct(stream, header));
            }
            Arrival::Late => return Ok(Packet::Dropped),
        }
        Ok(Packet::Early(stream, header, kept))
    }

    /// Frees half of the memory for early packets after it is exhausted: the streams that hold most
    /// of it give up their missing packets and write the early ones.
    fn free_reorder_memory(&mut self, exhausted: Exhausted) {
        let Some(session) = &self.session else { return };
        let budget = session.reorder_budget().scope(exhausted);
        if !budget.can_be_freed() {
            return;
        }
        warn!(
            %session,
            limit = budget.limit(),
            "reorder memory exhausted; missing packets are given up sooner"
        );
        let holders = match exhausted {
            Exhausted::Session => self.registry.early_streams(Some(session)),
            Exhausted::Relay => self.registry.early_streams(None),
        };
        for (of_session, stream) in holders {
            if budget.has_ample_room() {
                break;
            }
            let given_up = stream.lock().give_up_missing();
            if let Err(error) = given_up {
                error!(session = %of_session, %error, "early packets not written; session aborted");
                of_session.fail();
                self.registry.forget_all_closed(&of_session);
            } else if stream.is_closed() {
                self.registry.forget_closed(&of_session, &[stream.id()]);
            }
            // A stream of another session is noticed to be paused by its own connections.
            if Arc::ptr_eq(&of_session, session) && stream.is_paused() {
                self.paused.insert(stream.id(), stream);
            }
        }
    }

    fn track_pause(&mut self, stream: &Arc<DataStream>) {
        if stream.is_paused() {
            self.paused.insert(stream.id(), Arc::clone(stream));
        }
    }

    fn finish_packet(&mut self, packet: IncomingPacket) {
        let (Packet::Direct(stream, _) | Packet::Early(stream, ..)) = packet.0 else {
            return;
        };
        if stream.is_closed() {
            // The stream was closed by the producer before, and only waited for this packet.
            self.remove_closed(&stream);
            return;
        }
        let is_last = |last: &Arc<DataStream>| Arc::ptr_eq(last, &stream);
        // Only the last is compared. To flush a stream twice costs less than a search.
        if !self.unflushed.last().is_some_and(is_last) {
            self.unflushed.push(stream);
        }
    }

    /// Looks a stream up. The first one decides the session of the connection.
    fn find_stream(&mut self, id: StreamId) -> Result<Arc<DataStream>, IngestError> {
        if let Some(stream) = self.streams.get(&id) {
            return Ok(Arc::clone(stream));
        }
        let (session, stream) = self
            .registry
            .data_stream(id)
            .ok_or(IngestError::UnknownStream(id))?;
        let control_session = self.control_session.as_ref();
        if control_session.is_some_and(|own| own.get() != Some(&session.id())) {
            return Err(IngestError::OtherSession(id));
        }
        match &self.session {
            None => {
                if !session.add_data_connection(self.address) {
                    return Err(IngestError::Stranger(id));
                }
                debug!(%session, "data connection assigned to session");
                self.generation = session.generation();
                self.session = Some(session);
            }
            Some(own) if Arc::ptr_eq(own, &session) => {}
            Some(_) => return Err(IngestError::OtherSession(id)),
        }
        if self.streams.len() >= self.prune_streams_at {
            // The control connection closes most streams, without notice to this one.
            self.streams.retain(|_, stream| !stream.is_closed());
            // At twice the number, so that the cost of a walk is shared by as many new streams.
            self.prune_streams_at = (2 * self.streams.len()).max(MIN_PRUNED_STREAMS);
        }
        if let Some(first) = self.first_packet {
            stream.lock().declare_first_packet(first);
        }
        self.streams.insert(id, Arc::clone(&stream));
        Ok(stream)
    }
}
