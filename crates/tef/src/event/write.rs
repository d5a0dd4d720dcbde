//! Writing of events as JSON.

use super::{Event, Record, Value};
use crate::phase::{Field, Holds};

impl Record<'_> {
    /// Appends it as a JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Event(event) => event.write_json(out),
            Self::Raw(line) => out.extend_from_slice(line.as_bytes()),
        }
    }
}

impl Event<'_> {
    /// Appends the event as a JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        // First of all, because it says what the other members mean.
        out.extend_from_slice(b"{\"ph\":");
        write_text(self.phase, out);
        for field in Field::ALL {
            // These two are members of `id2`, which is written once below.
            if !matches!(field, Field::Id2Local | Field::Id2Global)
                && let Some(value) = self.get(field)
            {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(field.name().as_bytes());
                out.extend_from_slice(b"\":");
                write_value(field, value, out);
            }
        }
        let id2 = [("local", self.id2_local), ("global", self.id2_global)];
        let mut before: &[u8] = b",\"id2\":{\"";
        for (name, token) in id2 {
            if let Some(token) = token {
                out.extend_from_slice(before);
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
                out.extend_from_slice(token.as_bytes());
                before = b",\"";
            }
        }
        if before == b",\"" {
            out.push(b'}');
        }
        // `rest` is an object itself: its brace ends this one.
        if let Some(members) = self.rest.strip_prefix('{') {
            out.push(b',');
            out.extend_from_slice(members.as_bytes());
        } else {
            out.push(b'}');
        }
    }
}

fn write_value(field: Field, value: Value<'_>, out: &mut Vec<u8>) {
    match (field.holds(), value) {
        (Holds::Time, Value::Number(number)) => write_microseconds(number.into(), out),
        (_, Value::Number(number)) => write_integer(number.into(), out),
        (Holds::Text, Value::Text(text)) => write_text(text, out),
        (_, Value::Text(json)) => out.extend_from_slice(json.as_bytes()),
    }
}

/// Appends a text as a string of JSON.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut copied = 0;
    // Byte by byte, because all that is escaped is ASCII.
    for (at, byte) in text.bytes().enumerate() {
        if !matches!(byte, 0..0x20 | b'"' | b'\\') {
            continue;
        }
        out.extend_from_slice(text.as_bytes().get(copied..at).unwrap_or_default());
        copied = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let digit = |value: u8| {
                    if value < 10 {
                        b'0' + value
                    } else {
                        b'a' - 10 + value
                    }
                };
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(text.as_bytes().get(copied..).unwrap_or_default());
    out.push(b'"');
}

/// Appends nanoseconds as microseconds, with three decimals unless they are whole.
pub fn write_microseconds(nanoseconds: i128, out: &mut Vec<u8>) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let nanoseconds = nanoseconds.unsigned_abs();
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(nanoseconds / 1000).as_bytes());
    let rest = nanoseconds % 1000;
    if rest > 0 {
        out.push(b'.');
        // The 1 in front keeps the zeros, and is cut off.
        let padded = digits.format(1000 + rest).as_bytes();
        out.extend_from_slice(padded.get(1..).unwrap_or_default());
    }
}

fn write_integer(number: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
