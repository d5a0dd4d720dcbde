//! One session for the archive: its streams and chunks, what of it is in commit objects, and when
//! it is written again as a part.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use archive::document::{CreatedDocument, EndedDocument, OwnerDocument};
use archive::name::{BootId, DayObject, escape};
use archive::object::ObjectWriter;
use archive::record::{Record, SessionRecord, StreamKey, StreamRecord};
use bytes::Bytes;
use jiff::Timestamp;
use relay_proto::session::TraceFormat;
use tokio::time::Instant;
use tracing::warn;
use wire::ChunkId;

use super::chunks::Chunks;
use super::known::KnownSession;
use super::stream::{Acknowledged, ArchivedMetadata, ArchivedPackets, PacketTarget};
use super::unindexed::EntryMaker;
use crate::limits::{ARCHIVE_PART_BYTES, ARCHIVE_RETRY_INTERVAL};
use crate::registry::archive_feed::{FedContent, FedStream};
use crate::registry::session::{ArchivedAs, Session};

/// A session that is being archived.
#[derive(Debug)]
pub(super) struct ArchivedSession {
    pub(super) session: Arc<Session>,
    pub(super) record: SessionRecord,
    packets: Vec<ArchivedPackets>,
    metadata: Vec<ArchivedMetadata>,
    chunks: Chunks,
    pub(super) owner: Owner,
    /// Number of the producer's connection for which this relay became the owner.
    generation: u64,
    /// Whether this relay is about to become the owner again.
    is_reclaiming: bool,
    /// What the archive had of streams that were not added yet.
    known: KnownSession,
    /// Number of commit objects with data of the session that are on their way.
    commits_in_flight: usize,
    /// Bytes in commit objects that are stored, and in no part.
    unparted: u64,
    /// Time since which some of it is in no part.
    unparted_since: Option<Instant>,
    /// Number of the next part.
    next_part: u32,
    pub(super) has_part_in_flight: bool,
    /// Whether an earlier run of the relay may have archived some of the session.
    is_restored: bool,
    /// Bytes in commit objects that are stored, before compression.
    committed_bytes: u64,
    /// Whether a file could not be read when it was tried last.
    has_failed: bool,
    /// Time before which no part is tried, because a file could not be read.
    next_attempt: Option<Instant>,
    /// Number before which the part that is on its way makes commit objects superfluous.
    covered_commits: Option<u64>,
    /// Whether the producer is gone, and all streams were added.
    is_over: bool,
    /// Whether the last part has the end of the session.
    has_end: bool,
    /// Whether the end of the session is being listed.
    is_ending: bool,
}

/// Whether the session has its objects below `sessions/` and `days/`, without which no reader finds
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// They are on their way.
    Opening,
    /// This relay is the owner with this number.
    Number(u32),
}

/// What a commit object has of a session.
#[derive(Debug)]
pub(super) struct CommittedSession {
    pub(super) streams: Vec<(StreamKey, Acknowledged)>,
    pub(super) bytes: u64,
}

/// A part that is to be stored.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) bytes: Bytes,
    /// Whether parts have all that is acknowledged of the session now.
    pub(super) is_complete: bool,
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

impl ArchivedSession {
    pub(super) fn new(session: Arc<Session>, archived: &ArchivedAs, is_restored: bool) -> Self {
        let identity = session.identity();
        let record = SessionRecord {
            session: archived.key,
            created: archived.created,
            live_timer: identity.live_timer.0,
            ctf_version: match identity.trace_format {
                TraceFormat::Ctf1 => 1,
                TraceFormat::Ctf2 => 2,
            },
            host: identity.host.clone(),
            name: identity.name.clone(),
        };
        Self {
            generation: session.generation(),
            is_reclaiming: false,
            session,
            record,
            packets: Vec::new(),
            metadata: Vec::new(),
            chunks: Chunks::default(),
            owner: Owner::Opening,
            known: KnownSession::default(),
            commits_in_flight: 0,
            unparted: 0,
            unparted_since: None,
            next_part: 0,
            has_part_in_flight: false,
            is_restored,
            committed_bytes: 0,
            has_failed: false,
            next_attempt: None,
            covered_commits: None,
            is_over: false,
            has_end: false,
            is_ending: false,
        }
    }

