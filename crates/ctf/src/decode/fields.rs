//! Reads the fields of an event one by one, for programs that know the order of its fields from its
//! class.

use std::cell::Cell;

use super::error::FieldError;
use super::run::{Cursor, find_terminator, load_length, store_slot};
use super::visit::Visitor;
use super::walk::{Walk, skip_hidden};
use crate::model::{FieldClass, Integer, Length};

/// A cursor before a field of an event. Fields must be taken in the order of the class: in another
/// order the values are wrong, or there is an error, but no panic.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) slots: &'a [Cell<u64>],
}

impl<'a> Fields<'a> {
    /// Moves to the next multiple of `alignment` bits, a power of two. Structures begin at their
    /// alignment.
    #[inline]
    pub fn align(&mut self, alignment: u32) {
        self.cursor.align(alignment);
    }

    /// Takes an integer. That of a signed class is sign-extended to 64 bits.
    ///
    /// # Errors
    /// If the content ends within the integer.
    #[inline(always)]
    pub fn number(&mut self, class: &Integer) -> Result<u64, FieldError> {
        self.cursor.align(class.alignment);
        let number = self
            .cursor
            .read_integer(class.bits, class.order, class.signed)?;
        if let Some(slot) = class.slot {
            store_slot(self.slots, slot, number);
        }
        Ok(number)
    }

    /// Takes a text of UTF-8 that ends with a zero. ([`FieldClass::String`])
    ///
    /// # Errors
    /// If it has no terminator within the content.
    #[inline]
    pub fn string(&mut self) -> Result<&'a [u8], FieldError> {
        self.cursor.align(8);
        self.cursor.read_text(1)
    }

    /// Takes a text of UTF-8 in an array of this length, up to the first zero.
    /// ([`FieldClass::Text`])
    ///
    /// # Errors
    /// If the content ends within the array.
    #[inline]
    pub fn text(&mut self, length: &Length) -> Result<&'a [u8], FieldError> {
        self.cursor.align(8);
        let length = load_length(self.slots, length);
        let bytes = self.cursor.read_bytes(length)?;
        // All bytes belong to the field, but the text ends at the first zero: short texts are
        // padded.
        let end = find_terminator(bytes, 1);
        Ok(end.and_then(|end| bytes.get(..end)).unwrap_or(bytes))
    }

    /// Takes a field of any class, and shows it to the visitor.
    ///
    /// # Errors
    /// If the field does not fit into the content, or does not match its class.
    pub fn visit<V: Visitor>(
        &mut self,
        class: &FieldClass,
        visitor: &mut V,
    ) -> Result<(), FieldError> {
        // The walk has a copy of the cursor, so that after an error this one is still before the
        // field.
        let mut walk = Walk {
            cursor: self.cursor,
            slots: self.slots,
            visitor,
        };
        walk.visit_class(class)?;
        self.cursor = walk.cursor;
        Ok(())
    }

    /// Skips any field, and shows nothing of it.
    ///
    /// # Errors
    /// If the field does not fit into the content, or does not match its class.
    pub fn skip_field(&mut self, class: &FieldClass) -> Result<(), FieldError> {
        self.cursor = skip_hidden(self.cursor, self.slots, |walk| walk.visit_class(class))?;
        Ok(())
    }
}
