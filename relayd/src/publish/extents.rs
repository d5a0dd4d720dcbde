//! Where the packets of a stream without indexes are in their tracefiles, until the archive has
//! them.

use std::collections::VecDeque;

use wire::Bytes;

use crate::limits::MAX_EXTENT_RUNS;

/// The extents of packets, which are counted from the first one of the stream.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// Packets of the same length that follow on each other in one tracefile, oldest first.
    runs: VecDeque<ExtentRun>,
    /// Number of the packet after the last one whose extent is known.
    next: u64,
    /// End of that packet in its tracefile.
    end: Bytes,
    /// Whether the extent of a later packet is not known.
    is_cut: bool,
}

#[derive(Debug)]
struct ExtentRun {
    /// Number of the first packet.
    first: u64,
    /// Offset of the first packet in its tracefile.
    offset: Bytes,
    /// Length of each packet, padding included.
    len: Bytes,
}

impl Extents {
    /// Adds the extent of packet `number`, unless there are [`MAX_EXTENT_RUNS`] or one before it
    /// was not added.
    pub(super) fn add(&mut self, number: u64, offset: Bytes, len: Bytes) {
        let last = self.runs.back().map(|run| run.len);
        if last != Some(len) || offset != self.end {
            self.is_cut |= self.runs.len() >= MAX_EXTENT_RUNS;
            if !self.is_cut {
                let first = number;
                self.runs.push_back(ExtentRun { first, offset, len });
            }
        }
        if !self.is_cut {
            self.next = number + 1;
            self.end = Bytes(offset.0 + len.0);
        }
    }

    /// Offset and length of a packet. None: they are not known.
    pub(super) fn get(&self, number: u64) -> Option<(Bytes, Bytes)> {
        let after = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let before = (number - run.first) * run.len.0;
        (number < self.next).then_some((Bytes(run.offset.0 + before), run.len))
    }

    /// Forgets the packets before this one.
    pub(super) fn forget_before(&mut self, number: u64) {
        let later = self.runs.partition_point(|run| run.first <= number);
        self.runs.drain(..later.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(extents: &mut Extents, number: u64, offset: u64, len: u64) {
        extents.add(number, Bytes(offset), Bytes(len));
    }

    fn get(extents: &Extents, number: u64) -> Option<(u64, u64)> {
        let extent = extents.get(number);
        extent.map(|(offset, len)| (offset.0, len.0))
    }

    #[test]
    fn packets_are_where_they_were_written_in_each_tracefile() {
        let mut extents = Extents::default();
        let mut written = Vec::new();
        for (number, (offset, len)) in [(0, 8), (8, 8), (16, 4), (20, 8), (0, 8), (8, 8), (0, 8)]
            .into_iter()
            .enumerate()
        {
            add(&mut extents, number as u64, offset, len);
            written.push(Some((offset, len)));
        }
        let got = (0..7).map(|number| get(&extents, number));
        assert_eq!(got.collect::<Vec<_>>(), written);
        assert_eq!(get(&extents, 7), None);
        extents.forget_before(5);
        let got = (0..7).map(|number| get(&extents, number));
        let kept = written.iter().enumerate();
        let kept = kept.map(|(number, extent)| extent.filter(|_| number >= 4));
        assert!(got.eq(kept), "the run with packet 5 begins with packet 4");
    }

    #[test]
    fn memory_is_bounded_and_no_extent_is_wrong_beyond_that() {
        let mut extents = Extents::default();
        let (mut offset, max) = (0, MAX_EXTENT_RUNS as u64);
        for number in 0..max + 9 {
            let len = 1 + number % 2;
            add(&mut extents, number, offset, len);
            offset += len;
        }
        assert_eq!(extents.runs.len(), MAX_EXTENT_RUNS);
        assert!(get(&extents, max - 1).is_some() && get(&extents, max).is_none());
        extents.forget_before(max - 1);
        add(&mut extents, max + 9, offset, 1);
        assert_eq!(get(&extents, max + 9), None, "one before it is missing");
    }
}
