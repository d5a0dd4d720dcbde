//! UUIDs of traces and clocks.

use std::fmt;

/// The UUID of a trace or a clock (`uuid` of `trace` and `clock`, "uuid" and "uid"): 16 bytes in
/// the order in which packets hold them. `Display` writes 32 hexadecimal digits with dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12, with a dash between groups;
    /// `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let groups = [8, 4, 4, 4, 12];
        let mut digits = Vec::with_capacity(32);
        let mut parts = text.split('-');
        for group in groups {
            // Bytes are counted, not characters: one that is not ASCII is no digit and is refused
            // below.
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
            // No overflow: two digits of 4 bits fill the byte.
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
