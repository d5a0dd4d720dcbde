//! The records of the output: written as they come, or held to be put in order.

use ::tef::event::write_microseconds;

/// Largest number of bytes of records that are held. Then they are written, in order as far as they go.
const MAX_HELD_BYTES: usize = 256 << 20;

/// The time span by which a record is put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RecordTime {
    /// Nanoseconds; none for one that holds at any time.
    pub(super) ts: Option<i128>,
    /// How long it takes.
    pub(super) dur: i128,
    /// Names processes and threads, and so has to come before them.
    pub(super) is_metadata: bool,
}

/// Records as they become text.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) buffer: Vec<u8>,
    any: bool,
    held: Option<Held>,
}

/// Members of records, one after the other.
#[derive(Debug, Default)]
struct Held {
    members: Vec<u8>,
    /// When, and up to where in `members`.
    places: Vec<(RecordTime, usize)>,
    /// Subtracted from all times: the first of them.
    origin: Option<i128>,
}

impl Records {
    /// In order of time if wanted: what is longer first, so that what lies within comes after it.
    pub(super) fn new(buffer: Vec<u8>, in_order: bool) -> Self {
        Self {
            buffer,
            any: false,
            held: in_order.then(Held::default),
        }
    }

    /// One, of these members but without `ts`.
    pub(super) fn add(&mut self, when: RecordTime, members: &[u8]) {
        match &mut self.held {
            None => write(&mut self.buffer, &mut self.any, when.ts, members),
            Some(held) => {
                held.members.extend_from_slice(members);
                held.places.push((when, held.members.len()));
                let places = held.places.len() * size_of::<(RecordTime, usize)>();
                if held.members.len() + places >= MAX_HELD_BYTES {
                    self.write_held();
                }
            }
        }
    }

    /// Writes all that is held. Says what has been subtracted from times.
    pub(super) fn write_held(&mut self) -> Option<i128> {
        let held = self.held.as_mut()?;
        let first = held.places.iter().filter_map(|(when, _)| when.ts).min();
        held.origin = held.origin.or(first);
        let origin = held.origin.unwrap_or(0);
        let mut begin = 0;
        let mut order: Vec<_> = held
            .places
            .drain(..)
            .map(|(when, end)| (when, std::mem::replace(&mut begin, end)..end))
            .collect();
        // Stable: what is equal stays as it came.
        order.sort_by_key(|(when, _)| (!when.is_metadata, when.ts, -when.dur));
        for (when, place) in order {
            let members = held.members.get(place).unwrap_or_default();
            let ts = when.ts.map(|ts| ts - origin);
            write(&mut self.buffer, &mut self.any, ts, members);
        }
        held.members.clear();
        Some(origin)
    }
}

fn write(out: &mut Vec<u8>, any: &mut bool, ts: Option<i128>, members: &[u8]) {
    out.extend_from_slice(if *any { b",\n{" } else { b"\n{" });
    *any = true;
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
        let mut records = Records::new(Vec::new(), true);
        let at = |ts, dur| RecordTime {
            ts: Some(ts),
            dur,
            is_metadata: false,
        };
        records.add(at(5500, 1000), b"\"a\":1");
        records.add(at(5500, 2000), b"\"b\":1");
        records.add(at(4000, 0), b"\"c\":1");
        let is_metadata = true;
        let name = RecordTime {
            is_metadata,
            ..RecordTime::default()
        };
        records.add(name, b"\"d\":1");
        assert_eq!(records.write_held(), Some(4000));
        records.add(at(4001, 0), b"\"e\":1");
        assert_eq!(records.write_held(), Some(4000));
        let text = "\n{\"d\":1},\n{\"ts\":0,\"c\":1},\n{\"ts\":1.500,\"b\":1},\n{\"ts\":1.500,\"a\":1},\n{\"ts\":0.001,\"e\":1}";
        assert_eq!(String::from_utf8(records.buffer).unwrap(), text);
    }
}
