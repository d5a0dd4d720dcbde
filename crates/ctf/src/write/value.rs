//! The values of events, and how they are written.

use super::declare::{FieldType, Width};

/// The value of a field of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// The value of [`FieldType::Unsigned`], [`FieldType::Hexadecimal`] or
    /// [`FieldType::Enumeration`].
    Unsigned(u64),
    /// The value of [`FieldType::Signed`].
    Signed(i64),
    /// The value of [`FieldType::Float`].
    Float(f64),
    /// The value of [`FieldType::Boolean`].
    Boolean(bool),
    /// The value of [`FieldType::Text`].
    Text(&'a str),
    /// The value of [`FieldType::Arguments`]. Of more than 255 arguments the first 254 are written,
    /// and one more with the number of the others.
    Arguments(&'a [Argument<'a>]),
    /// The value of [`FieldType::Bytes`], of less than 4 GiB.
    Bytes(&'a [u8]),
}

macro_rules! from_numbers {
    ($($number:ty => $value:ident,)*) => {$(
        impl From<$number> for Value<'_> {
            fn from(number: $number) -> Self {
                Self::$value(number.into())
            }
        }
    )*};
}

from_numbers! {
    u8 => Unsigned, u16 => Unsigned, u32 => Unsigned, u64 => Unsigned,
    i8 => Signed, i16 => Signed, i32 => Signed, i64 => Signed,
    f32 => Float, f64 => Float, bool => Boolean,
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// An argument: a value that carries its own key and kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Argument<'a> {
    /// The key of the argument: its name as readers show it.
    pub key: &'a str,
    /// The value of the argument, which has a kind of its own.
    pub value: ArgumentValue<'a>,
}

/// The value of an argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArgumentValue<'a> {
    /// An argument without a value.
    Nil,
    /// A boolean, written as [`FieldType::Boolean`] is.
    Flag(bool),
    /// A signed integer of 64 bits.
    Signed(i64),
    /// An unsigned integer of 64 bits.
    Unsigned(u64),
    /// A floating point number of 64 bits.
    Real(f64),
    /// A text, written as [`FieldType::Text`] is.
    Text(&'a str),
}

/// The reason why a value is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The value is not one of the field's type, or not in its range.
    Type,
    /// There is no room for it.
    NoSpace,
}

/// A buffer of bounded size.
#[derive(Debug)]
pub(super) struct BoundedBuffer<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    /// The size up to which the buffer may grow, in bytes.
    pub(super) max_bytes: usize,
}

