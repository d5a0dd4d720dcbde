//! Which ranges of addresses contain an address.

/// Ranges, each of which belongs to something with a number.
#[derive(Debug, Default)]
pub(crate) struct RangeIndex {
    /// In the order of the first address.
    ranges: Vec<IndexedRange>,
}

#[derive(Debug)]
struct IndexedRange {
    begin: u64,
    end: u64,
    /// The highest end up to this range: where it is not above an address, no range before
    /// contains that.
    highest_end: u64,
    owner: u32,
}

impl RangeIndex {
    /// An index of ranges `(begin, end, owner)`. An end is not part of its range.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64, u32)>) -> Self {
        let ranges = ranges.into_iter().filter(|(begin, end, _)| begin < end);
        let mut ranges: Vec<_> = ranges
            .map(|(begin, end, owner)| IndexedRange {
                begin,
                end,
                highest_end: end,
                owner,
            })
            .collect();
        ranges.shrink_to_fit();
        ranges.sort_by_key(|range| range.begin);
        let mut highest_end = 0;
        for range in &mut ranges {
            highest_end = range.end.max(highest_end);
            range.highest_end = highest_end;
        }
        Self { ranges }
    }

    /// The owners of the ranges that contain an address, in ascending order, each once.
    pub(crate) fn owners(&self, address: u64) -> Vec<u32> {
        let after = self.ranges.partition_point(|range| range.begin <= address);
        let before = self.ranges.get(..after).unwrap_or_default().iter().rev();
        let near = before.take_while(|range| range.highest_end > address);
        let mut owners: Vec<_> = near
            .filter(|range| range.end > address)
            .map(|range| range.owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Memory of the index in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.len() * size_of::<IndexedRange>()
    }
}

#[cfg(test)]
mod tests {
    use super::RangeIndex;

    #[test]
    fn ranges_that_overlap_are_all_found() {
        let index = RangeIndex::new([
            (10, 20, 3),
            (0, 100, 2),
            (15, 16, 1),
            (30, 40, 0),
            (15, 18, 1),
            (50, 50, 9),
            (60, 55, 9),
        ]);
        assert_eq!(index.owners(15), [1, 2, 3]);
        assert_eq!(index.owners(20), [2]);
        assert_eq!(index.owners(39), [0, 2]);
        assert_eq!(index.owners(50), [2]);
        assert_eq!(index.owners(99), [2]);
        assert!(index.owners(100).is_empty());
        assert!(RangeIndex::default().owners(0).is_empty());
    }
}
