//! When a stream or trace has ended, and the watermarks that are assumed of a relay without beacons and
//! locks.

use std::collections::HashSet;
use std::time::{Instant, SystemTime};

use super::metadata::GrowingMetadataFile;
use super::run::{ChunkDirectory, DirectoryFollower, MAX_MISSED_SCANS, Stopped};
use super::stream::FollowedStream;
use super::tracefile_reader::TracefileReader;
use crate::attach::{SourceEvent, TraceKey};

impl DirectoryFollower {
    /// Whether a tracefile of which all entries are known may get more. `has_next`: a later tracefile of its
    /// stream has packets.
    pub(super) fn may_grow(
        &mut self,
        tracefile: &mut TracefileReader,
        trace: TraceKey,
        has_next: bool,
    ) -> bool {
        // One that has a packet had its lock before.
        if tracefile.is_within_lock_grace_period() && tracefile.begin.is_none() {
            self.is_retry_soon = true;
            return true;
        }
        let is_put_aside = !has_next && self.is_described(tracefile) && tracefile.is_put_aside();
        let is_locked = is_put_aside || tracefile.is_locked().unwrap_or(false);
        let Some(trace) = self.traces.get_mut(&trace) else {
            return is_locked;
        };
        trace.has_locks |= is_locked;
        if is_locked || trace.has_locks {
            return is_locked;
        }
        !has_next && !is_silent(trace.grown, self.options.silence)
    }

    /// Whether the relay holds its lock on the metadata beside a tracefile.
    fn is_described(&self, tracefile: &TracefileReader) -> bool {
        let chunk = self.directories.get(&tracefile.directory);
        let metadata = chunk.and_then(|chunk| chunk.metadata.as_ref());
        metadata.is_some_and(GrowingMetadataFile::is_locked)
    }

    /// Ends the streams whose tracefiles have all been read and that no new file can continue.
    pub(super) fn end_streams(&mut self) -> Result<(), Stopped> {
        let ended: Vec<_> = self
            .streams
            .values()
            .filter(|stream| {
                stream
                    .drained
                    .is_some_and(|scan| self.scans > scan + MAX_MISSED_SCANS)
            })
            .filter(|stream| {
                !self
                    .directories
                    .values()
                    .any(|chunk| may_continue_in(stream, chunk))
            })
            .map(|stream| stream.key)
            .collect();
        for stream in ended {
            self.streams.remove(&stream);
            self.watch.forget(stream);
            self.send_event(SourceEvent::StreamEnd { stream })?;
        }
        // A single scan may miss the next chunk while it is being moved.
        let is_drained = |stream: &FollowedStream| stream.drained.is_some();
        self.scan_wanted |= self.streams.values().any(is_drained);
        Ok(())
    }

    /// Ends the traces that have no streams any more and whose metadata no longer grows.
    pub(super) fn end_traces(&mut self) -> Result<(), Stopped> {
        let keys: Vec<_> = self.traces.keys().copied().collect();
        for key in keys {
            if self.streams.values().any(|stream| stream.trace == key) || self.is_open(key) {
                continue;
            }
            let scans = self.scans;
            let Some(trace) = self.traces.get_mut(&key) else {
                continue;
            };
            if *trace.drained.get_or_insert(scans) + MAX_MISSED_SCANS >= scans {
                self.scan_wanted = true;
                continue;
            }
            self.traces.remove(&key);
            for chunk in self.directories.values_mut() {
                if chunk.trace == Some(key) {
                    chunk.finish();
                }
            }
            self.send_event(SourceEvent::TraceEnd { trace: key })?;
        }
        Ok(())
    }

    /// Lets go of chunks of which all has been read.
    pub(super) fn finish_chunks(&mut self) {
        let first: Vec<_> = self
            .traces
            .values()
            .map(|trace| trace.first_directory)
            .collect();
        let tracefiles = self.streams.values().flat_map(|stream| &stream.tracefiles);
        let in_use: HashSet<_> = tracefiles
            .map(|tracefile| tracefile.directory)
            .chain(first)
            .collect();
        for chunk in self.directories.values_mut() {
            let has_locks =
                |key: &TraceKey| self.traces.get(key).is_some_and(|trace| trace.has_locks);
            if chunk.trace.as_ref().is_some_and(has_locks)
                && !in_use.contains(&chunk.id)
                && chunk.unassigned.is_empty()
                && !chunk
                    .metadata
                    .as_ref()
                    .is_some_and(GrowingMetadataFile::is_being_written)
            {
                chunk.finish();
            }
        }
    }

