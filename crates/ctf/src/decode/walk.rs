//! Walks over the fields of an event for a [`Visitor`], in the order in which they lie.

use std::cell::Cell;

use byteorder::{BigEndian, ByteOrder as _, LittleEndian};

use super::error::FieldError;
use super::run::{Cursor, find_terminator, load_length, load_selector, load_slot, store_slot};
use super::visit::{NumberFormat, Visitor};
use crate::bits::reverse_bits;
use crate::lookup::any_contains;
use crate::model::{
    BitField, ByteOrder, Encoding, FieldClass, Integer, Length, Scope, Slot, Structure,
    VariableInteger,
};

/// A walk over the fields of one packet, with the values of the lengths and selectors so far.
pub(crate) struct Walk<'w, 'a, V> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) slots: &'w [Cell<u64>],
    pub(crate) visitor: &'w mut V,
}

impl<V: Visitor> Walk<'_, '_, V> {
    /// Shows the root `structure`, unless nothing of it is visible, and moves to its end.
    pub(crate) fn visit_scope(
        &mut self,
        scope: Scope,
        structure: &Structure,
    ) -> Result<(), FieldError> {
        if structure.is_hidden() {
            self.cursor = skip_hidden(self.cursor, self.slots, |walk| {
                walk.visit_structure(structure)
            })?;
            return Ok(());
        }
        self.visitor.begin_scope(scope);
        self.visit_structure(structure)?;
        self.visitor.end_scope();
        Ok(())
    }

    /// Shows `structure`, and moves to its end.
    pub(crate) fn visit_structure(&mut self, structure: &Structure) -> Result<(), FieldError> {
        self.cursor.align(structure.alignment);
        self.visitor.begin_structure();
        for member in &structure.members {
            if member.hidden {
                let pass = |walk: &mut Walk<'_, '_, NullVisitor>| walk.visit_class(&member.class);
                self.cursor = skip_hidden(self.cursor, self.slots, pass)?;
            } else {
                self.visitor.member(&member.name);
                self.visit_class(&member.class)?;
            }
        }
        self.visitor.end_structure();
        Ok(())
    }

    pub(crate) fn visit_class(&mut self, class: &FieldClass) -> Result<(), FieldError> {
        match class {
            FieldClass::Integer(integer) => self.visit_integer(integer),
            FieldClass::String(encoding) => self.visit_string(*encoding),
            FieldClass::Structure(structure) => self.visit_structure(structure),
            FieldClass::Text { length, encoding } => self.visit_text(length, *encoding),
            FieldClass::Array {
                element,
                length,
                alignment,
                ..
            } => {
                self.cursor.align(*alignment);
                self.visit_array(element, length)
            }
            FieldClass::Float(field) => self.visit_float(field),
            FieldClass::Variant(variant) => {
                let bits = load_slot(self.slots, variant.selector);
                let place = variant.lookup.find(bits, variant.signed);
                let option = place.and_then(|place| Some((place, variant.options.get(place)?)));
                // The plan has checked this when the event was found: it fails only for other
                // bytes.
                let (place, option) = option.ok_or_else(|| FieldError::NoOption {
                    value: load_selector(self.slots, variant.selector, variant.signed),
                })?;
                self.visitor.variant_option(place);
                self.visitor.begin_variant(option.name.as_deref());
                self.visit_class(&option.class)?;
                self.visitor.end_variant();
                Ok(())
            }
            FieldClass::Optional {
                selector,
                ranges,
                class,
                signed,
            } => {
                let value = load_selector(self.slots, *selector, *signed);
                // Without ranges the selector is a boolean (CTF 2, optional field class).
                let present = any_contains(ranges, value) || ranges.is_empty() && value != 0;
                self.visitor.begin_optional(present);
                if present {
                    self.visit_class(class)?;
                }
                self.visitor.end_optional();
                Ok(())
            }
            FieldClass::VariableInteger(integer) => self.visit_variable(integer),
            FieldClass::Reversed(class) => self.visit_reversed(class),
            FieldClass::Boolean(field) => {
                let set = self.read_bit_field(field)? != 0;
                // As 0 or 1, like the plan stores it: an optional field compares its selector with
                // 0.
                if let Some(slot) = field.slot {
                    store_slot(self.slots, slot, u64::from(set));
                }
                self.visitor.boolean(set);
                Ok(())
            }
            FieldClass::BitArray(field) => {
                let value = self.read_bit_field(field)?;
                self.visitor.bit_array(value, field.bits, None);
                Ok(())
            }
            FieldClass::BitMap(field, flags) => {
                let value = self.read_bit_field(field)?;
                self.visitor.bit_array(value, field.bits, Some(flags));
                Ok(())
            }
            FieldClass::Blob {
                length, media_type, ..
            } => {
                self.cursor.align(8);
                let length = load_length(self.slots, length);
                let bytes = self.cursor.read_bytes(length)?;
                self.visitor.blob(bytes, media_type);
                Ok(())
            }
        }
    }

    #[inline]
    fn visit_integer(&mut self, integer: &Integer) -> Result<(), FieldError> {
        self.cursor.align(integer.alignment);
        let number = self
            .cursor
            .read_integer(integer.bits, integer.order, integer.signed)?;
        let format = NumberFormat {
            bits: integer.bits,
            base: integer.base,
            labels: integer.labels.as_deref(),
        };
        self.show_number(number, integer.signed, integer.slot, format);
        Ok(())
    }

