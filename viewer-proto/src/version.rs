//! The handshake (`CONNECT`), protocol versions, and what depends on them.

use wire::{ViewerId, wire_enum, wire_struct};

wire_struct! {
    /// Opens a connection, in both directions. (`struct lttng_viewer_connect`, 2.4)
    ///
    /// The reply has no status: a relay that rejects the viewer closes the connection.
    #[derive(Copy)]
    pub Connect [20 bytes] {
        /// Id that the relay assigns to the viewer. From a viewer: None, or on a push connection
        /// the id of its command connection.
        viewer: Option<ViewerId>,
        /// Major version: 2 for every release so far.
        major: u32,
        /// The highest minor version of the sender. Both ends then use the lower one.
        minor: u32,
        /// A [`ConnectionKind`] from a viewer; 0 from a relay.
        kind: u32,
    }
}

wire_enum! {
    /// The purpose of a connection. (`enum lttng_viewer_connection_type`)
    pub ConnectionKind {
        /// Commands and their replies.
        Command = 1,
        /// Notifications: a push connection. LTTng reserves the value, and does not use it.
        Notification = 2,
    }
}

/// The major version of every release so far.
pub const MAJOR: u32 = 2;

/// A minor version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(pub u32);

impl Minor {
    /// The highest minor version of this crate. LTTng 2.16 has 15 as well.
    pub const OURS: Self = Self(15);

    /// The minor version that two peers agree on.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        self.min(other)
    }

    /// Whether listed sessions have a trace format, and names of any length. Sessions in CTF 2 are
    /// hidden from older viewers.
    #[must_use]
    pub fn names_trace_format(self) -> bool {
        self >= Self(15)
    }
}
