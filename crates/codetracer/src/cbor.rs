//! Concatenated CBOR items (RFC 8949) -> JSON texts, as they arrive.
//!
//! An item has no separator before the next one: after a malformed one nothing can be read any
//! more. Maps keep the order of their members.

use thiserror::Error;

/// The byte after the last value of a container, or the last piece of a text, without a length.
const BREAK: u8 = 0xff;

/// Deepest nesting: each open array or map takes some bytes of memory, and none of JSON need
/// follow.
const MAX_DEPTH: usize = 1 << 20;

/// The reason why nothing after this byte can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum CborError {
    #[error("malformed CBOR item (initial byte {0:#04x})")]
    Malformed(u8),
    #[error("CBOR items nested too deeply")]
    TooDeep,
}

/// An item that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CborItem {
    /// The JSON text is complete.
    Json,
    /// The item is well-formed, but has no JSON: bytes, text that is not UTF-8, or keys that are no
    /// texts.
    NoJson,
    /// The JSON text would be too long.
    TooLong,
}

/// An open array or map.
#[derive(Debug)]
struct Container {
    is_map: bool,
    /// Values that follow, for a map keys and values; `None` until a break.
    remaining: Option<u64>,
    /// Values that have been read.
    read: u64,
}

/// The pieces of a text or of bytes without a length, as writers of texts in pieces make them.
#[derive(Debug)]
struct Pieces {
    major: u8,
    bytes: Vec<u8>,
}

/// Turns items into JSON. The reader keeps the open containers, and so looks at each byte once.
#[derive(Debug)]
pub(crate) struct CborReader {
    max_json_bytes: usize,
    buffer: Vec<u8>,
    at: usize,
    open: Vec<Container>,
    /// A text or bytes of which pieces follow.
    pieces: Option<Pieces>,
    json: Vec<u8>,
    state: CborItem,
    is_done: bool,
}

impl CborReader {
    pub(crate) fn new(max_json_bytes: usize) -> Self {
        Self {
            max_json_bytes,
            buffer: Vec::new(),
            at: 0,
            open: Vec::new(),
            pieces: None,
            json: Vec::new(),
            state: CborItem::Json,
            is_done: false,
        }
    }

    /// Adds bytes of the input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Once for each push and not for each item, which would move the rest again and again.
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The text of the last item.
    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    /// The number of bytes that are kept.
    #[cfg(test)]
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Whether an item is incomplete.
    pub(crate) fn has_partial_item(&self) -> bool {
        self.at < self.buffer.len() || !self.open.is_empty() || self.pieces.is_some()
    }

    /// Reads on to the end of the next item. `None` if more bytes are needed.
    pub(crate) fn next_item(&mut self) -> Result<Option<CborItem>, CborError> {
        // Else the item has begun in an earlier call, and its text goes on.
        if self.open.is_empty() && self.pieces.is_none() {
            self.json.clear();
            self.state = CborItem::Json;
        }
        self.is_done = false;
        while !self.is_done {
            if !self.read_token()? {
                return Ok(None);
            }
            if self.json.len() > self.max_json_bytes {
                // The memory is freed at once, and `put` adds nothing until the next item.
                self.json = Vec::new();
                self.state = CborItem::TooLong;
            }
        }
        Ok(Some(self.state))
    }

