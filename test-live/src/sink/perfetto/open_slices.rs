//! Slices that have begun and not ended.

use std::collections::HashMap;

use perfetto::{Mark, TrackId};

use super::tracks::Place;

/// Largest number of slices that are remembered.
const MAX_SLICES: usize = 1 << 17;
/// Largest number of bytes of memory for them, about.
const MAX_BYTES: usize = 64 << 20;

/// A slice that has begun.
#[derive(Debug)]
pub(super) struct OpenSlice {
    /// The id of the span, by which it ends. Absent if it ends by its name.
    pub(super) span: Option<u64>,
    pub(super) place: Place,
    pub(super) begin: i64,
    pub(super) mark: Mark,
    /// The number of losses when it began. After more of them its end may be missing.
    pub(super) losses: u64,
}

/// How an end says which slice it is of.
#[derive(Debug, Clone, Copy)]
pub(super) enum EndOf<'a> {
    /// The span of this id.
    Span(u64),
    /// The innermost slice of this name.
    Name(&'a str),
    /// The innermost slice.
    Innermost,
}

/// The slices that are open, by their rows.
#[derive(Debug, Default)]
pub(super) struct OpenSlices {
    rows: HashMap<TrackId, Vec<OpenSlice>>,
    count: usize,
    bytes: usize,
}

impl OpenSlices {
    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_SLICES || self.bytes >= MAX_BYTES
    }

    /// Adds a slice of a row.
    pub(super) fn begin(&mut self, row: TrackId, slice: OpenSlice) {
        self.count += 1;
        self.bytes += slice.mark.bytes();
        self.rows.entry(row).or_default().push(slice);
    }

    /// Takes the slice of a row that ends, last, and before it those within it that end too: they
    /// have no ids, or their ends may be lost. `losses`: the number of losses so far. Empty if none
    /// is known.
    pub(super) fn end(&mut self, row: TrackId, of: EndOf<'_>, losses: u64) -> Vec<OpenSlice> {
        let Some(open) = self.rows.get_mut(&row) else {
            return Vec::new();
        };
        let place = open.iter().rposition(|slice| match of {
            EndOf::Span(span) => slice.span == Some(span),
            EndOf::Name(name) => slice.span.is_none() && slice.mark.name == name,
            EndOf::Innermost => slice.span.is_none(),
        });
        let Some(place) = place else {
            return Vec::new();
        };
        let mut tail = open.split_off(place).into_iter();
        let slice = tail.next();
        let mut ended = Vec::new();
        for inner in tail {
            match matches!(of, EndOf::Span(_)) && inner.span.is_some() && inner.losses == losses {
                true => open.push(inner),
                false => ended.push(inner),
            }
        }
        ended.reverse();
        ended.extend(slice);
        if open.is_empty() {
            self.rows.remove(&row);
        }
        for slice in &ended {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(slice.mark.bytes());
        }
        ended
    }

    /// Takes all slices, of each row the innermost first.
    pub(super) fn take_all(&mut self) -> Vec<(TrackId, OpenSlice)> {
        let all = std::mem::take(self);
        let mut rows: Vec<_> = all.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(row, _)| row.0);
        let of_row = |(row, slices): (_, Vec<_>)| {
            let slices = slices.into_iter().rev();
            slices.map(move |slice| (row, slice))
        };
        rows.into_iter().flat_map(of_row).collect()
    }
}
