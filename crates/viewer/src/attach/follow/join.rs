//! Joins directories to traces, and files to streams: by what their first packet says, as
//! [`ctf::directory`] does it. A file without packets is a stream of its own until it has one,
//! unless it has the name of a tracefile of a stream: after a rotation, or in a ring of tracefiles.

use ctf::index::Entry;
use ctf::metadata::TraceIdentity;

use super::end::is_silent;
use super::event_sender::Stopped;
use super::follower::{ChunkDirectory, DirectoryFollower, FollowedTrace};
use super::metadata::GrowingMetadataFile;
use super::read::IndexState;
use super::scan::FileId;
use super::stream::FollowedStream;
use super::tracefile_reader::TracefileReader;
use crate::attach::metadata_piece::{MAX_WAITING_METADATA_BYTES, MetadataPiece};
use crate::attach::{SourceEvent, StreamKey, TraceKey};

impl DirectoryFollower {
    /// Finds out which traces the new directories are of. Newcomers that are not chunks of a known
    /// trace wait while there is enough metadata to parse: the streams that are known have their
    /// turn before.
    pub(super) fn join_directories(&mut self) -> Result<(), Stopped> {
        // Taken out, because joining a directory borrows the whole follower. An error ends that, so
        // that nobody misses them.
        let mut directories = std::mem::take(&mut self.directories);
        let is_new = |chunk: &&mut ChunkDirectory| chunk.trace.is_none() && !chunk.is_finished;
        let mut room = MAX_WAITING_METADATA_BYTES.saturating_sub(self.metadata_backlog.bytes());
        for chunk in directories.values_mut().filter(is_new) {
            let mut traces = self.traces.values();
            let may_wait = chunk.is_newcomer
                && !traces.any(|trace| trace.trace_paths.contains(&chunk.trace_path));
            if may_wait && room == 0 {
                self.is_retry_soon = true;
                continue;
            }
            let before = chunk.metadata_bytes();
            self.join_directory(chunk)?;
            let parsed = chunk.metadata_bytes().saturating_sub(before);
            room = room.saturating_sub(parsed);
        }
        self.directories = directories;
        Ok(())
    }

    fn join_directory(&mut self, chunk: &mut ChunkDirectory) -> Result<(), Stopped> {
        if chunk.metadata.is_none() {
            chunk.metadata = GrowingMetadataFile::open(&chunk.path.join("metadata")).ok();
        }
        let Some(metadata) = &mut chunk.metadata else {
            // The directory has been moved since the scan, or removed.
            self.is_scan_wanted = true;
            if self.has_enough_scans_since(chunk.seen) {
                chunk.finish();
            }
            return Ok(());
        };
        // Asked before the file is read: what is written while it is locked is then in what has
        // been read.
        let is_written = metadata.is_being_written();
        metadata.grow();
        if metadata.is_usable() {
            let identity = metadata.metadata.trace().identity();
            let is_same = |trace: &&FollowedTrace| {
                identity.is_some()
                    && trace.identity == identity
                    && trace.announced.agrees_with(metadata)
            };
            let trace = match self.traces.values().find(is_same) {
                Some(trace) => trace.key,
                None => self.announce_trace(identity, chunk)?,
            };
            chunk.trace = Some(trace);
            if let Some(trace) = self.traces.get_mut(&trace) {
                trace.grown = trace.grown.max(chunk.modified);
                trace.trace_paths.insert(chunk.trace_path.clone());
            }
            return self.send_new_metadata(chunk);
        }
        let reason = match &metadata.broken {
            Some(broken) => Some(broken.clone()),
            None if is_written || !is_silent(chunk.modified, self.options.silence) => {
                self.is_retry_soon = true;
                return Ok(());
            }
            None => {
                let ended = metadata.metadata.finish();
                ended.err().map(|error| crate::with_sources(&error))
            }
        };
        if let Some(reason) = reason {
            let path = chunk.path.display();
            self.send_error(format!(
                "cannot read {path}/metadata: {reason}; the directory is left out"
            ))?;
        }
        chunk.finish();
        Ok(())
    }

