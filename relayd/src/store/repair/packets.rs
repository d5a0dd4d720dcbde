//! Finds packets in a tracefile by their own headers, and tests whether one is intact. This is the
//! only part of the relay that looks into packets.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use ctf::Metadata;
use ctf::decode::{DecodeError, PacketHead, StreamDecoder};
use ctf::index::{Entry, IndexFormat};
use wire::{Bits, Bytes, ClassId, InstanceId, PacketIndex, PacketSeqNum, Timestamp};

use super::index::{Follows, ValidEntries, end_of, is_backwards, read_entry};
use crate::limits::{MAX_CHECKED_PACKET, MAX_PACKET_HEAD};

/// Bytes of a packet that are read first. The headers of all known tracers are shorter.
const FIRST_READ: u64 = 512;

/// Reads the packets of one trace.
#[derive(Debug)]
pub(crate) struct PacketReader {
    metadata: Metadata,
}

impl PacketReader {
    /// A reader for the packets that this metadata declares. None: the metadata is damaged, or
    /// declares no stream.
    pub(crate) fn new(metadata: &[u8]) -> Option<Self> {
        let metadata = Metadata::read(metadata).ok()?;
        let has_streams = metadata.trace().streams().next().is_some();
        has_streams.then_some(Self { metadata })
    }

    /// The index entry of the packet at `offset`. None: there is no whole packet.
    pub(crate) fn entry_at(
        &self,
        data: &File,
        offset: u64,
        data_len: u64,
    ) -> io::Result<Option<Entry>> {
        let available = data_len.saturating_sub(offset);
        let mut wanted = FIRST_READ;
        let head = loop {
            let bytes = read(data, offset, available.min(wanted))?;
            match PacketHead::read(self.metadata.trace(), &bytes, available) {
                Ok(head) => break head,
                Err(error) if error.is_cut() && wanted < available.min(MAX_PACKET_HEAD) => {
                    wanted = MAX_PACKET_HEAD;
                }
                Err(_) => return Ok(None),
            }
        };
        let packet = PacketIndex {
            packet_size: Bits(head.packet_bits),
            content_size: Bits(head.content_bits),
            begin: Timestamp(head.begin.unwrap_or_default()),
            end: Timestamp(head.end.unwrap_or_default()),
            events_discarded: head.discarded.map_or(0, |counter| counter.value),
            class: ClassId(head.stream_class),
            instance: head.stream_id.map(InstanceId),
            packet_seq: head.sequence.map(|counter| PacketSeqNum(counter.value)),
        };
        Ok(Some(Entry {
            offset: Bytes(offset),
            packet,
        }))
    }

    /// Whether something that is no packet was written at `offset`, and not a packet that a kill or
    /// a power loss has cut.
    pub(super) fn is_foreign_at(
        &self,
        data: &File,
        offset: u64,
        data_len: u64,
    ) -> io::Result<bool> {
        let available = data_len.saturating_sub(offset);
        let bytes = read(data, offset, available.min(FIRST_READ))?;
        let head = PacketHead::read(self.metadata.trace(), &bytes, available);
        Ok(head.is_err_and(|error| is_foreign(&error)))
    }

    /// Whether the packet of an entry has all of its content. Bytes that never reached the disk are
    /// zeros: only a packet that begins or ends in zeros is decoded, and one with another magic
    /// number is intact.
    pub(super) fn is_intact(&self, data: &File, entry: &Entry) -> io::Result<bool> {
        let size = end_of(entry).saturating_sub(entry.offset.0);
        // A larger packet would take too much memory, and counts as intact.
        if !has_zero_ends(data, entry)? || size > MAX_CHECKED_PACKET {
            return Ok(true);
        }
        let bytes = read(data, entry.offset.0, size)?;
        let decoded = self.decode(&bytes);
        Ok(decoded.as_ref().err().is_none_or(is_foreign))
    }

    /// Whether the packet of an entry has other sizes or times than the entry says, as far as it
    /// has any.
    pub(super) fn contradicts(&self, data: &File, entry: &Entry) -> io::Result<bool> {
        let end = end_of(entry);
        let found = self.entry_at(data, entry.offset.0, end)?;
        // The reader gives 0 for a time that the packet does not have.
        let has_other_time = |entry: Timestamp, packet| packet != Timestamp(0) && entry != packet;
        Ok(found.is_some_and(|found| {
            let (entry, packet) = (&entry.packet, &found.packet);
            entry.packet_size != packet.packet_size
                || entry.content_size != packet.content_size
                || has_other_time(entry.begin, packet.begin)
                || has_other_time(entry.end, packet.end)
        }))
    }

