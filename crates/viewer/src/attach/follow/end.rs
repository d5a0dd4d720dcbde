//! The end of streams and traces, and the watermarks that are assumed for a relay without beacons
//! and locks.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use super::event_sender::Stopped;
use super::follower::{ChunkDirectory, DirectoryFollower};
use super::metadata::GrowingMetadataFile;
use super::stream::FollowedStream;
use super::tracefile_reader::TracefileReader;
use crate::attach::{SourceEvent, StreamKey, TraceKey};
use crate::time::Nanoseconds;

impl DirectoryFollower {
    /// Whether a tracefile of which all entries are known may get more. `has_next`: a later
    /// tracefile of its stream has packets.
    pub(super) fn may_grow(
        &mut self,
        tracefile: &mut TracefileReader,
        trace: TraceKey,
        has_next: bool,
    ) -> bool {
        // The writer locks a file before it writes to it: one with a packet needs no grace period.
        if tracefile.is_within_lock_grace_period() && tracefile.begin.is_none() {
            self.is_retry_soon = true;
            return true;
        }
        let chunk = self.directories.get(&tracefile.directory);
        let metadata = chunk.and_then(|chunk| chunk.metadata.as_ref());
        let is_metadata_locked = metadata.is_some_and(GrowingMetadataFile::is_locked);
        // Our relay closes the tracefile of an idle stream, and so loses its lock; that of the
        // metadata stays.
        let is_idle = !has_next && is_metadata_locked && tracefile.looks_idle();
        let is_locked = is_idle || tracefile.is_locked();
        let Some(trace) = self.traces.get_mut(&trace) else {
            return is_locked;
        };
        trace.has_locks |= is_locked;
        is_locked || !trace.has_locks && !has_next && !is_silent(trace.grown, self.options.silence)
    }

    /// Ends the streams whose tracefiles have all been read and that no new file can continue.
    pub(super) fn end_drained_streams(&mut self) -> Result<(), Stopped> {
        let mut ended = Vec::new();
        for stream in self.streams.values() {
            let Some(scan) = stream.drained else { continue };
            let mut chunks = self.directories.values();
            if self.has_enough_scans_since(scan) && !chunks.any(|of| may_continue_in(stream, of)) {
                ended.push(stream.key);
            }
        }
        for stream in ended {
            self.streams.remove(&stream);
            self.end_stream(stream)?;
        }
        // A single scan may miss the directory of the next chunk while it is being moved.
        let mut streams = self.streams.values();
        self.is_scan_wanted |= streams.any(|stream| stream.drained.is_some());
        Ok(())
    }

    /// Reports the end of a stream that has been removed.
    pub(super) fn end_stream(&mut self, stream: StreamKey) -> Result<(), Stopped> {
        self.watch.forget_stream(stream);
        self.events.send(SourceEvent::StreamEnd { stream })
    }

    /// Ends the traces that have no streams any more and whose metadata no longer grows.
    pub(super) fn end_drained_traces(&mut self) -> Result<(), Stopped> {
        let keys: Vec<_> = self.traces.keys().copied().collect();
        for key in keys {
            let is_open = self.is_trace_open(key);
            let Some(trace) = self.traces.get_mut(&key) else {
                continue;
            };
            if is_open {
                trace.drained = None;
                continue;
            }
            // One scan may have missed a directory of the trace that is being moved.
            let drained = *trace.drained.get_or_insert(self.scans);
            if !self.has_enough_scans_since(drained) {
                self.is_scan_wanted = true;
                continue;
            }
            self.traces.remove(&key);
            for chunk in self.directories.values_mut() {
                if chunk.trace == Some(key) {
                    chunk.finish();
                }
            }
            self.events.send(SourceEvent::TraceEnd { trace: key })?;
        }
        Ok(())
    }

    /// Whether a trace has streams, or may yet get some.
    fn is_trace_open(&mut self, key: TraceKey) -> bool {
        let Some(trace) = self.traces.get_mut(&key) else {
            return false;
        };
        if self.streams.values().any(|stream| stream.trace == key) {
            return true;
        }
        let mut is_open = false;
        for chunk in self.directories.values() {
            if chunk.trace == Some(key) {
                let metadata = chunk.metadata.as_ref();
                trace.has_locks |= metadata.is_some_and(GrowingMetadataFile::is_locked);
                is_open |= chunk.may_grow();
            }
            // The next chunk has no metadata yet.
            is_open |= chunk.trace.is_none()
                && !chunk.is_finished
                && trace.trace_paths.contains(&chunk.trace_path);
        }
        is_open || !trace.has_locks && !is_silent(trace.grown, self.options.silence)
    }

