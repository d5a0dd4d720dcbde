//! Compiles field classes into plans: flat lists of steps that find the end of a structure and read
//! the values that the decoder needs. Neighbouring fields of fixed size on which nothing depends
//! are one step.

use std::sync::Arc;

use crate::lookup::FirstMatch;
use crate::model::{
    BitField, ByteOrder, FieldClass, Integer, Length, Role, Slot, Structure, VariableInteger,
    Variant,
};

/// Steps over one structure or over several that follow one another.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Box<[Step]>,
    /// The knowledge of the position after the last step.
    pub(crate) end: KnownPosition,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Moves to the next multiple of this number of bits.
    Align(u32),
    /// Skips this number of bits; the last of them belong to a field of this order.
    Skip(u64, ByteOrder),
    /// Checks the byte order of the field that follows: a field that does not begin with a byte
    /// must have the order of the field before it.
    Order(ByteOrder),
    /// Reads a number that a later step, the decoder or a reference needs.
    Read(Read),
    /// Reads a number that is needed, and whose last bit lies first.
    ReadReversed(Read),
    /// Reads a number that is needed, of seven bits in each byte.
    ReadVariable(ReadVariable),
    /// Skips a number of seven bits in each byte, signed or not.
    SkipVariable(bool),
    /// Skips a text with its terminator, a code unit of this number of bytes that are all zero.
    SkipString(u8),
    /// Skips elements of this number of bits each; the slot has the number of elements.
    Repeat(Slot, u64, ByteOrder),
    /// Counts elements that take no bits, the number of which is limited.
    Empty(Length),
    /// Repeats steps for each element of an array.
    Loop(Box<Loop>),
    /// Takes the steps of the option that a selector selects.
    Choose(Box<Choice>),
    /// Checks that a text of as many bytes as the slot has consists of whole code units of this
    /// number of bytes.
    CodeUnits(Slot, u8),
    /// Reads the 16 bytes of the metadata's UUID.
    MetadataUuid,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    pub(crate) bits: u8,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    pub(crate) meaning: Meaning,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadVariable {
    pub(crate) signed: bool,
    pub(crate) meaning: Meaning,
}

/// The uses of a number that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Meaning {
    pub(crate) slot: Option<Slot>,
    pub(crate) role: Option<Role>,
    pub(crate) moves_clock: bool,
    pub(crate) boolean: bool,
}

impl Meaning {
    const fn is_needed(self) -> bool {
        self.slot.is_some() || self.role.is_some() || self.moves_clock
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loop {
    pub(crate) count: Length,
    /// The fewest bits that an element takes.
    pub(crate) min_bits: u64,
    pub(crate) body: Box<[Step]>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) selector: Slot,
    pub(crate) signed: bool,
    /// The option for each value of the selector.
    pub(crate) lookup: Arc<FirstMatch>,
    pub(crate) options: Box<[Box<[Step]>]>,
    /// Whether it is valid that no option is selected: then an optional field is absent.
    pub(crate) optional: bool,
}

/// The knowledge of a position when a plan is compiled: its remainder by `modulus` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownPosition {
    /// A power of two; 1 if nothing is known.
    modulus: u64,
    remainder: u64,
}

impl KnownPosition {
    /// The position of the first bit of a packet.
    pub(crate) const BEGIN: Self = Self {
        // More than any alignment, which is a `u32`: the remainder by each of them is known.
        modulus: 1 << 32,
        remainder: 0,
    };

    const fn multiple_of(alignment: u32) -> Self {
        Self {
            modulus: alignment as u64,
            remainder: 0,
        }
    }

    const fn after(self, bits: u64) -> Self {
        Self {
            modulus: self.modulus,
            // Wrapping does no harm, because the modulus divides 2^64.
            remainder: self.remainder.wrapping_add(bits) & (self.modulus - 1),
        }
    }

    /// The knowledge that holds for either of two positions.
    fn or(self, other: Self) -> Self {
        let mut modulus = self.modulus.min(other.modulus);
        while modulus > 1 && (self.remainder ^ other.remainder) & (modulus - 1) != 0 {
            modulus /= 2;
        }
        Self {
            modulus,
            remainder: self.remainder & (modulus - 1),
        }
    }

