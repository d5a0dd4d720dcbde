//! What metadata declares: one model for both of its forms, the text of CTF 1.8 and the JSON of
//! CTF 2. Past the parsers nothing knows which form it was.
//!
//! Read in this order: [`Scope`] (the six roots of fields), [`FieldClass`] (what a field is made
//! of), [`Role`] (fields that the decoder needs and that are not shown), [`Clock`].
//!
//! Sizes and alignments of numbers and structures are in bits, lengths of texts and BLOBs in bytes.
//! Classes are shared (`Arc`): many events have the same contexts.
//!
//! Sections are those of the CTF 1.8.3 specification, attributes in `code` those of TSDL, its
//! metadata language. Properties named in quotation marks are those of the JSON of CTF 2.
//!
//! Field classes are generic over how they name the field that is a length or a selector: parsers
//! write a [`Reference`], the classes of [`Metadata`](crate::Metadata) have a [`Slot`].

use std::fmt;
use std::sync::Arc;

pub use crate::labels::{Label, Labels};
use crate::lookup::FirstMatch;
pub use crate::uuid::Uuid;

/// The order of the bytes of a number, and of bit-fields within a byte (`byte_order`, 4.1.3 and
/// 4.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte is first, and the first field in a byte has its low bits. (`le`)
    Little,
    /// The most significant byte is first, and the first field in a byte has its high bits. (`be`,
    /// `network`)
    Big,
}

/// The six root structures of fields, in the order in which they lie in a packet (7.3.2, dynamic
/// scopes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The header at the beginning of each packet of the trace. (`trace.packet.header`, 5.1)
    PacketHeader,
    /// The context after the header of each packet of a stream class. (`stream.packet.context`,
    /// 5.2)
    PacketContext,
    /// The header of each event of a stream class. (`stream.event.header`, 6.1)
    EventHeader,
    /// The context that each event of a stream class has after its header.
    /// (`stream.event.context`, 6.2)
    CommonContext,
    /// The context that only events of one event class have. (`event.context`, 6.2)
    SpecificContext,
    /// The payload of an event. (`event.fields`, 6.3)
    Payload,
}

impl Scope {
    /// The prefix by which lengths and tags of CTF 1.8 refer to fields of this root (7.3.2).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketHeader => "trace.packet.header",
            Self::PacketContext => "stream.packet.context",
            Self::EventHeader => "stream.event.header",
            Self::CommonContext => "stream.event.context",
            Self::SpecificContext => "event.context",
            Self::Payload => "event.fields",
        }
    }
}

/// The meaning of a field to the decoder, in TSDL by the name of the field, in CTF 2 by "roles". A
/// field with a role is not shown, unless a length or a selection refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The magic number 0xC1FC1FC1, 32 bits, first in a packet. (`magic`, "packet-magic-number")
    PacketMagic,
    /// The UUID of the metadata to which the packet belongs: an array of 16 bytes, or in CTF 2 also
    /// a [`Blob`](FieldClass::Blob). (`uuid`, "metadata-stream-uuid")
    MetadataUuid,
    /// The id of the packet's stream class. (`stream_id`, "data-stream-class-id")
    StreamClassId,
    /// The number of the packet's stream within its class. (`stream_instance_id`, "data-stream-id")
    StreamId,
    /// The size of the packet in bits, padding included. (`packet_size`, "packet-total-length")
    PacketSize,
    /// The size of the packet in bits without padding, header and context included.
    /// (`content_size`, "packet-content-length")
    ContentSize,
    /// The time of a packet's beginning or of an event, in cycles: replaces the low bits of the
    /// stream's clock. (`timestamp_begin` and `timestamp`, "default-clock-timestamp")
    Timestamp,
    /// The time of a packet's end, in cycles of the stream's clock. (`timestamp_end`,
    /// "packet-end-default-clock-timestamp")
    PacketEnd,
    /// The number of the packet in its stream, which begins again at 0 when its bits are used up.
    /// (`packet_seq_num`, "packet-sequence-number")
    PacketSequence,
    /// The count of events discarded since the stream began, which begins again at 0 when its bits
    /// are used up. (`events_discarded`, "discarded-event-record-counter-snapshot")
    DiscardedEvents,
    /// The id of the event's class. (`id`, "event-record-class-id")
    EventClassId,
}

/// The number of the cell in which the decoder keeps a decoded integer or boolean, for the lengths
/// and selections that refer to it. Given by `metadata`, which numbers cells by packet, stream and
/// event class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(crate) u32);