    /// Closes the files of chunks of which all has been read.
    pub(super) fn finish_chunks(&mut self) {
        let tracefiles = self.streams.values().flat_map(|stream| &stream.tracefiles);
        let read = tracefiles.map(|tracefile| tracefile.directory);
        let first = self.traces.values().map(|trace| trace.first_directory);
        let in_use: HashSet<_> = read.chain(first).collect();
        for chunk in self.directories.values_mut() {
            let trace = chunk.trace.and_then(|trace| self.traces.get(&trace));
            // Without locks, nothing says that a chunk is complete.
            if trace.is_some_and(|trace| trace.has_locks)
                && !in_use.contains(&chunk.id)
                && !chunk.may_grow()
            {
                chunk.finish();
            }
        }
    }

    /// Whether nothing further will arrive.
    pub(super) fn is_done(&self) -> bool {
        !self.options.wait
            && !self.is_scan_wanted
            && self.traces.is_empty()
            && self.directories.values().all(|chunk| chunk.is_finished)
    }

    /// Sends idle streams of relays without beacons the watermark that the others have reached.
    pub(super) fn send_watermarks_of_idle_streams(&mut self) -> Result<(), Stopped> {
        let idle = self.options.idle;
        // Of the ends that are old enough, only the latest counts.
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
        for stream in self.streams.values_mut() {
            if stream.grown.elapsed() >= idle
                && stream.queue.is_empty()
                && let Some(trace) = self.traces.get(&stream.trace)
                && !trace.has_locks
                && let Some(scale) = &trace.timescale
            {
                let until = cycles_at(until, |cycles| Nanoseconds::of_cycles(scale, cycles));
                stream.send_watermark(until, &mut self.events)?;
            }
        }
        Ok(())
    }

    /// Records that packets up to `end`, in cycles, were found, which were written at `written`.
    pub(super) fn record_growth(&mut self, trace: TraceKey, end: u64, written: SystemTime) {
        let Some(trace) = self.traces.get_mut(&trace) else {
            return;
        };
        trace.grown = trace.grown.max(written);
        let scale = trace.timescale.as_ref();
        let time = scale.and_then(|scale| Nanoseconds::of_cycles(scale, end));
        let last = self.packet_ends.back().map(|(_, time)| *time);
        // Relays with beacons need no help.
        if let Some(time) = time.filter(|time| !trace.has_locks && Some(*time) > last) {
            self.packet_ends.push_back((Instant::now(), time));
        }
    }
}

impl ChunkDirectory {
    /// Whether the chunk's metadata is being written, or the stream of a file in it is not known
    /// yet.
    fn may_grow(&self) -> bool {
        let metadata = self.metadata.as_ref();
        metadata.is_some_and(GrowingMetadataFile::is_being_written) || !self.unassigned.is_empty()
    }
}

/// Whether a file in `chunk` may turn out to be a further tracefile of the stream.
fn may_continue_in(stream: &FollowedStream, chunk: &ChunkDirectory) -> bool {
    let is_near = match chunk.trace {
        Some(trace) => trace == stream.trace,
        None => !chunk.is_finished,
    };
    let mut unassigned = chunk.unassigned.iter();
    is_near && unassigned.any(|tracefile| tracefile.stem() == stream.stem)
}

/// Whether nothing has been written for as long as a trace without locks may go without.
pub(super) fn is_silent(grown: SystemTime, silence: Option<Duration>) -> bool {
    // The clock of a file server may be ahead of this host: a time in the future counts as now.
    let since = grown.elapsed().unwrap_or_default();
    silence.is_some_and(|silence| since >= silence)
}

/// The first clock value that is not before `time`.
fn cycles_at(time: Nanoseconds, time_of: impl Fn(u64) -> Option<Nanoseconds>) -> u64 {
    // By binary search: an inverse formula would have to repeat how the conversion rounds.
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if time_of(middle).is_none_or(|at| at >= time) {
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
            let time = i64::try_from(cycles).ok()?.checked_mul(10)?;
            Nanoseconds::new(time.checked_add(100)?)
        };
        for (time, cycles) in [(0, 0), (100, 0), (101, 1), (110, 1), (111, 2)] {
            let at = Nanoseconds::new(time).unwrap();
            assert_eq!(cycles_at(at, scale), cycles, "{time}");
        }
    }

    #[test]
    fn a_modification_time_in_the_future_is_not_silence() {
        let second = Duration::from_secs(1);
        assert!(!is_silent(SystemTime::now() + second, Some(second)));
        assert!(is_silent(SystemTime::UNIX_EPOCH, Some(second)));
        assert!(!is_silent(SystemTime::UNIX_EPOCH, None));
    }
}
