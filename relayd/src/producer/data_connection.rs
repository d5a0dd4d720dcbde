//! One data connection: takes the events that `relay-proto` makes of its bytes to the streams that
//! they are for.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use relay_proto::{DataEvent, DataHeader};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use wire::{Bytes, SessionId, StreamId};

use crate::ingest::Resumed;
use crate::ingest::error::{At, IngestError};
use crate::ingest::reorder::EarlyPacket;
use crate::ingest::reorder_budget::{EarlyBuffer, Exhausted};
use crate::ingest::stream::{Arrival, ConnectionId, DataStream};
use crate::limits::MIN_PRUNED_STREAMS;
use crate::registry::Registry;
use crate::registry::session::Session;

/// One data connection. It has no name of its own: its first packet says whose it is.
#[derive(Debug)]
pub struct DataConnection {
    id: ConnectionId,
    registry: Arc<Registry>,
    /// Where it comes from.
    address: IpAddr,
    session: Option<Arc<Session>>,
    /// The streams that it has carried, so that they need not be looked up for every packet.
    streams: HashMap<StreamId, Arc<DataStream>>,
    /// As many of those at which closed ones are looked for.
    prune_streams_at: usize,
    /// What it has received.
    at: Bytes,
    packet: Packet,
    /// The streams of the packets that have come since it was settled.
    unsettled: Vec<Arc<DataStream>>,
    /// The streams that have to wait for space before more can be taken.
    paused: BTreeMap<StreamId, Arc<DataStream>>,
}

/// The packet being received.
#[derive(Debug)]
enum Packet {
    None,
    Direct(Arc<DataStream>, DataHeader),
    Early(Arc<DataStream>, DataHeader, EarlyBuffer),
    /// Of no use to anyone.
    Dropped,
}

impl DataConnection {
    /// A connection from this address on which nothing has come.
    #[must_use]
    pub fn new(registry: Arc<Registry>, address: IpAddr) -> Self {
        Self {
            id: registry.next_connection(),
            registry,
            address,
            session: None,
            streams: HashMap::new(),
            prune_streams_at: MIN_PRUNED_STREAMS,
            at: Bytes(0),
            packet: Packet::None,
            unsettled: Vec::new(),
            paused: BTreeMap::new(),
        }
    }

