//! When something has ended, and what a relay without beacons and locks is taken to promise.

use std::collections::HashSet;
use std::time::{Instant, SystemTime};

use super::metadata::GrowingFile;
use super::piece::Piece;
use super::run::{Follow, MISSED, Place, Stopped};
use super::stream::Stream;
use crate::attach::{SourceEvent, TraceKey};

impl Follow {
    /// Whether a piece of which all entries are known may get more. `has_next`: a later piece of its
    /// stream has packets.
    pub(super) fn may_grow(&mut self, piece: &mut Piece, group: TraceKey, has_next: bool) -> bool {
        // One that has a packet had its lock before.
        if piece.is_young() && piece.begin.is_none() {
            self.is_soon = true;
            return true;
        }
        let is_aside = !has_next && self.is_described(piece) && piece.is_put_aside();
        let is_locked = is_aside || piece.is_locked().unwrap_or(false);
        let Some(group) = self.groups.get_mut(&group) else {
            return is_locked;
        };
        group.has_locks |= is_locked;
        if is_locked || group.has_locks {
            return is_locked;
        }
        !has_next && !is_silent(group.grown, self.options.silence)
    }

    /// Whether the relay holds its lock on the metadata beside a piece.
    fn is_described(&self, piece: &Piece) -> bool {
        let place = self.places.get(&piece.place);
        let metadata = place.and_then(|place| place.metadata.as_ref());
        metadata.is_some_and(GrowingFile::is_locked)
    }

    /// Ends the streams that no file that has appeared can be a further piece of.
    pub(super) fn end_streams(&mut self) -> Result<(), Stopped> {
        let ended: Vec<_> = self
            .streams
            .values()
            .filter(|stream| {
                stream
                    .drained
                    .is_some_and(|scan| self.scans > scan + MISSED)
            })
            .filter(|stream| !self.places.values().any(|place| may_go_on(stream, place)))
            .map(|stream| stream.key)
            .collect();
        for stream in ended {
            self.streams.remove(&stream);
            self.watch.forget(stream);
            self.send_event(SourceEvent::StreamEnd { stream })?;
        }
        // A single look may miss the next chunk while it is being moved.
        let is_drained = |stream: &Stream| stream.drained.is_some();
        self.scan_wanted |= self.streams.values().any(is_drained);
        Ok(())
    }

    /// Ends the traces that have no streams any more and whose metadata no longer grows.
    pub(super) fn end_traces(&mut self) -> Result<(), Stopped> {
        let keys: Vec<_> = self.groups.keys().copied().collect();
        for key in keys {
            if self.streams.values().any(|stream| stream.group == key) || self.is_open(key) {
                continue;
            }
            let scans = self.scans;
            let Some(group) = self.groups.get_mut(&key) else {
                continue;
            };
            if *group.drained.get_or_insert(scans) + MISSED >= scans {
                self.scan_wanted = true;
                continue;
            }
            self.groups.remove(&key);
            for place in self.places.values_mut() {
                if place.group == Some(key) {
                    place.finish();
                }
            }
            self.send_event(SourceEvent::TraceEnd { trace: key })?;
        }
        Ok(())
    }

    /// Lets go of chunks of which all has been read.
    pub(super) fn finish_chunks(&mut self) {
        let first: Vec<_> = self
            .groups
            .values()
            .map(|group| group.first_place)
            .collect();
        let pieces = self.streams.values().flat_map(|stream| &stream.pieces);
        let in_use: HashSet<_> = pieces.map(|piece| piece.place).chain(first).collect();
        for place in self.places.values_mut() {
            let has_locks =
                |key: &TraceKey| self.groups.get(key).is_some_and(|group| group.has_locks);
            if place.group.as_ref().is_some_and(has_locks)
                && !in_use.contains(&place.id)
                && place.loose.is_empty()
                && !place
                    .metadata
                    .as_ref()
                    .is_some_and(GrowingFile::is_being_written)
            {
                place.finish();
            }
        }
    }