    fn announce_trace(
        &mut self,
        identity: Option<TraceIdentity>,
        chunk: &ChunkDirectory,
    ) -> Result<TraceKey, Stopped> {
        let trace = FollowedTrace::new(identity, chunk);
        let (key, name) = (trace.key, chunk.trace_name());
        self.traces.insert(key, trace);
        self.events.send(SourceEvent::Trace {
            trace: key,
            name,
            session: None,
        })?;
        Ok(key)
    }

    /// Sends what the metadata file of a directory has that its trace has not.
    fn send_new_metadata(&mut self, chunk: &ChunkDirectory) -> Result<(), Stopped> {
        let trace = chunk.trace.and_then(|trace| self.traces.get_mut(&trace));
        let (Some(metadata), Some(trace)) = (&chunk.metadata, trace) else {
            return Ok(());
        };
        trace.has_locks |= metadata.is_locked();
        let mut streams = metadata.metadata.trace().streams();
        let timescale = streams.find_map(|stream| stream.timescale().cloned());
        trace.timescale = trace.timescale.take().or(timescale);
        let is_first = trace.first_directory == chunk.id;
        let (trace, bytes) = (trace.key, trace.announced.take_new(metadata, is_first));
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = MetadataPiece::new(bytes, &self.metadata_backlog);
        self.events.send(SourceEvent::Metadata { trace, bytes })
    }

    /// Sends what has been added to the metadata file of a directory.
    pub(super) fn grow_metadata(&mut self, directory: FileId) -> Result<(), Stopped> {
        let Some(mut chunk) = self.directories.remove(&directory) else {
            return Ok(());
        };
        if chunk.trace.is_some() && chunk.metadata.as_mut().is_some_and(|file| file.grow()) {
            self.send_new_metadata(&chunk)?;
        }
        self.directories.insert(directory, chunk);
        Ok(())
    }

    /// Finds out which streams the new files are of.
    pub(super) fn join_files(&mut self) -> Result<(), Stopped> {
        // A file that was empty when it was read may have a packet by now, one that is earlier than
        // the packets of files that were read after it.
        while self.join_files_once()? {}
        Ok(())
    }

    /// Returns whether some files were joined by their packets while others have none.
    fn join_files_once(&mut self) -> Result<bool, Stopped> {
        let (mut is_any_joined, mut is_any_left) = (false, false);
        let mut new = Vec::new();
        for chunk in self.directories.values_mut() {
            if let Some(trace) = chunk.trace {
                new.extend(chunk.unassigned.drain(..).map(|file| (file, trace)));
            }
        }
        for (tracefile, trace) in new {
            let (file, directory) = (tracefile.id, tracefile.directory);
            let left = self.join_file(tracefile, trace)?;
            is_any_joined |= left.is_none() && !self.is_read(file);
            if let (Some(tracefile), Some(chunk)) = (left, self.directories.get_mut(&directory)) {
                chunk.unassigned.push(tracefile);
                (self.is_retry_soon, is_any_left) = (true, true);
            }
        }
        Ok(is_any_joined && is_any_left)
    }