    /// Reads a number, a text, or the begin or end of a container. Returns false if more bytes are
    /// needed.
    fn read_token(&mut self) -> Result<bool, CborError> {
        let rest = self.buffer.get(self.at..).unwrap_or_default();
        let Some((&initial, rest)) = rest.split_first() else {
            return Ok(false);
        };
        let (major, info) = (initial >> 5, initial & 0x1f);
        let width = match info {
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            // Reserved (RFC 8949, section 3).
            28..=30 => return Err(CborError::Malformed(initial)),
            _ => 0,
        };
        let Some((argument, rest)) = rest.split_at_checked(width) else {
            return Ok(false);
        };
        let argument = if width == 0 {
            info.into()
        } else {
            let join = |number, byte: &u8| number << 8 | u64::from(*byte);
            argument.iter().fold(0, join)
        };
        let is_indefinite = info == 31;
        let mut used = 1 + width;
        // Pieces are texts or bytes of definite length, of the type of the whole (RFC 8949, section
        // 3.2.3).
        let is_piece = match &self.pieces {
            Some(pieces) => major == pieces.major && !is_indefinite,
            None => false,
        };
        let is_end_of_pieces = self.pieces.is_some() && initial == BREAK;
        if self.pieces.is_some() && !is_piece && !is_end_of_pieces {
            return Err(CborError::Malformed(initial));
        }
        match major {
            0 | 1 | 6 if is_indefinite => return Err(CborError::Malformed(initial)),
            2 | 3 if is_indefinite => {
                let bytes = Vec::new();
                self.pieces = Some(Pieces { major, bytes });
            }
            _ if is_end_of_pieces => {
                if let Some(Pieces { major, bytes }) = self.pieces.take() {
                    self.write_string(major, &bytes);
                }
            }
            0 => self.write_value(&argument.to_string()),
            // A negative integer reaches -2^64, for which an `i64` is too small.
            1 => self.write_value(&(-1 - i128::from(argument)).to_string()),
            2 | 3 => {
                // A length that the text may not have is refused before its bytes are waited for.
                let length = usize::try_from(argument)
                    .ok()
                    .filter(|length| *length <= self.max_json_bytes)
                    .ok_or(CborError::Malformed(initial))?;
                let Some(bytes) = rest.get(..length) else {
                    return Ok(false);
                };
                used += length;
                if let Some(pieces) = &mut self.pieces {
                    // Pieces that are short enough may add up to too long a text.
                    if pieces.bytes.len() + length > self.max_json_bytes {
                        return Err(CborError::Malformed(initial));
                    }
                    pieces.bytes.extend_from_slice(bytes);
                } else {
                    // Copied, because writing borrows all of `self`.
                    let bytes = bytes.to_vec();
                    self.write_string(major, &bytes);
                }
            }
            4 | 5 => self.open_container(major == 5, (!is_indefinite).then_some(argument))?,
            // Tags say more about the value that follows.
            6 => {}
            _ if is_indefinite => self.close_indefinite(initial)?,
            _ => self.write_simple(info, argument, initial)?,
        }
        self.at += used;
        Ok(true)
    }

    fn open_container(&mut self, is_map: bool, length: Option<u64>) -> Result<(), CborError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(CborError::TooDeep);
        }
        let is_key = self.begin_value();
        if is_key {
            self.state = CborItem::NoJson;
        }
        self.put(if is_map { b"{" } else { b"[" });
        let remaining = match length {
            // A hostile map claims 2^63 members or more, of which the double overflows.
            Some(length) if is_map => Some(length.checked_mul(2).ok_or(CborError::TooDeep)?),
            length => length,
        };
        self.open.push(Container {
            is_map,
            remaining,
            read: 0,
        });
        // An empty container is complete at once.
        self.close_full();
        Ok(())
    }

    /// A break ends the innermost container.
    fn close_indefinite(&mut self, initial: u8) -> Result<(), CborError> {
        match self.open.last_mut() {
            // A map that ends after a key is malformed (RFC 8949, section 3.2.2).
            Some(container)
                if container.remaining.is_none()
                    && !(container.is_map && container.read % 2 == 1) =>
            {
                container.remaining = Some(0);
                self.close_full();
                Ok(())
            }
            _ => Err(CborError::Malformed(initial)),
        }
    }

    fn write_simple(&mut self, info: u8, argument: u64, initial: u8) -> Result<(), CborError> {
        let [.., a, b, c, d] = argument.to_be_bytes();
        let float = match info {
            20..=23 => {
                self.write_value(match info {
                    20 => "false",
                    21 => "true",
                    // `undefined` (23) has no JSON.
                    _ => "null",
                });
                return Ok(());
            }
            25 => half([c, d]),
            26 => f64::from(f32::from_be_bytes([a, b, c, d])),
            27 => f64::from_bits(argument),
            _ => return Err(CborError::Malformed(initial)),
        };
        // JSON has no number for NaN and the infinities.
        match serde_json::Number::from_f64(float) {
            Some(number) => self.write_value(&number.to_string()),
            None => self.write_value("null"),
        }
        Ok(())
    }

    /// Writes a value that is no text.
    fn write_value(&mut self, json: &str) {
        let is_key = self.begin_value();
        if is_key {
            self.state = CborItem::NoJson;
        }
        self.put(json.as_bytes());
        self.end_value();
    }

    /// Writes a text (`major` 3); bytes have no JSON.
    fn write_string(&mut self, major: u8, bytes: &[u8]) {
        self.begin_value();
        match std::str::from_utf8(bytes) {
            Ok(text) if major == 3 && self.state == CborItem::Json => {
                crate::record::write_text(&mut self.json, text);
            }
            Ok(_) if major == 3 => {}
            _ => self.state = CborItem::NoJson,
        }
        self.end_value();
    }

    /// Writes the separator before a value. Returns whether the value is a key.
    fn begin_value(&mut self) -> bool {
        let Some(container) = self.open.last() else {
            return false;
        };
        let is_key = container.is_map && container.read % 2 == 0;
        let is_first = container.read == 0;
        let separator = if container.is_map && !is_key {
            b":"
        } else {
            b","
        };
        if !is_first {
            self.put(separator);
        }
        is_key
    }

    /// Counts a value, and closes the containers that it fills.
    fn end_value(&mut self) {
        match self.open.last_mut() {
            Some(container) => {
                container.read += 1;
                container.remaining = container.remaining.map(|left| left.saturating_sub(1));
            }
            None => self.is_done = true,
        }
        self.close_full();
    }

    fn close_full(&mut self) {
        while let Some(container) = self.open.last() {
            if container.remaining != Some(0) {
                return;
            }
            let bracket = if container.is_map { b"}" } else { b"]" };
            self.put(bracket);
            self.open.pop();
            match self.open.last_mut() {
                Some(outer) => {
                    outer.read += 1;
                    outer.remaining = outer.remaining.map(|left| left.saturating_sub(1));
                }
                None => self.is_done = true,
            }
        }
    }

    fn put(&mut self, json: &[u8]) {
        if self.state == CborItem::Json {
            self.json.extend_from_slice(json);
        }
    }
}