    /// Whether more may come of a trace although it has no streams.
    fn is_open(&mut self, key: TraceKey) -> bool {
        let Some(group) = self.groups.get_mut(&key) else {
            return false;
        };
        let mut is_open = false;
        for place in self
            .places
            .values()
            .filter(|place| place.group == Some(key))
        {
            if let Some(metadata) = &place.metadata {
                group.has_locks |= metadata.is_locked();
                is_open |= metadata.is_being_written();
            }
            is_open |= !place.loose.is_empty();
        }
        is_open |= !group.has_locks && !is_silent(group.grown, self.options.silence);
        // The next chunk has no metadata yet.
        is_open |= self.places.values().any(|place| {
            place.group.is_none() && !place.is_finished && group.homes.contains(&place.home)
        });
        if is_open {
            group.drained = None;
        }
        is_open
    }

    /// Whether nothing further will come.
    pub(super) fn is_done(&self) -> bool {
        !self.options.wait
            && !self.scan_wanted
            && self.groups.is_empty()
            && self.places.values().all(|place| place.is_finished)
    }

    /// Lets idle streams of relays without beacons promise what the others have shown.
    pub(super) fn promise_for_idle(&mut self) -> Result<(), Stopped> {
        let idle = self.options.idle;
        while let Some((since, _)) = self.shown.get(1)
            && since.elapsed() >= idle
        {
            self.shown.pop_front();
        }
        let Some(&(since, until)) = self.shown.front() else {
            return Ok(());
        };
        if since.elapsed() < idle {
            return Ok(());
        }
        let mut quiet = Vec::new();
        for stream in self.streams.values() {
            if stream.grown.elapsed() >= idle
                && stream.is_idle()
                && let Some(group) = self.groups.get(&stream.group)
                && !group.has_locks
                && let Some(scale) = self.timescale(stream.group)
            {
                quiet.push((
                    stream.key,
                    cycles_at(until, |cycles| scale.nanoseconds(cycles)),
                ));
            }
        }
        for (key, until) in quiet {
            if let Some(mut stream) = self.streams.remove(&key) {
                self.promise(&mut stream, until)?;
                self.streams.insert(key, stream);
            }
        }
        Ok(())
    }

    /// Packets up to this time have come, which were written then.
    pub(super) fn grown(&mut self, group: TraceKey, end: u64, written: SystemTime) {
        let time = self
            .timescale(group)
            .and_then(|scale| scale.nanoseconds(end));
        if let Some(group) = self.groups.get_mut(&group) {
            group.grown = group.grown.max(written);
            // Relays with beacons need no help.
            if group.has_locks {
                return;
            }
        }
        let last = self.shown.back().map(|(_, time)| *time);
        if let Some(time) = time.filter(|time| last.is_none_or(|last| *time > last)) {
            self.shown.push_back((Instant::now(), time));
        }
    }
}

/// Whether a file in `place` may turn out to be a further piece of the stream.
fn may_go_on(stream: &Stream, place: &Place) -> bool {
    let is_near = match place.group {
        Some(group) => group == stream.group,
        None => !place.is_finished,
    };
    let mut loose = place.loose.iter();
    is_near
        && loose.any(|piece| (&piece.home, piece.stem()) == (&stream.stem.0, stream.stem.1.clone()))
}

/// Whether nothing has been written for as long as a trace without locks may go without.
pub(super) fn is_silent(grown: SystemTime, silence: Option<std::time::Duration>) -> bool {
    // A time that is yet to come says nothing: then it is now.
    let since = grown.elapsed().unwrap_or_default();
    silence.is_some_and(|silence| since >= silence)
}

/// The first clock value that is not before `time`.
fn cycles_at(time: i64, nanoseconds: impl Fn(u64) -> Option<i64>) -> u64 {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if nanoseconds(middle).is_none_or(|at| at >= time) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_value_of_a_time_is_found() {
        let scale = |cycles: u64| {
            i64::try_from(cycles)
                .ok()?
                .checked_mul(10)?
                .checked_add(100)
        };
        for (time, cycles) in [(0, 0), (100, 0), (101, 1), (110, 1), (111, 2)] {
            assert_eq!(cycles_at(time, scale), cycles, "{time}");
        }
    }

    #[test]
    fn times_to_come_are_no_silence() {
        let second = std::time::Duration::from_secs(1);
        assert!(!is_silent(SystemTime::now() + second, Some(second)));
        assert!(is_silent(SystemTime::UNIX_EPOCH, Some(second)));
        assert!(!is_silent(SystemTime::UNIX_EPOCH, None));
    }
}
