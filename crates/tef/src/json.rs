//! The grammar of JSON (RFC 8259), over bytes: written once, for the check and for the parser.
//!
//! By hand, because every line of every client comes through here, and the reference daemon looks
//! at two bytes of each: `serde_json` takes three times as long. A text is looked at eight bytes at
//! a time, and nothing calls itself: what is open is a bit for each level.

mod error;
mod scan;
mod token;

pub use error::{Fault, MAX_DEPTH, Reason};
pub(crate) use scan::{ObjectVisitor, scan_object};
pub(crate) use token::code_unit;
