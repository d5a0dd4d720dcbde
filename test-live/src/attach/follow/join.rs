//! Which directories are one trace, and which files one stream: by what their first packet says, as
//! [`ctf::directory`] does it. A file without packets is a stream of its own until it has one,
//! unless it has the name of a piece of a stream: after a rotation, or in a ring of tracefiles.

use ctf::index::{Entry, FollowEvent};

use super::end::is_silent;
use super::metadata::{GrowingFile, Told};
use super::piece::{Piece, PieceError};
use super::run::{Follow, Group, MISSED, Place, Stopped};
use super::scan::FileId;
use super::stream::Stream;
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

impl Follow {
    /// Finds out which traces the directories are of that are new.
    pub(super) fn join_traces(&mut self) -> Result<(), Stopped> {
        let new = |place: &&Place| place.group.is_none() && !place.is_finished;
        let ids: Vec<_> = self
            .places
            .values()
            .filter(new)
            .map(|place| place.id)
            .collect();
        for id in ids {
            if let Some(mut place) = self.places.remove(&id) {
                let joined = self.join_trace(&mut place);
                self.places.insert(id, place);
                joined?;
            }
        }
        Ok(())
    }

    fn join_trace(&mut self, place: &mut Place) -> Result<(), Stopped> {
        if place.metadata.is_none() {
            place.metadata = GrowingFile::open(&place.directory.join("metadata")).ok();
        }
        let Some(metadata) = &mut place.metadata else {
            // It has moved meanwhile, or is gone.
            self.scan_wanted = true;
            if self.scans > place.seen + MISSED {
                place.finish();
            }
            return Ok(());
        };
        let is_written = metadata.is_being_written();
        metadata.grow();
        if !metadata.is_usable() {
            let is_waiting = is_written || !is_silent(place.modified, self.options.silence);
            if let Some(broken) = &metadata.broken {
                let what = format!(
                    "cannot read {}/metadata: {broken}",
                    place.directory.display()
                );
                self.send_event(SourceEvent::Notice(what))?;
                place.finish();
            } else if is_waiting {
                self.is_soon = true;
            } else {
                place.finish();
            }
            return Ok(());
        }
        let has_locks = metadata.is_locked();
        let uuid = metadata.metadata.trace().uuid();
        let same = self
            .groups
            .values_mut()
            .find(|group| uuid.is_some() && group.uuid == uuid && group.told.agrees_with(metadata));
        if let Some(group) = same {
            place.group = Some(group.key);
            group.grown = group.grown.max(place.modified);
            group.homes.insert(place.home.clone());
            let (trace, bytes) = (group.key, group.told.more(metadata));
            return self.tell_metadata(trace, bytes);
        }
        let mut told = Told::default();
        let bytes = told.first(metadata);
        let group = Group {
            key: TraceKey::fresh(),
            uuid,
            told,
            first_place: place.id,
            homes: [place.home.clone()].into(),
            has_locks,
            grown: place.modified,
            drained: None,
        };
        let (trace, name) = (group.key, place.name());
        place.group = Some(trace);
        self.groups.insert(trace, group);
        self.send_event(SourceEvent::Trace { trace, name })?;
        self.tell_metadata(trace, bytes)
    }

    /// Tells what is new of the metadata in a directory.
    pub(super) fn grow_metadata(&mut self, place: FileId) -> Result<(), Stopped> {
        let Some(place) = self.places.get_mut(&place) else {
            return Ok(());
        };
        let Some((metadata, key)) = place.metadata.as_mut().zip(place.group) else {
            return Ok(());
        };
        if !metadata.grow() {
            return Ok(());
        }
        let Some(group) = self.groups.get_mut(&key) else {
            return Ok(());
        };
        let bytes = if group.first_place == place.id {
            group.told.first(metadata)
        } else {
            group.told.more(metadata)
        };
        self.tell_metadata(key, bytes)
    }

