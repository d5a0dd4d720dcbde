//! The small objects of an archive that are JSON: people read them, too. Fields that a reader does
//! not know are ignored, so that later versions can add some.

use bytes::Bytes as Buffer;
use serde::{Deserialize, Serialize};

use crate::name::{BootId, UnknownName};

/// Longest document that is read, in bytes.
pub const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// Says which relay serves a session from then on: `sessions/S/own-N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerDocument {
    /// The run of the relay, whose log has the packets that are in no part yet.
    pub boot: String,
    /// Time at which the relay began to serve it, in nanoseconds since 1970.
    #[serde(default)]
    pub since: u64,
    /// Time at which the session was created, in nanoseconds since 1970.
    #[serde(default)]
    pub created: u64,
}

/// Says that a session was created: `days/DAY/HOST/NAME/S`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedDocument {
    /// The session, as in the names of its objects.
    pub session: String,
    /// Name of the traced host.
    pub host: String,
    /// Name of the session.
    pub name: String,
    /// Time of the creation, in nanoseconds since 1970.
    pub created: u64,
    /// Interval of the live timer in microseconds. Zero: the session is not live.
    #[serde(default)]
    pub live_timer: u32,
    /// Version of the Common Trace Format: 1 or 2.
    #[serde(default = "first_version")]
    pub ctf_version: u32,
}

/// Says that a session has ended, and how large it is: `days/DAY/HOST/NAME/S.end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedDocument {
    /// Time of the end, in nanoseconds since 1970.
    pub ended: u64,
    /// Number of packets of the session in the archive.
    #[serde(default)]
    pub packets: u64,
    /// Bytes of the packets and of the metadata.
    #[serde(default)]
    pub bytes: u64,
}

/// The bytes of a document.
///
/// # Panics
/// Never: the documents have only names and numbers.
#[must_use]
pub fn to_json(document: &impl Serialize) -> Buffer {
    let json = serde_json::to_vec(document);
    json.expect("names and numbers are JSON").into()
}

fn first_version() -> u32 {
    1
}

impl OwnerDocument {
    /// Reads the document. None: it is none.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The run of the relay.
    ///
    /// # Errors
    /// If the document names none.
    pub fn boot(&self) -> Result<BootId, UnknownName> {
        self.boot.parse()
    }
}
