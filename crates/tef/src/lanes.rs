//! Lanes of slices that are known when they end.
//!
//! A track shows slices that nest: a begin opens a slice within the innermost open one, an end
//! closes that. What a thread or an asynchronous id has may overlap without nesting, and comes in
//! order of the ends at best. Each slice goes to the first lane where it nests. A lane remembers
//! the outermost slices only, as intervals that do not overlap: a slice within one of them may
//! conflict with what is in it, so it goes to another lane.
//!
//! The reader sorts by time, and packets of the same time by their place in the file. The writer
//! puts those of a batch in order, but not those of batches that are written already.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Largest number of intervals that a lane remembers. With one more, the earlier half is forgotten,
/// and nothing that begins before its end fits.
const MAX_INTERVALS: usize = 1024;
/// Largest number of lanes of a row that are remembered. A slice that fits none has its own.
const MAX_LANES: u64 = 64;
/// Largest number of rows whose lanes are remembered. With one more, all are forgotten.
const MAX_ROWS: usize = 1 << 14;

/// The lanes of all rows: threads and asynchronous ids.
#[derive(Debug)]
pub struct LaneTable<R> {
    rows: HashMap<R, Lanes>,
    /// The end of everything that was in rows which have been forgotten.
    floor: Option<i64>,
    generation: u64,
    latest: i64,
}

/// The lane of a row on which a slice is; the first one is the row's own track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LanePlace {
    /// The number of the lane, from 0.
    pub lane: u64,
    /// A number that differs for lanes of one row that must not be taken for each other.
    pub generation: u64,
}

impl<R> Default for LaneTable<R> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            floor: None,
            generation: 0,
            latest: 0,
        }
    }
}

impl<R: Eq + Hash> LaneTable<R> {
    /// Finds the lane of a slice of a row; the first lane is the track of the row itself. To be
    /// called for a slice when it ends. `end` is absent if it is not known, `batch` is the number
    /// of the batch in which the slice is written.
    pub fn place(&mut self, row: R, begin: i64, end: Option<i64>, batch: u64) -> LanePlace {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&row) {
            self.rows.clear();
            self.floor = Some(self.latest);
            self.generation += 1;
        }
        self.latest = self.latest.max(end.unwrap_or(begin));
        let floor = self.floor.unwrap_or(i64::MIN);
        let lanes = self.rows.entry(row).or_insert_with(|| Lanes::new(floor));
        let is_point = end == Some(begin);
        LanePlace {
            // A slice without a duration nests wherever it is.
            lane: match is_point {
                true => 0,
                false => lanes.place(begin, end, batch),
            },
            generation: self.generation,
        }
    }
}

/// The lanes of one thread or one asynchronous id.
#[derive(Debug)]
struct Lanes {
    lanes: Vec<Lane>,
    unremembered: u64,
    /// The earliest begin of a slice on the first lane.
    first_floor: i64,
}

#[derive(Debug)]
struct Lane {
    /// Ends and batches of slices, by their begins.
    intervals: BTreeMap<i64, (i64, u64)>,
    /// The end of everything that was forgotten.
    floor: i64,
}

impl Lanes {
    /// Lanes of which nothing is known before `floor`.
    fn new(floor: i64) -> Self {
        Self {
            lanes: Vec::new(),
            unremembered: 0,
            first_floor: floor,
        }
    }

    /// The number of the lane of a slice, from 0. `end` is absent if it is not known.
    fn place(&mut self, begin: i64, end: Option<i64>, batch: u64) -> u64 {
        let end = end.unwrap_or(i64::MAX);
        for (number, lane) in (0..).zip(&mut self.lanes) {
            if lane.place(begin, end, batch) {
                return number;
            }
        }
        while (self.lanes.len() as u64) < MAX_LANES {
            let number = self.lanes.len() as u64;
            let floor = if number == 0 {
                self.first_floor
            } else {
                i64::MIN
            };
            let mut lane = Lane {
                intervals: BTreeMap::new(),
                floor,
            };
            let has_place = lane.place(begin, end, batch);
            self.lanes.push(lane);
            if has_place {
                return number;
            }
        }
        self.unremembered += 1;
        MAX_LANES + self.unremembered - 1
    }
}

impl Lane {
    /// Adds a slice if it nests with all others.
    fn place(&mut self, begin: i64, end: i64, batch: u64) -> bool {
        if begin < self.floor {
            return false;
        }
        // A later slice that was written must not begin when this one ends: its begin would come
        // first, and be closed by this end.
        if let Some((_, written)) = self.intervals.get(&end)
            && *written != batch
            && begin < end
        {
            return false;
        }
        if let Some((_, (other_end, _))) = self.intervals.range(..begin).next_back()
            && *other_end > begin
        {
            return false;
        }
        let within = || {
            self.intervals
                .range(begin..end.max(begin.saturating_add(1)))
        };
        let nests = |(other, (other_end, written)): (&i64, &(i64, u64))| {
            *other_end <= end && (*other != begin || *written == batch)
        };
        if !within().all(nests) {
            return false;
        }
        let within: Vec<_> = within().map(|(other, _)| *other).collect();
        for other in within {
            self.intervals.remove(&other);
        }
        self.intervals.insert(begin, (end, batch));
        if self.intervals.len() > MAX_INTERVALS {
            self.forget_half();
        }
        true
    }

    fn forget_half(&mut self) {
        while self.intervals.len() > MAX_INTERVALS / 2 {
            if let Some((_, (end, _))) = self.intervals.pop_first() {
                self.floor = self.floor.max(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_nest_share_a_lane_and_others_get_lanes_of_their_own() {
        let mut lanes = Lanes::new(i64::MIN);
        for (begin, end, batch, lane, why) in [
            (10, 12, 0, 0, "the first"),
            (12, 15, 0, 0, "begins when the one before ends"),
            (10, 20, 0, 0, "around both, also with the same begin"),
            (5, 11, 0, 1, "overlaps"),
            (14, 25, 0, 1, "overlaps, and the other lane is free"),
            (12, 13, 0, 1, "within a slice of the first lane"),
            (20, 22, 0, 0, "after all"),
            (
                20,
                30,
                1,
                2,
                "around one that was written with the same begin",
            ),
            (18, 20, 2, 3, "ends when one begins that was written"),
        ] {
            assert_eq!(lanes.place(begin, Some(end), batch), lane, "{why}");
        }
        assert_eq!(lanes.place(30, None, 2), 0);
        assert_eq!(lanes.place(40, Some(50), 2), 1, "within one that is open");
        assert_eq!(lanes.place(0, None, 2), 0, "open around all others");
    }

    #[test]
    fn the_memory_of_lanes_is_bounded() {
        let mut lanes = Lanes::new(i64::MIN);
        for begin in 0..4 * i64::try_from(MAX_INTERVALS).unwrap() {
            assert_eq!(lanes.place(2 * begin, Some(2 * begin + 1), 0), 0);
        }
        assert!(lanes.lanes[0].intervals.len() <= MAX_INTERVALS);
        assert_eq!(
            lanes.place(1, Some(i64::MAX), 0),
            1,
            "around forgotten ones"
        );
        let mut lanes = Lanes::new(i64::MIN);
        let mut numbers: Vec<_> = (0..1000)
            .map(|n| lanes.place(n, Some(2000 + n), 0))
            .collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 1000);
        assert_eq!(lanes.lanes.len() as u64, MAX_LANES);
    }
}
