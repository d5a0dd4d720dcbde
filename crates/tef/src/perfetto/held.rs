//! Records that are held to be put in order, with times since the first one.

use serde_json::{Map, Value};

use super::copy_json::copy_json;
use super::event_repair::{hash, repair};
use super::layout::{Item, Layout, Mark, RecordForm, Row, Slice, lay_out};
use super::owner_numbers::OwnerNumbers;
use crate::event::{Event, Record, member_of, without_member, write_microseconds, write_text};
use crate::lanes::{LanePlace, LaneTable};

/// Largest number of bytes of memory for records that are held, with what it takes to put them in
/// order. When there are more, those that are held are put in order and written: later ones come
/// after them.
const MAX_HELD_BYTES: usize = 256 << 20;

/// The number of bytes that the phase, times and numbers of a record take in the output, about.
const NUMBER_BYTES: usize = 96;

/// Nanoseconds before the first of all times that are held when the first part is written, from
/// which times count then: a span that begins before all others may arrive last. One day, which
/// leaves nanoseconds exact in the floating-point numbers that Perfetto reads times as. A record
/// from before begins at the origin.
const ORIGIN_MARGIN: i64 = 86_400 * 1_000_000_000;

/// Members of a record that Perfetto reads; of an object with two members of one name, only these
/// are written.
const READ_MEMBERS: [&str; 18] = [
    "ph", "ts", "dur", "tts", "tdur", "pid", "tid", "name", "cat", "scope", "s", "bp", "id", "id2",
    "bind_id", "flow_in", "flow_out", "args",
];

/// Records that are held to be put in order.
#[derive(Debug, Default)]
pub(crate) struct HeldRecords {
    /// Texts of the records, one after the other.
    text: Vec<u8>,
    entries: Vec<Entry>,
    /// The number of entries that were already in the part before.
    carried: usize,
    numbers: OwnerNumbers,
    lanes: LaneTable<Row>,
    /// The time that is subtracted from all. Absent until records are written.
    origin: Option<i64>,
    /// The time of the latest record that had one.
    now: Option<i64>,
    json: Vec<u8>,
}

/// A record that is held.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Absent for a record that holds at any time, and for one that was removed.
    mark: Option<Mark>,
    is_removed: bool,
    phase: char,
    pid: Option<i32>,
    tid: Option<i32>,
    /// The time by the clock of the thread.
    tts: Option<i64>,
    /// Where the other members are in `text`, each with a comma before it.
    begin: usize,
    /// Where the object of arguments begins, which is the last member; `end` if there is none.
    args: usize,
    end: usize,
    /// Where the asynchronous id is in `text`; empty if there is none.
    id_begin: usize,
    id_end: usize,
}

impl HeldRecords {
    /// Adds a record; `time` is its begin in nanoseconds, if the record does not say it. Returns
    /// how many records have been added with those that name processes and threads; `None` if it
    /// is no event.
    pub(crate) fn add(&mut self, record: Record<'_>, time: Option<i128>) -> Option<u64> {
        match record {
            Record::Event(event) => Some(self.add_event(event, time)),
            Record::Raw(raw) => self.add_raw(raw, time),
        }
    }

    /// Adds a record of these members, as [`add`](Self::add) does.
    pub(crate) fn add_members(&mut self, members: &[u8], time: Option<i128>) -> Option<u64> {
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        json.push(b'{');
        json.extend_from_slice(members);
        json.push(b'}');
        let text = std::str::from_utf8(&json).unwrap_or_default();
        let record = Record::parse(text).ok();
        let added = record.and_then(|record| self.add(record, time));
        self.json = json;
        added
    }

