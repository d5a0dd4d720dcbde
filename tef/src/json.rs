//! The grammar of JSON (RFC 8259), over bytes: written once, for those who check and those who parse.
//!
//! By hand, because every line of every client comes through here, and the reference daemon looks at
//! two bytes of each: `serde_json` takes three times as long. A text is looked at eight bytes at a
//! time, and nothing calls itself: what is open is a bit for each level.

mod scan;
mod token;

pub(crate) use scan::{Listener, scan_object};
pub(crate) use token::code_unit;
