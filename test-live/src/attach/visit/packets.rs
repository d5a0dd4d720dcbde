//! A stream's next packets: where they are, and their bytes.
//!
//! A relay that says how many there are is asked for many at once. Its answers are kept, and dealt with
//! one after the other, as if each had been waited for.

use std::io;

use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::packet::{GetPacket, PacketHead, PacketStatus};
use wire::{Bytes, StreamId};

use super::{Stream, Visit, is_enough};
use crate::attach::error::AttachError;
use crate::attach::packet::IncomingPacket;
use crate::attach::resume::Memory;
use crate::attach::{Packet, Reservation, SourceEvent};

/// Largest packet that is taken.
const MOST_PACKET: u64 = 1 << 30;

/// Of small packets, so many bytes are asked for at once.
const MAX_BYTES_AT_ONCE: usize = 1 << 20;

/// Most indexes, or packets, that are asked for at once. The relay remembers as many tracefiles, should
/// each be in another one; and the commands fit into any socket.
const MOST_AT_ONCE: usize = 64;

/// An answer to `GET_NEXT_INDEX` that has not been dealt with.
pub(super) struct Answer {
    index: NextIndex,
    /// What has come of its packet, if that has been asked for.
    packet: Option<IncomingPacket>,
}

/// What has become of an answer.
enum Dealt {
    With { is_progress: bool },
    NotYet(Answer),
}

/// What has become of a packet.
enum Fetched {
    Whole(Packet),
    /// Not now.
    Later,
    /// It cannot be had, and why, if it is not the relay that has lost it.
    Lost(Option<io::Error>),
}