/// A floating point number of 16 bits.
fn half(bytes: [u8; 2]) -> f64 {
    let bits = u16::from_be_bytes(bytes);
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    // As in RFC 8949, appendix D.
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CBOR of each line of `every-event.jsonl`, by the published writer.
    const EVERY_EVENT: &str = include_str!("../tests/data/every-event.cbor-hex");

    fn bytes_of_hex(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks_exact(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    }

    /// All items of some bytes that arrive in pieces of a length.
    fn items(bytes: &[u8], length: usize) -> Result<Vec<String>, CborError> {
        let mut reader = CborReader::new(1000);
        let mut all = Vec::new();
        for piece in bytes.chunks(length) {
            reader.push(piece);
            while let Some(item) = reader.next_item()? {
                let json = String::from_utf8(reader.json().to_vec()).unwrap();
                all.push(if item == CborItem::Json {
                    json
                } else {
                    format!("{item:?}")
                });
            }
        }
        if reader.has_partial_item() {
            all.push("partial".into());
        }
        Ok(all)
    }

    #[test]
    fn items_of_every_kind_are_the_json_of_the_same_line() {
        let json = include_str!("../tests/data/every-event.jsonl");
        let bytes: Vec<_> = EVERY_EVENT.lines().flat_map(bytes_of_hex).collect();
        for length in [1, 7, bytes.len()] {
            let all = items(&bytes, length).unwrap();
            assert_eq!(all, json.lines().collect::<Vec<_>>());
        }
        for line in EVERY_EVENT.lines() {
            let bytes = bytes_of_hex(line);
            for cut in 1..bytes.len() {
                assert_eq!(items(&bytes[..cut], 1000).unwrap(), ["partial"]);
            }
        }
    }

    #[test]
    fn numbers_and_containers_of_every_form_become_json() {
        for (hex, want) in [
            ("3bffffffffffffffff", "-18446744073709551616"),
            ("1bffffffffffffffff", "18446744073709551615"),
            ("f93e00", "1.5"),
            ("fa3fc00000", "1.5"),
            ("fb3ff8000000000000", "1.5"),
            ("f97e00", "null"),
            ("9f0182f4f6ffff", "malformed"),
            ("9f01ff", "[1]"),
            ("bf6161809f02ff01ff", "NoJson"),
            ("bf61618061629f02ffff", r#"{"a":[],"b":[2]}"#),
            ("a0", "{}"),
            ("c11a514b67b0", "1363896240"),
            ("4101", "NoJson"),
            ("a10102", "NoJson"),
            ("61ff", "NoJson"),
            ("1c", "malformed"),
            ("ff", "malformed"),
            ("7f61616162ff", r#""ab""#),
            ("7fff", r#""""#),
            ("5f4101ff", "NoJson"),
            ("7f4101ff", "malformed"),
            ("7f7f", "malformed"),
            ("81", "partial"),
            ("7f6161", "partial"),
            ("7bffffffffffffffff", "malformed"),
            ("bbffffffffffffffff", "malformed"),
        ] {
            let got =
                items(&bytes_of_hex(hex), 1).map_or("malformed".to_owned(), |all| all[0].clone());
            assert_eq!(got, want, "{hex}");
        }
    }

    #[test]
    fn long_and_deep_items_take_bounded_memory() {
        // A million empty texts, and as many open arrays.
        let mut long = vec![0x9a, 0, 0x0f, 0x42, 0x40];
        long.resize(long.len() + 1_000_000, 0x60);
        assert_eq!(items(&long, 4096), Ok(vec!["TooLong".to_owned()]));
        let deep = vec![0x81; 2 * MAX_DEPTH];
        assert_eq!(items(&deep, 4096), Err(CborError::TooDeep));
    }
}