    pub(super) fn add_stream(&mut self, fed: FedStream) {
        let stream = StreamKey {
            number: fed.key.number,
            is_metadata: fed.key.is_metadata,
        };
        let record = StreamRecord {
            stream,
            path: fed.path,
            name: fed.name,
        };
        for chunk in &fed.deleted_chunks {
            self.chunks.add(chunk);
        }
        match fed.content {
            FedContent::Packets(published) => {
                let mut packets = ArchivedPackets::new(record, published);
                packets.set_known(self.known.take_packets(stream.number));
                self.packets.push(packets);
            }
            FedContent::Metadata(published) => {
                let archived = self.session.archived_as();
                let is_resumable = archived.is_some_and(|archived| archived.is_resumable);
                let mut metadata = ArchivedMetadata::new(record, published, is_resumable);
                metadata.set_known(self.known.take_metadata(stream.number));
                self.metadata.push(metadata);
            }
        }
    }

    /// Records that the session can be found in the archive, which has this of it already. Returns
    /// whether it is one of another relay, or of a run of this one whose output is lost.
    pub(super) fn set_opened(&mut self, owner: u32, created: u64, mut known: KnownSession) -> bool {
        self.owner = Owner::Number(owner);
        self.record.created = created;
        // An earlier run of this relay has left the files of a restored one.
        let has_moved = owner > 1 && !self.is_restored;
        if let Some(archived) = self.session.archived_as() {
            archived.has_moved_here.get_or_init(|| has_moved);
        }
        if has_moved {
            self.session.set_partial();
        }
        for packets in &mut self.packets {
            packets.set_known(known.take_packets(packets.record.stream.number));
        }
        for metadata in &mut self.metadata {
            metadata.set_known(known.take_metadata(metadata.record.stream.number));
        }
        self.known = known;
        has_moved
    }

    /// Whether the producer has come back since this relay became the owner: the number of the
    /// relay, which another one may have followed.
    pub(super) fn begin_reclaim(&mut self) -> Option<u32> {
        let generation = self.session.generation();
        let Owner::Number(owner) = self.owner else {
            return None;
        };
        if generation == self.generation || self.is_reclaiming {
            return None;
        }
        self.generation = generation;
        self.is_reclaiming = true;
        Some(owner)
    }

    /// Records that this relay is the last owner again, with this number.
    pub(super) fn set_reclaimed(&mut self, owner: u32) {
        if self.owner != Owner::Number(owner) {
            self.session.set_partial();
        }
        self.owner = Owner::Number(owner);
        self.is_reclaiming = false;
    }

    /// The object that makes this relay the owner again.
    pub(super) fn owner_document(&self, boot: BootId, now: Timestamp) -> OwnerDocument {
        OwnerDocument {
            boot: boot.to_string(),
            since: nanoseconds(now),
            created: self.record.created,
        }
    }

    /// The object that lists the session, or its end.
    pub(super) fn day_object(&self, is_end: bool) -> DayObject {
        let created = i128::from(self.record.created);
        let created = Timestamp::from_nanosecond(created).unwrap_or_default();
        DayObject {
            day: created.strftime("%Y-%m-%d").to_string(),
            host: escape(self.record.host.as_bytes()),
            name: escape(self.record.name.as_bytes()),
            session: self.record.session,
            is_end,
        }
    }

    pub(super) fn created_document(&self) -> CreatedDocument {
        let record = &self.record;
        CreatedDocument {
            session: record.session.to_string(),
            host: record.host.to_string(),
            name: record.name.to_string(),
            created: record.created,
            live_timer: record.live_timer,
            ctf_version: record.ctf_version,
        }
    }

    /// What the archive has got of the session from this relay.
    pub(super) fn ended_document(&self, now: Timestamp) -> EndedDocument {
        EndedDocument {
            ended: nanoseconds(now),
            packets: self.packets.iter().map(ArchivedPackets::added).sum(),
            bytes: self.committed_bytes,
        }
    }

    /// Whether the session was restored, and its producer has not come back: another relay may be
    /// serving it.
    pub(super) fn is_forsaken(&self) -> bool {
        self.is_restored && self.session.resume_key().is_some() && self.session.generation() == 0
    }

    // Commit objects.

    /// Bytes that are in no commit object, approximately.
    pub(super) fn pending(&mut self) -> u64 {
        self.metadata.iter_mut().for_each(ArchivedMetadata::refresh);
        let packets: u64 = self.packets.iter().map(ArchivedPackets::pending).sum();
        let metadata: u64 = self.metadata.iter().map(ArchivedMetadata::pending).sum();
        packets + metadata + u64::from(self.chunks.is_pending())
    }

    /// Whether the session is live, and some stream has a beacon that is in no commit object.
    pub(super) fn has_new_beacons(&self) -> bool {
        !self.is_over
            && self.record.live_timer > 0
            && self.packets.iter().any(ArchivedPackets::has_new_beacon)
    }

