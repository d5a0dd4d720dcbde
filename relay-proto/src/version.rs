//! The handshake (`VERSION`), protocol versions, and what depends on them.

use wire::wire_struct;

wire_struct! {
    /// Opens a control connection; the relay answers with its own.
    /// (`struct lttcomm_relayd_version`, 2.1)
    #[derive(Copy)]
    pub Version [8 bytes] {
        /// Major version: 2 for every release so far.
        major: u32,
        /// The highest minor version of the sender; 15 from LTTng 2.15 on.
        minor: u32,
    }
}

impl Version {
    /// The version that this crate speaks.
    pub const OURS: Self = Self {
        major: 2,
        minor: 15,
    };

    /// The minor version that two peers agree on. None if their major versions differ.
    #[must_use]
    pub fn common(self, other: Self) -> Option<Minor> {
        (self.major == other.major).then(|| Minor(self.minor.min(other.minor)))
    }
}

/// A minor version of the protocol. All differences between versions are methods of this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(pub u32);

impl Minor {
    /// Whether `CREATE_SESSION` has names of session and host.
    #[must_use]
    pub fn names_sessions(self) -> bool {
        self >= Self(4)
    }

    /// Whether streams have packet indexes, and `STREAMS_SENT` ends a batch of streams.
    #[must_use]
    pub fn has_indexes(self) -> bool {
        self >= Self(4)
    }

    /// Whether `ADD_STREAM` limits the size and number of tracefiles.
    #[must_use]
    pub fn limits_tracefiles(self) -> bool {
        self >= Self(2)
    }

    /// Whether indexes have the sequence number of the packet and the stream instance: index files
    /// of version 1.1 instead of 1.0.
    #[must_use]
    pub fn numbers_packets(self) -> bool {
        self >= Self(8)
    }

    /// Whether sessions have chunks, and names of any length.
    #[must_use]
    pub fn has_chunks(self) -> bool {
        self >= Self(11)
    }

    /// Whether there is `GET_CONFIGURATION`.
    #[must_use]
    pub fn has_configuration(self) -> bool {
        self >= Self(12)
    }

    /// Whether `CREATE_SESSION` has the trace format, CTF 1.8 or CTF 2.
    #[must_use]
    pub fn names_trace_format(self) -> bool {
        self >= Self(15)
    }
}