    fn is_read(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|file| file.is_read)
    }

    /// Returns the tracefile if its stream is not known yet.
    fn join_file(
        &mut self,
        mut tracefile: TracefileReader,
        trace: TraceKey,
    ) -> Result<Option<TracefileReader>, Stopped> {
        let state = loop {
            match self.poll_index(&mut tracefile, trace, false)? {
                // The stream is not known yet. When it is, the file is read from its beginning.
                IndexState::Beacon(_) => {}
                state => break state,
            }
        };
        match state {
            IndexState::Entries(entries) => {
                if let Some(first) = entries.first() {
                    // The class of the packet may have been declared since the metadata was read
                    // last.
                    self.grow_metadata(tracefile.directory)?;
                    let identity = self.packet_identity(&mut tracefile, first);
                    let known = self.stream_with_identity(trace, identity);
                    let stream = self.add_tracefile(tracefile, trace, known)?;
                    if let Some(stream) = self.streams.get_mut(&stream) {
                        (stream.identity, stream.is_identified) = (identity, true);
                    }
                }
                Ok(None)
            }
            IndexState::Growing => self.join_empty_file(tracefile, trace),
            IndexState::Missing => Ok(Some(tracefile)),
            IndexState::Complete | IndexState::Beacon(_) => {
                self.mark_as_read(tracefile.id);
                Ok(None)
            }
        }
    }

    fn join_empty_file(
        &mut self,
        tracefile: TracefileReader,
        trace: TraceKey,
    ) -> Result<Option<TracefileReader>, Stopped> {
        let (name, stem) = (tracefile.name(), tracefile.stem());
        let mut streams = self.streams.values().filter(|stream| stream.trace == trace);
        let is_similar = |stream: &FollowedStream| stream.is_identified && stream.stem == stem;
        let has_similar = streams.clone().any(is_similar);
        // In a ring of tracefiles, names come again with other packets.
        let known = streams.find(|stream| stream.names.contains(&name));
        let known = known.map(|stream| stream.key);
        // The next of a ring is made for a packet, which says soon what it is.
        if known.is_none() && tracefile.is_within_lock_grace_period() && has_similar {
            return Ok(Some(tracefile));
        }
        self.add_tracefile(tracefile, trace, known)?;
        Ok(None)
    }

    /// The stream class and stream number that a packet says.
    pub(super) fn packet_identity(
        &self,
        tracefile: &mut TracefileReader,
        first: &Entry,
    ) -> Option<(u64, u64)> {
        let chunk = self.directories.get(&tracefile.directory)?;
        let trace = chunk.metadata.as_ref()?.metadata.trace();
        let head = tracefile.head(first, trace)?;
        Some((head.stream_class, head.stream_id?))
    }

    /// The stream of this class and number.
    pub(super) fn stream_with_identity(
        &self,
        trace: TraceKey,
        identity: Option<(u64, u64)>,
    ) -> Option<StreamKey> {
        let identity = Some(identity?);
        let mut streams = self.streams.values();
        let found = streams.find(|other| (other.trace, other.identity) == (trace, identity));
        Some(found?.key)
    }

    /// Adds a tracefile to the stream `known`, or announces a new stream for it.
    fn add_tracefile(
        &mut self,
        tracefile: TracefileReader,
        trace: TraceKey,
        known: Option<StreamKey>,
    ) -> Result<StreamKey, Stopped> {
        if let Some(stream) = known.and_then(|known| self.streams.get_mut(&known)) {
            stream.insert_tracefile(tracefile);
            self.changed_streams.insert(stream.key);
            return Ok(stream.key);
        }
        let name = tracefile.path.display().to_string();
        let directory = self.directories.get(&tracefile.directory);
        let is_newcomer = self.has_sent_packet && directory.is_some_and(|chunk| chunk.is_newcomer);
        let stream = FollowedStream::new(trace, tracefile);
        // The clone has the same counts: the reader removes what is added here.
        let (key, backlog) = (stream.key, stream.backlog.clone());
        self.streams.insert(key, stream);
        self.changed_streams.insert(key);
        self.events.send(SourceEvent::Stream {
            stream: key,
            trace,
            name,
            backlog,
            is_newcomer,
        })?;
        Ok(key)
    }

    /// Ends a stream that was announced for a file without packets, whose first packet is of the
    /// stream `whole`.
    pub(super) fn merge_streams(
        &mut self,
        part: FollowedStream,
        whole: StreamKey,
    ) -> Result<(), Stopped> {
        if let Some(stream) = self.streams.get_mut(&whole) {
            for tracefile in part.tracefiles {
                stream.insert_tracefile(tracefile);
            }
            stream.names.extend(part.names);
            self.changed_streams.insert(whole);
        }
        self.end_stream(part.key)
    }
}
