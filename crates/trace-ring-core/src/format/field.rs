//! Types and bytes of event fields. Fields follow each other without alignment.

use super::{Bytes, FormatError};

/// Largest number of bytes of one string or byte sequence.
pub const MAX_STRING_SIZE: usize = u16::MAX as usize;

/// Type of a field. The number is its code in `meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FieldType {
    /// An unsigned integer of 1 byte.
    U8 = 1,
    /// An unsigned integer of 2 bytes.
    U16 = 2,
    /// An unsigned integer of 4 bytes.
    U32 = 3,
    /// An unsigned integer of 8 bytes.
    U64 = 4,
    /// A signed integer of 1 byte.
    I8 = 5,
    /// A signed integer of 2 bytes.
    I16 = 6,
    /// A signed integer of 4 bytes.
    I32 = 7,
    /// A signed integer of 8 bytes.
    I64 = 8,
    /// 4 bytes, IEEE 754.
    F32 = 9,
    /// 8 bytes, IEEE 754.
    F64 = 10,
    /// 1 byte, 0 or 1.
    Bool = 11,
    /// Length u16, then as many bytes of text. The writer means UTF-8; a reader checks it where it
    /// shows it.
    Str = 12,
    /// Length u16, then as many bytes.
    Bytes = 13,
}

impl FieldType {
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Str,
        Self::Bytes,
    ];

    /// Returns the code in `meta`.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Bytes that a value takes, `None` for strings and byte sequences.
    #[must_use]
    pub const fn fixed_size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Bytes => None,
        }
    }
}

/// Value of a field in a reader's copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue<'a> {
    /// An unsigned integer of any size.
    Unsigned(u64),
    /// A signed integer of any size.
    Signed(i64),
    /// A float of either size.
    Float(f64),
    /// A truth value; every byte but 0 is true.
    Bool(bool),
    /// Text, not yet checked to be UTF-8.
    Str(&'a [u8]),
    /// A sequence of bytes.
    Bytes(&'a [u8]),
}

/// Reads the value of type `kind` at the front of `bytes`; returns it with the number of bytes that
/// it takes.
///
/// # Errors
/// When the value does not end within `bytes`.
pub fn read_field(kind: FieldType, bytes: &[u8]) -> Result<(FieldValue<'_>, usize), FormatError> {
    let bytes = Bytes {
        what: "field",
        bytes,
    };
    let value = match kind {
        FieldType::U8 => FieldValue::Unsigned(bytes.u8(0)?.into()),
        FieldType::U16 => FieldValue::Unsigned(bytes.u16(0)?.into()),
        FieldType::U32 => FieldValue::Unsigned(bytes.u32(0)?.into()),
        FieldType::U64 => FieldValue::Unsigned(bytes.u64(0)?),
        FieldType::I8 => FieldValue::Signed(i8::from_le_bytes(bytes.array(0)?).into()),
        FieldType::I16 => FieldValue::Signed(i16::from_le_bytes(bytes.array(0)?).into()),
        FieldType::I32 => FieldValue::Signed(i32::from_le_bytes(bytes.array(0)?).into()),
        FieldType::I64 => FieldValue::Signed(i64::from_le_bytes(bytes.array(0)?)),
        FieldType::F32 => FieldValue::Float(f32::from_le_bytes(bytes.array(0)?).into()),
        FieldType::F64 => FieldValue::Float(f64::from_le_bytes(bytes.array(0)?)),
        FieldType::Bool => FieldValue::Bool(bytes.u8(0)? != 0),
        FieldType::Str | FieldType::Bytes => {
            let length = usize::from(bytes.u16(0)?);
            let content = bytes.slice(2, length)?;
            let value = if kind == FieldType::Str {
                FieldValue::Str(content)
            } else {
                FieldValue::Bytes(content)
            };
            return Ok((value, 2 + length));
        }
    };
    Ok((value, kind.fixed_size().unwrap_or_default()))
}
