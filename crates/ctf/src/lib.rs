//! A reader and writer of the Common Trace Format: CTF 1.8 and CTF 2, as LTTng, barectf and others
//! record them and Babeltrace and Trace Compass read them.
//!
//! # Features
//!
//! | | reads | writes |
//! |---|---|---|
//! | metadata | TSDL (1.8), JSON (2), plain or in packets, in pieces | TSDL, plain or in packets |
//! | packets | any alignment, both byte orders | those of LTTng's user space tracer |
//! | fields | all | [`write::FieldType`] |
//! | index files | LTTng's 1.0 and 1.1, complete or while they grow | the same |
//! | directories | traces at any depth, pieces of one trace joined, in order of time | one trace |
//!
//! Not supported: metadata packets that have a checksum or are compressed or encrypted; integers of
//! more than 64 bits; floating point numbers of other than 32 and 64 bits; writing CTF 2. The crate
//! has no sockets, threads or clocks.
//!
//! [`Trace`] and [`TraceWriter`] read and write whole directories. The other modules are their
//! parts, for programs that have packets from elsewhere, or want to copy nothing. The crate opens
//! files in two places only: [`directory`], and [`index::IndexFollower`].
//!
//! # Examples
//!
//! ## Read and write a directory
//!
//! ```
//! use ctf::write::{FieldType, Width};
//! use ctf::{Timestamp, Trace, TraceWriter};
//!
//! # let temporary = tempfile::tempdir()?;
//! # let path = temporary.path();
//! let mut trace = TraceWriter::create(path)?;
//! let tick = trace.event_class("tick", &[("n", FieldType::Unsigned(Width::Bits32))])?;
//! trace.write(&tick, Timestamp(1500), &[7_u32.into()])?;
//! trace.finish()?;
//!
//! for event in Trace::open(path)?.events() {
//!     let event = event?;
//!     assert_eq!((event.time, &*event.name), (Some(1500), "tick"));
//!     assert_eq!(event.field("n").and_then(|n| n.as_u64()), Some(7));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Read a directory in place
//!
//! [`directory::open`] finds the traces; each stream is read by a
//! [`StreamReader`](directory::StreamReader) and decoded by a
//! [`StreamDecoder`](decode::StreamDecoder), and a [`Visitor`](decode::Visitor) receives the fields
//! of an event.
//!
//! ```
//! use std::fmt::Write;
//!
//! use ctf::decode::{NumberFormat, StreamDecoder, Visitor};
//! use ctf::directory::{self, StreamReader};
//!
//! /// The fields of an event as text.
//! #[derive(Default)]
//! struct Fields(String);
//!
//! impl Visitor for Fields {
//!     fn member(&mut self, name: &str) {
//!         let _ = write!(self.0, " {name}=");
//!     }
//!     fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
//!         let _ = write!(self.0, "{value}");
//!     }
//!     fn text(&mut self, bytes: &[u8]) {
//!         self.0.push_str(&String::from_utf8_lossy(bytes));
//!     }
//!     // Fields of other classes are ignored.
//! }
//!
//! # let temporary = tempfile::tempdir()?;
//! # let path = temporary.path();
//! # std::fs::write(path.join("metadata"), "/* CTF 1.8 */
//! #     trace { major = 1; minor = 8; byte_order = le; };
//! #     clock { name = c; freq = 1000; };
//! #     stream { event.header := struct {
//! #         integer { size = 8; } id;
//! #         integer { size = 32; align = 8; map = clock.c.value; } timestamp;
//! #     }; };
//! #     event { id = 1; name = tick;
//! #         fields := struct { integer { size = 8; } n; string s; }; };")?;
//! # std::fs::write(path.join("channel"), b"\x01\x05\0\0\0\x07seven\0\x01\x09\0\0\0\x08eight\0")?;
//! let mut lines = Vec::new();
//! for trace in directory::open(&[path])?.traces {
//!     let declared = trace.metadata.trace();
//!     for stream in &trace.streams {
//!         let mut packets = StreamReader::new(stream);
//!         let mut decoder = StreamDecoder::new();
//!         let mut packet = Vec::new();
//!         while packets.next(&mut packet)? {
//!             decoder.begin_packet(declared, &packet)?;
//!             while decoder.advance(declared, &packet)? {
//!                 let Some(event) = decoder.event(declared, &packet) else { break };
//!                 let mut fields = Fields::default();
//!                 event.visit(&mut fields)?;
//!                 let name = event.class().name().unwrap_or("<unknown>");
//!                 let nanoseconds = event.time().unwrap_or_default();
//!                 lines.push(format!("{nanoseconds} {name}:{}", fields.0));
//!             }
//!         }
//!     }
//! }
//! assert_eq!(lines, ["5000000 tick: n=7 s=seven", "9000000 tick: n=8 s=eight"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Decode packets from another source
//!
//! For packets that are received over a network, with metadata that grows meanwhile:
//! [`Metadata::extend`] takes chunks cut anywhere; a decoder takes whole packets of one stream, and
//! keeps none. The class of an event must be declared before the event is decoded.
//!
//! ```
//! use ctf::Metadata;
//! use ctf::decode::StreamDecoder;
//!
//! let mut metadata = Metadata::new();
//! let mut decoder = StreamDecoder::new();
//! let mut names = Vec::new();
//! let mut decode = |metadata: &Metadata, packet: &[u8]| {
//!     let trace = metadata.trace();
//!     decoder.begin_packet(trace, packet)?;
//!     while decoder.advance(trace, packet)? {
//!         let event = decoder.event(trace, packet);
//!         names.extend(event.and_then(|event| event.class().name()).map(str::to_owned));
//!     }
//!     Ok::<(), ctf::decode::DecodeError>(())
//! };
//!
//! metadata.extend(b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
//!     stream { event.header := struct { integer { size = 8; } id; }; };
//!     event { id = 1; name = begin; }; event { id = 2; na")?;
//! decode(&metadata, &[1, 1])?;
//! assert!(decode(&metadata, &[2]).is_err(), "not declared yet");
//!
//! metadata.extend(b"me = end; };")?;
//! decode(&metadata, &[1, 2])?;
//! assert_eq!(names, ["begin", "begin", "begin", "end"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Read and follow index files
//!
//! An index file holds the offset and the times of each packet, so that the data need not be read.
//! [`index::read`] parses a complete one, [`index::IndexFollower`] one that is being written.
//!
//! ```
//! use ctf::index::{Beacon, Entry, IndexFollower, IndexFormat, MAX_ENTRY_BYTES, FollowEvent, Tail};
//! # use ctf::{Bits, ClassId, InstanceId, PacketIndex, PacketSeqNum};
//! use ctf::{Bytes, Timestamp};
//!
//! # let temporary = tempfile::tempdir()?;
//! # let path = temporary.path().join("channel_0.idx");
//! # let packet = PacketIndex {
//! #     packet_size: Bits(4096 * 8), content_size: Bits(800), begin: Timestamp(1000),
//! #     end: Timestamp(2000), events_discarded: 0, class: ClassId(0),
//! #     instance: Some(InstanceId(0)), packet_seq: Some(PacketSeqNum(0)),
//! # };
//! let entry = Entry { offset: Bytes(0), packet };
//! let mut file = IndexFormat::V1_1.header_bytes();
//! std::fs::write(&path, &file)?;
//! let mut follower = IndexFollower::open(&path)?;
//! assert_eq!(follower.poll()?, FollowEvent::None);
//!
//! file.extend(IndexFormat::V1_1.encode(&entry, &mut [0; MAX_ENTRY_BYTES]));
//! file.extend(Beacon::new(Timestamp(2500)).to_bytes());
//! std::fs::write(&path, &file)?;
//! assert_eq!(follower.poll()?, FollowEvent::Entries(vec![entry]));
//! assert_eq!(follower.poll()?, FollowEvent::Beacon(Timestamp(2500)));
//!
//! let whole = ctf::index::read(&std::fs::read(&path)?)?;
//! assert_eq!((whole.entries.len(), whole.tail), (1, Tail::Beacon(Timestamp(2500))));
//! assert!(whole.covers_file(Bytes(4096)), "a data file of one packet has no more");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Write a trace
//!
//! [`write`](mod@write) makes bytes; the caller writes them to files or sends them: metadata first,
//! then the packet that needs it, then the index entry of the packet, if there is an index.
//!
//! ```
//! use ctf::model::Uuid;
//! use ctf::write::{
//!     Appended, EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter,
//!     TraceDeclaration, Value,
//! };
//! use ctf::Timestamp;
//!
//! let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "my-program"));
//! let stream = metadata.stream(0)?;
//! let message = EventDeclaration {
//!     fields: vec![("what".into(), FieldType::Text)],
//!     ..EventDeclaration::new(1, "message")
//! };
//! let message = metadata.event(&stream, &message)?;
//!
//! let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(4096, 1 << 20));
//! writer.open(Timestamp(1000))?; // nanoseconds since 1970, unless the trace says otherwise
//! let values = &[Value::Text("hello")];
//! let event = EventRecord { time: Timestamp(1500), process: 1, thread: 1, values };
//! assert_eq!(writer.append(&message, &event)?, Appended::Written);
//!
//! # let temporary = tempfile::tempdir()?;
//! # let path = temporary.path();
//! std::fs::write(path.join("metadata"), metadata.take_new())?;
//! std::fs::write(path.join("stream_0"), writer.close(Timestamp(2000))?.bytes)?;
//!
//! let traces = ctf::directory::open(&[path])?.traces;
//! assert_eq!(traces[0].streams[0].span(), Some((1000, 2000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Units
//!
//! | what | unit |
//! |---|---|
//! | positions and sizes in a packet | bits, counted from the packet's first |
//! | offsets in files, lengths of texts and blobs, whole packets | bytes |
//! | times in packets and index files | cycles of the stream's clock |
//! | times by [`Event::time`](decode::Event::time) and [`Timescale`] | ns since the origin |
//!
//! The origin is mostly 1970. A clock whose zero is more than 292 years from it keeps
//! [`Timescale::far_seconds`] apart.
//!
//! # Ownership
//!
//! The caller owns the bytes of a packet and lends them to each call; a decoder keeps numbers only.
//! An [`Event`](decode::Event) borrows packet, metadata and decoder, and copies nothing: texts and
//! blobs are slices of the packet. [`Metadata`] owns what it has parsed, and may grow between two
//! calls.
//!
//! # Errors
//!
//! | error | consequence |
//! |---|---|
//! | [`MetadataError`] | declarations before it stay valid; no more are read |
//! | [`decode::DecodeError`] | the packet is not decoded further; the next one may be good |
//! | [`Error`] | the rest of a packet or stream is not read; what can be read follows |
//! | [`directory::WriteError`] | nothing of what was refused is in the trace |
//! | [`directory::DirectoryError`] | the trace is not opened, or one stream of it ends |
//! | [`index::IndexError`] | the index is not to be used; the packets have the same information |
//! | [`index::FollowError`] | every further poll fails so too |
//! | [`write::DeclareError`], [`write::PacketError`] | what was refused is not in the output |
//!
//! Harmless oddities of metadata are warnings: [`Metadata::take_warnings`]. Events and packets that
//! the tracer lost are no errors: [`decode::Losses`]. No input causes a panic.
//!
//! # Limits
//!
//! Traces may be hostile: every length is checked before memory is allocated or time is spent for
//! it. The limits are far above what any known tracer needs.
//!
//! | what | maximum |
//! |---|---|
//! | metadata of a trace | 64 MiB |
//! | stream classes; event classes of one of them | 65 536 each |
//! | fields of all classes of a trace, each use of a named type counted | 2^20 |
//! | fields within fields | 96 (CTF 1.8), 64 (CTF 2) |
//! | members of a structure, options of a variant | 65 536 |
//! | one fragment of CTF 2 | 4 MiB |
//! | one word or text of CTF 1.8; labels of one enumeration there | 1 MiB; 2^20 |
//! | fields of one event class that lengths and selections refer to | 65 536 |
//! | elements that take no bits, of a packet | 65 536, and one more for each bit before them |
//! | nesting of directories that are searched | 64 |
//! | a packet that is read | what its file or its sender has |
//! | a packet that is written; event classes that are declared of a stream | 256 MiB; 4096 |
//! | one entry of an index file that is read | 4096 bytes |
//! | values of an [`Event`], labels included | 2^20 |
//! | packets that [`Events`] holds | those that overlap in time, at most one of each stream |
//! | a packet that [`TraceWriter`] writes | 64 KiB; for one event 16 MiB |
//!
//! # Modules
//!
//! [`model`] (what metadata declares), [`metadata`] (from bytes to the model), [`decode`] (from
//! packets to events), [`owned`] (events that own their values), [`directory`], [`index`],
//! [`write`](mod@write); [`Trace`] and [`Events`] put the events of all streams in order.
//!
//! The modules are layered: each uses only modules to its left, and the same holds for the files of
//! a module (`a <- b`: b uses a).
//!
//! ```text
//! uuid, lookup <- labels <- model <- bits, clock, error, plan <- metadata
//!                           metadata <- decode <- owned, directory <- trace
//!                           model <- write <- directory
//!                                    index <- directory (index uses none of them)
//! ```

mod bits;
mod clock;
pub mod decode;
pub mod directory;
mod error;
pub mod index;
mod labels;
mod lookup;
pub mod metadata;
pub mod model;
pub mod owned;
mod plan;
mod short_header;
mod trace;
mod uuid;
pub mod write;

pub use clock::{TimeCorrection, TimeCorrections, Timescale};
pub use directory::TraceWriter;
pub use error::MetadataError;
pub use metadata::Metadata;
pub use owned::{Event, Value};
pub use trace::{Error, Events, LossCount, Trace};
pub use wire::{Bits, Bytes, ClassId, InstanceId, PacketIndex, PacketSeqNum, Timestamp};

/// The programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