    /// Whether more may come of a trace although it has no streams.
    fn is_open(&mut self, key: TraceKey) -> bool {
        let Some(trace) = self.traces.get_mut(&key) else {
            return false;
        };
        let mut is_open = false;
        for chunk in self
            .directories
            .values()
            .filter(|chunk| chunk.trace == Some(key))
        {
            if let Some(metadata) = &chunk.metadata {
                trace.has_locks |= metadata.is_locked();
                is_open |= metadata.is_being_written();
            }
            is_open |= !chunk.unassigned.is_empty();
        }
        is_open |= !trace.has_locks && !is_silent(trace.grown, self.options.silence);
        // The next chunk has no metadata yet.
        is_open |= self.directories.values().any(|chunk| {
            chunk.trace.is_none()
                && !chunk.is_finished
                && trace.trace_paths.contains(&chunk.trace_path)
        });
        if is_open {
            trace.drained = None;
        }
        is_open
    }

    /// Whether nothing further will come.
    pub(super) fn is_done(&self) -> bool {
        !self.options.wait
            && !self.scan_wanted
            && self.traces.is_empty()
            && self.directories.values().all(|chunk| chunk.is_finished)
    }

    /// Gives idle streams of relays without beacons the watermark that the others have reached.
    pub(super) fn send_watermarks_of_idle_streams(&mut self) -> Result<(), Stopped> {
        let idle = self.options.idle;
        while let Some((since, _)) = self.packet_ends.get(1)
            && since.elapsed() >= idle
        {
            self.packet_ends.pop_front();
        }
        let Some(&(since, until)) = self.packet_ends.front() else {
            return Ok(());
        };
        if since.elapsed() < idle {
            return Ok(());
        }
        let mut quiet = Vec::new();
        for stream in self.streams.values() {
            if stream.grown.elapsed() >= idle
                && stream.is_idle()
                && let Some(trace) = self.traces.get(&stream.trace)
                && !trace.has_locks
                && let Some(scale) = self.timescale(stream.trace)
            {
                quiet.push((
                    stream.key,
                    cycles_at(until, |cycles| scale.nanoseconds(cycles)),
                ));
            }
        }
        for (key, until) in quiet {
            if let Some(mut stream) = self.streams.remove(&key) {
                self.send_watermark(&mut stream, until)?;
                self.streams.insert(key, stream);
            }
        }
        Ok(())
    }

    /// Packets up to this time have come, which were written then.
    pub(super) fn record_growth(&mut self, trace: TraceKey, end: u64, written: SystemTime) {
        let time = self
            .timescale(trace)
            .and_then(|scale| scale.nanoseconds(end));
        if let Some(trace) = self.traces.get_mut(&trace) {
            trace.grown = trace.grown.max(written);
            // Relays with beacons need no help.
            if trace.has_locks {
                return;
            }
        }
        let last = self.packet_ends.back().map(|(_, time)| *time);
        if let Some(time) = time.filter(|time| last.is_none_or(|last| *time > last)) {
            self.packet_ends.push_back((Instant::now(), time));
        }
    }
}

/// Whether a file in `chunk` may turn out to be a further tracefile of the stream.
fn may_continue_in(stream: &FollowedStream, chunk: &ChunkDirectory) -> bool {
    let is_near = match chunk.trace {
        Some(trace) => trace == stream.trace,
        None => !chunk.is_finished,
    };
    let mut unassigned = chunk.unassigned.iter();
    is_near
        && unassigned.any(|tracefile| {
            (&tracefile.trace_path, tracefile.stem()) == (&stream.stem.0, stream.stem.1.clone())
        })
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
    fn cycles_at_gives_the_first_clock_value_not_before_a_time() {
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
    fn a_modification_time_in_the_future_is_not_silence() {
        let second = std::time::Duration::from_secs(1);
        assert!(!is_silent(SystemTime::now() + second, Some(second)));
        assert!(is_silent(SystemTime::UNIX_EPOCH, Some(second)));
        assert!(!is_silent(SystemTime::UNIX_EPOCH, None));
    }
}
