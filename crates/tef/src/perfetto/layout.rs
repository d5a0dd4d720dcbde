//! The order in which the records of a part are written, so that slices nest.
//!
//! Begins are paired with ends, and each slice gets the first lane of its row where it nests. Of
//! records of the same time, ends come first, then begins, the longest first. Perfetto reads a
//! complete event (`X`) before all other records of its time, so those of a row that has begins and
//! ends are written as a begin and an end, too, and all of later parts.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::lanes::{LaneTable, Placed, Rank};
use crate::open_slices::{EndOf, OpenSlice, OpenSlices};

/// A track on which slices nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Row {
    /// The numbers of a process and of its thread.
    Thread(i32, i32),
    /// A hash of what identifies an asynchronous id.
    Asynchronous(u64),
}

/// What is known of a record that is to be put in order.
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
    /// A hash of the categories; absent if it has none.
    pub(super) category: Option<u64>,
    /// The number of the process.
    pub(super) process: Option<i32>,
    /// The length of the text of the record.
    pub(super) bytes: usize,
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Whole,
    /// The begin of a complete event.
    Begin,
    /// The end of a slice that has no record of its own.
    End,
    /// The record of an end, without categories that its begin does not have.
    EndOfOtherCategory,
    /// An instant, because the begin that it ends is not known.
    Instant,
}

/// A record in its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) ts: i64,
    rank: (Rank, i64, i64),
    /// The index of the record.
    pub(super) record: usize,
    pub(super) form: Form,
    pub(super) lane: Placed,
}

/// The records of a part.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// What to write, in order.
    pub(super) items: Vec<Item>,
    /// The indices of begins whose ends may be in the next part.
    pub(super) open: Vec<usize>,
}

/// A slice of which a begin is known.
#[derive(Debug)]
struct Slice {
    row: Row,
    begin: i64,
    /// Absent if it is not known.
    end: Option<i64>,
    begin_record: usize,
    /// Absent if the slice ends without a record of its own.
    end_record: Option<usize>,
    /// The index of the record with which it has ended.
    ended_by: usize,
    /// How the record of the end is written.
    end_form: Form,
}

/// A begin whose end has not been seen.
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    record: usize,
    begin: i64,
    owner: Named,
    category: Option<u64>,
    bytes: usize,
}

/// What an end says of its slice: absent is what any slice has.
#[derive(Debug, Clone, Copy)]
struct Named {
    name: Option<u64>,
    process: Option<i32>,
}

impl OpenSlice for OpenRecord {
    type Name = Named;

    fn span(&self) -> Option<u64> {
        None
    }

    fn is_named(&self, wanted: &Named) -> bool {
        (wanted.name.is_none() || wanted.name == self.owner.name)
            && (wanted.process.is_none() || wanted.process == self.owner.process)
    }

