//! The decoding of a packet that lies in a file: at a time, a part of it is in memory.

use ctf::decode::{PacketHead, PartStep, StreamDecoder};
use ctf::metadata::Trace;

use crate::attach::Packet;

/// Bytes of a packet that are in memory after its header and context. For an event that has more,
/// there are as many as it needs, as long as it is shown.
const WINDOW_BYTES: usize = 64 << 10;

/// Largest number of bytes that are read of a packet's header and context.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The part of a stored packet that is in memory: its header and context, and from somewhere after
/// them as much as there are bytes.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes between header and context and the rest that are no longer in memory.
    removed: u64,
}

impl Window {
    /// Loads the beginning of a packet and begins to decode it.
    pub(super) fn begin_packet(
        &mut self,
        packet: &mut Packet,
        decoder: &mut StreamDecoder,
        trace: &Trace,
    ) -> Result<PacketHead, String> {
        self.removed = 0;
        let size = packet.len();
        self.load_bytes(packet, MAX_HEAD_BYTES)?;
        let begun = decoder.begin_part(trace, &packet.bytes, size);
        begun.map_err(|error| {
            if error.is_cut() && (packet.bytes.len() as u64) < size {
                let limit = MAX_HEAD_BYTES >> 10;
                return format!("its header and context have more than {limit} KiB");
            }
            error.to_string()
        })
    }

    /// Finds the next event. Returns false if the packet has no more.
    pub(super) fn advance(
        &mut self,
        packet: &mut Packet,
        decoder: &mut StreamDecoder,
        trace: &Trace,
    ) -> Result<bool, String> {
        loop {
            match decoder.advance_part(trace, &packet.bytes) {
                Ok(PartStep::Event) => return Ok(true),
                Ok(PartStep::PacketEnd) => return Ok(false),
                Ok(PartStep::NeedMoreBytes) => self.shift_window(packet, decoder)?,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Loads again what [`free_event`](Self::free_event) has freed.
    pub(super) fn load_event(
        &self,
        packet: &mut Packet,
        decoder: &StreamDecoder,
    ) -> Result<(), String> {
        self.load_bytes(packet, in_memory(decoder.needed_bytes()))
    }

    /// Frees the memory that an event takes beyond the window, until it is shown.
    pub(super) fn free_event(packet: &mut Packet, decoder: &StreamDecoder) {
        let window = in_memory(decoder.head_bytes()) + WINDOW_BYTES;
        if packet.bytes.len() > window {
            packet.bytes.truncate(window);
            // Otherwise the memory would stay as long as other streams come first.
            packet.bytes.shrink_to_fit();
        }
    }

    /// Removes the events that have passed, and loads what follows. If there are none, the next
    /// event is a large one, and twice as much is loaded.
    fn shift_window(
        &mut self,
        packet: &mut Packet,
        decoder: &mut StreamDecoder,
    ) -> Result<(), String> {
        let head = in_memory(decoder.head_bytes());
        let passed = in_memory(decoder.passed_bytes());
        if passed > head {
            packet.bytes.drain(head..passed);
            let removed = (passed - head) as u64;
            decoder.remove_bytes(removed);
            self.removed += removed;
        }
        let have = packet.bytes.len();
        let window = head + WINDOW_BYTES;
        if have >= window {
            return self.load_bytes(packet, have * 2);
        }
        // A large event may have made the buffer larger than the window.
        packet.bytes.shrink_to(window);
        self.load_bytes(packet, window)?;
        if packet.bytes.len() == have {
            return Err("it is not all there".to_owned());
        }
        Ok(())
    }

    /// Loads until `until` bytes of the packet are in memory, or all of them.
    fn load_bytes(&self, packet: &mut Packet, until: usize) -> Result<(), String> {
        let Packet { bytes, stored, .. } = packet;
        let Some(stored) = stored else {
            return Ok(());
        };
        let have = bytes.len();
        let until = until.min(in_memory(stored.len.saturating_sub(self.removed)));
        if until <= have {
            return Ok(());
        }
        // Growth by doubling would take twice the memory for each stream that is read.
        bytes.reserve_exact(until - have);
        bytes.resize(until, 0);
        let missing = bytes.get_mut(have..).unwrap_or_default();
        let read = stored.read_at(missing, have as u64 + self.removed);
        read.map_err(|error| {
            // Bytes that were not read must not be taken for those of the packet.
            bytes.truncate(have);
            format!("cannot read it back from its file: {error}")
        })
    }
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