    /// Adds what is in no commit object, until the object has `limit` bytes. What cannot be read is
    /// tried again with the next object. None: nothing was added but beacons.
    pub(super) fn commit(
        &mut self,
        object: &mut ObjectWriter,
        limit: u64,
    ) -> Option<CommittedSession> {
        object.add_record(&Record::Session(self.record.clone()));
        let before = object.raw_len();
        let (mut streams, mut failure) = (Vec::new(), Ok(()));
        // Before the packets, which are then all that were there before the beacon.
        let beacons: Vec<_> = self.packets.iter().map(ArchivedPackets::beacon).collect();
        // First, so that no packet is in the archive whose metadata is not.
        for metadata in self.metadata.iter_mut().filter(|own| own.pending() > 0) {
            object.add_record(&Record::Stream(metadata.record.clone()));
            let read = metadata.commit(object, &mut self.chunks, &mut streams);
            failure = failure.and(read);
        }
        let metadata = self.metadata.iter();
        let metadata = metadata.flat_map(ArchivedMetadata::of_packets);
        let mut target = PacketTarget {
            object,
            limit,
            chunks: &mut self.chunks,
            entries: EntryMaker::new(metadata, self.is_over),
        };
        for packets in self.packets.iter_mut().filter(|own| own.pending() > 0) {
            if !target.has_room() {
                break;
            }
            let record = Record::Stream(packets.record.clone());
            target.object.add_record(&record);
            let key = packets.record.stream;
            let (committed, read) = packets.commit(&mut target);
            streams.extend(committed.map(|done| (key, done)));
            failure = failure.and(read);
        }
        // A session that has ended may go on at another relay.
        if !self.is_over {
            for (packets, until) in self.packets.iter_mut().zip(beacons) {
                packets.commit_beacon(object, until);
            }
        }
        self.report(failure);
        if streams.is_empty() && !self.chunks.is_pending() {
            return None;
        }
        self.chunks.commit(object);
        self.commits_in_flight += 1;
        Some(CommittedSession {
            streams,
            bytes: object.raw_len() - before,
        })
    }

    /// Logs that a file cannot be read, once until it can be.
    fn report(&mut self, read: io::Result<()>) {
        if let Err(error) = &read
            && !self.has_failed
        {
            warn!(session = %self.session, %error, "session not archived further: a file of it cannot be read; it is tried again");
        }
        self.has_failed = read.is_err();
    }

    /// Records that a commit object is stored.
    pub(super) fn acknowledge(&mut self, committed: &CommittedSession, now: Instant) {
        self.commits_in_flight -= 1;
        for (key, done) in &committed.streams {
            done.publish();
            if let Acknowledged::Metadata(_, source, bytes) = done {
                let of_key = |own: &&mut ArchivedMetadata| own.record.stream == *key;
                if let Some(metadata) = self.metadata.iter_mut().find(of_key) {
                    metadata.acknowledge(source, *bytes);
                }
            }
        }
        self.committed_bytes += committed.bytes;
        self.unparted += committed.bytes;
        self.unparted_since.get_or_insert(now);
    }

    // Parts.

    /// Whether a part is to be written: there is much that is in no part, or it is old, or the
    /// session has ended. With `is_last`, if there is anything at all.
    pub(super) fn is_part_due(&mut self, now: Instant, max_age: Duration, is_last: bool) -> bool {
        let is_old = self
            .unparted_since
            .is_some_and(|since| now.saturating_duration_since(since) >= max_age);
        let has_any = self.unparted_since.is_some();
        let is_due = self.unparted >= ARCHIVE_PART_BYTES || is_old || (is_last && has_any);
        let is_ready = !self.has_part_in_flight
            && self.owner != Owner::Opening
            && self.next_attempt.is_none_or(|at| at <= now);
        is_ready && (is_due || (self.has_ended_and_committed() && !self.has_end))
    }

    /// Whether the session has ended, and all of it is in commit objects that are stored.
    fn has_ended_and_committed(&mut self) -> bool {
        // In this order: after the end nothing is added.
        self.has_ended() && self.pending() == 0 && self.commits_in_flight == 0
    }

    /// Finds out whether the producer is gone. To be called before streams are added.
    pub(super) fn refresh_end(&mut self) {
        self.is_over = self.session.is_over();
    }

    /// Whether the session has ended: nothing will be added to it.
    pub(super) fn has_ended(&self) -> bool {
        self.is_over
            && self.session.is_empty()
            && self.packets.iter().all(ArchivedPackets::is_over)
            && self.metadata.iter().all(ArchivedMetadata::is_over)
    }

    /// Whether the producer has ended the session here. Otherwise it was gone for too long, and may
    /// be at another relay.
    pub(super) fn is_ended_by_producer(&self) -> bool {
        match self.session.resume_key() {
            Some(_) => self.session.is_complete(),
            None => !(self.session.archived_as()).is_some_and(|archived| archived.has_expired),
        }
    }

