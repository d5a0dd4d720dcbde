//! Writes the traces of this project's producers: metadata and packets that every reader of CTF 1.8
//! understands.
//!
//! Read in this order: [`EventDeclaration`] (an event class), [`MetadataText`] (the metadata, which
//! grows), [`StreamWriter`] (writes events to packets), [`Value`] (a field of an event).
//!
//! The packets have the shape of those of LTTng's user space tracer, which readers meet most. The
//! order that keeps a trace readable at any time: metadata before the packet that needs it, the
//! packet before its index entry.
//!
//! ```
//! use ctf::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
//! use ctf::model::{LogLevel, Uuid};
//! use ctf::write::{
//!     Appended, EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter,
//!     TraceDeclaration, Value, Width,
//! };
//! use ctf::{Bytes, Timestamp};
//!
//! // The event classes.
//! let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "my-producer"));
//! let stream = metadata.stream(0)?;
//! let done = EventDeclaration {
//!     log_level: Some(LogLevel(6)),
//!     fields: vec![
//!         ("method".into(), FieldType::Text),
//!         ("status".into(), FieldType::Unsigned(Width::Bits16)),
//!     ],
//!     ..EventDeclaration::new(64, "http:done")
//! };
//! let done = metadata.event(&stream, &done)?;
//!
//! // An event.
//! let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(65_536, 1 << 20));
//! writer.open(Timestamp(1000))?;
//! let event = EventRecord {
//!     time: Timestamp(1500),
//!     process: 100,
//!     thread: 101,
//!     values: &[Value::Text("GET"), Value::Unsigned(200)],
//! };
//! assert_eq!(writer.append(&done, &event)?, Appended::Written);
//!
//! // The output: three files, or a connection to a relay.
//! let (mut text, mut data) = (String::new(), Vec::<u8>::new());
//! let mut index = IndexFormat::V1_1.header_bytes();
//! text.push_str(metadata.take_new());
//! let packet = writer.close(Timestamp(2000))?;
//! let entry = Entry { offset: Bytes(data.len() as u64), packet: packet.index };
//! data.extend(packet.bytes);
//! index.extend(IndexFormat::V1_1.encode(&entry, &mut [0; MAX_ENTRY_BYTES]));
//! assert_eq!(ctf::index::read(&index)?.entries, [entry]);
//! assert_eq!(data.len(), 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod declare;
mod field_text;
mod metadata;
mod metadata_packet;
mod packet;
mod text;
mod value;

pub use declare::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, Enumeration, EventDeclaration,
    FieldType, Width,
};
pub use metadata::{MetadataText, TraceClock, TraceDeclaration};
pub use metadata_packet::metadata_packets;
pub use packet::{Appended, ClosedPacket, EventRecord, PacketError, PacketSize, StreamWriter};
pub use value::{Argument, ArgumentValue, Value};
