//! Chrome's Trace Event Format, one event to a line, as the clients of a `tldrs` daemon send it.
//!
//! This crate turns bytes into values and back. It knows no socket, file or clock.
//!
//! Read in this order: [`check`](mod@check) (whether a line is one JSON object, and what is put
//! right if it nearly is), [`phase`] (which kinds of events there are), [`event`] (an event as
//! values, and back to JSON), [`ctf`] (events in a CTF trace), [`json_args`] (their arguments as
//! fields), [`document`] (one JSON document of all records), [`open_slices`] and [`lanes`] (begins
//! and ends as slices that nest), [`perfetto`] (what ui.perfetto.dev would misread).
//!
//! ```
//! use ctf::model::Uuid;
//! use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
//! use tef::ctf::Classes;
//! use tef::{Checked, Record};
//! use wire::Timestamp;
//!
//! let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "my-daemon"));
//! let stream = metadata.stream(0)?;
//! let classes = Classes::declare(&mut metadata, &stream)?;
//! let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(65_536, 1 << 20));
//! writer.open(Timestamp(0))?;
//!
//! let line = br#"{"ph":"X","name":"load","ts":12.5,"dur":3,"pid":7,"tid":8,"args":{"size":inf}}"#;
//! let line = match tef::check(line) {
//!     Checked::Valid(line) => line.to_owned(),
//!     Checked::Repaired(line, _repairs) => line,
//!     Checked::Rejected(reason) => panic!("{reason}"),
//! };
//! let record = Record::parse(&line)?;
//! let client = 1; // Whose connection it came from.
//! let encoded = classes.record(client, &record);
//! let arrived = Timestamp(1000);
//! assert_eq!(writer.append(encoded.class(), &encoded.at(arrived))?, Appended::Written);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way back is [`ctf::RecordDecoder`] and [`Record::write_json`].
//!
//! # Limits
//!
//! Lines come from anywhere. Time is proportional to their length; no line makes the crate panic.
//!
//! | | at most | beyond it |
//! |---|---|---|
//! | objects and arrays within each other | 128 ([`check::MAX_DEPTH`]) | rejected |
//! | members without a place of their own | 64 ([`event::MAX_OTHER_MEMBERS`]) | the line is kept |
//! | bytes of a process or thread id | 256 ([`event::MAX_ID_BYTES`]) | neither compared nor shown |
//! | the length of a line | what the caller takes | |

pub mod check;
pub mod ctf;
pub mod document;
pub mod event;
mod json;
pub mod json_args;
pub mod lanes;
pub mod open_slices;
pub mod perfetto;
pub mod phase;

pub use check::{Checked, Reason, Repairs, check, check_str};
pub use event::{Event, Record};
pub use phase::{Family, Field};

/// The examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
