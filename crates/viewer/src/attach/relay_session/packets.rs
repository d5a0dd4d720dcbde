//! A stream's next packets: where they are, and their bytes.
//!
//! A relay that says how many there are is asked for many at once. Its replies are kept, and
//! handled one after the other, as if each had been waited for.

use std::io;

use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::packet::{GetPacket, PacketHead, PacketStatus};
use wire::{Bytes, StreamId};

use super::{AttachedStream, AttachedTrace, RelaySession, is_backlog_full};
use crate::attach::error::AttachError;
use crate::attach::packet::{IncomingPacket, MAX_PACKET_BYTES};
use crate::attach::read_position::EntryPlace;
use crate::attach::shown_trace::Phase;
use crate::attach::{Packet, Reservation, SourceEvent};

/// Largest number of bytes of small packets that are requested at once.
const MAX_PREFETCH_BYTES: usize = 1 << 20;

/// Largest number of indexes, or of packets, that are requested at once. The relay remembers as
/// many tracefiles, should each be in another one; and the commands fit into any socket.
const MAX_PIPELINED_REQUESTS: usize = 64;

/// A reply to `GET_NEXT_INDEX` that has not been handled.
pub(super) struct IndexReply {
    index: NextIndex,
    /// The received part of its packet, if that has been requested.
    packet: Option<IncomingPacket>,
}

/// What has become of a reply.
enum ReplyOutcome {
    /// The reply has been handled, and there was something in it.
    Progress,
    /// The reply has been handled, and there was nothing in it.
    NoProgress,
    /// The reply is kept until it can be handled.
    Pending(IndexReply),
}

/// The result of fetching a packet.
enum FetchOutcome {
    Whole(Packet),
    /// The packet is requested again later.
    Later,
    /// The packet cannot be had. With an error if it could not be stored, without if the relay has
    /// lost it.
    Lost(Option<io::Error>),
}