    fn losses(&self) -> u64 {
        0
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// Puts the records of a part in order. `is_last`: what is open then has no end.
pub(super) fn lay_out(
    marks: &[Option<Mark>],
    lanes: &mut LaneTable<Row>,
    part: u64,
    is_last: bool,
) -> Layout {
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
    // What is too much to be kept for the next part is as what is open at the end.
    let is_given_up = is_last || pairing.open.is_full();
    for (row, slice) in pairing.open.take_all() {
        match is_given_up {
            true => pairing.slices.push(Slice {
                row,
                begin: slice.begin,
                end: None,
                begin_record: slice.record,
                end_record: None,
                ended_by: usize::MAX,
                end_form: Form::End,
            }),
            false => open.push(slice.record),
        }
    }
    open.sort_unstable();
    let mut items = pairing.items;
    let mut slices = pairing.slices;
    slices.sort_by_key(|slice| slice.ended_by);
    let mut order: Vec<_> = (0_i64..).zip(&slices).collect();
    order.sort_by_key(|(_, slice)| (slice.end.is_none(), slice.end, Reverse(slice.begin)));
    let mut is_edged: HashSet<Row> = HashSet::new();
    let mut ends: HashMap<(Row, i64), usize> = HashMap::new();
    for slice in slices.iter().filter(|slice| !slice.is_complete()) {
        is_edged.insert(slice.row);
        if let Some((end, record)) = slice.end.zip(slice.end_record)
            && end > slice.begin
        {
            let last = ends.entry((slice.row, end)).or_default();
            *last = record.max(*last);
        }
    }
    // An instant that arrives before the end of its time is within that slice.
    for (item, row) in &mut items {
        let end = ends.get(&(*row, item.ts));
        if end.is_some_and(|end| *end > item.record) {
            item.rank.0 = Rank::Within;
        }
    }
    let mut items: Vec<_> = items.into_iter().map(|(item, _)| item).collect();
    for (number, slice) in order {
        let lane = lanes.place(slice.row, slice.begin, slice.end, part);
        let is_split = part > 0 || is_edged.contains(&slice.row);
        slice.add_items(number, lane, is_split, &mut items);
    }
    items.sort_unstable_by_key(|item| (item.ts, item.rank));
    follow_flows(&mut items, marks);
    Layout { items, open }
}

/// Puts flow events on the lane of the slice that they are within, where a row has several.
fn follow_flows(items: &mut [Item], marks: &[Option<Mark>]) {
    let mark_of = |record: usize| marks.get(record)?.as_ref();
    let is_split = |item: &&Item| item.lane.lane > 0;
    let split = items.iter().filter(is_split);
    let split: HashSet<Row> = split
        .filter_map(|item| Some(mark_of(item.record)?.row))
        .collect();
    if split.is_empty() {
        return;
    }
    let mut open: HashMap<Row, Vec<Placed>> = HashMap::new();
    let mut complete: HashMap<Row, Vec<(i64, Placed)>> = HashMap::new();
    for item in items {
        let Some(mark) = mark_of(item.record) else {
            continue;
        };
        if !split.contains(&mark.row) {
            continue;
        }
        let open = open.entry(mark.row).or_default();
        let complete = complete.entry(mark.row).or_default();
        match (mark.phase, item.form) {
            ('s' | 't' | 'f', _) => {
                complete.retain(|(end, _)| *end >= item.ts);
                let lane = complete.last().map(|(_, lane)| lane).or(open.last());
                item.lane = lane.copied().unwrap_or_default();
            }
            ('X', Form::Whole) => {
                complete.retain(|(end, _)| *end > item.ts);
                complete.push((item.ts.saturating_add(mark.dur.unwrap_or(0)), item.lane));
            }
            (_, Form::Begin) | ('B', Form::Whole) => open.push(item.lane),
            (_, Form::End | Form::EndOfOtherCategory) | ('E', Form::Whole) => {
                if let Some(place) = open.iter().rposition(|lane| *lane == item.lane) {
                    open.remove(place);
                }
            }
            _ => {}
        }
    }
}

/// The slices of a part, as they are paired.
#[derive(Debug, Default)]
struct Pairing {
    open: OpenSlices<Row, OpenRecord>,
    slices: Vec<Slice>,
    /// What is no slice, with its row.
    items: Vec<(Item, Row)>,
}

impl Pairing {
    fn add(&mut self, record: usize, mark: &Mark) {
        match mark.phase {
            'B' | 'b' => {
                let slice = OpenRecord {
                    record,
                    begin: mark.ts,
                    owner: Named {
                        name: mark.name,
                        process: mark.process,
                    },
                    category: mark.category,
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
                ended_by: record,
                end_form: Form::End,
            }),
            _ => self.add_instant(record, mark, Form::Whole),
        }
    }

    fn end(&mut self, record: usize, mark: &Mark) {
        let is_async = matches!(mark.row, Row::Asynchronous(_));
        let mut ended = Vec::new();
        // An asynchronous slice may end in another process, if none of its own is open.
        for process in [mark.process, None] {
            let named = Named {
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
            return self.add_instant(record, mark, Form::Instant);
        };
        for (place, slice) in ended.into_iter().enumerate() {
            self.slices.push(Slice {
                row: mark.row,
                begin: slice.begin,
                end: Some(mark.ts),
                begin_record: slice.record,
                end_record: (place == last).then_some(record),
                ended_by: record,
                end_form: match mark.category {
                    _ if place < last => Form::End,
                    Some(_) if mark.category != slice.category => Form::EndOfOtherCategory,
                    _ => Form::Whole,
                },
            });
        }
    }

    fn add_instant(&mut self, record: usize, mark: &Mark, form: Form) {
        let item = Item {
            ts: mark.ts,
            rank: (Rank::Instant, arrival(record), 0),
            record,
            form,
            lane: Placed::default(),
        };
        self.items.push((item, mark.row));
    }
}

impl Slice {
    fn is_complete(&self) -> bool {
        self.end_record == Some(self.begin_record)
    }

    /// Adds the records of a slice, which has ended as the one of this number.
    fn add_items(&self, number: i64, lane: Placed, is_split: bool, items: &mut Vec<Item>) {
        let is_point = self.end == Some(self.begin);
        let end = self.end.unwrap_or(i64::MAX);
        // Of slices with the same times, the one that ends last in the input is the outer one.
        let begin_rank = match is_point {
            true => (Rank::Instant, arrival(self.begin_record), 0),
            false => (Rank::Begin(Reverse(end)), !number, 0),
        };
        let is_whole = self.is_complete() && (is_point || !is_split);
        let is_begin = self.is_complete() && !is_whole;
        items.push(Item {
            ts: self.begin,
            rank: begin_rank,
            record: self.begin_record,
            form: if is_begin { Form::Begin } else { Form::Whole },
            lane,
        });
        if is_whole || self.end.is_none() {
            return;
        }
        items.push(Item {
            ts: end,
            rank: match is_point {
                true => (Rank::Instant, arrival(self.ended_by), number),
                false => (Rank::End, !self.begin, number),
            },
            record: self.end_record.unwrap_or(self.begin_record),
            form: self.end_form,
            lane,
        });
    }
}

/// The place of a record among those that have arrived.
fn arrival(record: usize) -> i64 {
    i64::try_from(record).unwrap_or(i64::MAX)
}
