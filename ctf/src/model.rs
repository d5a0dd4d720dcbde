//! What metadata declares: one model for both of its forms, the text of CTF 1.8 and the JSON of
//! CTF 2. Past the parsers nothing knows which form it was.
//!
//! Read in this order: [`Scope`] (the six roots of fields), [`FieldClass`] (what a field is made of),
//! [`Role`] (fields that steer decoding and are not shown), [`Clock`].
//!
//! Sizes and alignments of numbers and structures are in bits, lengths of texts and blobs in bytes.
//! Classes are shared (`Arc`): many events have the same contexts.
//!
//! Field classes are generic over how they name the field that gives a length or a selection: a
//! parser writes a [`Reference`], what [`Metadata`](crate::Metadata) holds names a [`Slot`].

use std::fmt;
use std::sync::Arc;

pub use crate::labels::{Label, Labels};
use crate::lookup::FirstMatch;

/// The identity of a trace. Its `Display` is the usual text with dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads the usual text: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let groups = [8, 4, 4, 4, 12];
        let mut digits = Vec::with_capacity(32);
        let mut parts = text.split('-');
        for group in groups {
            let part = parts.next().filter(|part| part.len() == group)?;
            for digit in part.chars() {
                digits.push(u8::try_from(digit.to_digit(16)?).ok()?);
            }
        }
        if parts.next().is_some() {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Which end of a number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte, and in a byte the least significant bit.
    Little,
    /// The most significant byte, and in a byte the most significant bit.
    Big,
}

/// A root from which fields are decoded, in the order in which they lie in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Once in a packet. (`trace.packet.header`)
    PacketHeader,
    /// Once in a packet, after its header. (`stream.packet.context`)
    PacketContext,
    /// Once in an event. (`stream.event.header`)
    EventHeader,
    /// Once in an event, the same for all events of a stream class. (`stream.event.context`)
    CommonContext,
    /// Once in an event, its class' own. (`event.context`)
    SpecificContext,
    /// What the event says. (`event.fields`)
    Payload,
}

impl Scope {
    /// As references in CTF 1.8 write it.
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

/// What a field means to whoever decodes it. A field with a role is not shown, unless a length or
/// a selection refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `magic`: 0xC1FC1FC1.
    PacketMagic,
    /// `uuid`: that of the metadata. On a [`Blob`](FieldClass::Blob) of 16 bytes, or on an array of
    /// 16 bytes.
    MetadataUuid,
    /// `stream_id`: which stream class.
    StreamClassId,
    /// `stream_instance_id`: which stream of its class.
    StreamId,
    /// `packet_size`, in bits.
    PacketSize,
    /// `content_size`, in bits.
    ContentSize,
    /// `timestamp_begin` of a packet or `timestamp` of an event: moves the stream's clock.
    Timestamp,
    /// `timestamp_end`, in cycles.
    PacketEnd,
    /// `packet_seq_num`.
    PacketSequence,
    /// `events_discarded`, since the stream began.
    DiscardedEvents,
    /// `id`: which event class.
    EventClassId,
}

/// Where in a parsed trace a decoded number is kept, for the lengths and selections that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(crate) u32);

/// How metadata names the field that gives a length or a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Where the search begins.
    pub origin: Origin,
    /// Names of members, as they were written; `None` goes to the structure around.
    pub path: Vec<Option<Arc<str>>>,
    /// Where it stands in the metadata.
    pub at: Position,
}

/// Where the search for a referred field begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In a root.
    Root(Scope),
    /// In the structure that holds the referring field. (CTF 2)
    Enclosing,
    /// In the innermost structure around the referring field which has, before it, a member of the
    /// path's first name. (CTF 1.8)
    Innermost,
}

/// A place in metadata text: line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A clock: what its cycles mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// By which fields name it.
    pub name: Arc<str>,
    /// Two clocks of the same identity may be compared.
    pub uuid: Option<Uuid>,
    /// In plain words.
    pub description: Option<Arc<str>>,
    /// Cycles in a second, never 0.
    pub frequency: u64,
    /// In cycles.
    pub precision: Option<u64>,
    /// Seconds from the origin to this clock's zero.
    pub offset_seconds: i64,
    /// Cycles to be added to that.
    pub offset_cycles: u64,
    /// Whether its origin is 1970, so that it may be compared with other such clocks.
    pub absolute: bool,
}

