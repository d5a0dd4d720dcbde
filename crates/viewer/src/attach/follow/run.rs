//! The event loop: scans for files, reads what has changed, and waits for inotify or the next poll.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::event_sender::Stopped;
use super::follower::{
    ChunkDirectory, DirectoryFollower, KnownFile, MAX_FULL_BACKLOG_INTERVAL,
    MIN_FULL_BACKLOG_INTERVAL,
};
use super::read::Next;
use super::scan::{FileId, FoundTrace, scan};
use super::tracefile_reader::TracefileReader;
use super::watch::WatchEvents;
use crate::attach::SourceEvent;

/// Time between two reads of everything that inotify may not report: a lock that is gone, beacons
/// of a remote file system.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two reads of everything without inotify.
const POLL_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_millis(100);
/// Longest wait while something is expected at any moment.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Shortest time between two scans for directories that inotify does not report.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Smallest ratio of the time between two scans to the time that a scan takes.
const MIN_IDLE_RATIO: u32 = 200;
/// Time for which a file that has been read is remembered after the last scan that has found it.
const READ_FILE_RETENTION: Duration = Duration::from_secs(60);

impl DirectoryFollower {
    /// Follows until all traces have ended, or the receiver of the events is dropped.
    pub(super) fn run(&mut self) {
        while let Ok(Some(wait)) = self.run_round() {
            let changes = self.watch.wait(wait);
            self.mark_changes(changes);
        }
    }

    /// Does all that can be done now. Returns how long to wait, unless this is the end.
    fn run_round(&mut self) -> Result<Option<Duration>, Stopped> {
        self.is_retry_soon = false;
        self.events.check_running()?;
        if self.is_scan_wanted
            && let Err(error) = self.rescan()
        {
            let reason = format!("cannot read {}: {error}", self.root.display());
            self.events.send(SourceEvent::Failed(reason))?;
            return Ok(None);
        }
        self.join_directories()?;
        self.join_files()?;
        let wait = self.read_changed_streams()?;
        self.end_drained_streams()?;
        self.end_drained_traces()?;
        if self.is_done() {
            let nothing = format!("no trace at or below {}", self.root.display());
            self.events.send(match self.directories.is_empty() {
                true => SourceEvent::Failed(nothing),
                false => SourceEvent::Done,
            })?;
            return Ok(None);
        }
        let is_soon = self.is_retry_soon || self.is_scan_wanted;
        let max_wait = if is_soon {
            RETRY_INTERVAL
        } else {
            Duration::MAX
        };
        Ok(Some(wait.min(max_wait)))
    }

    fn mark_changes(&mut self, changes: WatchEvents) {
        self.is_scan_wanted |= changes.is_structure_changed || Instant::now() >= self.next_scan;
        self.changed_streams.extend(changes.streams);
        if changes.is_timeout && self.is_retry_soon || changes.is_structure_changed {
            self.mark_all_streams();
        }
    }

    fn mark_all_streams(&mut self) {
        self.changed_streams.extend(self.streams.keys().copied());
    }

    /// Hands over what is new, and returns how long to wait until there may be more.
    fn read_changed_streams(&mut self) -> Result<Duration, Stopped> {
        let begun = Instant::now();
        self.events.time_blocked = Duration::ZERO;
        let is_poll_due = begun >= self.next_poll;
        if is_poll_due {
            self.mark_all_streams();
            self.send_watermarks_of_idle_streams()?;
            self.finish_chunks();
            let directories: Vec<_> = self.directories.keys().copied().collect();
            for directory in directories {
                self.grow_metadata(directory)?;
            }
        }
        let (mut is_full, mut has_more) = (false, false);
        for key in std::mem::take(&mut self.changed_streams) {
            // Taken out, because reading a stream borrows the whole follower.
            let Some(mut stream) = self.streams.remove(&key) else {
                continue;
            };
            let next = self.read_stream(&mut stream)?;
            has_more |= matches!(next, Next::Again | Next::PartOf(_));
            is_full |= next == Next::Full;
            if let Next::PartOf(whole) = next {
                self.merge_streams(stream, whole)?;
                continue;
            }
            if next != Next::Wait {
                self.changed_streams.insert(key);
            }
            self.streams.insert(key, stream);
        }
        if is_poll_due {
            let poll_interval = if self.watch.is_complete() {
                POLL_INTERVAL
            } else {
                POLL_INTERVAL_WITHOUT_INOTIFY
            };
            // A slow reader must not make the polls rare: only the time on files counts.
            let reading = begun.elapsed().saturating_sub(self.events.time_blocked);
            let interval = poll_interval.max(reading * MIN_IDLE_RATIO);
            self.next_poll = Instant::now() + interval.min(MIN_SCAN_INTERVAL);
        }
        if has_more {
            self.full_backlog_interval = MIN_FULL_BACKLOG_INTERVAL;
            return Ok(Duration::ZERO);
        }
        let mut wait = self.next_poll.saturating_duration_since(Instant::now());
        if is_full {
            wait = wait.min(self.full_backlog_interval);
            self.full_backlog_interval =
                (self.full_backlog_interval * 2).min(MAX_FULL_BACKLOG_INTERVAL);
        }
        Ok(wait)
    }

