//! The trait by which a program receives the fields of an event, in the order in which they lie.

use crate::model::{Base, Labels, Scope};

/// The format in which a number is to be shown.
#[derive(Debug, Clone, Copy)]
pub struct NumberFormat<'a> {
    /// The width of the number in bits, 1 to 64; of a number of variable length seven for each of
    /// its bytes, at most 64.
    pub bits: u8,
    /// The base in which the metadata wants it shown.
    pub base: Base,
    /// The labels of an enumeration; `None` if it is none.
    pub labels: Option<&'a Labels>,
}

/// Receives each visible field, in order. Nothing is allocated for it, but for UTF-16 and UTF-32:
/// texts and BLOBs are borrowed from the packet.
///
/// A scope is [`begin_scope`](Self::begin_scope), the walk of one structure, then
/// [`end_scope`](Self::end_scope). Scopes that show nothing are left out. A program implements the
/// methods of the field classes that it needs; the others do nothing.
pub trait Visitor {
    /// A root begins; its structure follows.
    fn begin_scope(&mut self, scope: Scope) {
        let _ = scope;
    }
    /// The root that was begun last ends.
    fn end_scope(&mut self) {}
    /// A structure begins; the name and the value of each visible member follow.
    fn begin_structure(&mut self) {}
    /// The next value belongs to the member of this name.
    fn member(&mut self, name: &str) {
        let _ = name;
    }
    /// The structure that was begun last ends.
    fn end_structure(&mut self) {}
    /// An array of `length` elements begins; the index and the value of each element follow.
    fn begin_array(&mut self, length: u64) {
        let _ = length;
    }
    /// The next value is the element of this index.
    fn element(&mut self, index: u64) {
        let _ = index;
    }
    /// The array that was begun last ends.
    fn end_array(&mut self) {}
    /// The variant that begins next takes the option at this place in the order of declaration:
    /// several options may have the same name, or none.
    fn variant_option(&mut self, place: usize) {
        let _ = place;
    }
    /// A variant begins, with the name of the option that is taken; one value follows.
    fn begin_variant(&mut self, option: Option<&str>) {
        let _ = option;
    }
    /// The variant that was begun last ends.
    fn end_variant(&mut self) {}
    /// An optional field begins; if it is present one value follows.
    fn begin_optional(&mut self, present: bool) {
        let _ = present;
    }
    /// The optional field that was begun last ends.
    fn end_optional(&mut self) {}
    /// An unsigned number, and how it is to be shown.
    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        let _ = (value, format);
    }
    /// A signed number, sign-extended from its width, and how it is to be shown.
    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        let _ = (value, format);
    }
    /// A floating point number of 32 or 64 bits.
    fn float(&mut self, value: f64, bits: u8) {
        let _ = (value, bits);
    }
    /// A boolean: true if any of its bits is set.
    fn boolean(&mut self, value: bool) {
        let _ = value;
    }
    /// Bits, with their flags if it is a bit map.
    fn bit_array(&mut self, value: u64, bits: u8, flags: Option<&Labels>) {
        let _ = (value, bits, flags);
    }
    /// A text, usually UTF-8, but that is not checked.
    fn text(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
    /// The bytes of a BLOB, with their IANA media type.
    fn blob(&mut self, bytes: &[u8], media_type: &str) {
        let _ = (bytes, media_type);
    }
}