/// One entry of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// A number.
    Integer(i64),
    /// A text.
    Text(Arc<str>),
}

/// How a number is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Base {
    /// 2.
    Binary,
    /// 8.
    Octal,
    /// 10.
    #[default]
    Decimal,
    /// 16.
    Hexadecimal,
}

/// Code units of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// UTF-8, or ASCII, which is the same to a reader.
    #[default]
    Utf8,
    /// Two bytes each.
    Utf16(ByteOrder),
    /// Four bytes each.
    Utf32(ByteOrder),
}

impl Encoding {
    /// Bytes in a code unit.
    #[must_use]
    pub const fn unit(self) -> u8 {
        match self {
            Self::Utf8 => 1,
            Self::Utf16(_) => 2,
            Self::Utf32(_) => 4,
        }
    }
}

/// A number of a fixed count of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integer {
    /// 1 to 64.
    pub bits: u8,
    /// Two's complement.
    pub signed: bool,
    /// Of its bytes.
    pub order: ByteOrder,
    /// In bits, a power of two.
    pub alignment: u32,
    /// How it is shown.
    pub base: Base,
    /// Its elements make a text. (`encoding` of CTF 1.8)
    pub text: bool,
    /// Present if it is an enumeration.
    pub labels: Option<Arc<Labels>>,
    /// What it means.
    pub role: Option<Role>,
    /// The clock that it moves, by name.
    pub clock: Option<Arc<str>>,
    /// Where it is kept for those who refer to it.
    pub(crate) slot: Option<Slot>,
}

impl Integer {
    /// An unsigned number in base 10.
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

    /// Whether it steers decoding only, and so is not shown.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        (self.role.is_some() || self.clock.is_some()) && self.slot.is_none()
    }
}

/// A number of as many bytes as it needs, seven bits in each. (LEB128)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableInteger {
    /// Two's complement.
    pub signed: bool,
    /// How it is shown.
    pub base: Base,
    /// Present if it is an enumeration.
    pub labels: Option<Arc<Labels>>,
    /// What it means.
    pub role: Option<Role>,
    /// The clock that it moves, by name.
    pub clock: Option<Arc<str>>,
    /// Where it is kept for those who refer to it.
    pub(crate) slot: Option<Slot>,
}

/// Bits without a number's meaning: bit arrays, bit maps, booleans, and floating point numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitField {
    /// 1 to 64; 32 or 64 if it is a floating point number.
    pub bits: u8,
    /// Of its bytes.
    pub order: ByteOrder,
    /// In bits, a power of two.
    pub alignment: u32,
    /// For a boolean that an optional field refers to.
    pub(crate) slot: Option<Slot>,
}

/// How much there is of a text, a blob or an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Length<R = Slot> {
    /// Always so much.
    Static(u64),
    /// What another field says.
    Dynamic(R),
}

/// What a field is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldClass<R = Slot> {
    /// A number, or an enumeration.
    Integer(Integer),
    /// A number of as many bytes as it needs.
    VariableInteger(VariableInteger),
    /// A floating point number of IEEE 754.
    Float(BitField),
    /// True if any of its bits is set.
    Boolean(BitField),
    /// Bits.
    BitArray(BitField),
    /// Named flags over bits; labels name ranges of bits, from 0.
    BitMap(BitField, Arc<Labels>),
    /// A text up to a terminating code unit of zero.
    String(Encoding),
    /// A text of so many bytes, or up to the first code unit of zero in them.
    Text {
        /// In bytes.
        length: Length<R>,
        /// Of its code units.
        encoding: Encoding,
    },
    /// Bytes.
    Blob {
        /// In bytes.
        length: Length<R>,
        /// What the bytes are.
        media_type: Arc<str>,
        /// Only [`Role::MetadataUuid`].
        role: Option<Role>,
    },
    /// Fields with names.
    Structure(Arc<Structure<R>>),
    /// Fields of one class.
    Array {
        /// Of each element.
        element: Arc<Self>,
        /// How many there are.
        length: Length<R>,
        /// In bits, a power of two; before references are resolved the element may ask for more.
        alignment: u32,
        /// Only [`Role::MetadataUuid`].
        role: Option<Role>,
    },
    /// A field or nothing.
    Optional {
        /// Present if one of these ranges contains what this field says.
        selector: R,
        /// First and last value, both included; of a boolean 0 and 1. Empty: any but 0. In order, and
        /// without overlap, once references are resolved.
        ranges: Vec<(i128, i128)>,
        /// What may be present.
        class: Arc<Self>,
        /// Whether the selector is signed. Known once references are resolved.
        signed: bool,
    },
    /// One of several.
    Variant(Arc<Variant<R>>),
}