    /// The remainder by `alignment`, if it is known.
    fn modulo(self, alignment: u32) -> Option<u64> {
        let alignment = u64::from(alignment);
        (alignment <= self.modulus).then_some(self.remainder & (alignment - 1))
    }

    fn is_whole_bytes(self) -> bool {
        self.modulo(8) == Some(0)
    }
}

impl Default for KnownPosition {
    fn default() -> Self {
        Self {
            modulus: 1,
            remainder: 0,
        }
    }
}

impl Plan {
    /// The number of bits of the structures, if it is fixed and no field of them is needed.
    #[inline]
    pub(crate) fn fixed_bits(&self) -> Option<u64> {
        match &*self.steps {
            [] => Some(0),
            [Step::Skip(bits, _)] => Some(*bits),
            _ => None,
        }
    }

    /// Over `structures`, one after the other, from a position of which `begin` is known.
    pub(crate) fn over<'a>(
        begin: KnownPosition,
        structures: impl IntoIterator<Item = &'a Structure>,
    ) -> Self {
        let mut compiler = Compiler {
            steps: Vec::new(),
            known: begin,
            min_bits: 0,
        };
        for structure in structures {
            compiler.structure(structure);
        }
        Self {
            steps: compiler.steps.into_boxed_slice(),
            end: compiler.known,
        }
    }
}

struct Compiler {
    steps: Vec<Step>,
    known: KnownPosition,
    /// The fewest bits of all steps so far, without alignment.
    min_bits: u64,
}

impl Compiler {
    /// A body of its own, from a position of which `known` is known.
    fn body(known: KnownPosition, compile: impl FnOnce(&mut Self)) -> Self {
        let mut body = Self {
            steps: Vec::new(),
            known,
            min_bits: 0,
        };
        compile(&mut body);
        body
    }

    fn structure(&mut self, structure: &Structure) {
        self.align(structure.alignment);
        for member in &structure.members {
            self.class(&member.class);
        }
    }