impl BoundedBuffer<'_> {
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Misfit> {
        if self.bytes.len().saturating_add(bytes.len()) > self.max_bytes {
            return Err(Misfit::NoSpace);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes a value as a field of this type.
    pub(super) fn field(&mut self, of: &FieldType, value: Value<'_>) -> Result<(), Misfit> {
        match (of, value) {
            (
                FieldType::Unsigned(width) | FieldType::Hexadecimal(width),
                Value::Unsigned(number),
            ) => self.unsigned(*width, number),
            (FieldType::Enumeration(of), Value::Unsigned(number)) => {
                self.unsigned(of.width, number)
            }
            (FieldType::Signed(width), Value::Signed(number)) => self.signed(*width, number),
            (FieldType::Float, Value::Float(number)) => self.put(&number.to_le_bytes()),
            (FieldType::Boolean, Value::Boolean(flag)) => self.put(&[u8::from(flag)]),
            (FieldType::Text, Value::Text(text)) => self.text(text),
            (FieldType::Arguments, Value::Arguments(arguments)) => self.arguments(arguments),
            (FieldType::Bytes, Value::Bytes(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(|_| Misfit::Type)?;
                self.put(&length.to_le_bytes())?;
                self.put(bytes)
            }
            _ => Err(Misfit::Type),
        }
    }

    fn unsigned(&mut self, width: Width, number: u64) -> Result<(), Misfit> {
        if number > width.highest() {
            return Err(Misfit::Type);
        }
        self.low_bytes(width, number.to_le_bytes())
    }

    fn signed(&mut self, width: Width, number: i64) -> Result<(), Misfit> {
        let unused = 64 - width.bits();
        if (number << unused) >> unused != number {
            return Err(Misfit::Type);
        }
        self.low_bytes(width, number.to_le_bytes())
    }

    fn low_bytes(&mut self, width: Width, bytes: [u8; 8]) -> Result<(), Misfit> {
        let [a, b, c, d, ..] = bytes;
        match width {
            Width::Bits8 => self.put(&[a]),
            Width::Bits16 => self.put(&[a, b]),
            Width::Bits32 => self.put(&[a, b, c, d]),
            Width::Bits64 => self.put(&bytes),
        }
    }

    /// Writes a text with its terminator. A NUL would end the text early, and is replaced.
    fn text(&mut self, text: &str) -> Result<(), Misfit> {
        for (place, part) in text.split('\0').enumerate() {
            if place > 0 {
                self.put("\u{fffd}".as_bytes())?;
            }
            self.put(part.as_bytes())?;
        }
        self.put(&[0])
    }

    fn arguments(&mut self, arguments: &[Argument<'_>]) -> Result<(), Misfit> {
        if let Ok(count) = u8::try_from(arguments.len()) {
            self.put(&[count])?;
            return arguments.iter().try_for_each(|one| self.argument(one));
        }
        let kept = usize::from(u8::MAX) - 1;
        self.put(&[u8::MAX])?;
        for argument in arguments.iter().take(kept) {
            self.argument(argument)?;
        }
        self.argument(&Argument {
            key: &format!("{} more", arguments.len() - kept),
            value: ArgumentValue::Nil,
        })
    }

    fn argument(&mut self, argument: &Argument<'_>) -> Result<(), Misfit> {
        self.text(argument.key)?;
        match argument.value {
            ArgumentValue::Nil => self.put(&[0, 0]),
            ArgumentValue::Flag(flag) => self.put(&[1, u8::from(flag)]),
            ArgumentValue::Signed(number) => {
                self.put(&[2])?;
                self.put(&number.to_le_bytes())
            }
            ArgumentValue::Unsigned(number) => {
                self.put(&[3])?;
                self.put(&number.to_le_bytes())
            }
            ArgumentValue::Real(number) => {
                self.put(&[4])?;
                self.put(&number.to_le_bytes())
            }
            ArgumentValue::Text(text) => {
                self.put(&[5])?;
                self.text(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(of: &FieldType, value: Value<'_>) -> Result<Vec<u8>, Misfit> {
        let mut bytes = Vec::new();
        let mut room = BoundedBuffer {
            bytes: &mut bytes,
            max_bytes: 4096,
        };
        room.field(of, value)?;
        Ok(bytes)
    }

    #[test]
    fn written_numbers_are_little_endian_and_must_fit_their_field() {
        let (u16, i16) = (
            FieldType::Unsigned(Width::Bits16),
            FieldType::Signed(Width::Bits16),
        );
        assert_eq!(bytes(&u16, Value::Unsigned(0x1234)), Ok(vec![0x34, 0x12]));
        assert_eq!(bytes(&u16, Value::Unsigned(0x1_0000)), Err(Misfit::Type));
        assert_eq!(bytes(&i16, Value::Signed(-2)), Ok(vec![0xfe, 0xff]));
        assert_eq!(bytes(&i16, Value::Signed(-0x8001)), Err(Misfit::Type));
        assert_eq!(bytes(&i16, Value::Signed(0x8000)), Err(Misfit::Type));
        let i64 = FieldType::Signed(Width::Bits64);
        assert_eq!(bytes(&i64, Value::Signed(i64::MIN)).unwrap()[7], 0x80);
        assert_eq!(bytes(&u16, Value::Signed(1)), Err(Misfit::Type));
        assert_eq!(
            bytes(&FieldType::Text, Value::Boolean(true)),
            Err(Misfit::Type)
        );
    }

    #[test]
    fn a_nul_byte_does_not_end_a_written_text() {
        let text = bytes(&FieldType::Text, Value::Text("a\0b")).unwrap();
        assert_eq!(text, "a\u{fffd}b\0".as_bytes());
    }

    #[test]
    fn a_written_argument_is_key_kind_and_value() {
        let arguments = [
            Argument {
                key: "a",
                value: ArgumentValue::Flag(true),
            },
            Argument {
                key: "",
                value: ArgumentValue::Text("x"),
            },
        ];
        let written = bytes(&FieldType::Arguments, Value::Arguments(&arguments));
        assert_eq!(written.unwrap(), b"\x02a\0\x01\x01\0\x05x\0");
    }

    #[test]
    fn too_many_arguments_are_cut_and_the_rest_is_counted() {
        let one = Argument {
            key: "k",
            value: ArgumentValue::Nil,
        };
        let written = bytes(&FieldType::Arguments, Value::Arguments(&[one; 255])).unwrap();
        assert_eq!(written.len(), 1 + 255 * 4);
        let written = bytes(&FieldType::Arguments, Value::Arguments(&[one; 300])).unwrap();
        assert_eq!(written[0], 255);
        assert!(written.ends_with(b"46 more\0\0\0"));
        assert_eq!(written.len(), 1 + 254 * 4 + 10);
    }

    #[test]
    fn values_are_never_written_beyond_the_packet() {
        let mut bytes = vec![1, 2, 3];
        let mut room = BoundedBuffer {
            bytes: &mut bytes,
            max_bytes: 5,
        };
        assert_eq!(
            room.field(&FieldType::Text, Value::Text("ab")),
            Err(Misfit::NoSpace)
        );
        assert!(bytes.len() <= 5);
    }
}
