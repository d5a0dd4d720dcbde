//! Events in a CTF trace: [`Classes`] declares their classes and encodes each event as values ready
//! for a packet; [`RecordDecoder`] takes them from a packet again.
//!
//! There is an event class for each row of [`FAMILIES`](crate::phase::FAMILIES), called `tef:` and
//! what that says, with the members that mean something in it; and `tef:other` for phases that no
//! document describes, `tef:raw` for lines that are no event, `tef:client` and `tef:lost` for what
//! the daemon has to say itself. All are declared at once, so that no viewer has to ask for
//! metadata again in the midst of a trace: it is a few pages of text.
//!
//! | field | what |
//! |---|---|
//! | `vpid`, `vtid`, of the context | `pid` and `tid` if `present` says so, or the nearest |
//! | `client` | which connection it came from |
//! | `present` | a bit for each [`Field`](crate::Field) that there is |
//! | `ph` | the phase, where the class has several |
//! | `ts`, `dur`, `tts`, `tdur` | nanoseconds |
//! | `name`, `cat`, `scope`, `s`, `bp` | texts |
//! | `id`, `id2_local`, `id2_global`, `bind_id`, `args` | JSON as it was written |
//! | `rest` | an object of all other members, or nothing |
//!
//! The time of the event itself is that of its arrival: those that programs send run backwards.

mod classes;
mod decoder;

pub use classes::{Classes, Client, Encoded, Lost};
pub use decoder::{Decoded, RecordDecoder};

/// The prefix of the names of all event classes here.
pub const PREFIX: &str = "tef:";

/// Fields that are not of [`Field`](crate::Field).
mod name {
    pub(super) const CLIENT: &str = "client";
    pub(super) const PRESENT: &str = "present";
    pub(super) const PHASE: &str = "ph";
    pub(super) const REST: &str = "rest";
    pub(super) const JSON: &str = "json";
    pub(super) const PID: &str = "pid";
    pub(super) const UID: &str = "uid";
    pub(super) const EXE: &str = "exe";
    pub(super) const OPENED: &str = "opened";
    pub(super) const OFFSET_KNOWN: &str = "offset_known";
    pub(super) const OFFSET: &str = "offset";
    pub(super) const COUNT: &str = "count";
    pub(super) const REASON: &str = "reason";
}

#[cfg(test)]
mod tests;