impl<R> FieldClass<R> {
    /// In bits. Settled once references are resolved.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        match self {
            Self::Integer(integer) => integer.alignment,
            Self::Float(field)
            | Self::Boolean(field)
            | Self::BitArray(field)
            | Self::BitMap(field, _) => field.alignment,
            Self::VariableInteger(_) | Self::String(_) | Self::Text { .. } | Self::Blob { .. } => 8,
            Self::Structure(structure) => structure.alignment,
            Self::Array { alignment, .. } => *alignment,
            Self::Optional { .. } | Self::Variant(_) => 1,
        }
    }
}

/// Fields with names, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure<R = Slot> {
    /// In the order in which they lie.
    pub members: Vec<Member<R>>,
    /// In bits, a power of two. Before references are resolved only what the structure itself asks
    /// for: its members may ask for more.
    pub alignment: u32,
}

impl<R> Structure<R> {
    /// Whether it has members and none of them is to be shown.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(|member| member.hidden)
    }
}

/// A named field of a structure.
#[derive(Debug, Clone, PartialEq)]
pub struct Member<R = Slot> {
    /// As it is shown.
    pub name: Arc<str>,
    /// As it was written, and as references name it.
    pub written: Arc<str>,
    /// What it is made of.
    pub class: FieldClass<R>,
    /// Whether it steers decoding only, and so is not shown. Known once references are resolved.
    pub hidden: bool,
}

/// One of several fields, as another field says.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant<R = Slot> {
    /// What says it.
    pub selector: R,
    /// In order of declaration: the first whose ranges contain what the selector says is taken.
    pub options: Vec<VariantOption<R>>,
    /// Whether the selector is signed. Known once references are resolved.
    pub signed: bool,
    /// Finds the option for what the selector says. Empty until references are resolved.
    pub(crate) lookup: Arc<FirstMatch>,
}

/// One choice of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantOption<R = Slot> {
    /// As it is shown.
    pub name: Option<Arc<str>>,
    /// Selected by which values.
    pub ranges: Selection,
    /// What the field then is.
    pub class: FieldClass<R>,
}

/// Which values of the selector take an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Those of the selector's label of this name, as written. (CTF 1.8, until references are
    /// resolved.)
    Label(Arc<str>),
    /// First and last value of each range, both included.
    Ranges(Vec<(i128, i128)>),
}

/// Events of this severity and worse are of interest to somebody; 0 is the worst, 14 the least.
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

    /// `TRACE_EMERG` to `TRACE_DEBUG`. (`enum lttng_loglevel`)
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.get(usize::from(self.0)).copied()
    }
}

/// Everything of a trace that a parser has understood and nobody has resolved yet, in the order in
/// which it must be taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Declaration {
    /// At most once; before all but clocks and the environment.
    Trace(TraceDraft),
    /// The last value of a name counts.
    Environment(Arc<str>, EnvironmentValue),
    Clock(Clock, Position),
    Stream(StreamDraft),
    Event(EventDraft),
}

/// The trace itself. (`trace` of CTF 1.8, preamble and `trace-class` of CTF 2)
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TraceDraft {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) packet_header: Option<Arc<Structure<Reference>>>,
    pub(crate) at: Position,
}

/// A stream class. Fields that have a role carry it already.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct StreamDraft {
    /// 0 if it was not given.
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<Arc<str>>,
    /// Given (CTF 2), or found from the fields that move one (CTF 1.8).
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) packet_context: Option<Arc<Structure<Reference>>>,
    pub(crate) event_header: Option<Arc<Structure<Reference>>>,
    pub(crate) event_context: Option<Arc<Structure<Reference>>>,
    pub(crate) at: Position,
}

/// An event class.
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