    /// Scans for files, and records which there are and where.
    fn rescan(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let found = scan(&self.root)?;
        (self.scans, self.is_scan_wanted) = (self.scans + 1, false);
        // Watches are added after the scan: what appears in between is found by the next timed
        // scan.
        for directory in &found.directories {
            self.watch.add_directory(directory);
        }
        let mut paths = HashMap::new();
        for trace in found.traces {
            self.add_found_trace(trace, &mut paths);
        }
        let streams = self.streams.values_mut();
        let joined = streams.flat_map(|stream| &mut stream.tracefiles);
        let chunks = self.directories.values_mut();
        let unassigned = chunks.flat_map(|chunk| &mut chunk.unassigned);
        for tracefile in joined.chain(unassigned) {
            if let Some(path) = paths.remove(&tracefile.id) {
                (tracefile.path, tracefile.seen) = (path, self.scans);
            }
        }
        // Files that are gone are forgotten, but not at once: a file that is being moved is missed
        // by a scan, and would be read twice.
        self.files
            .retain(|_, file| !file.is_read || file.seen.elapsed() < READ_FILE_RETENTION);
        let mut directories = std::mem::take(&mut self.directories);
        directories.retain(|_, of| !of.is_finished || !self.has_enough_scans_since(of.seen));
        self.directories = directories;
        self.mark_all_streams();
        // The only trace may have been moved during the scan, as by a rotation.
        self.is_scan_wanted = self.directories.is_empty() && !self.has_enough_scans_since(0);
        let interval = begun.elapsed() * MIN_IDLE_RATIO;
        let interval = interval.clamp(MIN_SCAN_INTERVAL, READ_FILE_RETENTION / 2);
        self.next_scan = Instant::now() + interval;
        Ok(())
    }

    fn add_found_trace(&mut self, trace: FoundTrace, paths: &mut HashMap<FileId, PathBuf>) {
        let is_new_directory = !self.directories.contains_key(&trace.id);
        let chunk = self.directories.entry(trace.id);
        let is_newcomer = self.scans > 1;
        let chunk = chunk.or_insert_with(|| ChunkDirectory::new(&trace, is_newcomer));
        let mut has_known_files = false;
        for file in &trace.files {
            chunk.modified = chunk.modified.max(file.modified);
            let seen = Instant::now();
            if let Some(known) = self.files.get_mut(&file.id) {
                (known.seen, has_known_files) = (seen, true);
            } else {
                let is_read = false;
                self.files.insert(file.id, KnownFile { seen, is_read });
                let tracefile = TracefileReader::new(file, &trace, self.scans);
                chunk.unassigned.push(tracefile);
                chunk.is_finished = false;
            }
            paths.insert(file.id, file.path.clone());
        }
        (chunk.path, chunk.seen) = (trace.directory, self.scans);
        // The directory was moved out of the scan and back: its files have been read.
        chunk.is_finished |= is_new_directory && has_known_files && chunk.unassigned.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use tokio::sync::mpsc::channel;

    use super::super::FollowOptions;
    use super::super::event_sender::EventSender;
    use super::super::watch::DirectoryWatch;
    use super::*;

    #[test]
    fn a_trace_that_the_first_scan_misses_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut events) = channel(16);
        let mut follower = DirectoryFollower::new(
            directory.path().to_owned(),
            FollowOptions::default(),
            EventSender::new(sender, Arc::default()),
            DirectoryWatch::new().unwrap(),
        );
        let wait = follower.run_round().unwrap();
        assert!(wait.is_some_and(|wait| wait <= RETRY_INTERVAL));
        let trace = directory.path().join("trace");
        fs::create_dir(&trace).unwrap();
        let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; stream {};";
        fs::write(trace.join("metadata"), text).unwrap();
        while let Some(_wait) = follower.run_round().unwrap() {}
        let event = events.try_recv().unwrap();
        assert!(matches!(event, SourceEvent::Trace { .. }), "{event:?}");
    }
}