    /// Whether the records that are held have to be [written](Self::write).
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= MAX_HELD_BYTES
    }

    /// The number of bytes of memory for the records, about, with what it takes to write them.
    fn bytes(&self) -> usize {
        // Lists that grow have up to twice the capacity that they need.
        const BYTES: usize = size_of::<Entry>()
            + size_of::<Option<Mark>>()
            + 2 * size_of::<Slice>()
            + 3 * size_of::<Item>()
            + NUMBER_BYTES;
        // The text is there a second time in the output.
        2 * self.text.len() + self.entries.len() * BYTES
    }

    /// Removes the last but `from_last` of the records that were added. Returns whether it was
    /// still held.
    pub(crate) fn remove(&mut self, from_last: usize) -> bool {
        let place = self.entries.len().checked_sub(from_last);
        let place = place.filter(|place| *place >= self.carried);
        let entry = place.and_then(|place| self.entries.get_mut(place));
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.is_removed, true))
    }

    /// Adds an object with two members of one name, of which Perfetto reads the last, or with more
    /// members than an event has.
    fn add_raw(&mut self, raw: &str, time: Option<i128>) -> Option<u64> {
        let members = serde_json::from_str::<Map<String, Value>>(raw);
        let mut members = members.unwrap_or_default();
        members.retain(|name, _| READ_MEMBERS.contains(&&**name));
        let text = Value::Object(members).to_string();
        match Record::parse(&text) {
            Ok(Record::Event(event)) => Some(self.add_event(event, time)),
            // It has no phase: Perfetto does not show it.
            _ => None,
        }
    }

    fn add_event(&mut self, mut event: Event<'_>, time: Option<i128>) -> u64 {
        if let Some(time) = time {
            let bound = i128::from(i64::MIN)..=i128::from(i64::MAX);
            event.ts = i64::try_from(time.clamp(*bound.start(), *bound.end())).ok();
        }
        if event.phase == "M" && event.name.as_deref() == Some("process_name") {
            // No thread is named: it needs no number.
            event.tid = event.tid.filter(|tid| *tid > 0);
        }
        self.numbers.renumber(&mut event);
        let named = self.numbers.take_named();
        let added = named.len() as u64;
        for name in named {
            self.push(name);
        }
        if !repair(&mut event, self.now.unwrap_or(0)) {
            return added;
        }
        if event.phase == "M" {
            if event.name.as_deref() == Some("thread_name") {
                self.numbers.learn_name(&event);
            }
        } else {
            self.now = event.ts;
        }
        self.push(event);
        added + 1
    }

    /// Adds a record that needs no further change.
    fn push(&mut self, mut event: Event<'_>) {
        let begin = self.text.len();
        let id = self.write_id(&mut event);
        let phase = event.phase.chars().next().unwrap_or('i');
        let (ts, dur) = (event.ts.take(), event.dur.take());
        let name = event.name.as_deref().filter(|name| !name.is_empty());
        let name = name.map(hash);
        let tts = event.tts;
        let (pid, tid) = (event.pid.take(), event.tid.take());
        let args = self.write_members(&mut event);
        let mark = ts.filter(|_| phase != 'M').map(|ts| Mark {
            phase,
            ts,
            dur,
            row: id.row.unwrap_or_else(|| thread_of(pid, tid)),
            name,
            process: pid,
            bytes: self.text.len() - begin,
        });
        self.entries.push(Entry {
            mark,
            is_removed: false,
            phase,
            pid,
            tid,
            tts,
            begin,
            args,
            end: self.text.len(),
            id_begin: id.begin,
            id_end: id.end,
        });
    }

    /// Writes the id of an asynchronous event, and takes it out of the event.
    fn write_id(&mut self, event: &mut Event<'_>) -> Id {
        let begin = self.text.len();
        let mut id = Id {
            row: None,
            begin,
            end: begin,
        };
        if !matches!(event.phase, "b" | "e" | "n") {
            return id;
        }
        let known = [event.id, event.id2_global, event.id2_local];
        let of = known.into_iter().flatten().find(|id| *id != "\"\"");
        let token = of.unwrap_or_default();
        // Equal to programs, but not to Perfetto: numbers and strings.
        let mut text = Vec::new();
        copy_json(token, &mut text);
        if !text.starts_with(b"\"") {
            text.insert(0, b'"');
            text.push(b'"');
        }
        let is_of_process = event.id.is_none() && event.id2_global.is_none();
        let head: &[u8] = match (
            event.id.take(),
            event.id2_global.take(),
            event.id2_local.take(),
        ) {
            (Some(_), ..) => b",\"id\":",
            (None, Some(_), _) => b",\"id2\":{\"global\":",
            _ => b",\"id2\":{\"local\":",
        };
        self.text.extend_from_slice(head);
        id.begin = self.text.len();
        self.text.extend_from_slice(&text);
        id.end = self.text.len();
        if head.contains(&b'{') {
            self.text.push(b'}');
        }
        let process = event.pid.filter(|_| is_of_process);
        let category = event.cat.as_deref().unwrap_or_default();
        id.row = Some(Row::Asynchronous(hash((head, category, text, process))));
        id
    }

    /// Writes the members of an event that have no place in its entry. Returns where the object of
    /// its arguments begins, which is the last.
    fn write_members(&mut self, event: &mut Event<'_>) -> usize {
        let mut args = event.args.take().map(str::to_owned);
        if let Some(repaired) = member_of(&event.rest, "args") {
            args = Some(repaired.to_owned());
            event.rest = without_member(&event.rest, "args").into();
        }
        let mut json = Vec::new();
        event.write_json(&mut json);
        let head = b"{\"ph\":\"\"".len() + event.phase.len();
        let members = json.get(head..json.len() - 1).unwrap_or_default();
        // Copied as a whole, because what would end the import may be anywhere in the record.
        copy_json(
            std::str::from_utf8(members).unwrap_or_default(),
            &mut self.text,
        );
        let Some(args) = args else {
            return self.text.len();
        };
        self.text.extend_from_slice(b",\"args\":");
        let begin = self.text.len();
        copy_json(&args, &mut self.text);
        begin
    }

    /// Writes all records that are held to `out`, but for begins whose ends may follow. `is_last`:
    /// nothing follows. Returns the origin that was subtracted from the times.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, has_any: &mut bool, is_last: bool) -> i64 {
        let origin = self.find_origin(is_last);
        let marks: Vec<_> = self
            .entries
            .iter()
            .map(|entry| entry.mark_since(origin))
            .collect();
        let Layout { items, open } = lay_out(&marks, &mut self.lanes, is_last);
        for entry in &self.entries {
            if entry.mark.is_none() && !entry.is_removed {
                entry.write(&self.text, &OutputFields::default(), out, has_any);
            }
        }
        let mut lanes = Vec::with_capacity(items.len());
        for item in &items {
            lanes.push(self.lane_of(item));
            for name in self.numbers.take_named() {
                write_separator(out, has_any);
                name.write_json(out);
            }
        }
        for (item, tid) in items.iter().zip(lanes) {
            let Some(entry) = self.entries.get(item.record) else {
                continue;
            };
            let end = item.end.and_then(|end| self.entries.get(end));
            let written = OutputFields {
                ts: Some(i128::from(item.ts) - i128::from(origin)),
                dur: item.dur,
                form: Some(item.form),
                tid,
                lane: item.lane,
                end,
            };
            entry.write(&self.text, &written, out, has_any);
        }
        self.carry(&open);
        origin
    }

    /// The origin of all times.
    fn find_origin(&mut self, is_last: bool) -> i64 {
        let held = self.entries.iter().filter(|entry| !entry.is_removed);
        let first = held.filter_map(|entry| Some(entry.mark?.ts)).min();
        // Of the only part, the first time is known; later parts count from the same origin.
        let margin = if is_last { 0 } else { ORIGIN_MARGIN };
        let first = first.map(|first| first.saturating_sub(margin));
        self.origin = self.origin.or(first);
        self.origin.unwrap_or(0)
    }

    /// The number of the thread that stands for the lane of a record, if it is not the thread
    /// itself.
    fn lane_of(&mut self, item: &Item) -> Option<i32> {
        let Row::Thread(process, thread) = self.entries.get(item.record)?.mark?.row else {
            return None;
        };
        let is_lane = item.lane.lane > 0;
        is_lane.then(|| self.numbers.lane(process, thread, item.lane))
    }

    /// Keeps only these records, for the next part.
    fn carry(&mut self, open: &[usize]) {
        let text = std::mem::take(&mut self.text);
        let entries = std::mem::take(&mut self.entries);
        for record in open {
            let Some(mut entry) = entries.get(*record).copied() else {
                continue;
            };
            let begin = self.text.len();
            self.text
                .extend_from_slice(text.get(entry.begin..entry.end).unwrap_or_default());
            let place = |at: usize| at - entry.begin + begin;
            (entry.id_begin, entry.id_end) = (place(entry.id_begin), place(entry.id_end));
            entry.args = place(entry.args);
            (entry.begin, entry.end) = (begin, self.text.len());
            self.entries.push(entry);
        }
        self.carried = self.entries.len();
    }
}