/// The path by which metadata names the field that is a length or a selector (7.3.2; "field
/// location" of CTF 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The structure in which the first name of the path is looked up.
    pub origin: Origin,
    /// The names of members, as written in the metadata; `None` goes to the structure around, and
    /// is in paths of CTF 2 only.
    pub path: Vec<Option<Arc<str>>>,
    /// The position of the reference in the metadata, for error messages; of the whole fragment in
    /// CTF 2.
    pub at: Position,
}

/// The structure in which the search for a referred field begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In a root: an absolute path of CTF 1.8, or a location of CTF 2 with "origin".
    Root(Scope),
    /// In the structure that holds the referring field: a location of CTF 2 without "origin".
    Enclosing,
    /// In the innermost structure around the referring field which has, before it, a member of the
    /// path's first name: a relative path of CTF 1.8.
    Innermost,
}

/// A place in the text of metadata, without the headers of metadata packets. 0:0 (the default) is
/// no place: the error concerns all of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, not bytes, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A clock, by which cycles become times (`clock`, section 8; clock class fragment of CTF 2).
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// The name by which fields and stream classes refer to it. (`name`, "id")
    pub name: Arc<str>,
    /// The identity of the clock: times of two clocks with the same one may be compared. `None` if
    /// not given, or if "uid" of CTF 2 is not a UUID. (`uuid`, "uid")
    pub uuid: Option<Uuid>,
    /// A description for people. `None` if not given. (`description`)
    pub description: Option<Arc<str>>,
    /// The frequency in Hz, never 0; 1 GHz if not given in TSDL. (`freq`, "frequency")
    pub frequency: u64,
    /// The uncertainty of the clock in cycles. `None` if not given. (`precision`)
    pub precision: Option<u64>,
    /// Seconds from the origin to the clock's zero; 0 if not given. (`offset_s`,
    /// "offset-from-origin")
    pub offset_seconds: i64,
    /// Cycles from there to the clock's zero, perhaps more than a second; 0 if not given.
    /// (`offset`, "offset-from-origin")
    pub offset_cycles: u64,
    /// Whether its origin is 1970-01-01 00:00 UTC, so that its times may be compared with those of
    /// other such clocks. False if not given. (`absolute`, "origin" of "unix-epoch")
    pub absolute: bool,
}

/// The value of an entry of the environment. (`env`, "environment")
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// A number. Constants of TSDL from 2^63 to 2^64 - 1 wrap around to negative ones.
    Integer(i64),
    /// A text, with its escapes replaced.
    Text(Arc<str>),
}

/// The base in which a number is shown; decoding does not depend on it. (`base`,
/// "preferred-display-base")
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Base {
    /// Base 2. (`2`, `b`, `bin`, `binary`)
    Binary,
    /// Base 8. (`8`, `o`, `oct`, `octal`)
    Octal,
    /// Base 10, if nothing else is given. (`10`, `d`, `dec`, `decimal`, `i`, `u`)
    #[default]
    Decimal,
    /// Base 16. (`16`, `x`, `X`, `hex`, `hexadecimal`, `p`)
    Hexadecimal,
}

/// The encoding of a text, which decides how many bytes a code unit has. (`encoding`, "encoding")
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// UTF-8, or ASCII, which is the same to a reader; the only one of CTF 1.8.
    #[default]
    Utf8,
    /// UTF-16: code units of 2 bytes in this order. ("utf-16le", "utf-16be")
    Utf16(ByteOrder),
    /// UTF-32: code units of 4 bytes in this order. ("utf-32le", "utf-32be")
    Utf32(ByteOrder),
}

impl Encoding {
    /// The number of bytes in a code unit: 1, 2 or 4.
    #[must_use]
    pub const fn unit(self) -> u8 {
        match self {
            Self::Utf8 => 1,
            Self::Utf16(_) => 2,
            Self::Utf32(_) => 4,
        }
    }
}

