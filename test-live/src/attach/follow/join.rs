//! Which directories are one trace, and which files one stream: by what their first packet says, as
//! [`ctf::directory`] does it. A file without packets is a stream of its own until it has one,
//! unless it has the name of a tracefile of a stream: after a rotation, or in a ring of tracefiles.

use ctf::index::{Entry, FollowEvent};

use super::end::is_silent;
use super::metadata::{AnnouncedMetadata, GrowingMetadataFile};
use super::run::{ChunkDirectory, DirectoryFollower, FollowedTrace, MAX_MISSED_SCANS, Stopped};
use super::scan::FileId;
use super::stream::FollowedStream;
use super::tracefile_reader::{TracefileError, TracefileReader};
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

impl DirectoryFollower {
    /// Finds out which traces the directories are of that are new.
    pub(super) fn join_traces(&mut self) -> Result<(), Stopped> {
        let new = |chunk: &&ChunkDirectory| chunk.trace.is_none() && !chunk.is_finished;
        let ids: Vec<_> = self
            .directories
            .values()
            .filter(new)
            .map(|chunk| chunk.id)
            .collect();
        for id in ids {
            if let Some(mut chunk) = self.directories.remove(&id) {
                let joined = self.join_trace(&mut chunk);
                self.directories.insert(id, chunk);
                joined?;
            }
        }
        Ok(())
    }

    fn join_trace(&mut self, chunk: &mut ChunkDirectory) -> Result<(), Stopped> {
        if chunk.metadata.is_none() {
            chunk.metadata = GrowingMetadataFile::open(&chunk.path.join("metadata")).ok();
        }
        let Some(metadata) = &mut chunk.metadata else {
            // It has moved meanwhile, or is gone.
            self.scan_wanted = true;
            if self.scans > chunk.seen + MAX_MISSED_SCANS {
                chunk.finish();
            }
            return Ok(());
        };
        let is_written = metadata.is_being_written();
        metadata.grow();
        if !metadata.is_usable() {
            let is_waiting = is_written || !is_silent(chunk.modified, self.options.silence);
            if let Some(broken) = &metadata.broken {
                let what = format!("cannot read {}/metadata: {broken}", chunk.path.display());
                self.send_event(SourceEvent::Notice(what))?;
                chunk.finish();
            } else if is_waiting {
                self.is_retry_soon = true;
            } else {
                chunk.finish();
            }
            return Ok(());
        }
        let has_locks = metadata.is_locked();
        let uuid = metadata.metadata.trace().uuid();
        let same = self.traces.values_mut().find(|trace| {
            uuid.is_some() && trace.uuid == uuid && trace.announced.agrees_with(metadata)
        });
        if let Some(followed) = same {
            chunk.trace = Some(followed.key);
            followed.grown = followed.grown.max(chunk.modified);
            followed.trace_paths.insert(chunk.trace_path.clone());
            let (trace, bytes) = (
                followed.key,
                followed.announced.new_in_later_chunk(metadata),
            );
            return self.announce_metadata(trace, bytes);
        }
        let mut announced = AnnouncedMetadata::default();
        let bytes = announced.new_in_first_chunk(metadata);
        let followed = FollowedTrace {
            key: TraceKey::fresh(),
            uuid,
            announced,
            first_directory: chunk.id,
            trace_paths: [chunk.trace_path.clone()].into(),
            has_locks,
            grown: chunk.modified,
            drained: None,
        };
        let (trace, name) = (followed.key, chunk.name());
        chunk.trace = Some(trace);
        self.traces.insert(trace, followed);
        self.send_event(SourceEvent::Trace { trace, name })?;
        self.announce_metadata(trace, bytes)
    }

    /// Tells what is new of the metadata in a directory.
    pub(super) fn grow_metadata(&mut self, chunk: FileId) -> Result<(), Stopped> {
        let Some(chunk) = self.directories.get_mut(&chunk) else {
            return Ok(());
        };
        let Some((metadata, key)) = chunk.metadata.as_mut().zip(chunk.trace) else {
            return Ok(());
        };
        if !metadata.grow() {
            return Ok(());
        }
        let Some(trace) = self.traces.get_mut(&key) else {
            return Ok(());
        };
        let bytes = if trace.first_directory == chunk.id {
            trace.announced.new_in_first_chunk(metadata)
        } else {
            trace.announced.new_in_later_chunk(metadata)
        };
        self.announce_metadata(key, bytes)
    }

