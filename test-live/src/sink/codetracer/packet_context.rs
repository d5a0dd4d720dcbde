//! Where in its recording a packet begins, as its context says.

use ctf::decode::{NumberFormat, Visitor};

/// Collects the fields of a packet's context.
#[derive(Debug, Default)]
pub(super) struct PacketPosition {
    member: Option<Member>,
    first_record: Option<u64>,
    depth: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Member {
    FirstRecord,
    Depth,
}

impl PacketPosition {
    /// The number of records before the packet, and that of the calls that are open there.
    pub(super) fn found(&self) -> Option<(u64, u64)> {
        Some((self.first_record?, self.depth?))
    }
}

impl Visitor for PacketPosition {
    fn member(&mut self, name: &str) {
        self.member = match name {
            "first_record" => Some(Member::FirstRecord),
            "depth" => Some(Member::Depth),
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
        match self.member {
            Some(Member::FirstRecord) => self.first_record = Some(value),
            Some(Member::Depth) => self.depth = Some(value),
            None => {}
        }
    }
}
