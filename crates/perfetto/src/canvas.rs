//! Where slices, points in time and counters are drawn: tracks, and what is open on them.

use std::hash::Hash;

use tef::open_slices::{EndOf, OpenSlice, OpenSlices};

use crate::message::Utsname;
use crate::tracks::{Host, Owner, Place, Tracks};
use crate::{CounterValue, Encoder, Machine, Mark, TrackId};

/// The trace that is being written.
#[derive(Debug, Default)]
pub struct Canvas {
    /// What is written, in order of time.
    pub encoder: Encoder,
    tracks: Tracks,
    open: OpenSlices<TrackId, OpenMark>,
    /// The number of losses so far.
    losses: u64,
}

/// A slice that has begun.
#[derive(Debug)]
struct OpenMark {
    span: Option<u64>,
    place: Place,
    begin: i64,
    mark: Mark,
    losses: u64,
}

impl OpenSlice for OpenMark {
    type Name = str;

    fn span(&self) -> Option<u64> {
        self.span
    }

    fn is_named(&self, name: &str) -> bool {
        self.mark.name == name
    }

    fn losses(&self) -> u64 {
        self.losses
    }

    fn bytes(&self) -> usize {
        self.mark.bytes()
    }
}

impl Canvas {
    /// The place of an event of this owner at this time.
    pub fn place(&mut self, owner: &Owner<'_>, time: i64) -> Place {
        self.encoder.set_time(time);
        self.tracks.forget_if_many();
        self.tracks.place(owner, &mut self.encoder)
    }

    /// Says which kernel the host of a machine has, before events of it are added.
    pub fn kernel(&mut self, machine: Machine, host: Host<'_>, kernel: Utsname) {
        if machine == Machine(0) {
            self.tracks.set_kernel_host(host);
        }
        self.encoder.kernel(machine, kernel);
    }

    /// Names the process of an owner.
    pub fn name_process(&mut self, owner: &Owner<'_>) {
        self.tracks.parent(owner, &mut self.encoder);
    }

    /// The place of something asynchronous of an owner: a row for each id.
    pub fn asynchronous(&mut self, place: Place, id: impl Hash, name: &str) -> Place {
        let tracks = &mut self.tracks;
        Place {
            row: tracks.asynchronous(place.parent, id, name, &mut self.encoder),
            is_thread: true,
            ..place
        }
    }

    /// Draws a point in time.
    pub fn instant(&mut self, place: Place, time: i64, mark: &Mark) {
        self.encoder.instant(place.row, time, mark);
    }

    /// Begins a slice, which is drawn when it ends.
    pub fn begin(&mut self, place: Place, time: i64, span: Option<u64>, mark: Mark) {
        if self.open.is_full() {
            self.draw_open();
        }
        let slice = OpenMark {
            span,
            place,
            begin: time,
            mark,
            losses: self.losses,
        };
        self.open.begin(place.row, slice);
    }

    /// Ends a slice, to which `add` adds what is known now. Returns false if no such slice is open.
    pub fn end(
        &mut self,
        place: Place,
        time: i64,
        of: EndOf<'_, str>,
        add: impl FnOnce(&mut Mark),
    ) -> bool {
        let mut ended = self.open.end(place.row, of, self.losses);
        let Some(slice) = ended.last_mut() else {
            return false;
        };
        add(&mut slice.mark);
        for slice in ended {
            self.slice(slice.place, slice.begin, Some(time), &slice.mark);
        }
        true
    }

    /// Draws a slice on the first lane of its row where it nests. `end` is absent if it is not
    /// known.
    pub fn slice(&mut self, place: Place, begin: i64, end: Option<i64>, mark: &Mark) {
        // Clocks of programs may go back.
        let end = end.map(|end| end.max(begin));
        let placed = self.encoder.place(place.row, begin, end);
        let track = match placed.lane {
            0 => place.row,
            lane => {
                let encoder = &mut self.encoder;
                self.tracks
                    .lane(place.row, lane, placed.generation, encoder)
            }
        };
        self.encoder.slice(track, begin, end, mark);
    }

    /// Draws a value of a counter below a track.
    pub fn counter(&mut self, parent: TrackId, name: &str, time: i64, value: CounterValue) {
        let track = self.tracks.counter(parent, name, &mut self.encoder);
        self.encoder.counter(track, time, value);
    }

    /// Draws a loss on a track of its stream. `begin` is absent if it is not known.
    pub fn lost(
        &mut self,
        owner: &Owner<'_>,
        stream: &str,
        (begin, end): (Option<i64>, i64),
        mark: &Mark,
    ) {
        self.losses += 1;
        let row = self.tracks.losses(owner, stream, &mut self.encoder);
        match begin.filter(|begin| *begin < end) {
            Some(begin) => {
                let place = Place {
                    row,
                    parent: row,
                    is_thread: true,
                };
                self.slice(place, begin, Some(end), mark);
            }
            None => self.encoder.instant(row, end, mark),
        }
    }

    /// Draws all slices that are open as slices without an end.
    pub fn draw_open(&mut self) {
        for (_, slice) in self.open.take_all() {
            self.slice(slice.place, slice.begin, None, &slice.mark);
        }
    }
}