/// An integer or enumeration of a fixed number of bits (`integer`, 4.1.5; `enum`, 4.1.8;
/// "fixed-length-unsigned-integer", "fixed-length-signed-integer").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integer {
    /// The width in bits, 1 to 64. (`size`, "length")
    pub bits: u8,
    /// Whether the integer is in two's complement; false if not given in TSDL. (`signed`)
    pub signed: bool,
    /// The order of its bytes; in TSDL that of the trace if not given. (`byte_order`, "byte-order")
    pub order: ByteOrder,
    /// The alignment in bits, a power of two. If not given it is 8 in TSDL where `bits` is a
    /// multiple of 8, else 1. (`align`, 4.1.2; "alignment")
    pub alignment: u32,
    /// The base in which it is shown.
    pub base: Base,
    /// Whether an array of such integers is a text: they have 8 bits and an encoding. False in
    /// CTF 2. (`encoding`)
    pub text: bool,
    /// The labels of an enumeration; `None` if it is none. (`enum`, "mappings")
    pub labels: Option<Arc<Labels>>,
    /// The meaning to the decoder; `None` if it is data.
    pub role: Option<Role>,
    /// The name of the clock of which its value is the low bits; `None` if it moves none. (`map`)
    pub clock: Option<Arc<str>>,
    /// The cell that keeps its value; `None` if no length or selection refers to it.
    pub(crate) slot: Option<Slot>,
}

impl Integer {
    /// An unsigned number in base 10, without labels, role and clock. `bits` are 1 to 64,
    /// `alignment` is in bits and a power of two.
    #[must_use]
    pub const fn unsigned(bits: u8, alignment: u32, order: ByteOrder) -> Self {
        Self {
            bits,
            signed: false,
            order,
            alignment,
            base: Base::Decimal,
            text: false,
            labels: None,
            role: None,
            clock: None,
            slot: None,
        }
    }

    /// Whether the integer is of use to the decoder only, and so is not shown: it has a role or
    /// moves a clock, and no length or selection refers to it.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        (self.role.is_some() || self.clock.is_some()) && self.slot.is_none()
    }
}

/// An integer or enumeration of as many bytes as it needs, seven bits in each, aligned to a byte:
/// LEB128 (CTF 2 only, "variable-length-unsigned-integer", "variable-length-signed-integer").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableInteger {
    /// Whether the integer is in two's complement, of as many bits as were written.
    pub signed: bool,
    /// The base in which it is shown.
    pub base: Base,
    /// The labels of an enumeration; `None` if it is none. (`enum`, "mappings")
    pub labels: Option<Arc<Labels>>,
    /// The meaning to the decoder; `None` if it is data.
    pub role: Option<Role>,
    /// The name of the clock of which its value is the low bits; `None` if it moves none. (`map`)
    pub clock: Option<Arc<str>>,
    /// The cell that keeps its value; `None` if no length or selection refers to it.
    pub(crate) slot: Option<Slot>,
}

/// Layout of a field of a fixed number of bits that is no integer: bit array, bit map, boolean,
/// floating point number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitField {
    /// The width in bits, 1 to 64; 32 or 64 if it is a floating point number. (`exp_dig` and
    /// `mant_dig`, 4.1.7; "length")
    pub bits: u8,
    /// The order of its bytes; in TSDL that of the trace if not given. (`byte_order`, "byte-order")
    pub order: ByteOrder,
    /// The alignment in bits, a power of two; 1 if not given. (`align`, "alignment")
    pub alignment: u32,
    /// The cell that keeps the value of a boolean; `None` if no optional field refers to it.
    pub(crate) slot: Option<Slot>,
}

/// The length of a text or BLOB in bytes, of an array in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Length<R = Slot> {
    /// A length that is the same in every event. ("length")
    Static(u64),
    /// The value of an unsigned integer that is decoded before. (sequence, 4.2.4;
    /// "length-field-location")
    Dynamic(R),
}

