//! A stream's next packet: where it is, and its bytes.

use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::packet::{GetPacket, PacketStatus};
use wire::{Bytes, StreamId};

use super::Visit;
use crate::attach::News;
use crate::attach::error::AttachError;
use crate::attach::resume::Memory;

/// Largest packet that is taken.
const MOST_PACKET: u64 = 1 << 30;

/// Memory taken before any of a packet has come: what a relay announces may never come.
const FIRST_BYTES: u64 = 1 << 20;

/// A packet on its way.
pub(super) struct Fetch {
    index: NextIndex,
    /// Of the whole packet.
    size: u64,
    bytes: Vec<u8>,
}

/// What has become of a packet.
enum Fetched {
    Whole,
    /// Not now.
    Later,
    /// It cannot be had.
    Lost,
}

impl Visit {
    /// Asks a stream for its next packet. Gives whether anything has come of it.
    pub(super) async fn advance(
        &mut self,
        id: StreamId,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        let fetch = match stream.fetch.take() {
            Some(fetch) => fetch,
            None => match self.next_index(id, memory).await? {
                Next::Fetch(fetch) => fetch,
                Next::Other { is_progress } => return Ok(is_progress),
            },
        };
        self.take_packet(id, fetch, memory).await
    }

    async fn next_index(&mut self, id: StreamId, memory: &mut Memory) -> Result<Next, AttachError> {
        let index = self.connection.next_index(id).await?;
        let mut is_progress = self.heed(id, index.flags, memory).await?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(Next::Other { is_progress });
        };
        match index.status {
            IndexStatus::Retry => stream.may_have_packets = false,
            IndexStatus::Inactive => {
                stream.may_have_packets = false;
                is_progress |= self.pass_on_quiet(id, index.packet.end.0, memory).await?;
            }
            IndexStatus::HungUp => {
                self.end_stream(id).await?;
                is_progress = true;
            }
            IndexStatus::Failed | IndexStatus::EndOfFile => {
                return Err(AttachError::Index {
                    stream: id,
                    status: format!("{:?}", index.status),
                });
            }
            // A relay's way to show flags to viewers that look for them nowhere else.
            IndexStatus::Ready if index.packet.packet_size.0 == 0 => {
                stream.may_have_packets = is_progress;
            }
            IndexStatus::Ready if stream.is_broken => is_progress = true,
            IndexStatus::Ready => match packet_size(&index) {
                Ok(size) => {
                    return Ok(Next::Fetch(Fetch {
                        index,
                        size,
                        bytes: Vec::new(),
                    }));
                }
                Err(fault) => {
                    self.give_up(id, fault).await?;
                    is_progress = true;
                }
            },
        }
        Ok(Next::Other { is_progress })
    }

    /// Fetches a packet and passes it on, or keeps it for later.
    async fn take_packet(
        &mut self,
        id: StreamId,
        mut fetch: Fetch,
        memory: &mut Memory,
    ) -> Result<bool, AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(false);
        };
        let Some(trace) = self.traces.get(&stream.trace) else {
            return Ok(false);
        };
        if !trace.has_metadata {
            let session = self.sessions.get(&stream.trace.0);
            let is_over = session.is_none_or(|session| session.is_over);
            if trace.is_complete || (is_over && trace.metadata.is_none()) {
                self.give_up(id, "has packets but no metadata").await?;
                return Ok(true);
            }
            stream.may_have_packets = false;
            stream.fetch = Some(fetch);
            return Ok(false);
        }
        if trace.is_known && memory.has_had(id, &fetch.index) {
            return Ok(true);
        }
        match self.fetch(id, &mut fetch, memory).await? {
            Fetched::Whole => {
                self.pass_on_packet(id, fetch, memory).await?;
                Ok(true)
            }
            Fetched::Lost => {
                let name = self.streams.get(&id).map(|stream| stream.name.as_str());
                let text = format!("lost a packet of {}", name.unwrap_or_default());
                self.notice(text).await?;
                Ok(true)
            }
            Fetched::Later => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.may_have_packets = false;
                    stream.fetch = Some(fetch);
                }
                Ok(false)
            }
        }
    }

    /// Fetches what is missing of a packet, in as many pieces as the relay likes.
    async fn fetch(
        &mut self,
        id: StreamId,
        fetch: &mut Fetch,
        memory: &mut Memory,
    ) -> Result<Fetched, AttachError> {
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if fetch.bytes.is_empty() {
            fetch
                .bytes
                .reserve_exact(to_usize(fetch.size.min(FIRST_BYTES)));
        }
        let mut has_repeated = false;
        loop {
            let have = fetch.bytes.len() as u64;
            if have >= fetch.size {
                return Ok(Fetched::Whole);
            }
            let Some(offset) = fetch.index.offset.0.checked_add(have) else {
                return Ok(Fetched::Lost);
            };
            let ask = GetPacket {
                stream: id,
                offset: Bytes(offset),
                len: u32::try_from(fetch.size - have).unwrap_or(u32::MAX),
            };
            let head = self.connection.packet(ask, &mut fetch.bytes).await?;
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
                PacketStatus::Failed if is_flagged => return Ok(Fetched::Later),
                PacketStatus::Retry => return Ok(Fetched::Later),
                PacketStatus::Failed | PacketStatus::EndOfFile => return Ok(Fetched::Lost),
            }
        }
    }

    async fn pass_on_packet(
        &mut self,
        id: StreamId,
        fetch: Fetch,
        memory: &mut Memory,
    ) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(());
        };
        memory.hand_over(id, &fetch.index);
        stream.backlog.add_sized(fetch.bytes.len());
        let news = News::Packet {
            stream: stream.key,
            bytes: fetch.bytes,
        };
        self.say(news).await
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
        self.say(News::Quiet { stream, until }).await?;
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
        self.say(News::StreamEnd { stream: key }).await
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
        self.say(News::StreamEnd { stream: stream.key }).await
    }
}

/// What a stream has.
enum Next {
    Fetch(Fetch),
    Other { is_progress: bool },
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
