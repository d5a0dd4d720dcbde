use bytes::BufMut;

use crate::DecodeError;

/// A value with a fixed number of bytes on the wire, big-endian.
///
/// `read` takes the bytes off the front of `from` and leaves `from` untouched when it fails.
pub trait Field: Sized {
    /// The number of bytes on the wire.
    const SIZE: usize;

    /// Takes one value off the front of `from`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when `from` holds less than [`Self::SIZE`] bytes; whatever the
    /// value's own rules refuse.
    fn read(from: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Appends the [`SIZE`](Self::SIZE) bytes of the value.
    fn write(&self, to: &mut impl BufMut);
}

macro_rules! integer_fields {
    ($($int:ident: $put:ident,)*) => {$(
        impl Field for $int {
            const SIZE: usize = size_of::<Self>();

            fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
                let bytes = take(from, stringify!($int))?;
                Ok(Self::from_be_bytes(bytes))
            }

            fn write(&self, to: &mut impl BufMut) {
                to.$put(*self);
            }
        }
    )*};
}

integer_fields! { u8: put_u8, u32: put_u32, u64: put_u64, }

impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        take(from, "byte array")
    }

    fn write(&self, to: &mut impl BufMut) {
        to.put_slice(self);
    }
}

/// A value after one byte that says whether it is set. Without it, the value's bytes mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flagged<T>(pub Option<T>);

impl<T: Field> Field for Flagged<T> {
    const SIZE: usize = 1 + T::SIZE;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        // `from` stays as it is until all of the value has been read.
        let mut at = *from;
        let value = if u8::read(&mut at)? == 0 {
            // Not decoded: without the flag these bytes need not be a valid value.
            split_off(&mut at, T::SIZE, "value")?;
            None
        } else {
            Some(T::read(&mut at)?)
        };
        *from = at;
        Ok(Self(value))
    }

    fn write(&self, to: &mut impl BufMut) {
        to.put_u8(u8::from(self.0.is_some()));
        match &self.0 {
            Some(value) => value.write(to),
            // Zeros and not what was there: memory of a program must not reach its peer.
            None => to.put_bytes(0, T::SIZE),
        }
    }
}

fn take<const N: usize>(from: &mut &[u8], what: &'static str) -> Result<[u8; N], DecodeError> {
    let Some((head, rest)) = from.split_first_chunk::<N>() else {
        return Err(DecodeError::Truncated {
            what,
            need: N,
            have: from.len(),
        });
    };
    *from = rest;
    Ok(*head)
}

/// Splits `need` bytes off the front of `from`.
pub(crate) fn split_off<'a>(
    from: &mut &'a [u8],
    need: usize,
    what: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let have = from.len();
    from.split_off(..need)
        .ok_or(DecodeError::Truncated { what, need, have })
}

/// Splits up to `left` bytes off the front of `input`, and reduces `left` by their number.
pub fn split_up_to<'a>(input: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    // A length that is no `usize` is more than any input has.
    let here = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    *left -= here as u64;
    input.split_off(..here).unwrap_or_default()
}