    /// Whose it is, once it is known.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id())
    }

    /// What ends the connections of its session, once that is known.
    #[must_use]
    pub fn connections(&self) -> Option<CancellationToken> {
        let session = self.session.as_ref()?;
        Some(session.identity().connections.clone())
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// If the connection cannot go on: lengths are all there is to find the next packet by.
    pub fn take(&mut self, event: DataEvent<'_>) -> Result<(), At> {
        let at = self.at;
        let taken = match event {
            DataEvent::Begin(header) => {
                self.at.0 += 32;
                self.begin(header)
            }
            DataEvent::Payload { bytes, last } => {
                self.at.0 += bytes.len() as u64;
                self.payload(bytes, last)
            }
        };
        taken.map_err(|source| At { at, source })
    }

    /// All that was received has been taken: writes the entries that have become due.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn settle(&mut self) -> Result<(), At> {
        let at = self.at;
        let unsettled = std::mem::take(&mut self.unsettled);
        for stream in &unsettled {
            let flushed = stream.lock().flush_entries();
            flushed.map_err(|source| At { at, source })?;
            if stream.is_closed() {
                self.forget(stream);
            }
            self.heed_pause(stream);
        }
        // Its room is used again.
        self.unsettled = unsettled;
        self.unsettled.clear();
        Ok(())
    }

    /// Whether a stream has to wait for space on the disk before more can be taken.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Tries again to write what there was no space for. Gives whether the connection goes on.
    ///
    /// # Errors
    /// If it cannot be written for another reason than before.
    pub fn resume(&mut self) -> Result<bool, At> {
        let at = self.at;
        for (id, stream) in std::mem::take(&mut self.paused) {
            let goes_on = self.try_again(&stream);
            if !goes_on.map_err(|source| At { at, source })? {
                self.paused.insert(id, stream);
            }
        }
        Ok(self.paused.is_empty())
    }

    fn try_again(&mut self, stream: &DataStream) -> Result<bool, IngestError> {
        let session = self.session.as_ref().map(|session| session.to_string());
        let resumed = stream.lock().resume();
        match resumed? {
            Resumed::No(why) => {
                if let Some(why) = why {
                    warn!(session, %why, "producer paused");
                }
                return Ok(false);
            }
            Resumed::Yes => info!(session, stream = %stream.id(), "producer resumed"),
            Resumed::Already => {}
        }
        if stream.is_closed() {
            self.forget(stream);
        }
        Ok(true)
    }

    fn forget(&mut self, closed: &DataStream) {
        self.streams.remove(&closed.id());
        if let Some(session) = &self.session {
            self.registry.forget_closed(session, &[closed.id()]);
        }
    }

    /// It has ended: what came of a packet that did not end is dropped.
    pub fn end(mut self) {
        self.leave(Session::remove_data_connection);
    }

    /// It has failed: so has its session.
    pub fn fail(mut self, why: &At) {
        let session = self.session.as_ref().map(|session| session.to_string());
        if self
            .session
            .as_ref()
            .is_none_or(|session| session.is_over())
        {
            // Nobody's, or of a producer that died in the middle of a packet.
            warn!(session, error = %why, "data connection closed");
        } else {
            error!(session, error = %why, "data connection closed, session aborted");
        }
        self.leave(|session| {
            session.fail();
            session.remove_data_connection();
            true
        });
    }

    /// `then` gives whether it may have closed streams of the session.
    fn leave(&mut self, then: impl FnOnce(&Session) -> bool) {
        if let Packet::Direct(stream, _) = std::mem::replace(&mut self.packet, Packet::None) {
            stream.lock().drop_packet_from(self.id);
        }
        if let Err(why) = self.settle() {
            error!(error = %why, "entries at the end of a data connection not written");
        }
        if let Some(session) = self.session.take()
            && then(&session)
        {
            self.registry.forget_all_closed(&session);
        }
    }

    fn begin(&mut self, header: DataHeader) -> Result<(), IngestError> {
        let stream = self.stream(header.stream)?;
        let arrival = stream.lock().begin_packet(&header, self.id)?;
        self.heed_pause(&stream);
        self.packet = match arrival {
            Arrival::Direct => Packet::Direct(stream, header),
            Arrival::Early => {
                let budget = self
                    .session
                    .as_ref()
                    .map(|session| session.reorder_budget());
                let kept = budget.map(EarlyBuffer::new).unwrap_or_default();
                Packet::Early(stream, header, kept)
            }
            Arrival::Late => Packet::Dropped,
        };
        Ok(())
    }

    fn payload(&mut self, bytes: &[u8], last: bool) -> Result<(), IngestError> {
        match &mut self.packet {
            Packet::None | Packet::Dropped => {}
            Packet::Direct(stream, header) => {
                let padding = last.then_some(header.padding_size);
                stream
                    .lock()
                    .write_payload(header.seq, self.id, bytes, padding)?;
            }
            Packet::Early(stream, header, kept) => {
                let (stream, header, kept) = (Arc::clone(stream), *header, std::mem::take(kept));
                self.packet = self.payload_early(stream, header, kept, (bytes, last))?;
            }
        }
        if let Packet::Direct(stream, _) | Packet::Early(stream, ..) = &self.packet
            && stream.is_paused()
        {
            let stream = Arc::clone(stream);
            self.heed_pause(&stream);
        }
        if last {
            self.packet_ended();
        }
        Ok(())
    }

    /// Some bytes of a packet that came early. Gives what has become of it.
    fn payload_early(
        &mut self,
        stream: Arc<DataStream>,
        header: DataHeader,
        mut kept: EarlyBuffer,
        (bytes, last): (&[u8], bool),
    ) -> Result<Packet, IngestError> {
        let size = header.data_size as usize;
        let mut extended = kept.try_extend(bytes, size);
        if let Err(exhausted) = extended {
            self.make_room(exhausted);
            extended = kept.try_extend(bytes, size);
        }
        let is_kept = extended.is_ok();
        let arrival = if is_kept {
            stream
                .lock()
                .recheck_early_packet(&header, self.id, kept.len())?
        } else {
            stream.lock().hasten_early_packet(&header, self.id)?
        };
        if arrival == Arrival::Early && !is_kept {
            // There is no space on the disk. No more is read until there is.
            kept.extend(bytes, size);
        }
        match arrival {
            Arrival::Early if last => {
                kept.complete();
                let early = EarlyPacket {
                    seq: header.seq,
                    payload: std::mem::take(&mut kept),
                    padding: header.padding_size,
                };
                stream.lock().add_early_packet(early)?;
            }
            Arrival::Early => {}
            Arrival::Direct => {
                let padding = last.then_some(header.padding_size);
                let mut writer = stream.lock();
                if is_kept {
                    writer.write_payload(header.seq, self.id, &kept, padding)?;
                } else {
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

    /// Early packets have taken all the memory that they may. Those streams that hold most of it give up
    /// what they miss, and write what they hold, until half of the memory is free.
    fn make_room(&mut self, exhausted: Exhausted) {
        let Some(session) = &self.session else { return };
        let budget = session.reorder_budget().scope(exhausted);
        if !budget.can_be_freed() {
            return;
        }
        warn!(
            %session,
            limit = budget.limit(),
            "early packets take all the memory that they may: missing packets are given up sooner"
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
                error!(session = %of_session, %error, "session aborted");
                of_session.fail();
                self.registry.forget_all_closed(&of_session);
            } else if stream.is_closed() {
                self.registry.forget_closed(&of_session, &[stream.id()]);
            }
            // Whoever brings packets to another session's stream notices that it is paused.
            if Arc::ptr_eq(&of_session, session) && stream.is_paused() {
                self.paused.insert(stream.id(), stream);
            }
        }
    }

    fn heed_pause(&mut self, stream: &Arc<DataStream>) {
        if stream.is_paused() {
            self.paused.insert(stream.id(), Arc::clone(stream));
        }
    }

    fn packet_ended(&mut self) {
        let packet = std::mem::replace(&mut self.packet, Packet::None);
        let (Packet::Direct(stream, _) | Packet::Early(stream, ..)) = packet else {
            return;
        };
        if stream.is_closed() {
            // It only waited for this.
            self.forget(&stream);
            return;
        }
        let is_last = |last: &Arc<DataStream>| Arc::ptr_eq(last, &stream);
        if !self.unsettled.last().is_some_and(is_last) {
            self.unsettled.push(stream);
        }
    }

    fn stream(&mut self, id: StreamId) -> Result<Arc<DataStream>, IngestError> {
        if let Some(stream) = self.streams.get(&id) {
            return Ok(Arc::clone(stream));
        }
        let (session, stream) = self
            .registry
            .data_stream(id)
            .ok_or(IngestError::UnknownStream(id))?;
        match &self.session {
            None => {
                if !session.add_data_connection(self.address) {
                    return Err(IngestError::Stranger(id));
                }
                debug!(%session, "data connection begins");
                self.session = Some(session);
            }
            Some(own) if Arc::ptr_eq(own, &session) => {}
            Some(_) => return Err(IngestError::OtherSession(id)),
        }
        if self.streams.len() >= self.prune_streams_at {
            // Streams are mostly closed by the control connection.
            self.streams.retain(|_, stream| !stream.is_closed());
            self.prune_streams_at = (2 * self.streams.len()).max(MIN_PRUNED_STREAMS);
        }
        self.streams.insert(id, Arc::clone(&stream));
        Ok(stream)
    }
}
