//! A packet on its way from a source to the mux: in memory, or in a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ctf::directory::DataFile;

use super::budget::{MemoryBudget, Reservation};
use super::spill::SpillExtent;

/// Largest packet that is read, in bytes: what our relay takes from a producer.
pub(super) const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Bytes that are read of a file at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Memory taken before any of a packet has arrived: an announced size may be wrong, or its bytes
/// never arrive.
const FIRST_BYTES: usize = 1 << 20;

/// A whole packet, with header, context and padding.
#[derive(Debug)]
pub struct Packet {
    /// The bytes of the packet; of a stored one as many as its reader has loaded.
    pub(crate) bytes: Vec<u8>,
    /// The place of the packet in a file. Absent if it is in memory.
    pub(crate) stored: Option<StoredPacket>,
    /// The file of a recording that the packet is of, and its offset there in bytes. Absent if it
    /// came otherwise.
    pub(crate) data_file: Option<(Arc<DataFile>, u64)>,
    /// The memory that is reserved for the packet: none if it is stored.
    pub(crate) reservation: Reservation,
}

/// A packet in a file.
#[derive(Debug)]
pub(crate) struct StoredPacket {
    place: PacketLocation,
    /// The length of the packet in bytes.
    pub(crate) len: u64,
}

#[derive(Debug)]
enum PacketLocation {
    Temporary(SpillExtent),
    Tracefile { file: Arc<File>, offset: u64 },
}

impl Packet {
    /// A packet that has been read into memory.
    #[must_use]
    pub fn in_memory(bytes: Vec<u8>, reservation: Reservation) -> Self {
        Self {
            bytes,
            stored: None,
            data_file: None,
            reservation,
        }
    }

    /// A packet that is left in its tracefile, and read from there.
    #[must_use]
    pub fn in_tracefile(file: Arc<File>, offset: u64, len: u64, budget: &MemoryBudget) -> Self {
        let mut packet = Self::none(budget);
        packet.store_in(file, offset, len);
        packet
    }

    /// Makes the packet one that is left where it is, in its tracefile.
    pub(crate) fn store_in(&mut self, file: Arc<File>, offset: u64, len: u64) {
        self.clear();
        let place = PacketLocation::Tracefile { file, offset };
        self.stored = Some(StoredPacket { place, len });
    }

    /// A packet of no bytes.
    pub(crate) fn none(budget: &MemoryBudget) -> Self {
        Self::in_memory(Vec::new(), Reservation::none(budget))
    }

    /// Frees what the packet takes. It has no bytes then.
    pub(crate) fn clear(&mut self) {
        // A new vector, because `clear` would keep the memory.
        self.bytes = Vec::new();
        self.stored = None;
        self.data_file = None;
        self.reservation.release();
    }

    /// The file of a recording that the packet is of, and its offset there in bytes.
    #[must_use]
    pub fn data_file(&self) -> Option<&(Arc<DataFile>, u64)> {
        self.data_file.as_ref()
    }

    /// The length of the packet in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        let stored = self.stored.as_ref().map(|stored| stored.len);
        stored.unwrap_or(self.bytes.len() as u64)
    }

    /// Whether the packet has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes the whole packet to `take`, piece by piece, until that fails.
    ///
    /// # Errors
    /// If it cannot be read back from its file: the error is within `Ok` if it is `take` that has
    /// failed.
    pub fn each_piece<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> io::Result<Result<(), E>> {
        let Some(stored) = &self.stored else {
            return Ok(take(&self.bytes));
        };
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < stored.len {
            let here = usize::try_from(stored.len - at).unwrap_or(usize::MAX);
            let piece = buffer.get_mut(..here.min(PIECE_BYTES)).unwrap_or_default();
            stored.read_at(piece, at)?;
            if let Err(error) = take(piece) {
                return Ok(Err(error));
            }
            at += piece.len() as u64;
        }
        Ok(Ok(()))
    }
}

impl StoredPacket {
    /// Fills `bytes` with what lies at `offset` of the packet.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.place {
            PacketLocation::Temporary(extent) => extent.read_at(bytes, offset),
            PacketLocation::Tracefile {
                file,
                offset: begin,
            } => file.read_exact_at(bytes, begin.saturating_add(offset)),
        }
    }
}

/// A packet that is being received.
#[derive(Debug)]
pub(crate) struct IncomingPacket {
    packet: Packet,
    received: u64,
}

impl IncomingPacket {
    /// A packet of `len` bytes: in memory if the budget has room for it, else in a temporary file.
    pub(crate) fn new(len: u64, budget: &MemoryBudget) -> io::Result<Self> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let packet = match budget.reserve(bytes) {
            Some(reservation) => {
                Packet::in_memory(Vec::with_capacity(bytes.min(FIRST_BYTES)), reservation)
            }
            None => Packet {
                stored: Some(StoredPacket {
                    place: PacketLocation::Temporary(budget.spill(len)?),
                    len,
                }),
                ..Packet::none(budget)
            },
        };
        Ok(Self {
            packet,
            received: 0,
        })
    }

    /// A packet of which `bytes` have arrived, and for all of which memory is reserved.
    pub(crate) fn begun(bytes: Vec<u8>, reservation: Reservation) -> Self {
        Self {
            received: bytes.len() as u64,
            packet: Packet::in_memory(bytes, reservation),
        }
    }

    /// The number of bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Appends bytes. `len` is that of the packet.
    pub(crate) fn append(&mut self, bytes: &[u8], len: u64) -> io::Result<()> {
        match &self.packet.stored {
            Some(StoredPacket {
                place: PacketLocation::Temporary(extent),
                ..
            }) => extent.write_at(bytes, self.received)?,
            _ => {
                let have = &mut self.packet.bytes;
                if have.capacity() - have.len() < bytes.len() {
                    // Growth to double the size would exceed what was reserved, and copy the bytes
                    // again.
                    let missing = usize::try_from(len - self.received).unwrap_or(usize::MAX);
                    have.reserve_exact(missing.max(bytes.len()));
                }
                have.extend_from_slice(bytes);
            }
        }
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// The packet, all of which has arrived.
    pub(crate) fn finish(self) -> Packet {
        self.packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(packet: &Packet) -> Vec<u8> {
        let mut all = Vec::new();
        let taken = packet.each_piece(|piece| {
            all.extend_from_slice(piece);
            Ok::<(), ()>(())
        });
        taken.unwrap().unwrap();
        all
    }

    #[test]
    fn a_packet_is_spilled_to_a_file_when_the_memory_budget_is_exhausted() {
        let budget = MemoryBudget::new(300_000);
        let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let len = content.len() as u64;
        let mut packets = Vec::new();
        for _ in 0..3 {
            let mut incoming = IncomingPacket::new(len, &budget).unwrap();
            for piece in content.chunks(33_333) {
                incoming.append(piece, len).unwrap();
            }
            assert_eq!(incoming.received(), len);
            packets.push(incoming.finish());
        }
        let stored: Vec<bool> = packets.iter().map(|one| one.stored.is_some()).collect();
        assert_eq!(stored, [false, true, true]);
        assert_eq!(budget.reserved(), content.len());
        for packet in &packets {
            assert_eq!(packet.len(), len);
            assert_eq!(all(packet), content);
        }
        assert!(packets[0].bytes.capacity() <= content.len());
        packets.clear();
        assert_eq!(budget.reserved(), 0);
    }
}
