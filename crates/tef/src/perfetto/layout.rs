//! The slices of a part, and the lanes on which they nest.
//!
//! Perfetto sorts records by time, and those of one time by their duration, the longest first; the
//! order of others of one time is not kept. So begins that are paired with ends are written as
//! complete events (`X`). Asynchronous slices have no such form: those of which one begins when
//! another begins or ends are on different lanes, and those without a duration are instants. A
//! begin without an end is on a lane where no other slice begins then.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::lanes::{LanePlace, LaneTable};
use crate::open_slices::{EndOf, OpenSlice, OpenSlices};

/// A track on which slices nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Row {
    /// The numbers of a process and of its thread.
    Thread(i32, i32),
    /// A hash of what identifies an asynchronous id.
    Asynchronous(u64),
}

/// The members of a record that decide where it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) phase: char,
    /// The begin in nanoseconds.
    pub(super) ts: i64,
    /// The duration in nanoseconds.
    pub(super) dur: Option<i64>,
    pub(super) row: Row,
    /// A hash of the name; absent if it has none.
    pub(super) name: Option<u64>,
    /// The number of the process.
    pub(super) process: Option<i32>,
    /// The length of the text of the record.
    pub(super) bytes: usize,
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordForm {
    /// With the phase that the record has.
    Whole,
    /// A begin, as a complete event.
    Complete,
    /// A begin or an end, as an instant.
    Instant,
}

/// A record with its time, form and lane in the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) ts: i64,
    pub(super) dur: Option<i64>,
    /// The index of the record.
    pub(super) record: usize,
    /// The index of the record whose arguments are added.
    pub(super) end: Option<usize>,
    pub(super) form: RecordForm,
    pub(super) lane: LanePlace,
}

/// The records of a part.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The records to write, in order.
    pub(super) items: Vec<Item>,
    /// The indices of begins whose ends may be in the next part.
    pub(super) open: Vec<usize>,
}

/// A slice of which a begin is known.
#[derive(Debug)]
pub(super) struct Slice {
    row: Row,
    begin: i64,
    /// Absent if it is not known.
    end: Option<i64>,
    begin_record: usize,
    /// Absent if the slice ends without a record of its own.
    end_record: Option<usize>,
}

/// A begin whose end has not been seen.
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    record: usize,
    begin: i64,
    name: Option<u64>,
    process: Option<i32>,
    bytes: usize,
}

/// The slices that an end may be of: those with this name and this process, each if it is present.
#[derive(Debug, Clone, Copy)]
struct EndSelector {
    name: Option<u64>,
    process: Option<i32>,
}

impl OpenSlice for OpenRecord {
    type Name = EndSelector;

    fn span(&self) -> Option<u64> {
        None
    }

    fn is_named(&self, wanted: &EndSelector) -> bool {
        (wanted.name.is_none() || wanted.name == self.name)
            && (wanted.process.is_none() || wanted.process == self.process)
    }