impl Visit {
    /// Asks a stream for its next packets, and passes on those that there is room for. Gives whether
    /// anything has come of it.
    pub(super) async fn advance(
        &mut self,
        id: StreamId,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let mut is_progress = false;
        memory.follow(id);
        if self.streams.get(&id).is_some_and(Stream::has_no_answer) {
            is_progress |= self.ask_indexes(id, memory).await?;
        }
        self.fetch_ahead(id, memory).await?;
        while let Some(answer) = self.next_answer(id) {
            match self.deal_with(id, answer, memory).await? {
                Dealt::With { is_progress: more } => is_progress |= more,
                Dealt::NotYet(answer) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.may_have_packets = false;
                        stream.answers.push_front(answer);
                    }
                    return Ok(is_progress);
                }
            }
        }
        Ok(is_progress)
    }

    /// Asks for as many indexes as there are, as far as that is known, and whether there are more.
    async fn ask_indexes(
        &mut self,
        id: StreamId,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        let unread = usize::try_from(stream.unread).unwrap_or(usize::MAX);
        let times = unread.saturating_add(1).min(MOST_AT_ONCE);
        stream.unread = stream.unread.saturating_sub(times as u64);
        let indexes = self.connection.next_indexes(id, times).await?;
        // Each of them says it until it has been done.
        let flags = indexes.iter().fold(0, |flags, index| flags | index.flags);
        let is_progress = self.heed(id, flags, memory).await?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(is_progress);
        };
        // A relay's way to show flags to viewers that look for them nowhere else.
        let is_hint = |index: &NextIndex| {
            index.status == IndexStatus::Ready && index.packet.packet_size.0 == 0
        };
        if indexes.last().is_some_and(is_hint) {
            stream.may_have_packets = is_progress;
        }
        let answers = indexes.into_iter().filter(|index| !is_hint(index));
        stream.answers = answers.map(Answer::new).collect();
        Ok(is_progress)
    }

    /// The oldest answer that has not been dealt with, unless it has to wait for the reader.
    fn next_answer(&mut self, id: StreamId) -> Option<Answer> {
        let is_full = self.is_full(self.streams.get(&id)?);
        let stream = self.streams.get_mut(&id)?;
        let may_wait = |answer: &mut Answer| is_full && answer.index.status == IndexStatus::Ready;
        stream.answers.pop_front_if(|answer| !may_wait(answer))
    }

    async fn deal_with(
        &mut self,
        id: StreamId,
        answer: Answer,
        memory: &mut Memory,
    ) -> Result<Dealt, AttachError> {
        let with = |is_progress| Ok(Dealt::With { is_progress });
        let Some(stream) = self.streams.get_mut(&id) else {
            return with(false);
        };
        let index = &answer.index;
        stream.may_have_packets = index.status == IndexStatus::Ready;
        match index.status {
            IndexStatus::Retry => with(false),
            IndexStatus::Inactive => {
                with(self.pass_on_quiet(id, index.packet.end.0, memory).await?)
            }
            IndexStatus::HungUp => {
                memory.stream_ended(id);
                self.end_stream(id).await?;
                with(true)
            }
            IndexStatus::Failed | IndexStatus::EndOfFile => Err(AttachError::Index {
                stream: id,
                status: format!("{:?}", index.status),
            }),
            IndexStatus::Ready if stream.is_broken => with(true),
            IndexStatus::Ready => match packet_size(index) {
                Ok(size) => self.take_packet(id, answer, size, memory).await,
                Err(fault) => {
                    self.give_up(id, fault).await?;
                    with(true)
                }
            },
        }
    }

    /// Fetches a packet and passes it on, or keeps it for later.
    async fn take_packet(
        &mut self,
        id: StreamId,
        mut answer: Answer,
        size: u64,
        memory: &mut Memory,
    ) -> Result<Dealt, AttachError> {
        let with = |is_progress| Ok(Dealt::With { is_progress });
        let Some(stream) = self.streams.get_mut(&id) else {
            return with(false);
        };
        let Some(trace) = self.traces.get(&stream.trace) else {
            return with(false);
        };
        if !trace.has_metadata {
            let session = self.sessions.get(&stream.trace.0);
            let is_over = session.is_none_or(|session| session.is_over);
            if trace.is_complete || (is_over && trace.metadata.is_none()) {
                self.give_up(id, "has packets but no metadata").await?;
                return with(true);
            }
            return Ok(Dealt::NotYet(answer));
        }
        if trace.is_known && memory.has_had(id, &answer.index) {
            return with(true);
        }
        match self.fetch(id, &mut answer, size, memory).await? {
            Fetched::Whole(packet) => {
                self.pass_on_packet(id, &answer.index, packet, memory)
                    .await?;
                with(true)
            }
            Fetched::Lost(error) => {
                let name = self.streams.get(&id).map(|stream| stream.name.as_str());
                let mut text = format!("lost a packet of {}", name.unwrap_or_default());
                if let Some(error) = error {
                    text.push_str(&format!(": cannot store it in a temporary file: {error}"));
                }
                self.notice(text).await?;
                with(true)
            }
            Fetched::Later => Ok(Dealt::NotYet(answer)),
        }
    }

    /// Fetches the packets that there is room for, all at once if they are small. What does not come is
    /// left to [`fetch`](Self::fetch).
    async fn fetch_ahead(&mut self, id: StreamId, memory: &mut Memory) -> Result<(), AttachError> {
        let (asks, reservations) = self.asks_ahead(id, memory);
        // One alone is fetched when it is its turn.
        if asks.len() < 2 {
            return Ok(());
        }
        let packets = self.connection.packets(&asks).await?;
        let flags = packets
            .iter()
            .fold(0, |flags, (head, _)| flags | head.flags);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.keep(&asks, packets.into_iter().zip(reservations));
        }
        self.heed(id, flags, memory).await?;
        Ok(())
    }

    /// What to ask for at once, and the memory for it.
    fn asks_ahead(&self, id: StreamId, memory: &Memory) -> (Vec<GetPacket>, Vec<Reservation>) {
        let (mut asks, mut reservations) = (Vec::new(), Vec::new());
        let Some(stream) = self.streams.get(&id).filter(|stream| !stream.is_broken) else {
            return (asks, reservations);
        };
        let trace = self.traces.get(&stream.trace);
        let Some(trace) = trace.filter(|trace| trace.has_metadata) else {
            return (asks, reservations);
        };
        let mut bytes = 0;
        for Answer { index, packet } in &stream.answers {
            let is_had = trace.is_known && memory.has_had(id, index);
            if index.status != IndexStatus::Ready || is_had || packet.is_some() {
                continue;
            }
            let size = packet_size(index).unwrap_or(u64::MAX);
            let size_in_memory = usize::try_from(size).unwrap_or(usize::MAX);
            let is_full = is_enough(&stream.backlog, asks.len(), bytes);
            bytes = bytes.saturating_add(size_in_memory);
            let Ok(len) = u32::try_from(size) else { break };
            if is_full || bytes > MAX_BYTES_AT_ONCE {
                break;
            }
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
    async fn fetch(
        &mut self,
        id: StreamId,
        answer: &mut Answer,
        size: u64,
        memory: &mut Memory,
    ) -> Result<Fetched, AttachError> {
        let mut packet = match answer.packet.take() {
            Some(begun) => begun,
            None => match IncomingPacket::new(size, &self.options.memory) {
                Ok(packet) => packet,
                Err(error) => return Ok(Fetched::Lost(Some(error))),
            },
        };
        let mut has_repeated = false;
        loop {
            let have = packet.received();
            if have >= size {
                return Ok(Fetched::Whole(packet.finish()));
            }
            let Some(offset) = answer.index.offset.0.checked_add(have) else {
                return Ok(Fetched::Lost(None));
            };
            let ask = GetPacket {
                stream: id,
                offset: Bytes(offset),
                len: u32::try_from(size - have).unwrap_or(u32::MAX),
            };
            let mut stored = Ok(());
            let take = |bytes: &[u8]| {
                if stored.is_ok() {
                    stored = packet.append(bytes, size);
                }
            };
            let head = self.connection.packet(ask, take).await?;
            if let Err(error) = stored {
                return Ok(Fetched::Lost(Some(error)));
            }
            let is_heeded = self.heed(id, head.flags, memory).await?;
            let is_flagged = head.flags & (NEW_METADATA | NEW_STREAMS) != 0;
            match head.status {
                PacketStatus::Ok if head.len == 0 => {
                    return Err(AttachError::EmptyPacket { stream: id });
                }
                PacketStatus::Ok => {}
                // What the flags said has been done.
                PacketStatus::Failed if is_heeded => {}
                PacketStatus::Failed if is_flagged && !has_repeated => has_repeated = true,
                PacketStatus::Failed if !is_flagged => return Ok(Fetched::Lost(None)),
                PacketStatus::Failed | PacketStatus::Retry => {
                    answer.packet = Some(packet);
                    return Ok(Fetched::Later);
                }
                PacketStatus::EndOfFile => return Ok(Fetched::Lost(None)),
            }
        }
    }

    async fn pass_on_packet(
        &mut self,
        id: StreamId,
        index: &NextIndex,
        packet: Packet,
        memory: &mut Memory,
    ) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(());
        };
        memory.hand_over(id, index);
        let bytes = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        stream.backlog.add_sized(bytes);
        let stream = stream.key;
        self.say(SourceEvent::Packet { stream, packet }).await
    }

    /// Passes on that nothing comes before a time, if that is more than was known.
    pub(super) async fn pass_on_quiet(
        &mut self,
        id: StreamId,
        until: u64,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        if stream.is_broken || stream.quiet.is_some_and(|known| known >= until) {
            return Ok(false);
        }
        stream.quiet = Some(until);
        memory.quiet(id, until);
        let stream = stream.key;
        self.say(SourceEvent::Quiet { stream, until }).await?;
        Ok(true)
    }

    /// Does what the flags of a reply about a stream ask for. Gives whether there was anything.
    async fn heed(
        &mut self,
        id: StreamId,
        flags: u32,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let mut is_progress = false;
        if flags & NEW_STREAMS != 0 {
            for session in self.sessions.values_mut() {
                session.may_have_streams = true;
            }
            is_progress |= self.look_for_streams().await?;
            is_progress |= self.look_for_metadata(memory).await?;
        }
        let trace = self.streams.get(&id).map(|stream| stream.trace);
        if let Some(trace) = trace
            && flags & NEW_METADATA != 0
        {
            is_progress |= self.fetch_metadata(trace, memory).await?;
        }
        Ok(is_progress)
    }

    /// Passes on nothing more of a stream.
    async fn give_up(&mut self, id: StreamId, fault: &str) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.is_broken = true;
        let key = stream.key;
        let text = format!("{} {fault}: it is left out", stream.name);
        self.notice(text).await?;
        self.say(SourceEvent::StreamEnd { stream: key }).await
    }

    async fn end_stream(&mut self, id: StreamId) -> Result<(), AttachError> {
        let Some(stream) = self.streams.remove(&id) else {
            return Ok(());
        };
        if let Some(trace) = self.traces.get_mut(&stream.trace) {
            trace.streams -= 1;
            // To hear whether that was all of it.
            trace.may_have_metadata |= trace.streams == 0;
        }
        if let Some(session) = self.sessions.get_mut(&stream.trace.0) {
            session.may_have_streams = true;
        }
        if stream.is_broken {
            return Ok(());
        }
        self.say(SourceEvent::StreamEnd { stream: stream.key })
            .await
    }
}

