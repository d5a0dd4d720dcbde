//! Names as peers send them: bytes, NUL-filled or NUL-terminated, not checked yet.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::BufMut;

use crate::field::split_off;
use crate::{DecodeError, Field};

/// Text from a peer, without its NUL. Usually UTF-8, but any bytes may be in it.
///
/// `Display` escapes control characters, so that a name cannot send escape sequences to a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Box<[u8]>);

impl Text {
    /// The bytes of the text, without its NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the text has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `length` bytes without a NUL at their end.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if `length` is not one of `lengths`, [`DecodeError::Truncated`] if
    /// there are fewer bytes.
    pub fn read(
        from: &mut &[u8],
        length: u32,
        what: &'static str,
        lengths: RangeInclusive<u32>,
    ) -> Result<Self, DecodeError> {
        // Checked before anything is read: the peer decides how long a text claims to be.
        if !lengths.contains(&length) {
            return Err(DecodeError::Length {
                what,
                got: u64::from(length),
                min: u64::from(*lengths.start()),
                max: u64::from(*lengths.end()),
            });
        }
        // No copy before the length has been checked against what is there.
        split_off(from, length as usize, what).map(Self::from)
    }

    /// Reads `length` bytes that end with a NUL, the only one among them.
    ///
    /// # Errors
    /// As [`Self::read`], and [`DecodeError::Unterminated`] if the last byte is not the first NUL.
    pub fn read_terminated(
        from: &mut &[u8],
        length: u32,
        what: &'static str,
        lengths: RangeInclusive<u32>,
    ) -> Result<Self, DecodeError> {
        let mut at = *from;
        let text = Self::read(&mut at, length, what, lengths)?;
        // `read` takes the bytes before the first NUL.
        if text.0.len() + 1 != length as usize {
            return Err(DecodeError::Unterminated { what });
        }
        *from = at;
        Ok(text)
    }

    /// Reads a text whose announced length includes its NUL, and is 0 if there is no text.
    ///
    /// # Errors
    /// As [`Self::read_terminated`] with lengths up to `max`.
    pub fn read_optional(
        from: &mut &[u8],
        length: u32,
        what: &'static str,
        max: u32,
    ) -> Result<Option<Self>, DecodeError> {
        match length {
            0 => Ok(None),
            _ => Self::read_terminated(from, length, what, 1..=max).map(Some),
        }
    }

    /// Appends the text and a NUL.
    pub fn write_terminated(&self, to: &mut impl BufMut) {
        to.put_slice(&self.0);
        to.put_u8(0);
    }

    /// Length on the wire in bytes, with the NUL.
    ///
    /// # Panics
    /// If the text is 4 GiB long, which no message can hold.
    #[must_use]
    pub fn terminated_len(&self) -> u32 {
        u32::try_from(self.0.len() + 1).expect("a message holds less than 4 GiB")
    }
}

impl From<&[u8]> for Text {
    /// Takes the bytes up to the first NUL.
    fn from(bytes: &[u8]) -> Self {
        let text = bytes.split(|&byte| byte == 0).next();
        Self(text.unwrap_or_default().into())
    }
}

impl From<&str> for Text {
    /// Takes the text up to the first NUL.
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Piece by piece, so that nothing is copied for a message.
        for piece in self.0.utf8_chunks() {
            for character in piece.valid().chars() {
                if character.is_control() {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    write!(f, "{character}")?;
                }
            }
            // Not replaced: names of files have any bytes, and two names must not look the same.
            for byte in piece.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// [`Text`] in an array of `N` bytes, filled up with NULs.
///
/// Reading takes what stands before the first NUL, or all `N` bytes; writing cuts a longer text so
/// that one NUL stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedText<const N: usize>(pub Text);

impl<const N: usize> FixedText<N> {
    /// The text, if at least one NUL followed it.
    ///
    /// # Errors
    /// [`DecodeError::Unterminated`] if it filled the whole array.
    pub fn terminated(self, what: &'static str) -> Result<Text, DecodeError> {
        if self.0.as_bytes().len() < N {
            Ok(self.0)
        } else {
            Err(DecodeError::Unterminated { what })
        }
    }
}

impl<const N: usize> Field for FixedText<N> {
    const SIZE: usize = N;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let bytes = split_off(from, N, "text")?;
        Ok(Self(Text::from(bytes)))
    }

    fn write(&self, to: &mut impl BufMut) {
        let text = self.0.as_bytes();
        // C programs read up to the NUL: without one they would read on into the next field.
        let kept = text.get(..N - 1).unwrap_or(text);
        to.put_slice(kept);
        to.put_bytes(0, N - kept.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminated_text_ends_with_its_only_nul() {
        let read =
            |bytes: &[u8], length| Text::read_terminated(&mut { bytes }, length, "name", 2..=5);
        assert_eq!(read(b"abc\0", 4), Ok(Text::from("abc")));
        for (case, bytes, length, want) in [
            (
                "no NUL",
                &b"abcd"[..],
                4,
                DecodeError::Unterminated { what: "name" },
            ),
            (
                "early NUL",
                b"a\0c\0",
                4,
                DecodeError::Unterminated { what: "name" },
            ),
            (
                "cut",
                b"ab",
                4,
                DecodeError::Truncated {
                    what: "name",
                    need: 4,
                    have: 2,
                },
            ),
            (
                "short",
                b"\0",
                1,
                DecodeError::Length {
                    what: "name",
                    got: 1,
                    min: 2,
                    max: 5,
                },
            ),
            (
                "long",
                b"abcde\0",
                6,
                DecodeError::Length {
                    what: "name",
                    got: 6,
                    min: 2,
                    max: 5,
                },
            ),
        ] {
            assert_eq!(read(bytes, length), Err(want), "{case}");
        }
    }

    #[test]
    fn a_fixed_text_that_fills_its_array_is_unterminated() {
        let full = FixedText::<3>::read(&mut &b"abc"[..]).unwrap();
        assert_eq!(full.0, Text::from("abc"));
        assert_eq!(
            full.terminated("name"),
            Err(DecodeError::Unterminated { what: "name" })
        );
        let short = FixedText::<3>::read(&mut &b"ab\0"[..]).unwrap();
        assert_eq!(short.terminated("name"), Ok(Text::from("ab")));
    }

    #[test]
    fn a_text_too_long_for_its_array_is_cut_and_terminated() {
        let mut bytes = Vec::new();
        FixedText::<4>(Text::from("abcdef")).write(&mut bytes);
        assert_eq!(bytes, b"abc\0");
    }

    #[test]
    fn control_characters_and_broken_utf8_show_escaped() {
        assert_eq!(
            Text::from(&b"a\x1b[2J\xffz"[..]).to_string(),
            "a\\u{1b}[2J\\xffz"
        );
    }
}
