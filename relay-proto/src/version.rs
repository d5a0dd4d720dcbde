//! Which version two peers speak, and what follows from it.

use wire::wire_struct;

wire_struct! {
    /// Opens a control connection; the relay answers with its own.
    /// (`struct lttcomm_relayd_version`, 2.1)
    #[derive(Copy)]
    pub Version [8 bytes] {
        /// 2 for every release so far.
        major: u32,
        /// Grows with what the peer can do; stays 15 from LTTng 2.15 on.
        minor: u32,
    }
}

impl Version {
    /// The version that this crate speaks.
    pub const OURS: Self = Self {
        major: 2,
        minor: 15,
    };

    /// What two peers speak with each other, unless their majors differ.
    #[must_use]
    pub fn common(self, other: Self) -> Option<Minor> {
        (self.major == other.major).then(|| Minor(self.minor.min(other.minor)))
    }
}

/// The minor version that both ends of a connection have agreed on.
///
/// Every question that depends on it has its answer here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(pub u32);

impl Minor {
    /// `CREATE_SESSION` says who it is for. Before, sessions had no name.
    #[must_use]
    pub fn names_sessions(self) -> bool {
        self >= Self(4)
    }

    /// Streams have packet indexes, and a last stream of a batch is announced.
    #[must_use]
    pub fn has_indexes(self) -> bool {
        self >= Self(4)
    }

    /// `ADD_STREAM` limits the size and number of tracefiles.
    #[must_use]
    pub fn limits_tracefiles(self) -> bool {
        self >= Self(2)
    }

    /// Indexes name the packet and the instance of the stream: index files are 1.1 instead of 1.0.
    #[must_use]
    pub fn numbers_packets(self) -> bool {
        self >= Self(8)
    }

    /// Traces lie in chunks; names have any length.
    #[must_use]
    pub fn has_chunks(self) -> bool {
        self >= Self(11)
    }

    /// The relay is asked for its configuration.
    #[must_use]
    pub fn has_configuration(self) -> bool {
        self >= Self(12)
    }

    /// `CREATE_SESSION` says whether the trace is CTF 1.8 or CTF 2.
    #[must_use]
    pub fn names_trace_format(self) -> bool {
        self >= Self(15)
    }
}
