//! Append-only logs of checksummed records: the bytes of the spool of `consumer` and of the session
//! logs of `relayd`. This crate encodes and decodes; it opens no file.
//!
//! A log begins with a header of 8 bytes, its magic number. Records follow, one after the other:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the body in bytes, little-endian |
//! | 4 | CRC-32 (IEEE) of the length and the body, little-endian |
//! | n | body |
//!
//! A crash can leave the last record incomplete, or zeros in its place: the log is then
//! [torn](Damage::Torn) and can be truncated there. A bad record with others after it, or one that
//! is complete and has another checksum, is [corrupt](Damage::Corrupt): the disk has changed bytes
//! that had been written.

use bytes::BufMut;
use thiserror::Error;

/// Size of the header of a log, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Bytes of a record in front of its body.
pub const RECORD_HEAD_BYTES: usize = 8;

/// Maximum length of a body, in bytes. A longer one is taken for damage.
pub const MAX_BODY_BYTES: usize = 256 << 20;

/// The magic number of one kind of log, which includes the version of its records.
pub type Magic = [u8; HEADER_BYTES];

/// Why a log ends before its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Damage {
    /// The last record is incomplete, or zeros follow. The crash of a writer leaves that.
    #[error("the last record is incomplete")]
    Torn,
    /// A record has another checksum or an impossible length, or the header is that of another kind
    /// of file.
    #[error("a record does not have its checksum")]
    Corrupt,
}

/// Appends a record with this body, which consists of several parts.
///
/// # Panics
/// If the body is longer than [`MAX_BODY_BYTES`].
pub fn encode(parts: &[&[u8]], to: &mut impl BufMut) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Readers would take the record for damage, and end there.
    assert!(length <= MAX_BODY_BYTES, "a body of {length} bytes");
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    to.put_slice(&length);
    to.put_u32_le(checksum(length, parts));
    for part in parts {
        to.put_slice(part);
    }
}

fn checksum(length: [u8; 4], parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The records of a log, front to back. Ends at the first damage.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// Offset of the next record.
    at: usize,
    damage: Option<Damage>,
}

impl<'a> Records<'a> {
    /// The records of a whole log.
    #[must_use]
    pub fn new(magic: Magic, log: &'a [u8]) -> Self {
        let damage = match log.get(..HEADER_BYTES) {
            Some(header) if header == magic => None,
            // A header of zeros was created and not written before the power failed.
            None => Some(Damage::Torn),
            Some(_) if log.iter().all(|byte| *byte == 0) => Some(Damage::Torn),
            Some(_) => Some(Damage::Corrupt),
        };
        Self {
            bytes: log,
            at: if damage.is_some() { 0 } else { HEADER_BYTES },
            damage,
        }
    }

    /// The records of a part of a log that begins at a record.
    #[must_use]
    pub fn of_part(part: &'a [u8]) -> Self {
        Self {
            bytes: part,
            at: 0,
            damage: None,
        }
    }

    /// Returns the offset after the last record that was returned: where a damaged log is to be
    /// truncated.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns why the log ends at [`offset`](Self::offset). None as long as records are returned,
    /// and if it ends there properly.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// Decodes the record at the offset. None at the end of the log.
    fn decode(&self) -> Option<Result<&'a [u8], Damage>> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return None;
        }
        // Zeros are what a file system leaves of a write whose blocks were allocated and not
        // written.
        let torn = if rest.iter().all(|byte| *byte == 0) {
            Some(Err(Damage::Torn))
        } else {
            None
        };
        let Some((head, body)) = rest.split_first_chunk::<RECORD_HEAD_BYTES>() else {
            return Some(Err(Damage::Torn));
        };
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *head;
        let length_bytes = [l0, l1, l2, l3];
        let length = u32::from_le_bytes(length_bytes) as usize;
        if length > MAX_BODY_BYTES {
            return torn.or(Some(Err(Damage::Corrupt)));
        }
        let Some(body) = body.get(..length) else {
            return Some(Err(Damage::Torn));
        };
        if checksum(length_bytes, &[body]) != u32::from_le_bytes([c0, c1, c2, c3]) {
            let is_last = rest.len() == RECORD_HEAD_BYTES + length;
            let has_zero_tail = is_last && rest.last() == Some(&0);
            return torn.or(Some(Err(if has_zero_tail {
                Damage::Torn
            } else {
                Damage::Corrupt
            })));
        }
        Some(Ok(body))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.damage.is_some() {
            return None;
        }
        match self.decode()? {
            Ok(body) => {
                self.at += RECORD_HEAD_BYTES + body.len();
                Some(body)
            }
            Err(damage) => {
                self.damage = Some(damage);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAGIC: Magic = *b"testlog1";

    fn log(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut log = MAGIC.to_vec();
        for body in bodies {
            encode(&[body], &mut log);
        }
        log
    }

    fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Bodies that do not end in zero: a zero at the end of the last record is taken for a torn
        // write.
        let body = prop::collection::vec(any::<u8>(), 0..50).prop_map(|mut body| {
            body.push(1);
            body
        });
        prop::collection::vec(body, 1..8)
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(bodies in bodies()) {
            let log = log(&bodies);
            let mut records = Records::new(MAGIC, &log);
            let read: Vec<_> = records.by_ref().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(read, bodies);
            prop_assert_eq!((records.offset(), records.damage()), (log.len(), None));
        }

        #[test]
        fn a_truncated_log_is_torn_behind_its_last_whole_record(bodies in bodies(), at: prop::sample::Index) {
            let log = log(&bodies);
            let cut = at.index(log.len());
            let part = &log[..cut];
            let mut records = Records::new(MAGIC, part);
            let read: Vec<_> = records.by_ref().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&read[..], &bodies[..read.len()]);
            let is_whole = records.offset() == cut && cut >= HEADER_BYTES;
            prop_assert_eq!(records.damage(), (!is_whole).then_some(Damage::Torn));
        }

        #[test]
        fn a_flipped_bit_is_detected(bodies in bodies(), at: prop::sample::Index, bit in 0..8u8) {
            let whole = log(&bodies);
            let mut log = whole.clone();
            let at = at.index(log.len());
            log[at] ^= 1 << bit;
            let mut records = Records::new(MAGIC, &log);
            let read: Vec<_> = records.by_ref().map(<[u8]>::to_vec).collect();
            prop_assert!(read.len() < bodies.len());
            prop_assert_eq!(&read[..], &bodies[..read.len()]);
            prop_assert!(records.damage().is_some());
            prop_assert!(records.offset() <= at);
        }

        #[test]
        fn zeros_behind_the_last_record_are_torn(bodies in bodies(), zeros in 1..100usize) {
            let mut log = log(&bodies);
            let end = log.len();
            log.resize(end + zeros, 0);
            let mut records = Records::new(MAGIC, &log);
            prop_assert_eq!(records.by_ref().count(), bodies.len());
            prop_assert_eq!((records.offset(), records.damage()), (end, Some(Damage::Torn)));
        }

        #[test]
        fn random_bytes_are_no_records(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut records = Records::of_part(&bytes);
            records.by_ref().for_each(drop);
            prop_assert!(records.offset() <= bytes.len());
        }
    }
}