    fn tell_metadata(&mut self, trace: TraceKey, bytes: Vec<u8>) -> Result<(), Stopped> {
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

    /// Whether some were told by their packets and others have none.
    fn join_files_once(&mut self) -> Result<bool, Stopped> {
        let (mut is_any_told, mut is_any_left) = (false, false);
        let has_new = |place: &&Place| place.group.is_some() && !place.loose.is_empty();
        let ids: Vec<_> = self
            .places
            .values()
            .filter(has_new)
            .map(|place| place.id)
            .collect();
        for id in ids {
            let Some(place) = self.places.get_mut(&id) else {
                continue;
            };
            let Some(group) = place.group else {
                continue;
            };
            for piece in std::mem::take(&mut place.loose) {
                let file = piece.id;
                let left = self.join_file(piece, group)?;
                is_any_told |= left.is_none() && !self.is_read(file);
                if let Some(piece) = left
                    && let Some(place) = self.places.get_mut(&id)
                {
                    place.loose.push(piece);
                    (self.is_soon, is_any_left) = (true, true);
                }
            }
        }
        Ok(is_any_told && is_any_left)
    }

    /// Gives the piece back if it cannot be told yet.
    fn join_file(&mut self, mut piece: Piece, group: TraceKey) -> Result<Option<Piece>, Stopped> {
        let mut event = piece.poll();
        if !matches!(event, Ok(FollowEvent::Entries(_)) | Err(_)) {
            if self.may_grow(&mut piece, group, false) {
                return self.join_empty(piece, group);
            }
            event = piece.poll();
        }
        match event {
            Ok(FollowEvent::Entries(entries)) => {
                if let Some(first) = entries.first() {
                    self.grow_metadata(piece.place)?;
                    let identity = self.identity(&mut piece, first);
                    self.join_identified(piece, group, identity)?;
                }
                Ok(None)
            }
            // There is nothing in it, and will not be.
            Ok(_) => {
                self.read_all_of(piece.id);
                Ok(None)
            }
            Err(PieceError::Bad(what)) => {
                self.read_all_of(piece.id);
                self.send_event(SourceEvent::Notice(what))?;
                Ok(None)
            }
            Err(PieceError::Away) if self.scans > piece.seen + MISSED => {
                self.read_all_of(piece.id);
                Ok(None)
            }
            Err(PieceError::Away) => {
                self.scan_wanted = true;
                Ok(Some(piece))
            }
        }
    }

    /// The stream class and number that a packet gives.
    pub(super) fn identity(&self, piece: &mut Piece, first: &Entry) -> Option<(u64, u64)> {
        let metadata = self.places.get(&piece.place)?.metadata.as_ref()?;
        let head = piece.head(first, metadata.metadata.trace())?;
        Some((head.stream_class, head.stream_id?))
    }

    fn join_identified(
        &mut self,
        piece: Piece,
        group: TraceKey,
        identity: Option<(u64, u64)>,
    ) -> Result<(), Stopped> {
        let is_it = |stream: &&mut Stream| {
            identity.is_some() && (stream.group, stream.identity) == (group, identity)
        };
        if let Some(stream) = self.streams.values_mut().find(is_it) {
            stream.insert(piece);
            self.dirty.insert(stream.key);
            return Ok(());
        }
        let key = self.announce(piece, group)?;
        if let Some(stream) = self.streams.get_mut(&key) {
            (stream.identity, stream.is_identified) = (identity, true);
        }
        Ok(())
    }

    fn join_empty(&mut self, piece: Piece, group: TraceKey) -> Result<Option<Piece>, Stopped> {
        let name = (piece.home.clone(), piece.name());
        let had_it = |stream: &&mut Stream| stream.group == group && stream.names.contains(&name);
        if let Some(stream) = self.streams.values_mut().find(had_it) {
            stream.insert(piece);
            self.dirty.insert(stream.key);
            return Ok(None);
        }
        let stem = (piece.home.clone(), piece.stem());
        let is_near = |stream: &Stream| {
            (stream.group, &stream.stem, stream.is_identified) == (group, &stem, true)
        };
        // The next of a ring is made for a packet, which says soon what it is.
        if piece.is_young() && self.streams.values().any(is_near) {
            return Ok(Some(piece));
        }
        self.announce(piece, group)?;
        Ok(None)
    }

    fn announce(&mut self, piece: Piece, trace: TraceKey) -> Result<StreamKey, Stopped> {
        let (name, backlog) = (piece.path.display().to_string(), Backlog::default());
        let stream = Stream::new(trace, piece, backlog.clone());
        let key = stream.key;
        self.streams.insert(key, stream);
        self.dirty.insert(key);
        self.send_event(SourceEvent::Stream {
            stream: key,
            trace,
            name,
            backlog,
        })?;
        Ok(key)
    }

    /// A stream that was announced for a file without packets has one, and is a part of another.
    pub(super) fn merge(&mut self, part: Stream, whole: StreamKey) -> Result<(), Stopped> {
        if let Some(stream) = self.streams.get_mut(&whole) {
            for piece in part.pieces {
                stream.insert(piece);
            }
            stream.names.extend(part.names);
            self.dirty.insert(whole);
        }
        self.watch.forget(part.key);
        self.send_event(SourceEvent::StreamEnd { stream: part.key })
    }
}
