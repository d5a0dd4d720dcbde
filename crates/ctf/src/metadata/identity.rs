//! The identity of a trace, by which its pieces are recognized.

use std::sync::Arc;

use super::trace::Trace;
use crate::model::Uuid;

/// The identity that tells a trace from all others. Directories whose metadata has the same
/// identity are pieces of one trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceIdentity {
    /// The UUID of CTF 1.8; of CTF 2 that of the metadata stream, if the trace class has no unique
    /// ID.
    Uuid(Uuid),
    /// The namespace, the name and the unique ID of a trace class of CTF 2. (`uid`)
    Unique {
        /// The namespace, if given.
        namespace: Option<Arc<str>>,
        /// The name, if given.
        name: Option<Arc<str>>,
        /// The unique ID: any text.
        uid: Arc<str>,
    },
}

impl Trace {
    /// The identity of the trace; `None` if its metadata does not say it.
    #[must_use]
    pub fn identity(&self) -> Option<TraceIdentity> {
        match &self.uid {
            Some(uid) => Some(TraceIdentity::Unique {
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                uid: Arc::clone(uid),
            }),
            None => self.uuid().map(TraceIdentity::Uuid),
        }
    }
}