    fn losses(&self) -> u64 {
        0
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// Puts the records of a part in order. `is_last`: slices that are open at the end have none.
pub(super) fn lay_out(marks: &[Option<Mark>], lanes: &mut LaneTable<Row>, is_last: bool) -> Layout {
    let mut pairing = Pairing::default();
    let known = marks.iter().enumerate();
    let mut in_order: Vec<_> = known
        .filter_map(|(record, mark)| Some((record, mark.as_ref()?)))
        .collect();
    // Stable: equal times keep their order of arrival.
    in_order.sort_by_key(|(_, mark)| mark.ts);
    for (record, mark) in in_order {
        pairing.add(record, mark);
    }
    let mut open = Vec::new();
    // Too many open slices are not kept for the next part: they are as those open at the very end.
    let is_given_up = is_last || pairing.open.is_full();
    for (row, slice) in pairing.open.take_all() {
        match is_given_up {
            true => pairing.slices.push(Slice {
                row,
                begin: slice.begin,
                end: None,
                begin_record: slice.record,
                end_record: None,
            }),
            false => open.push(slice.record),
        }
    }
    open.sort_unstable();
    let (mut items, mut slices) = (pairing.items, pairing.slices);
    // In order of their ends; of those without one, the innermost first.
    slices.sort_by_key(|slice| (slice.end.is_none(), slice.end, Reverse(slice.begin)));
    let mut split = HashSet::new();
    for slice in slices {
        let lane = slice.place(lanes);
        if lane.lane > 0 {
            split.insert(slice.row);
        }
        slice.add_items(lane, &mut items);
    }
    items.sort_by_key(|item| (item.ts, Reverse(item.dur), item.record));
    if !split.is_empty() {
        follow_flows(&mut items, marks, &split);
    }
    Layout { items, open }
}

/// Puts flow events on the lane of the slice that they are within, in rows that have several.
fn follow_flows(items: &mut [Item], marks: &[Option<Mark>], split: &HashSet<Row>) {
    let mut slices: HashMap<Row, Vec<(i64, LanePlace)>> = HashMap::new();
    for item in items {
        let mark = marks.get(item.record).and_then(Option::as_ref);
        let Some(mark) = mark.filter(|mark| split.contains(&mark.row)) else {
            continue;
        };
        let slices = slices.entry(mark.row).or_default();
        let innermost = innermost_at(item.ts, slices);
        match (mark.phase, item.dur) {
            ('s' | 't' | 'f', _) => item.lane = innermost.unwrap_or_default(),
            ('X' | 'B', Some(dur)) => slices.push((item.ts.saturating_add(dur), item.lane)),
            ('B', None) => slices.push((i64::MAX, item.lane)),
            _ => {}
        }
    }
}

/// The lane of the innermost of these slices, which are given by their ends, at a time that is not
/// before that of an earlier call.
fn innermost_at<T: PartialOrd>(time: T, slices: &mut Vec<(T, LanePlace)>) -> Option<LanePlace> {
    // Only the innermost slice is asked for: one below it that has ended is removed when it is the
    // last. Perfetto takes a slice that ends at the same time, too.
    while slices.pop_if(|(end, _)| *end < time).is_some() {}
    slices.last().map(|(_, lane)| *lane)
}

/// The slices of a part, as they are paired.
#[derive(Debug, Default)]
struct Pairing {
    open: OpenSlices<Row, OpenRecord>,
    slices: Vec<Slice>,
    /// The records that are of no slice.
    items: Vec<Item>,
}

impl Pairing {
    fn add(&mut self, record: usize, mark: &Mark) {
        match mark.phase {
            'B' | 'b' => {
                let slice = OpenRecord {
                    record,
                    begin: mark.ts,
                    name: mark.name,
                    process: mark.process,
                    bytes: mark.bytes,
                };
                self.open.begin(mark.row, slice);
            }
            'E' | 'e' => self.end(record, mark),
            'X' => self.slices.push(Slice {
                row: mark.row,
                begin: mark.ts,
                end: Some(mark.ts.saturating_add(mark.dur.unwrap_or(0))),
                begin_record: record,
                end_record: Some(record),
            }),
            _ => self.add_instant(record, mark, RecordForm::Whole),
        }
    }

    fn end(&mut self, record: usize, mark: &Mark) {
        let is_async = matches!(mark.row, Row::Asynchronous(_));
        let mut ended = Vec::new();
        // An asynchronous slice may end in another process, if none of its own is open. All slices
        // of a thread are of one process.
        let processes: &[_] = match is_async {
            true => &[mark.process, None],
            false => &[None],
        };
        for process in processes.iter().copied() {
            let named = EndSelector {
                name: mark.name,
                process,
            };
            let of = match is_async {
                true => EndOf::Asynchronous(&named),
                false => EndOf::Name(&named),
            };
            ended = self.open.end(mark.row, of, 0);
            if !ended.is_empty() {
                break;
            }
        }
        let Some(last) = ended.len().checked_sub(1) else {
            return self.add_instant(record, mark, RecordForm::Instant);
        };
        for (place, slice) in ended.into_iter().enumerate() {
            self.slices.push(Slice {
                row: mark.row,
                begin: slice.begin,
                end: Some(mark.ts),
                begin_record: slice.record,
                end_record: (place == last).then_some(record),
            });
        }
    }

    fn add_instant(&mut self, record: usize, mark: &Mark, form: RecordForm) {
        self.items.push(Item {
            ts: mark.ts,
            // Those of states of threads are written as they are.
            dur: mark.dur.filter(|_| form == RecordForm::Whole),
            record,
            end: None,
            form,
            lane: LanePlace::default(),
        });
    }
}

impl Slice {
    fn place(&self, lanes: &mut LaneTable<Row>) -> LanePlace {
        // Slices of different batches never share their begins.
        const EACH_ITS_OWN: u64 = u64::MAX;
        const TOGETHER: u64 = 0;
        match (self.row, self.end) {
            (Row::Asynchronous(_), Some(end)) if end > self.begin => {
                let batch = u64::try_from(self.begin_record).unwrap_or(EACH_ITS_OWN) + 1;
                lanes.place(self.row, self.begin, Some(end.saturating_add(1)), batch)
            }
            (_, Some(end)) => lanes.place(self.row, self.begin, Some(end), TOGETHER),
            (_, None) => lanes.place(self.row, self.begin, None, EACH_ITS_OWN),
        }
    }

    fn add_items(&self, lane: LanePlace, items: &mut Vec<Item>) {
        let dur = self.end.map(|end| end.saturating_sub(self.begin));
        let is_async = matches!(self.row, Row::Asynchronous(_));
        let is_complete = self.end_record == Some(self.begin_record);
        let (dur, form) = match dur {
            Some(0) if is_async => (None, RecordForm::Instant),
            Some(dur) if !is_async && !is_complete => (Some(dur), RecordForm::Complete),
            Some(dur) if !is_async => (Some(dur), RecordForm::Whole),
            _ => (None, RecordForm::Whole),
        };
        let end_record = self.end_record.filter(|_| !is_complete);
        let begin = Item {
            ts: self.begin,
            dur,
            record: self.begin_record,
            end: end_record.filter(|_| form != RecordForm::Whole),
            form,
            lane,
        };
        items.push(begin);
        if let Some((record, ts)) = end_record
            .zip(self.end)
            .filter(|_| form == RecordForm::Whole)
        {
            items.push(Item {
                ts,
                record,
                ..begin
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    /// A time that counts how often it is compared.
    struct Time<'c>(i64, &'c Cell<usize>);

    impl PartialEq for Time<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.partial_cmp(other) == Some(Ordering::Equal)
        }
    }

    impl PartialOrd for Time<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            self.1.set(self.1.get() + 1);
            self.0.partial_cmp(&other.0)
        }
    }

    #[test]
    fn innermost_slice_at_a_time_is_found_without_a_search_of_all_open_ones() {
        let steps = Cell::new(0);
        let time = |at| Time(at, &steps);
        let lane = |lane| LanePlace {
            lane,
            ..LanePlace::default()
        };
        let mut slices = Vec::new();
        for number in 0..1000 {
            // Those of odd numbers end before the one in which they are.
            let end = if number % 2 == 0 { 5000 } else { 2000 };
            slices.push((time(end), lane(number)));
            let at = i64::try_from(number).unwrap();
            assert_eq!(innermost_at(time(at), &mut slices), Some(lane(number)));
        }
        for (at, number) in [(2000, 999), (2001, 998), (5000, 998)] {
            assert_eq!(innermost_at(time(at), &mut slices), Some(lane(number)));
        }
        assert_eq!(innermost_at(time(5001), &mut slices), None);
        assert!(steps.get() < 3000, "{} steps", steps.get());
    }
}