impl Answer {
    fn new(index: NextIndex) -> Self {
        Self {
            index,
            packet: None,
        }
    }

    /// How much memory its packet would take, if it has none yet.
    pub(super) fn missing_bytes(&self) -> usize {
        if self.packet.is_some() || self.index.status != IndexStatus::Ready {
            return 0;
        }
        let size = packet_size(&self.index).unwrap_or(0);
        usize::try_from(size).unwrap_or(usize::MAX)
    }
}

impl Stream {
    fn has_no_answer(&self) -> bool {
        self.answers.is_empty()
    }

    /// Keeps the packets that have come with the indexes that they were asked for by.
    fn keep(
        &mut self,
        asks: &[GetPacket],
        packets: impl Iterator<Item = ((PacketHead, Vec<u8>), Reservation)>,
    ) {
        let mut answers = self.answers.iter_mut();
        for (ask, ((head, bytes), reservation)) in asks.iter().zip(packets) {
            let mut its = answers.by_ref().filter(|answer| answer.packet.is_none());
            let is_it = |answer: &&mut Answer| answer.index.offset == ask.offset;
            if let Some(answer) = its.find(is_it)
                && head.status == PacketStatus::Ok
            {
                answer.packet = Some(IncomingPacket::begun(bytes, reservation));
            }
        }
    }
}

/// In bytes, if it makes sense.
fn packet_size(index: &NextIndex) -> Result<u64, &'static str> {
    let packet = &index.packet;
    if packet.content_size > packet.packet_size {
        return Err("has a packet with more in it than it has room for");
    }
    match packet.packet_size.to_bytes() {
        None => Err("has a packet that ends inside of a byte"),
        Some(Bytes(size)) if size > MOST_PACKET => Err("has a packet of more than 1 GiB"),
        Some(Bytes(size)) => Ok(size),
    }
}