    /// The first entry of an index file that is shown to be wrong by its packet. Only those are
    /// compared that give a reason: times that go back, and the entries before one that is invalid,
    /// which may be so because of them.
    pub(super) fn contradicted(
        &self,
        data: &File,
        index: &File,
        format: IndexFormat,
        found: &ValidEntries,
    ) -> io::Result<Option<u64>> {
        let is_wrong = |entry: &Entry| {
            let is_foreign = self.is_foreign_at(data, entry.offset.0, end_of(entry))?;
            Ok::<_, io::Error>(is_foreign || self.contradicts(data, entry)?)
        };
        for number in found.backwards.unwrap_or(found.count)..found.count {
            let entry = read_entry(index, format, number)?;
            if is_backwards(&entry) && is_wrong(&entry)? {
                return Ok(Some(number));
            }
        }
        let mut right = found.count;
        while matches!(found.follows, Follows::Invalid(_)) && right > 0 {
            if !is_wrong(&read_entry(index, format, right - 1)?)? {
                break;
            }
            right -= 1;
        }
        Ok((right < found.count).then_some(right))
    }

    /// Whether all events of the packet of an entry are declared and whole.
    pub(super) fn is_readable(&self, data: &File, entry: &Entry) -> io::Result<bool> {
        let size = end_of(entry).saturating_sub(entry.offset.0);
        // Too large to be read at once: it stays.
        if size > MAX_CHECKED_PACKET {
            return Ok(true);
        }
        let bytes = read(data, entry.offset.0, size)?;
        Ok(self.decode(&bytes).is_ok())
    }

    /// Decodes all events of a packet.
    fn decode(&self, packet: &[u8]) -> Result<(), DecodeError> {
        let trace = self.metadata.trace();
        let mut decoder = StreamDecoder::new();
        decoder.begin_packet(trace, packet)?;
        while decoder.advance(trace, packet)? {}
        Ok(())
    }
}

/// Whether bytes have another magic number, of 32 bits, than that of a packet: not zeros, and not a
/// part of it followed by zeros.
fn is_foreign(error: &DecodeError) -> bool {
    let DecodeError::Magic { found } = error else {
        return false;
    };
    let mut bytes = found.to_le_bytes().into_iter().take(4);
    bytes.all(|byte| byte != 0)
}

/// Whether the packet of an entry begins or ends in zeros.
fn has_zero_ends(data: &File, entry: &Entry) -> io::Result<bool> {
    let content = entry.packet.content_size.0.div_ceil(8);
    let Some(last) = content.checked_sub(1) else {
        return Ok(false);
    };
    // The magic number, which is 0 only if the beginning has never reached the disk.
    let first = read(data, entry.offset.0, content.min(4))?;
    let last = read(data, entry.offset.0.saturating_add(last), 1)?;
    Ok(is_zero(&first) || is_zero(&last))
}

/// Whether all bytes of a part of a tracefile are zeros.
pub(super) fn is_all_zeros(data: &File, part: Range<u64>) -> io::Result<bool> {
    let Range { start: mut at, end } = part;
    while at < end {
        // In pieces, because the range comes from an index file that may be damaged.
        let piece = read(data, at, (end - at).min(MAX_PACKET_HEAD))?;
        if !is_zero(&piece) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn read(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_packet_whose_context_has_a_long_text_is_a_whole_packet() {
        const METADATA: &[u8] = b"/* CTF 1.8 */
            typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
            trace { major = 1; minor = 8; byte_order = le; };
            stream { packet.context := struct { uint64_t packet_size; string note; }; };";
        for note in [10, 600, 5000] {
            let size = 8 + note + 1;
            let mut packet = (8 * size as u64).to_le_bytes().to_vec();
            packet.resize(size - 1, b'n');
            packet.push(0);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&packet).unwrap();
            let reader = PacketReader::new(METADATA).unwrap();
            let entry = reader.entry_at(&file, 0, size as u64).unwrap();
            assert_eq!(entry.unwrap().packet.packet_size, Bits(8 * size as u64));
        }
    }
}
