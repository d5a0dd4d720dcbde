//! Which version two peers speak, and what follows from it.

use wire::{ViewerId, wire_enum, wire_struct};

wire_struct! {
    /// Opens a connection, in both directions. (`struct lttng_viewer_connect`, 2.4)
    ///
    /// There is no status: a relay that does not want the viewer hangs up.
    #[derive(Copy)]
    pub Connect [20 bytes] {
        /// The relay's number for the connection. None from a viewer.
        viewer: Option<ViewerId>,
        /// 2 for every release so far.
        major: u32,
        /// The highest that the sender speaks; both then speak the lower.
        minor: u32,
        /// A [`ConnectionKind`] from a viewer; 0 from a relay.
        kind: u32,
    }
}

wire_enum! {
    /// What a connection is for. (`enum lttng_viewer_connection_type`)
    pub ConnectionKind {
        /// Commands and their replies.
        Command = 1,
        /// Reserved for what a relay has to say unasked.
        Notification = 2,
    }
}

/// The major version of every release so far.
pub const MAJOR: u32 = 2;

/// The minor version that both ends of a connection have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(pub u32);

impl Minor {
    /// The highest that this crate speaks. LTTng 2.16 says 15 as well.
    pub const OURS: Self = Self(15);

    /// What two peers speak with each other.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        self.min(other)
    }

    /// Listed sessions say what their trace is written in, and names have any length. Sessions in
    /// CTF 2 are hidden from viewers that cannot be told.
    #[must_use]
    pub fn names_trace_format(self) -> bool {
        self >= Self(15)
    }
}