/// The class of a field: how its bits are laid out, and what they mean. `R` is [`Reference`] as
/// parsed, and [`Slot`] once references are resolved.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldClass<R = Slot> {
    /// An integer of fixed width, or an enumeration.
    Integer(Integer),
    /// An integer of variable width, or an enumeration. CTF 2 only.
    VariableInteger(VariableInteger),
    /// A floating point number of IEEE 754, of 32 or 64 bits. (`floating_point`, 4.1.7)
    Float(BitField),
    /// A boolean, true if any of its bits is set. CTF 2 only. ("fixed-length-boolean")
    Boolean(BitField),
    /// Bits without further meaning. CTF 2 only. ("fixed-length-bit-array")
    BitArray(BitField),
    /// Bits with names: each label has ranges of bits, counted from the least significant, 0. CTF 2
    /// only. ("fixed-length-bit-map")
    BitMap(BitField, Arc<Labels>),
    /// One of the five classes above, but no [`VariableInteger`](Self::VariableInteger), of which
    /// the bit that lies first in the packet is the last of the number. CTF 2 only. ("bit-order"
    /// against "byte-order")
    Reversed(Arc<Self>),
    /// A text up to the first code unit of zero, which belongs to the field. (`string`, 4.2.5;
    /// "null-terminated-string")
    String(Encoding),
    /// A text of fixed or dynamic length, which ends before the first code unit of zero, if it has
    /// one: an array of 8-bit integers with `encoding`, "static-length-string",
    /// "dynamic-length-string".
    Text {
        /// The length in bytes, terminator and what follows it included.
        length: Length<R>,
        /// The encoding of the text.
        encoding: Encoding,
    },
    /// Bytes without further meaning to the decoder. CTF 2 only. ("static-length-blob",
    /// "dynamic-length-blob")
    Blob {
        /// The length in bytes.
        length: Length<R>,
        /// The IANA media type of the bytes, "application/octet-stream" if not given.
        /// ("media-type")
        media_type: Arc<str>,
        /// [`Role::MetadataUuid`] if the bytes must be the UUID of the trace; otherwise `None`.
        role: Option<Role>,
    },
    /// Named fields, one after the other.
    Structure(Arc<Structure<R>>),
    /// Fields of one class, one after the other (array, 4.2.3; sequence, 4.2.4;
    /// "static-length-array", "dynamic-length-array").
    Array {
        /// The class of each element.
        element: Arc<Self>,
        /// The number of elements.
        length: Length<R>,
        /// The alignment in bits, a power of two. It is "minimum-alignment" or 1 as parsed, and at
        /// least the alignment of the element once references are resolved.
        alignment: u32,
        /// [`Role::MetadataUuid`] if the bytes must be the UUID of the trace; otherwise `None`.
        role: Option<Role>,
    },
    /// A field that is present or absent, as a selector decides. CTF 2 only. ("optional")
    Optional {
        /// The boolean or integer that selects. ("selector-field-location")
        selector: R,
        /// The values of the selector for which the field is present: first and last of each range,
        /// both included. Empty for a boolean without ranges, which selects unless it is 0. In
        /// order and without overlap once references are resolved. ("selector-field-ranges")
        ranges: Vec<(i128, i128)>,
        /// The class of the field, if it is present.
        class: Arc<Self>,
        /// Whether the selector is signed. False until references are resolved.
        signed: bool,
    },
    /// One of several fields, as a selector decides.
    Variant(Arc<Variant<R>>),
}

impl<R> FieldClass<R> {
    /// The alignment in bits, a power of two. That of structures and arrays may be too small before
    /// references are resolved.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        match self {
            Self::Integer(integer) => integer.alignment,
            Self::Float(field)
            | Self::Boolean(field)
            | Self::BitArray(field)
            | Self::BitMap(field, _) => field.alignment,
            // Their parts are bytes, which begin at bytes (4.2.5).
            Self::VariableInteger(_) | Self::String(_) | Self::Text { .. } | Self::Blob { .. } => 8,
            Self::Reversed(class) => class.alignment(),
            Self::Structure(structure) => structure.alignment,
            Self::Array { alignment, .. } => *alignment,
            // What is selected aligns itself, after the choice.
            Self::Optional { .. } | Self::Variant(_) => 1,
        }
    }
}

/// Named fields, one after the other, without padding at the end (`struct`, 4.2.1; "structure").
#[derive(Debug, Clone, PartialEq)]
pub struct Structure<R = Slot> {
    /// The members, in the order in which they lie in the packet.
    pub members: Vec<Member<R>>,
    /// The alignment in bits, a power of two. It is what the structure itself asks for, or 1, as
    /// parsed (`align()`, "minimum-alignment"), and at least that of each member once references
    /// are resolved.
    pub alignment: u32,
}

impl<R> Structure<R> {
    /// Whether the structure is not shown: it has members, and each of them is hidden. False until
    /// references are resolved.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(|member| member.hidden)
    }
}

/// A named field of a structure.
#[derive(Debug, Clone, PartialEq)]
pub struct Member<R = Slot> {
    /// The name that is shown: in TSDL without one leading underscore (4.2.1).
    pub name: Arc<str>,
    /// The name as written in the metadata, by which references name the member.
    pub written: Arc<str>,
    /// The class of the field.
    pub class: FieldClass<R>,
    /// Whether the member is of use to the decoder only, and so is not shown. False until
    /// references are resolved.
    pub hidden: bool,
}