impl RelaySession {
    /// Requests the next packets of a stream, and passes on those that there is room for. Returns
    /// whether there was progress.
    pub(super) async fn read_stream(&mut self, id: StreamId) -> Result<bool, AttachError> {
        let mut is_progress = false;
        let stream = self.streams.get(&id);
        if stream.is_some_and(|stream| stream.replies.is_empty()) {
            is_progress |= self.request_indexes(id).await?;
        }
        self.prefetch_packets(id).await?;
        while let Some(reply) = self.take_reply(id) {
            match self.handle_reply(id, reply).await? {
                ReplyOutcome::Progress => is_progress = true,
                ReplyOutcome::NoProgress => {}
                ReplyOutcome::Pending(reply) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        // Marked again by metadata or by the next poll; until then each round would
                        // try it in vain.
                        stream.may_have_packets = false;
                        stream.replies.push_front(reply);
                    }
                    return Ok(is_progress);
                }
            }
        }
        Ok(is_progress)
    }

    /// Asks for as many indexes as there are, as far as that is known, and whether there are more.
    async fn request_indexes(&mut self, id: StreamId) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        let unread = usize::try_from(stream.unread).unwrap_or(usize::MAX);
        // The reply to the last request says whether there are more than the relay has announced.
        let times = if stream.shown.position.is_searching() && !stream.is_at_end {
            // What was handed over on an earlier connection is passed at once.
            MAX_PIPELINED_REQUESTS
        } else {
            unread.saturating_add(1).min(MAX_PIPELINED_REQUESTS)
        };
        stream.unread = stream.unread.saturating_sub(times as u64);
        let indexes = self.connection.next_indexes(id, times).await?;
        // The relay sets a flag in every reply until the viewer has acted on it.
        let flags = indexes.iter().fold(0, |flags, index| flags | index.flags);
        let is_progress = self.handle_flags(id, flags).await?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(is_progress);
        };
        // An index without a packet only carries flags.
        let is_flag_carrier = |index: &NextIndex| {
            index.status == IndexStatus::Ready && index.packet.packet_size.0 == 0
        };
        if indexes.last().is_some_and(is_flag_carrier) {
            stream.may_have_packets = is_progress;
        }
        let is_ready = |index: &NextIndex| index.status == IndexStatus::Ready;
        stream.is_at_end = !indexes.last().is_some_and(is_ready);
        let replies = indexes.into_iter().filter(|index| !is_flag_carrier(index));
        stream.replies = replies.map(IndexReply::new).collect();
        Ok(is_progress)
    }

    /// Removes the oldest reply that has not been handled, unless it has to wait for the reader.
    fn take_reply(&mut self, id: StreamId) -> Option<IndexReply> {
        let is_full = self.is_full(self.streams.get(&id)?);
        let stream = self.streams.get_mut(&id)?;
        // Only packets take room: whatever else a reply says is passed on while the reader is busy.
        let may_wait = |reply: &mut IndexReply| is_full && reply.index.status == IndexStatus::Ready;
        stream.replies.pop_front_if(|reply| !may_wait(reply))
    }

    async fn handle_reply(
        &mut self,
        id: StreamId,
        reply: IndexReply,
    ) -> Result<ReplyOutcome, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(ReplyOutcome::NoProgress);
        };
        let index = &reply.index;
        stream.may_have_packets = index.status == IndexStatus::Ready;
        let is_broken = stream.shown.is_broken;
        // What another relay has may come with some delay.
        let is_all = !self.resume.has_moved || self.resume.orphans_due.is_none();
        if !stream.may_have_packets && is_all && stream.shown.position.give_up_search() {
            self.report_gap(id).await?;
        }
        match index.status {
            IndexStatus::Retry => Ok(ReplyOutcome::NoProgress),
            IndexStatus::Inactive => match self.send_watermark(id, index.packet.end.0).await? {
                true => Ok(ReplyOutcome::Progress),
                false => Ok(ReplyOutcome::NoProgress),
            },
            IndexStatus::HungUp => {
                self.end_stream(id).await?;
                Ok(ReplyOutcome::Progress)
            }
            IndexStatus::Failed | IndexStatus::EndOfFile => Err(AttachError::Index {
                stream: id,
                status: format!("{:?}", index.status),
            }),
            // The stream is read on to its end, of which the relay has to tell, but nothing is
            // shown.
            IndexStatus::Ready if is_broken => Ok(ReplyOutcome::Progress),
            IndexStatus::Ready => match packet_size(index) {
                Ok(size) => self.take_packet(id, reply, size).await,
                Err(fault) => {
                    self.abandon_stream(id, fault).await?;
                    Ok(ReplyOutcome::Progress)
                }
            },
        }
    }

    /// Fetches a packet and passes it on, or keeps it for later.
    async fn take_packet(
        &mut self,
        id: StreamId,
        mut reply: IndexReply,
        size: u64,
    ) -> Result<ReplyOutcome, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(ReplyOutcome::NoProgress);
        };
        let Some(trace) = self.traces.get(&stream.trace) else {
            return Ok(ReplyOutcome::NoProgress);
        };
        if !trace.has_metadata() {
            let session = self.sessions.get(&stream.trace.0);
            let is_over = session.is_none_or(|session| session.is_over);
            if trace.is_complete || (is_over && trace.metadata.is_none()) {
                self.abandon_stream(id, "packets without metadata").await?;
                return Ok(ReplyOutcome::Progress);
            }
            return Ok(ReplyOutcome::Pending(reply));
        }
        match stream.shown.position.place(&reply.index) {
            EntryPlace::New => {}
            EntryPlace::HandedOver => return Ok(ReplyOutcome::Progress),
            EntryPlace::NewAfterGap => self.report_gap(id).await?,
        }
        match self.fetch_packet(id, &mut reply, size).await? {
            FetchOutcome::Whole(packet) => {
                self.send_packet(id, &reply.index, packet).await?;
                Ok(ReplyOutcome::Progress)
            }
            FetchOutcome::Lost(error) => {
                let Some(stream) = self.streams.get_mut(&id) else {
                    return Ok(ReplyOutcome::NoProgress);
                };
                // Recorded as if it had been handed over: it is not fetched again on another
                // connection.
                stream.shown.position.record_packet(&reply.index);
                let name = &stream.shown.name;
                let text = match error {
                    Some(error) => format!(
                        "lost a packet of {name}: cannot store it in a temporary file: {error}"
                    ),
                    None => format!("lost a packet of {name}: the relay cannot give it"),
                };
                self.send_error(text).await?;
                Ok(ReplyOutcome::Progress)
            }
            FetchOutcome::Later => Ok(ReplyOutcome::Pending(reply)),
        }
    }

    async fn report_gap(&mut self, id: StreamId) -> Result<(), AttachError> {
        let name = self.streams.get(&id).map(|stream| &stream.shown.name);
        let text = format!(
            "stream {}: the relay does not have the packet that was shown last any more; \
             packets after it may be lost",
            name.map_or("", |name| name)
        );
        self.send_error(text).await
    }

    /// Fetches the packets that there is memory for, all at once if they are small. A packet that
    /// does not arrive is left to [`fetch_packet`](Self::fetch_packet).
    async fn prefetch_packets(&mut self, id: StreamId) -> Result<(), AttachError> {
        let (asks, reservations) = self.prefetch_requests(id);
        // A single packet gains nothing from being requested ahead.
        if asks.len() < 2 {
            return Ok(());
        }
        let packets = self.connection.packets(&asks).await?;
        let flags = packets
            .iter()
            .fold(0, |flags, (head, _)| flags | head.flags);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.keep_packets(&asks, packets.into_iter().zip(reservations));
        }
        self.handle_flags(id, flags).await?;
        Ok(())
    }

    /// The requests to send at once, and the memory for their packets.
    fn prefetch_requests(&self, id: StreamId) -> (Vec<GetPacket>, Vec<Reservation>) {
        let (mut asks, mut reservations) = (Vec::new(), Vec::new());
        let Some(stream) = self
            .streams
            .get(&id)
            .filter(|stream| !stream.shown.is_broken)
        else {
            return (asks, reservations);
        };
        let trace = self.traces.get(&stream.trace);
        if trace.is_none_or(|trace| !trace.has_metadata()) {
            return (asks, reservations);
        }
        let mut bytes = 0;
        // A copy: the replies are handled later.
        let mut position = stream.shown.position.clone();
        for IndexReply { index, packet } in &stream.replies {
            let is_ready = index.status == IndexStatus::Ready;
            if !is_ready || position.place(index) == EntryPlace::HandedOver || packet.is_some() {
                continue;
            }
            // A wrong index is reported when it is its turn; here it only ends the loop.
            let size = packet_size(index).unwrap_or(u64::MAX);
            let size_in_memory = usize::try_from(size).unwrap_or(usize::MAX);
            let is_full = is_backlog_full(&stream.shown.backlog, asks.len(), bytes);
            bytes = bytes.saturating_add(size_in_memory);
            let Ok(len) = u32::try_from(size) else { break };
            if is_full || bytes > MAX_PREFETCH_BYTES {
                break;
            }
            // A packet without memory is fetched when it is its turn, into a file if need be.
            let Some(reservation) = self.options.memory.reserve(size_in_memory) else {
                break;
            };
            reservations.push(reservation);
            asks.push(GetPacket {
                stream: id,
                offset: index.offset,
                len,
            });
        }
        (asks, reservations)
    }

    /// Fetches what is missing of a packet, in as many pieces as the relay likes.
    async fn fetch_packet(
        &mut self,
        id: StreamId,
        reply: &mut IndexReply,
        size: u64,
    ) -> Result<FetchOutcome, AttachError> {
        let mut packet = match reply.packet.take() {
            Some(begun) => begun,
            None => match IncomingPacket::new(size, &self.options.memory) {
                Ok(packet) => packet,
                Err(error) => return Ok(FetchOutcome::Lost(Some(error))),
            },
        };
        // A relay may go on setting a flag by which there is nothing new: one repetition tells.
        let mut has_repeated = false;
        loop {
            let have = packet.received();
            if have >= size {
                return Ok(FetchOutcome::Whole(packet.finish()));
            }
            let Some(offset) = reply.index.offset.0.checked_add(have) else {
                return Ok(FetchOutcome::Lost(None));
            };
            let ask = GetPacket {
                stream: id,
                offset: Bytes(offset),
                len: u32::try_from(size - have).unwrap_or(u32::MAX),
            };
            // An error is kept, because the closure has to take all bytes of the reply.
            let mut stored = Ok(());
            let take = |bytes: &[u8]| {
                // The rest of the reply is read in any case, because the next reply follows it.
                if stored.is_ok() {
                    stored = packet.append(bytes, size);
                }
            };
            let head = self.connection.packet(ask, take).await?;
            if let Err(error) = stored {
                return Ok(FetchOutcome::Lost(Some(error)));
            }
            let is_handled = self.handle_flags(id, head.flags).await?;
            let is_flagged = head.flags & (NEW_METADATA | NEW_STREAMS) != 0;
            match head.status {
                PacketStatus::Ok if head.len == 0 => {
                    return Err(AttachError::EmptyPacket { stream: id });
                }
                PacketStatus::Ok => {}
                // The flags have been handled: the request is repeated at once.
                PacketStatus::Failed if is_handled => {}
                PacketStatus::Failed if is_flagged && !has_repeated => has_repeated = true,
                PacketStatus::Failed if !is_flagged => return Ok(FetchOutcome::Lost(None)),
                PacketStatus::Failed | PacketStatus::Retry => {
                    reply.packet = Some(packet);
                    return Ok(FetchOutcome::Later);
                }
                PacketStatus::EndOfFile => return Ok(FetchOutcome::Lost(None)),
            }
        }
    }

    async fn send_packet(
        &mut self,
        id: StreamId,
        index: &NextIndex,
        packet: Packet,
    ) -> Result<(), AttachError> {
        (self.has_read, self.has_sent_packet) = (true, true);
        // A stream that had ended may have more nevertheless: it is announced again.
        self.announce_stream_to_reader(id).await?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if let Some(trace) = self.traces.get_mut(&stream.trace) {
            trace.shown.record_time(index.packet.begin.0);
        }
        let shown = &mut stream.shown;
        shown.position.record_packet(index);
        let bytes = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        // Counted first, because the reader may remove the packet as soon as it is sent.
        shown.backlog.add_packet(bytes);
        let stream = shown.key;
        self.send_event(SourceEvent::Packet { stream, packet })
            .await
    }

    /// Passes on a watermark, in cycles, if it is later than the last one. Returns whether it is.
    pub(super) async fn send_watermark(
        &mut self,
        id: StreamId,
        until: u64,
    ) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        let shown = &mut stream.shown;
        let is_followed = shown.phase == Phase::Followed && !shown.is_broken;
        if !is_followed || shown.watermark.is_some_and(|known| known >= until) {
            return Ok(false);
        }
        shown.watermark = Some(until);
        shown.position.record_watermark(until);
        if let Some(trace) = self.traces.get_mut(&stream.trace) {
            trace.shown.record_time(until);
        }
        let stream = shown.key;
        self.send_event(SourceEvent::Watermark { stream, until })
            .await?;
        Ok(true)
    }

    /// Does what the flags of a reply about a stream ask for. Returns whether there was anything.
    async fn handle_flags(&mut self, id: StreamId, flags: u32) -> Result<bool, AttachError> {
        let mut is_progress = false;
        if flags & NEW_STREAMS != 0 {
            // The flag does not say of which session.
            for session in self.sessions.values_mut() {
                session.may_have_streams = true;
            }
            is_progress |= self.request_streams().await?;
            is_progress |= self.request_metadata().await?;
        }
        let trace = self.streams.get(&id).map(|stream| stream.trace);
        if let Some(trace) = trace
            && flags & NEW_METADATA != 0
        {
            is_progress |= self.fetch_metadata(trace).await?;
        }
        Ok(is_progress)
    }

    /// Ends a stream for its reader: nothing more of it is passed on.
    async fn abandon_stream(&mut self, id: StreamId, fault: &str) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.shown.is_broken = true;
        let trace = stream.trace;
        let key = stream.shown.key;
        let is_followed = stream.shown.phase == Phase::Followed;
        stream.shown.phase = Phase::Ended;
        let text = format!(
            "protocol error: stream {}: {fault}; the stream is left out",
            stream.shown.name
        );
        // A session may end before its metadata arrives: then nothing of it can be shown, which is
        // no fault.
        let has_metadata = self
            .traces
            .get(&trace)
            .is_some_and(AttachedTrace::has_metadata);
        if has_metadata {
            self.send_error(text).await?;
        } else {
            self.send_notice(text).await?;
        }
        if !is_followed {
            return Ok(());
        }
        self.send_event(SourceEvent::StreamEnd { stream: key })
            .await
    }

    async fn end_stream(&mut self, id: StreamId) -> Result<(), AttachError> {
        let Some(mut stream) = self.streams.remove(&id) else {
            return Ok(());
        };
        let is_followed = stream.shown.phase == Phase::Followed;
        let key = stream.shown.key;
        stream.shown.phase = Phase::Ended;
        if let Some(session) = self.sessions.get_mut(&stream.trace.0) {
            // Only a request for new streams tells whether the session is over.
            session.may_have_streams = true;
        }
        if let Some(trace) = self.traces.get_mut(&stream.trace) {
            trace.shown.retain_stream(stream.shown);
            trace.streams -= 1;
            // The next reply says whether the metadata is complete.
            trace.may_have_metadata |= trace.streams == 0;
        }
        if !is_followed {
            return Ok(());
        }
        self.send_event(SourceEvent::StreamEnd { stream: key })
            .await
    }
}