/// The id of an event, and where it is in the text.
struct Id {
    row: Option<Row>,
    begin: usize,
    end: usize,
}

/// The members of an entry in the output that depend on where it is written.
#[derive(Default)]
struct OutputFields<'e> {
    ts: Option<i128>,
    dur: Option<i64>,
    form: Option<RecordForm>,
    tid: Option<i32>,
    lane: LanePlace,
    /// The end whose arguments are added.
    end: Option<&'e Entry>,
}

impl Entry {
    /// The mark, unless the record was removed; no time is before the origin.
    fn mark_since(&self, origin: i64) -> Option<Mark> {
        let mut mark = self.mark.filter(|_| !self.is_removed)?;
        if mark.ts < origin {
            let end = mark.dur.map(|dur| mark.ts.saturating_add(dur));
            mark.dur = end.map(|end| end.saturating_sub(origin).max(0));
            mark.ts = origin;
        }
        Some(mark)
    }

    fn write(
        &self,
        text: &[u8],
        written: &OutputFields<'_>,
        out: &mut Vec<u8>,
        has_any: &mut bool,
    ) {
        write_separator(out, has_any);
        out.push(b'{');
        if let Some(ts) = written.ts {
            out.extend_from_slice(b"\"ts\":");
            write_microseconds(ts, out);
            out.push(b',');
        }
        let is_async = self.id_begin < self.id_end;
        let phase = match written.form {
            Some(RecordForm::Complete) => 'X',
            Some(RecordForm::Instant) if is_async => 'n',
            Some(RecordForm::Instant) => 'i',
            _ => self.phase,
        };
        out.extend_from_slice(b"\"ph\":");
        write_text(phase.encode_utf8(&mut [0; 4]), out);
        let tts = self.tts.zip(written.end.and_then(|end| end.tts));
        let is_complete = written.form == Some(RecordForm::Complete);
        let tdur = tts.filter(|_| is_complete);
        let tdur = tdur.map(|(begin, end)| end.saturating_sub(begin));
        for (name, time) in [("dur", written.dur), ("tdur", tdur)] {
            if let Some(time) = time {
                out.extend_from_slice(format!(",\"{name}\":").as_bytes());
                write_microseconds(time.into(), out);
            }
        }
        for (name, number) in [("pid", self.pid), ("tid", written.tid.or(self.tid))] {
            if let Some(number) = number {
                out.extend_from_slice(format!(",\"{name}\":{number}").as_bytes());
            }
        }
        if phase == 'i' && self.phase != 'i' {
            out.extend_from_slice(b",\"s\":\"t\"");
        }
        self.write_text(text, written, out);
        out.push(b'}');
    }