    fn class(&mut self, class: &FieldClass) {
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::Float(field)
            | FieldClass::BitArray(field)
            | FieldClass::BitMap(field, _) => {
                self.align(field.alignment);
                self.skip_field(u64::from(field.bits), field.order);
            }
            FieldClass::Boolean(field) => self.boolean(field),
            FieldClass::Reversed(class) => self.reversed(class),
            FieldClass::VariableInteger(integer) => self.variable_integer(integer),
            FieldClass::String(encoding) => {
                self.align(8);
                let unit = encoding.unit();
                // Saturating, here and below: metadata may declare absurd sizes, and they fail when
                // they are decoded.
                self.min_bits = self.min_bits.saturating_add(u64::from(unit) * 8);
                self.known = KnownPosition::multiple_of(8);
                self.steps.push(Step::SkipString(unit));
            }
            FieldClass::Text { length, encoding } => self.text(length, encoding.unit()),
            FieldClass::Blob { length, role, .. } => {
                if role.is_some() {
                    self.metadata_uuid();
                } else {
                    self.bytes(length);
                }
            }
            FieldClass::Structure(structure) => self.structure(structure),
            FieldClass::Array {
                element,
                length,
                alignment,
                role,
            } => {
                self.align(*alignment);
                if role.is_some() {
                    self.metadata_uuid();
                } else {
                    self.array(element, length);
                }
            }
            FieldClass::Optional {
                selector,
                ranges,
                class,
                signed,
            } => self.optional(*selector, ranges, class, *signed),
            FieldClass::Variant(variant) => self.variant(variant),
        }
    }

    fn integer(&mut self, integer: &Integer) {
        self.align(integer.alignment);
        self.number(Read {
            bits: integer.bits,
            signed: integer.signed,
            order: integer.order,
            meaning: Meaning {
                slot: integer.slot,
                role: integer.role,
                moves_clock: moves_clock(integer.role, integer.clock.is_some(), integer.signed),
                boolean: false,
            },
        });
    }

    fn boolean(&mut self, field: &BitField) {
        self.align(field.alignment);
        self.number(Read {
            bits: field.bits,
            signed: false,
            order: field.order,
            meaning: Meaning {
                slot: field.slot,
                boolean: true,
                ..Meaning::default()
            },
        });
    }

    fn reversed(&mut self, class: &FieldClass) {
        let before = self.steps.len();
        self.class(class);
        // A skipped field has the same size. The number is read by the last step.
        if let Some(last @ Step::Read(_)) = self.steps.get_mut(before..).and_then(<[_]>::last_mut)
            && let Step::Read(read) = last.clone()
        {
            *last = Step::ReadReversed(read);
        }
    }

    fn variable_integer(&mut self, integer: &VariableInteger) {
        self.align(8);
        let meaning = Meaning {
            slot: integer.slot,
            role: integer.role,
            moves_clock: moves_clock(integer.role, integer.clock.is_some(), integer.signed),
            boolean: false,
        };
        self.min_bits = self.min_bits.saturating_add(8);
        self.known = KnownPosition::multiple_of(8);
        self.steps.push(if meaning.is_needed() {
            Step::ReadVariable(ReadVariable {
                signed: integer.signed,
                meaning,
            })
        } else {
            Step::SkipVariable(integer.signed)
        });
    }

    fn number(&mut self, read: Read) {
        let bits = u64::from(read.bits);
        if !read.meaning.is_needed() {
            self.skip_field(bits, read.order);
            return;
        }
        self.check_order(read.order);
        self.min_bits = self.min_bits.saturating_add(bits);
        self.known = self.known.after(bits);
        self.steps.push(Step::Read(read));
    }

    fn optional(
        &mut self,
        selector: Slot,
        ranges: &[(i128, i128)],
        class: &FieldClass,
        signed: bool,
    ) {
        // `min_bits` stays as it is: the field may be absent.
        let body = Self::body(self.known, |body| body.class(class));
        let lookup = if ranges.is_empty() {
            FirstMatch::not_zero(signed)
        } else {
            FirstMatch::new([ranges], signed)
        };
        self.known = self.known.or(body.known);
        self.steps.push(Step::Choose(Box::new(Choice {
            selector,
            signed,
            lookup: Arc::new(lookup),
            options: Box::new([body.steps.into()]),
            optional: true,
        })));
    }

    fn variant(&mut self, variant: &Variant) {
        let mut options = Vec::with_capacity(variant.options.len());
        let mut known: Option<KnownPosition> = None;
        let mut min_bits = u64::MAX;
        for option in &variant.options {
            let body = Self::body(self.known, |body| body.class(&option.class));
            known = Some(known.map_or(body.known, |known| known.or(body.known)));
            min_bits = min_bits.min(body.min_bits);
            options.push(body.steps.into());
        }
        if let Some(known) = known {
            self.known = known;
            self.min_bits = self.min_bits.saturating_add(min_bits);
        }
        self.steps.push(Step::Choose(Box::new(Choice {
            selector: variant.selector,
            signed: variant.signed,
            lookup: Arc::clone(&variant.lookup),
            options: options.into(),
            optional: false,
        })));
    }

    fn array(&mut self, element: &FieldClass, length: &Length) {
        // Each element begins at its alignment. If elements also end at it, aligning needs no step.
        let alignment = element.alignment();
        let known = KnownPosition::multiple_of(alignment);
        let mut body = Self::body(known, |body| body.class(element));
        if body.known.modulo(alignment) != Some(0) {
            body.steps.insert(0, Step::Align(alignment));
        }
        let stride = match &*body.steps {
            [] => Some((0, ByteOrder::Little)),
            [Step::Skip(bits, order)] => Some((*bits, *order)),
            _ => None,
        };
        // Elements of fixed size are one step, whatever their number.
        match (length, stride) {
            (Length::Static(0), _) => {}
            (length, Some((0, _))) => self.steps.push(Step::Empty(length.clone())),
            (Length::Static(count), Some((bits, order))) if count.checked_mul(bits).is_some() => {
                if let Some(bits) = count.checked_mul(bits) {
                    self.skip(bits, order);
                }
            }
            (Length::Dynamic(slot), Some((bits, order))) => {
                self.steps.push(Step::Repeat(*slot, bits, order));
                // The length may be 0: then the position is that before the array. `min_bits`
                // stays.
                self.known = self.known.or(body.known);
            }
            _ => {
                if let Length::Static(count) = length {
                    self.min_bits = self
                        .min_bits
                        .saturating_add(count.saturating_mul(body.min_bits));
                }
                self.known = self.known.or(body.known);
                self.steps.push(Step::Loop(Box::new(Loop {
                    count: length.clone(),
                    min_bits: body.min_bits,
                    body: body.steps.into(),
                })));
            }
        }
    }

    fn text(&mut self, length: &Length, unit: u8) {
        self.align(8);
        // The parsers check a fixed length, once for all packets.
        if let (Length::Dynamic(slot), 2..) = (length, unit) {
            self.steps.push(Step::CodeUnits(*slot, unit));
        }
        self.bytes(length);
    }

    fn bytes(&mut self, length: &Length) {
        self.align(8);
        match length {
            Length::Static(bytes) => match bytes.checked_mul(8) {
                Some(0) => {}
                Some(bits) => self.skip(bits, ByteOrder::Little),
                // More bits than any number holds. Such a field never fits: the loop fails when it
                // runs.
                None => self.steps.push(Step::Loop(Box::new(Loop {
                    count: length.clone(),
                    min_bits: 8,
                    body: Box::new([Step::Skip(8, ByteOrder::Little)]),
                }))),
            },
            Length::Dynamic(slot) => {
                self.steps.push(Step::Repeat(*slot, 8, ByteOrder::Little));
                self.known = KnownPosition::multiple_of(8);
            }
        }
    }

    fn metadata_uuid(&mut self) {
        self.align(8);
        self.steps.push(Step::MetadataUuid);
        self.known = self.known.after(128);
        self.min_bits = self.min_bits.saturating_add(128);
    }

    fn align(&mut self, alignment: u32) {
        match self.known.modulo(alignment) {
            Some(0) => {}
            Some(remainder) => {
                let padding = u64::from(alignment) - remainder;
                match self.steps.last_mut() {
                    // Padding joins the skip before it, unless the sum might overflow.
                    Some(Step::Skip(bits, _)) if *bits < 1 << 32 => *bits += padding,
                    _ => self.steps.push(Step::Align(alignment)),
                }
                self.known = self.known.after(padding);
            }
            None => {
                self.steps.push(Step::Align(alignment));
                self.known = KnownPosition::multiple_of(alignment);
            }
        }
    }

    fn skip_field(&mut self, bits: u64, order: ByteOrder) {
        self.check_order(order);
        self.skip(bits, order);
    }

    fn skip(&mut self, bits: u64, order: ByteOrder) {
        self.min_bits = self.min_bits.saturating_add(bits);
        self.known = self.known.after(bits);
        if let Some(Step::Skip(before, last)) = self.steps.last_mut()
            && let Some(sum) = before.checked_add(bits)
        {
            *before = sum;
            *last = order;
            return;
        }
        self.steps.push(Step::Skip(bits, order));
    }

    fn check_order(&mut self, order: ByteOrder) {
        if self.known.is_whole_bytes() {
            return;
        }
        // If the order of the field before is known, it is compared here and not for each event.
        match self.steps.last() {
            Some(Step::Skip(_, before)) if *before == order => {}
            Some(Step::Read(read)) if read.order == order => {}
            _ => self.steps.push(Step::Order(order)),
        }
    }
}

/// Whether a field moves the stream's clock. `timestamp_end` does not: it holds for the end of the
/// packet, and is decoded before the packet's events. Nor do signed fields, even if they are mapped
/// to a clock.
fn moves_clock(role: Option<Role>, mapped: bool, signed: bool) -> bool {
    !signed && role != Some(Role::PacketEnd) && (mapped || role == Some(Role::Timestamp))
}