impl IndexReply {
    fn new(index: NextIndex) -> Self {
        Self {
            index,
            packet: None,
        }
    }

    /// The memory that its packet would take, in bytes; 0 if it has a packet.
    pub(super) fn missing_bytes(&self) -> usize {
        if self.packet.is_some() || self.index.status != IndexStatus::Ready {
            return 0;
        }
        let size = packet_size(&self.index).unwrap_or(0);
        usize::try_from(size).unwrap_or(usize::MAX)
    }
}

impl AttachedStream {
    /// Keeps each packet that has arrived with the index by which it was requested.
    fn keep_packets(
        &mut self,
        asks: &[GetPacket],
        packets: impl Iterator<Item = ((PacketHead, Vec<u8>), Reservation)>,
    ) {
        let mut replies = self.replies.iter_mut();
        for (ask, ((head, bytes), reservation)) in asks.iter().zip(packets) {
            // Requests and replies have one order: each search goes on where the last one has
            // ended.
            let mut its = replies.by_ref().filter(|reply| reply.packet.is_none());
            let is_it = |reply: &&mut IndexReply| reply.index.offset == ask.offset;
            if let Some(reply) = its.find(is_it)
                && head.status == PacketStatus::Ok
            {
                reply.packet = Some(IncomingPacket::begun(bytes, reservation));
            }
        }
    }
}

/// The size of a packet in bytes, unless its index contradicts itself.
fn packet_size(index: &NextIndex) -> Result<u64, &'static str> {
    let packet = &index.packet;
    if packet.content_size > packet.packet_size {
        return Err("the content of a packet is larger than the packet");
    }
    match packet.packet_size.to_bytes() {
        None => Err("a packet does not end at a byte boundary"),
        Some(Bytes(size)) if size > MAX_PACKET_BYTES => Err("a packet is larger than 1 GiB"),
        Some(Bytes(size)) => Ok(size),
    }
}
