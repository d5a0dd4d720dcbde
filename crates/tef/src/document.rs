//! A document of records: an object with the array `traceEvents`. Records are written as they are
//! added, or held to be put in order, with times since the first one.

use crate::event::write_microseconds;

/// The begin of the document.
const BEGIN: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
/// The end of the document.
const END: &[u8] = b"\n]}\n";
/// The end of the document, if an origin has been subtracted from all times; the origin follows.
const END_WITH_ORIGIN: &[u8] = b"\n],\"metadata\":{\"ts_origin_us\":";

/// Largest number of bytes of records that are held. When there are more, those that are held are
/// put in order and written: later ones come after them.
const MAX_HELD_BYTES: usize = 256 << 20;

/// The time by which a record is put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordTime {
    /// The begin in nanoseconds; absent for a record that holds at any time.
    pub ts: Option<i128>,
    /// The duration in nanoseconds.
    pub dur: i128,
    /// Whether the record names a process or thread, and so has to come before the records of that.
    pub is_metadata: bool,
}

impl RecordTime {
    /// The time of a record that names a process or thread.
    pub const METADATA: Self = Self {
        ts: None,
        dur: 0,
        is_metadata: true,
    };
}

/// The number of a record in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordNumber(u64);

/// The text of the records, as far as it has not been written to the output.
#[derive(Debug)]
pub struct Records {
    /// The text that has not been written to the output.
    pub buffer: Vec<u8>,
    has_any: bool,
    /// The number of records that were added.
    added: u64,
    held: Option<Held>,
}

/// Records that are held to be put in order.
#[derive(Debug, Default)]
struct Held {
    /// Members of the records, one after the other.
    members: Vec<u8>,
    /// The time of each record, absent if it was removed, and where in `members` it ends.
    places: Vec<(Option<RecordTime>, usize)>,
    /// The first time, which is subtracted from all. Absent until records are written.
    origin: Option<i128>,
}

impl Records {
    /// A document without records. `in_order`: sorted by begin, and of equal begin the longer ones
    /// first, so that a slice comes before those within it.
    #[must_use]
    pub fn new(in_order: bool) -> Self {
        Self {
            buffer: BEGIN.to_vec(),
            has_any: false,
            added: 0,
            held: in_order.then(Held::default),
        }
    }

    /// Adds a record of these members, to which its `ts` is added.
    pub fn add(&mut self, when: RecordTime, members: &[u8]) -> RecordNumber {
        let number = RecordNumber(self.added);
        self.added += 1;
        match &mut self.held {
            None => write(&mut self.buffer, &mut self.has_any, when.ts, members),
            Some(held) => {
                held.members.extend_from_slice(members);
                held.places.push((Some(when), held.members.len()));
                // The places count too: records may be short and many.
                let places = held.places.len() * size_of::<(Option<RecordTime>, usize)>();
                if held.members.len() + places >= MAX_HELD_BYTES {
                    self.write_held();
                }
            }
        }
        number
    }

    /// Removes a record that is still held. Returns whether it was.
    pub fn remove(&mut self, number: RecordNumber) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        // From the end, because the records before those that are held have been written. No
        // underflow: a number is one of those that were added.
        let from_last = usize::try_from(self.added - number.0).unwrap_or(usize::MAX);
        let place = held.places.len().checked_sub(from_last);
        let record = place.and_then(|place| held.places.get_mut(place));
        record.is_some_and(|(when, _)| when.take().is_some())
    }

    /// Ends the document: writes all records that are held to the buffer, and the origin that was
    /// subtracted from their times as the member `ts_origin_us` of `metadata`.
    pub fn finish(&mut self) {
        match self.write_held() {
            Some(origin) => {
                self.buffer.extend_from_slice(END_WITH_ORIGIN);
                write_microseconds(origin, &mut self.buffer);
                self.buffer.extend_from_slice(b"}}\n");
            }
            None => self.buffer.extend_from_slice(END),
        }
    }

    /// Writes all records that are held to the buffer. Returns the origin that was subtracted from
    /// the times, if records were held.
    fn write_held(&mut self) -> Option<i128> {
        let held = self.held.as_mut()?;
        let times = held.places.iter().filter_map(|(when, _)| *when);
        let first = times.filter_map(|when| when.ts).min();
        // Records that are held later count from the same origin.
        held.origin = held.origin.or(first);
        let origin = held.origin.unwrap_or(0);
        let mut begin = 0;
        let mut order: Vec<_> = held
            .places
            .drain(..)
            .filter_map(|(when, end)| {
                let place = std::mem::replace(&mut begin, end)..end;
                Some((when?, place))
            })
            .collect();
        // A stable sort: equal records keep their order of arrival.
        order.sort_by_key(|(when, _)| (!when.is_metadata, when.ts, -when.dur));
        for (when, place) in order {
            let members = held.members.get(place).unwrap_or_default();
            // Below 0 for a record that begins before all that have been written.
            let ts = when.ts.map(|ts| ts - origin);
            write(&mut self.buffer, &mut self.has_any, ts, members);
        }
        held.members.clear();
        Some(origin)
    }
}

fn write(out: &mut Vec<u8>, has_any: &mut bool, ts: Option<i128>, members: &[u8]) {
    out.extend_from_slice(if *has_any { b",\n{" } else { b"\n{" });
    *has_any = true;
    if let Some(ts) = ts {
        out.extend_from_slice(b"\"ts\":");
        write_microseconds(ts, out);
        out.push(b',');
    }
    out.extend_from_slice(members);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_records_are_ordered_by_metadata_begin_and_duration() {
        let mut records = Records::new(true);
        let at = |ts, dur| RecordTime {
            ts: Some(ts),
            dur,
            is_metadata: false,
        };
        records.add(at(5500, 1000), b"\"a\":1");
        records.add(at(5500, 2000), b"\"b\":1");
        let removed = records.add(at(1, 0), b"\"never\":1");
        records.add(at(4000, 0), b"\"c\":1");
        records.add(RecordTime::METADATA, b"\"d\":1");
        assert!(records.remove(removed) && !records.remove(removed));
        assert_eq!(records.write_held(), Some(4000));
        assert!(!records.remove(removed), "written");
        records.add(at(4001, 0), b"\"e\":1");
        assert_eq!(records.write_held(), Some(4000));
        let text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"d\":1},\n{\"ts\":0,\"c\":1},\n{\"ts\":1.500,\"b\":1},\n{\"ts\":1.500,\"a\":1},\n{\"ts\":0.001,\"e\":1}";
        assert_eq!(String::from_utf8(records.buffer).unwrap(), text);
    }
}