/// One of several fields, as a selector decides (`variant`, 4.2.2; "variant").
#[derive(Debug, Clone, PartialEq)]
pub struct Variant<R = Slot> {
    /// The enumeration (the tag of CTF 1.8) or integer that selects.
    pub selector: R,
    /// The options in order of declaration: the first whose ranges contain the value of the
    /// selector is taken. Only those of CTF 1.8 may overlap.
    pub options: Vec<VariantOption<R>>,
    /// Whether the selector is signed. False until references are resolved.
    pub signed: bool,
    /// The option for each value of the selector. Empty until references are resolved.
    pub(crate) lookup: Arc<FirstMatch>,
}

/// One option of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantOption<R = Slot> {
    /// The name that is shown: in TSDL without one leading underscore. `None` if CTF 2 has no
    /// "name" for it.
    pub name: Option<Arc<str>>,
    /// The values of the selector that select the option.
    pub ranges: Selection,
    /// The class of the field, if the option is selected.
    pub class: FieldClass<R>,
}

/// The values of the selector that select an option of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The values of the tag's label of this name, as written in the metadata: in CTF 1.8, until
    /// references are resolved.
    Label(Arc<str>),
    /// The first and last value of each range, both included. ("selector-field-ranges")
    Ranges(Vec<(i128, i128)>),
}

/// The log level of an event class, 0 (the most severe) to 14, as in `enum lttng_loglevel` of
/// LTTng. (`loglevel`, "log-level" of LTTng's attributes)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogLevel(pub u8);

impl LogLevel {
    const NAMES: [&str; 15] = [
        "TRACE_EMERG",
        "TRACE_ALERT",
        "TRACE_CRIT",
        "TRACE_ERR",
        "TRACE_WARNING",
        "TRACE_NOTICE",
        "TRACE_INFO",
        "TRACE_DEBUG_SYSTEM",
        "TRACE_DEBUG_PROGRAM",
        "TRACE_DEBUG_PROCESS",
        "TRACE_DEBUG_MODULE",
        "TRACE_DEBUG_UNIT",
        "TRACE_DEBUG_FUNCTION",
        "TRACE_DEBUG_LINE",
        "TRACE_DEBUG",
    ];

    /// The name in LTTng and babeltrace2, `TRACE_EMERG` to `TRACE_DEBUG`; `None` above 14.
    /// (`enum lttng_loglevel`)
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.get(usize::from(self.0)).copied()
    }
}

/// A declaration as parsed, with references by name. Parsers return declarations in the order in
/// which [`Trace`](crate::metadata::Trace) must declare them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Declaration {
    /// The trace itself: at most once, and before all but clocks and the environment.
    Trace(TraceDraft),
    /// An entry of the environment, name and value. The last value of a name counts.
    Environment(Arc<str>, EnvironmentValue),
    /// A clock, and where it is declared.
    Clock(Clock, Position),
    /// A stream class, whose id no other of the trace has.
    Stream(StreamDraft),
    /// An event class, whose id no other of its stream class has.
    Event(EventDraft),
}

/// The trace as parsed. (`trace` of CTF 1.8; "preamble" and "trace-class" of CTF 2)
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TraceDraft {
    pub(crate) uuid: Option<Uuid>,
    /// The UUID that packets of CTF 2 must have, if they have one.
    pub(crate) stream_uuid: Option<Uuid>,
    /// Whether it is CTF 2, where an id that is not given is 0, also if there are several classes.
    pub(crate) is_ctf_2: bool,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) packet_header: Option<Arc<Structure<Reference>>>,
    pub(crate) at: Position,
}

/// A stream class as parsed. Fields that have a role carry it already. (`stream`,
/// "data-stream-class")
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct StreamDraft {
    /// `None` if not given in TSDL, which means 0.
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<Arc<str>>,
    /// The name of the default clock of CTF 2. `None` in CTF 1.8, where fields name the clock that
    /// they move.
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) packet_context: Option<Arc<Structure<Reference>>>,
    pub(crate) event_header: Option<Arc<Structure<Reference>>>,
    pub(crate) event_context: Option<Arc<Structure<Reference>>>,
    pub(crate) at: Position,
}

/// An event class as parsed. (`event`, "event-record-class")
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct EventDraft {
    pub(crate) id: Option<u64>,
    pub(crate) stream_id: Option<u64>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) emf_uri: Option<Arc<str>>,
    pub(crate) context: Option<Arc<Structure<Reference>>>,
    pub(crate) payload: Option<Arc<Structure<Reference>>>,
    pub(crate) at: Position,
}