    /// Whether parts have all of a session that has ended, and its end.
    pub(super) fn is_archived(&self) -> bool {
        self.has_end && !self.has_part_in_flight && !self.is_reclaiming
    }

    /// Whether parts have all that the session has.
    pub(super) fn is_parted(&mut self) -> bool {
        self.pending() == 0
            && !self.has_part_in_flight
            && self.packets.iter().all(ArchivedPackets::is_parted)
            && self.metadata.iter().all(ArchivedMetadata::is_parted)
    }

    /// Number of the next part.
    pub(super) fn next_part(&self) -> u32 {
        self.next_part
    }

    /// Fills a part with what is acknowledged, up to [`ARCHIVE_PART_BYTES`], and completes it.
    ///
    /// # Errors
    /// If a file cannot be read. Then nothing has changed.
    pub(super) fn part(&mut self, mut object: ObjectWriter, now: Timestamp) -> io::Result<Part> {
        // Asked first: what is published after that is in no part.
        let has_ended = self.has_ended_and_committed();
        object.add_record(&Record::Session(self.record.clone()));
        let (mut chunks, mut cursors) = (Chunks::default(), Vec::new());
        let metadata = self.metadata.iter();
        let metadata = metadata.flat_map(ArchivedMetadata::of_packets);
        let mut target = PacketTarget {
            object: &mut object,
            limit: ARCHIVE_PART_BYTES,
            chunks: &mut chunks,
            // All of these packets are in commit objects: nothing is waited for.
            entries: EntryMaker::new(metadata, true),
        };
        for packets in &self.packets {
            let record = Record::Stream(packets.record.clone());
            target.object.add_record(&record);
            cursors.push(packets.part(&mut target)?);
        }
        let used: Vec<Option<ChunkId>> = chunks.ids().collect();
        for metadata in &self.metadata {
            object.add_record(&Record::Stream(metadata.record.clone()));
            metadata.part(&mut object, &mut chunks, &used)?;
        }
        let is_complete = cursors.iter().all(|(_, is_all)| *is_all);
        let is_end = has_ended && is_complete;
        if is_end {
            let packets = self.packets.iter().zip(&cursors);
            let packets = packets.filter_map(|(own, (cursor, _))| own.end(cursor));
            let metadata = self.metadata.iter().filter_map(ArchivedMetadata::end);
            packets
                .chain(metadata)
                .for_each(|end| object.add_record(&end));
            let at = nanoseconds(now);
            object.add_record(&Record::SessionEnd { at });
        }
        self.chunks.extend(chunks);
        self.chunks.part(&mut object);
        let bytes = object.finish()?;
        for (packets, (cursor, _)) in self.packets.iter_mut().zip(cursors) {
            packets.set_parted(cursor);
        }
        let metadata = self.metadata.iter_mut();
        metadata.for_each(ArchivedMetadata::set_parted);
        self.has_end = is_end;
        self.has_part_in_flight = true;
        if is_complete {
            self.unparted = 0;
            self.unparted_since = None;
        } else {
            self.unparted = self.unparted.saturating_sub(ARCHIVE_PART_BYTES);
        }
        let number = self.next_part;
        self.next_part += 1;
        Ok(Part {
            number,
            bytes,
            is_complete,
        })
    }

    /// Records that a part cannot be made now.
    pub(super) fn postpone_part(&mut self, now: Instant, error: io::Error) {
        self.next_attempt = Some(now + ARCHIVE_RETRY_INTERVAL);
        self.report(Err(error));
    }

    /// Records which commit objects parts make superfluous when the part that was begun is stored:
    /// those before this number. None: the part has not all that is acknowledged.
    pub(super) fn set_covered_commits(&mut self, end: Option<u64>) {
        self.covered_commits = end;
    }

    /// Number before which parts make commit objects superfluous.
    pub(super) fn covered_commits(&self) -> Option<u64> {
        self.covered_commits
    }

    /// Begins to list the end of the session. Returns false if that has begun before.
    pub(super) fn begin_end(&mut self) -> bool {
        !std::mem::replace(&mut self.is_ending, true)
    }

    /// Whether nothing is to be done for the session before the relay stops: parts have all of it,
    /// and it can be resumed.
    pub(super) fn is_done(&mut self) -> bool {
        !self.has_ended() && self.is_parted()
    }

    /// Records that a part is stored.
    pub(super) fn part_stored(&mut self) {
        self.has_part_in_flight = false;
        self.chunks.forget_parted();
        let chunks = &self.chunks;
        for metadata in &mut self.metadata {
            metadata.forget_parted(|chunk| chunks.is_open(chunk));
        }
        self.packets.iter().for_each(ArchivedPackets::forget_parted);
    }
}
