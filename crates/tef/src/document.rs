//! A document of records: an object with the array `traceEvents`. Records are written as they are
//! added, or held to be put in order, with times since the first one.

use crate::event::{Record, write_microseconds};
use crate::perfetto::{HeldRecords, write_separator};

/// The begin of the document.
const BEGIN: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
/// The end of the document.
const END: &[u8] = b"\n]}\n";
/// The end of the document, if an origin has been subtracted from all times; the origin follows.
const END_WITH_ORIGIN: &[u8] = b"\n],\"metadata\":{\"ts_origin_us\":";

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
    held: Option<Box<HeldRecords>>,
}

impl Records {
    /// A document without records. `for_perfetto`: in order of time, with times since the first
    /// record, and with changes to what Perfetto would misread.
    #[must_use]
    pub fn new(for_perfetto: bool) -> Self {
        Self {
            buffer: BEGIN.to_vec(),
            has_any: false,
            added: 0,
            held: for_perfetto.then(Box::default),
        }
    }

    /// Adds a record of these members, to which its `ts`, in nanoseconds, is added; absent for a
    /// record that holds at any time.
    pub fn add(&mut self, ts: Option<i128>, members: &[u8]) -> RecordNumber {
        match &mut self.held {
            None => {
                write(&mut self.buffer, &mut self.has_any, ts, members);
                self.added += 1;
            }
            Some(held) => {
                self.added += held.add_members(members, ts).unwrap_or(0);
                self.write_if_full();
            }
        }
        RecordNumber(self.added.saturating_sub(1))
    }

    /// Adds a record with the members and the time that it has. Returns whether it was added: what
    /// is no event is not written for Perfetto.
    pub fn add_record(&mut self, record: Record<'_>) -> bool {
        let Some(held) = &mut self.held else {
            let mut json = Vec::new();
            record.write_json(&mut json);
            if let [b'{', members @ .., b'}'] = json.trim_ascii() {
                self.add(None, members);
            }
            return true;
        };
        let added = held.add(record, None);
        self.added += added.unwrap_or(0);
        self.write_if_full();
        added.is_some()
    }

    /// Removes a record that is still held. Returns whether it was.
    pub fn remove(&mut self, number: RecordNumber) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        // From the end, because the records before those that are held have been written. No
        // underflow: a number is one of those that were added.
        let from_last = usize::try_from(self.added - number.0).unwrap_or(usize::MAX);
        held.remove(from_last)
    }

    /// Ends the document: writes all records that are held to the buffer, and the origin that was
    /// subtracted from their times as the member `ts_origin_us` of `metadata`.
    pub fn finish(&mut self) {
        let Some(held) = &mut self.held else {
            self.buffer.extend_from_slice(END);
            return;
        };
        let origin = held.write(&mut self.buffer, &mut self.has_any, true);
        self.buffer.extend_from_slice(END_WITH_ORIGIN);
        write_microseconds(origin.into(), &mut self.buffer);
        self.buffer.extend_from_slice(b"}}\n");
    }

    fn write_if_full(&mut self) {
        if let Some(held) = self.held.as_mut().filter(|held| held.is_full()) {
            held.write(&mut self.buffer, &mut self.has_any, false);
        }
    }
}

fn write(out: &mut Vec<u8>, has_any: &mut bool, ts: Option<i128>, members: &[u8]) {
    write_separator(out, has_any);
    out.push(b'{');
    if let Some(ts) = ts {
        out.extend_from_slice(b"\"ts\":");
        write_microseconds(ts, out);
        out.push(b',');
    }
    out.extend_from_slice(members);
    out.push(b'}');
}