    /// Writes the members that have no place of their own, with the arguments of the end.
    fn write_text(&self, text: &[u8], written: &OutputFields<'_>, out: &mut Vec<u8>) {
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        let LanePlace { lane, generation } = written.lane;
        let mut begin = self.begin;
        if lane > 0 && self.id_begin < self.id_end {
            out.extend_from_slice(part(begin, self.id_end - 1));
            let lane = match generation {
                0 => format!(" (lane {})\"", lane + 1),
                _ => format!(" (lane {}, {generation})\"", lane + 1),
            };
            out.extend_from_slice(lane.as_bytes());
            begin = self.id_end;
        }
        let ended = written.end.map(|end| part(end.args, end.end));
        let ended = ended.filter(|args| !args.is_empty());
        let Some(ended) = ended else {
            out.extend_from_slice(part(begin, self.end));
            return;
        };
        match part(self.args, self.end) {
            [] => {
                out.extend_from_slice(part(begin, self.end));
                out.extend_from_slice(b",\"args\":");
                out.extend_from_slice(ended);
            }
            begun => {
                out.extend_from_slice(part(begin, self.args));
                out.extend_from_slice(&merged(begun, ended));
            }
        }
    }
}

/// Two objects as one, with the members of the first where both have one.
fn merged(first: &[u8], second: &[u8]) -> Vec<u8> {
    let parse = |json| serde_json::from_slice::<Map<String, Value>>(json).unwrap_or_default();
    let mut all = parse(second);
    all.extend(parse(first));
    Value::Object(all).to_string().into_bytes()
}

/// Writes what separates a record from the one before it.
pub(crate) fn write_separator(out: &mut Vec<u8>, has_any: &mut bool) {
    let separator: &[u8] = if *has_any { b",\n" } else { b"\n" };
    out.extend_from_slice(separator);
    *has_any = true;
}

/// The row of the thread of an event. An event that names no thread is of the first one of its
/// process, one without a process of the process 0.
fn thread_of(pid: Option<i32>, tid: Option<i32>) -> Row {
    let process = pid.unwrap_or(0);
    Row::Thread(process, tid.unwrap_or(process))
}

#[cfg(test)]
mod tests;