    fn visit_variable(&mut self, integer: &VariableInteger) -> Result<(), FieldError> {
        self.cursor.align(8);
        let (number, bits) = self.cursor.read_variable(integer.signed)?;
        let format = NumberFormat {
            bits,
            base: integer.base,
            labels: integer.labels.as_deref(),
        };
        self.show_number(number, integer.signed, integer.slot, format);
        Ok(())
    }

    /// Shows a number, and keeps it for the lengths and selections that refer to it.
    #[inline]
    fn show_number(
        &mut self,
        number: u64,
        signed: bool,
        slot: Option<Slot>,
        format: NumberFormat<'_>,
    ) {
        if let Some(slot) = slot {
            store_slot(self.slots, slot, number);
        }
        if signed {
            self.visitor.signed(number.cast_signed(), format);
        } else {
            self.visitor.unsigned(number, format);
        }
    }

    /// Shows a field whose bits lie in the opposite order: it is read from a copy in the usual
    /// order.
    fn visit_reversed(&mut self, class: &FieldClass) -> Result<(), FieldError> {
        let (bits, order) = match class {
            FieldClass::Integer(integer) => (integer.bits, integer.order),
            FieldClass::Float(field)
            | FieldClass::Boolean(field)
            | FieldClass::BitArray(field)
            | FieldClass::BitMap(field, _) => (field.bits, field.order),
            // No other class has bits of its own.
            _ => return self.visit_class(class),
        };
        self.cursor.align(class.alignment());
        let number = reverse_bits(self.cursor.read_number(bits, order)?, bits);
        // The copy begins with the field's first bit: the lowest of the first byte if the order is
        // little-endian, the highest if it is big-endian.
        let bytes = match order {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => (number << (64 - u32::from(bits))).to_be_bytes(),
        };
        let cursor = Cursor {
            bytes: &bytes,
            // Position 0 is a multiple of any alignment.
            position: 0,
            end: u64::from(bits),
            shift: 0,
        };
        let mut walk = Walk {
            cursor,
            slots: self.slots,
            visitor: &mut *self.visitor,
        };
        walk.visit_class(class)
    }

    fn read_bit_field(&mut self, field: &BitField) -> Result<u64, FieldError> {
        self.cursor.align(field.alignment);
        self.cursor.read_number(field.bits, field.order)
    }

    fn visit_float(&mut self, field: &BitField) -> Result<(), FieldError> {
        let bits = self.read_bit_field(field)?;
        // Widening is exact: visitors need one method for both widths.
        let value = match u32::try_from(bits) {
            Ok(single) if field.bits == 32 => f64::from(f32::from_bits(single)),
            _ => f64::from_bits(bits),
        };
        self.visitor.float(value, field.bits);
        Ok(())
    }

    fn visit_array(&mut self, element: &FieldClass, length: &Length) -> Result<(), FieldError> {
        let length = load_length(self.slots, length);
        self.visitor.begin_array(length);
        // The plan has bounded the length by the packet when the event was found.
        for index in 0..length {
            self.visitor.element(index);
            self.visit_class(element)?;
        }
        self.visitor.end_array();
        Ok(())
    }

    fn visit_string(&mut self, encoding: Encoding) -> Result<(), FieldError> {
        self.cursor.align(8);
        let bytes = self.cursor.read_text(encoding.unit())?;
        self.show_text(bytes, encoding);
        Ok(())
    }

    fn visit_text(&mut self, length: &Length, encoding: Encoding) -> Result<(), FieldError> {
        self.cursor.align(8);
        let length = load_length(self.slots, length);
        let bytes = self.cursor.read_bytes(length)?;
        // All bytes belong to the field, but the text ends at the first zero: short texts are
        // padded.
        let end = find_terminator(bytes, encoding.unit());
        let text = end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
        self.show_text(text, encoding);
        Ok(())
    }

    fn show_text(&mut self, bytes: &[u8], encoding: Encoding) {
        // Traced programs record any bytes: those that are not text must not end decoding.
        match encoding {
            Encoding::Utf8 => self.visitor.text(bytes),
            Encoding::Utf16(order) => {
                let read = match order {
                    ByteOrder::Little => LittleEndian::read_u16,
                    ByteOrder::Big => BigEndian::read_u16,
                };
                let text = char::decode_utf16(bytes.chunks_exact(2).map(read))
                    .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect::<String>();
                self.visitor.text(text.as_bytes());
            }
            Encoding::Utf32(order) => {
                let read = match order {
                    ByteOrder::Little => LittleEndian::read_u32,
                    ByteOrder::Big => BigEndian::read_u32,
                };
                let text = bytes
                    .chunks_exact(4)
                    .map(|unit| char::from_u32(read(unit)).unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect::<String>();
                self.visitor.text(text.as_bytes());
            }
        }
    }
}

/// The visitor for fields that are passed without being shown.
pub(crate) struct NullVisitor;

impl Visitor for NullVisitor {}

/// Moves over fields that are not shown, and returns the position after them. They are decoded all
/// the same: a visible field may refer to one of them.
pub(crate) fn skip_hidden<'a>(
    cursor: Cursor<'a>,
    slots: &[Cell<u64>],
    pass: impl FnOnce(&mut Walk<'_, 'a, NullVisitor>) -> Result<(), FieldError>,
) -> Result<Cursor<'a>, FieldError> {
    let mut walk = Walk {
        cursor,
        slots,
        visitor: &mut NullVisitor,
    };
    pass(&mut walk)?;
    Ok(walk.cursor)
}