    fn announce_metadata(&mut self, trace: TraceKey, bytes: Vec<u8>) -> Result<(), Stopped> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.send_event(SourceEvent::Metadata { trace, bytes })
    }

    /// Finds out which streams the files are of that are new.
    pub(super) fn join_files(&mut self) -> Result<(), Stopped> {
        // A file that had nothing when it was looked at may have by now, and it comes before those
        // that were looked at later.
        while self.join_files_once()? {}
        Ok(())
    }

    /// Gives whether some files were joined by their packets while others have none.
    fn join_files_once(&mut self) -> Result<bool, Stopped> {
        let (mut is_any_joined, mut is_any_left) = (false, false);
        let has_new =
            |chunk: &&ChunkDirectory| chunk.trace.is_some() && !chunk.unassigned.is_empty();
        let ids: Vec<_> = self
            .directories
            .values()
            .filter(has_new)
            .map(|chunk| chunk.id)
            .collect();
        for id in ids {
            let Some(chunk) = self.directories.get_mut(&id) else {
                continue;
            };
            let Some(trace) = chunk.trace else {
                continue;
            };
            for tracefile in std::mem::take(&mut chunk.unassigned) {
                let file = tracefile.id;
                let left = self.join_file(tracefile, trace)?;
                is_any_joined |= left.is_none() && !self.is_read(file);
                if let Some(tracefile) = left
                    && let Some(chunk) = self.directories.get_mut(&id)
                {
                    chunk.unassigned.push(tracefile);
                    (self.is_retry_soon, is_any_left) = (true, true);
                }
            }
        }
        Ok(is_any_joined && is_any_left)
    }

    /// Gives the tracefile back if its stream is not known yet.
    fn join_file(
        &mut self,
        mut tracefile: TracefileReader,
        trace: TraceKey,
    ) -> Result<Option<TracefileReader>, Stopped> {
        let mut event = tracefile.poll();
        if !matches!(event, Ok(FollowEvent::Entries(_)) | Err(_)) {
            if self.may_grow(&mut tracefile, trace, false) {
                return self.join_empty(tracefile, trace);
            }
            event = tracefile.poll();
        }
        match event {
            Ok(FollowEvent::Entries(entries)) => {
                if let Some(first) = entries.first() {
                    self.grow_metadata(tracefile.directory)?;
                    let identity = self.identity(&mut tracefile, first);
                    self.join_identified(tracefile, trace, identity)?;
                }
                Ok(None)
            }
            // There is nothing in it, and will not be.
            Ok(_) => {
                self.mark_as_read(tracefile.id);
                Ok(None)
            }
            Err(TracefileError::Unreadable(what)) => {
                self.mark_as_read(tracefile.id);
                self.send_event(SourceEvent::Notice(what))?;
                Ok(None)
            }
            Err(TracefileError::Moved) if self.scans > tracefile.seen + MAX_MISSED_SCANS => {
                self.mark_as_read(tracefile.id);
                Ok(None)
            }
            Err(TracefileError::Moved) => {
                self.scan_wanted = true;
                Ok(Some(tracefile))
            }
        }
    }

    /// The stream class and number that a packet gives.
    pub(super) fn identity(
        &self,
        tracefile: &mut TracefileReader,
        first: &Entry,
    ) -> Option<(u64, u64)> {
        let metadata = self
            .directories
            .get(&tracefile.directory)?
            .metadata
            .as_ref()?;
        let head = tracefile.head(first, metadata.metadata.trace())?;
        Some((head.stream_class, head.stream_id?))
    }

    fn join_identified(
        &mut self,
        tracefile: TracefileReader,
        trace: TraceKey,
        identity: Option<(u64, u64)>,
    ) -> Result<(), Stopped> {
        let is_it = |stream: &&mut FollowedStream| {
            identity.is_some() && (stream.trace, stream.identity) == (trace, identity)
        };
        if let Some(stream) = self.streams.values_mut().find(is_it) {
            stream.insert(tracefile);
            self.changed_streams.insert(stream.key);
            return Ok(());
        }
        let key = self.announce_stream(tracefile, trace)?;
        if let Some(stream) = self.streams.get_mut(&key) {
            (stream.identity, stream.is_identified) = (identity, true);
        }
        Ok(())
    }

    fn join_empty(
        &mut self,
        tracefile: TracefileReader,
        trace: TraceKey,
    ) -> Result<Option<TracefileReader>, Stopped> {
        let name = (tracefile.trace_path.clone(), tracefile.name());
        let had_it =
            |stream: &&mut FollowedStream| stream.trace == trace && stream.names.contains(&name);
        if let Some(stream) = self.streams.values_mut().find(had_it) {
            stream.insert(tracefile);
            self.changed_streams.insert(stream.key);
            return Ok(None);
        }
        let stem = (tracefile.trace_path.clone(), tracefile.stem());
        let is_near = |stream: &FollowedStream| {
            (stream.trace, &stream.stem, stream.is_identified) == (trace, &stem, true)
        };
        // The next of a ring is made for a packet, which says soon what it is.
        if tracefile.is_within_lock_grace_period() && self.streams.values().any(is_near) {
            return Ok(Some(tracefile));
        }
        self.announce_stream(tracefile, trace)?;
        Ok(None)
    }

    fn announce_stream(
        &mut self,
        tracefile: TracefileReader,
        trace: TraceKey,
    ) -> Result<StreamKey, Stopped> {
        let (name, backlog) = (tracefile.path.display().to_string(), Backlog::default());
        let stream = FollowedStream::new(trace, tracefile, backlog.clone());
        let key = stream.key;
        self.streams.insert(key, stream);
        self.changed_streams.insert(key);
        self.send_event(SourceEvent::Stream {
            stream: key,
            trace,
            name,
            backlog,
        })?;
        Ok(key)
    }

    /// A stream that was announced for a file without packets has one, and is a part of another.
    pub(super) fn merge(&mut self, part: FollowedStream, whole: StreamKey) -> Result<(), Stopped> {
        if let Some(stream) = self.streams.get_mut(&whole) {
            for tracefile in part.tracefiles {
                stream.insert(tracefile);
            }
            stream.names.extend(part.names);
            self.changed_streams.insert(whole);
        }
        self.watch.forget(part.key);
        self.send_event(SourceEvent::StreamEnd { stream: part.key })
    }
}
