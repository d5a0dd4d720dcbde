//! The traces of the sessions: their metadata, and which chunks and sessions have pieces of one
//! trace, as [`ctf::directory`] joins directories.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use archive::catalog::{CatalogError, MovedBlocks, open_session, read_metadata};
use archive::session::TraceView;
use archive::store::Store;
use ctf::Metadata;
use ctf::metadata::TraceIdentity;
use futures_util::stream::{self, StreamExt};
use tokio::sync::Notify;
use wire::{ClassId, InstanceId, PacketIndex, TracePath};

use super::feed::Feed;
use super::fetch::Run;
use super::sessions::Session;
use super::{ArchiveError, CorrectionsOf};
use crate::attach::{Backlog, MemoryBudget, TraceKey};

/// Traces whose metadata is fetched at the same time.
const MAX_FETCHED_TRACES: usize = 8;
/// Streams of which the first packets are fetched at the same time.
pub(super) const MAX_FETCHED_STREAMS: usize = 16;

/// A trace: its metadata, and the numbers of its streams among all feeds.
#[derive(Debug)]
pub(super) struct PlannedTrace {
    pub(super) key: TraceKey,
    /// The trace's name for users: that of the session, and the path of the trace in it.
    pub(super) name: String,
    /// Number of the session among those that are read.
    pub(super) session: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) metadata: Metadata,
    pub(super) feeds: Vec<usize>,
    /// The path of the trace, or of the first of its pieces.
    path: TracePath,
    identity: Option<TraceIdentity>,
    /// Whether its pieces have different paths, or are in different sessions.
    has_several_places: bool,
}

/// The streams of all traces of all sessions. A stream that goes on in another chunk has a feed for
/// each.
pub(super) fn feeds(sessions: &[Session], removed: &Arc<Notify>) -> Vec<Feed> {
    let (mut feeds, mut counted) = (Vec::new(), HashSet::new());
    for (session, of) in sessions.iter().enumerate() {
        let objects: Arc<[Arc<str>]> = of.opened.objects.as_slice().into();
        for (trace, view) in of.opened.view.traces.iter().enumerate() {
            for stream in &view.streams {
                let path = view.path.to_text();
                let name = format!("{path}/{}", stream.name.to_text());
                let mut feed = Feed::new(
                    (session, trace, stream.number),
                    of.key,
                    name,
                    Arc::clone(&objects),
                    stream.blocks.iter().cloned().collect(),
                    Backlog::with_notify(Arc::clone(removed)),
                );
                // The number is that of the whole stream, not of each chunk.
                if counted.insert((session, stream.number)) {
                    feed.missing = stream.missing;
                }
                feeds.push(feed);
            }
        }
    }
    feeds
}

/// Fetches the metadata of a trace some of which was in a commit object that has been deleted: a
/// part has it by now.
async fn fetch_moved_metadata(
    store: &dyn Store,
    session: &Session,
    trace: &TraceView,
) -> Result<Vec<u8>, CatalogError> {
    let opened = open_session(store, session.key).await?;
    let mut traces = opened.view.traces.iter();
    let is_same = |other: &&TraceView| other.chunk == trace.chunk && other.path == trace.path;
    let metadata = traces.find(is_same).map(|trace| &*trace.metadata);
    read_metadata(store, &opened.objects, metadata.unwrap_or_default()).await
}

/// Fetches the metadata of all traces, and joins those that are pieces of one. Returns what cannot
/// be read, too: that is left out.
pub(super) async fn plan(
    store: &dyn Store,
    sessions: &[Session],
    feeds: &mut [Feed],
) -> Result<(Vec<PlannedTrace>, Vec<String>), ArchiveError> {
    let views = sessions.iter().enumerate().flat_map(|(session, of)| {
        let views = of.opened.view.traces.iter().enumerate();
        views.map(move |(trace, view)| (session, trace, of, view))
    });
    let fetching = views.map(|(session, trace, of, view)| async move {
        let bytes = match read_metadata(store, &of.opened.objects, &view.metadata).await {
            Err(error) if error.is_not_found() => fetch_moved_metadata(store, of, view).await,
            fetched => fetched,
        };
        (session, trace, of, view, bytes)
    });
    let mut fetching = stream::iter(fetching).buffered(MAX_FETCHED_TRACES);
    let mut traces: Vec<PlannedTrace> = Vec::new();
    let mut failures = Vec::new();
    while let Some((session, trace, of, view, bytes)) = fetching.next().await {
        let parsed = match bytes {
            Ok(bytes) if bytes.is_empty() && view.streams.is_empty() => continue,
            Ok(bytes) => parse(bytes, of),
            Err(error) if error.is_of_store() => return Err(error.into()),
            Err(error) => Err(crate::with_sources(&error)),
        };
        let name = trace_name(of, view);
        let (bytes, metadata) = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => {
                failures.push(format!(
                    "cannot read metadata: trace {name}: {reason}; the trace is left out"
                ));
                continue;
            }
        };
        let own = feeds.iter().enumerate();
        let own = own.filter(|(_, feed)| (feed.session, feed.trace_view) == (session, trace));
        let own = own.map(|(number, _)| number).collect();
        let planned = PlannedTrace {
            key: TraceKey::fresh(),
            name,
            session,
            bytes,
            feeds: own,
            path: view.path.clone(),
            identity: metadata.trace().identity(),
            metadata,
            has_several_places: false,
        };
        let mut known = traces.iter_mut();
        match known.find(|known| known.is_continued_by(&planned)) {
            Some(known) => known.join(planned),
            None => traces.push(planned),
        }
    }
    for trace in &mut traces {
        trace.join_feeds(feeds, store).await?;
    }
    Ok((traces, failures))
}

fn trace_name(session: &Session, view: &TraceView) -> String {
    let path = view.path.to_text();
    match path.is_empty() {
        true => session.name.clone(),
        false => format!("{}/{path}", session.name),
    }
}

fn parse(bytes: Vec<u8>, session: &Session) -> Result<(Vec<u8>, Metadata), String> {
    if bytes.is_empty() {
        return Err("the archive has none".to_owned());
    }
    let described = |error: ctf::MetadataError| crate::with_sources(&error);
    let metadata = if session.opened.view.ended_at.is_some() {
        Metadata::read(&bytes).map_err(described)?
    } else {
        // The rest of it has not been archived yet.
        let mut metadata = Metadata::new();
        metadata.extend(&bytes).map_err(described)?;
        metadata
    };
    Ok((bytes, metadata))
}

impl PlannedTrace {
    /// Whether another trace is a piece of this one. It may be in another session: a snapshot is
    /// one, and so is what a producer sends to another relay.
    fn is_continued_by(&self, other: &Self) -> bool {
        self.identity.is_some() && self.identity == other.identity
    }

    /// Adds a piece. Metadata only grows, so that the larger one describes the packets of both.
    fn join(&mut self, other: Self) {
        let size = |trace: &Self| {
            let streams = trace.metadata.trace().streams();
            let events: usize = streams.map(|stream| stream.events().len()).sum();
            (trace.metadata.trace().streams().count(), events)
        };
        self.feeds.extend(&other.feeds);
        self.has_several_places |= (self.session, &self.path) != (other.session, &other.path);
        if size(&other) > size(self) {
            self.metadata = other.metadata;
            self.bytes = other.bytes;
        }
    }

    /// Corrects times, so that blocks are selected and fetched by those that are shown.
    pub(super) fn correct_times(&mut self, feeds: &mut [Feed], corrections: &CorrectionsOf) {
        if let Some(corrections) = corrections(self.metadata.trace()) {
            self.metadata.correct_times(corrections);
            self.set_scales(feeds);
        }
    }

    fn set_scales(&self, feeds: &mut [Feed]) {
        let mut streams = self.metadata.trace().streams();
        let scale = streams.find_map(|stream| stream.timescale().cloned());
        for number in &self.feeds {
            if let Some(feed) = feeds.get_mut(*number) {
                feed.scale.clone_from(&scale);
            }
        }
    }

    /// Makes one feed of those of the same stream, and orders the feeds as files are ordered.
    async fn join_feeds(
        &mut self,
        feeds: &mut [Feed],
        store: &dyn Store,
    ) -> Result<(), ArchiveError> {
        self.set_scales(feeds);
        let order = |number: &usize| {
            let feed = feeds.get(*number)?;
            Some((stream_of(feed), feed.first.as_ref()?.begin))
        };
        self.feeds.sort_by_key(order);
        let is_same = |one: &Feed, other: &Feed| stream_of(one) == stream_of(other);
        join_same(&mut self.feeds, feeds, is_same, |_| {});
        if self.has_several_places {
            // Snapshots: each has its own streams, and packets that the one before has, too.
            let identities = self.identities(feeds, store).await?;
            let of = |feed: &Feed| identities.get(&stream_of(feed)).copied();
            self.feeds.sort_by_key(|number| {
                let feed = feeds.get(*number);
                feed.map(|feed| (of(feed), feed.begin(), stream_of(feed)))
            });
            let is_same = |one: &Feed, other: &Feed| of(one).is_some() && of(one) == of(other);
            join_same(&mut self.feeds, feeds, is_same, |whole| {
                whole.sent.get_or_insert_default();
            });
        }
        self.feeds
            .sort_by_key(|number| feeds.get(*number).map(|feed| feed.name.clone()));
        Ok(())
    }

    /// The class and the number of each stream that says them in its first packet.
    async fn identities(
        &self,
        feeds: &[Feed],
        store: &dyn Store,
    ) -> Result<HashMap<(usize, u64), (ClassId, InstanceId)>, ArchiveError> {
        let own = self.feeds.iter().filter_map(|number| feeds.get(*number));
        let indexes = own.map(|feed| async move {
            let first = first_index(feed, store).await?;
            let identity = first.and_then(|first| Some((first.class, first.instance?)));
            Ok::<_, ArchiveError>(identity.map(|identity| (stream_of(feed), identity)))
        });
        let indexes = stream::iter(indexes).buffered(MAX_FETCHED_STREAMS);
        let indexes: Vec<_> = indexes.collect().await;
        let known = indexes.into_iter().filter_map(Result::transpose);
        known.collect()
    }
}

/// The session and the number there of the stream of a feed.
fn stream_of(feed: &Feed) -> (usize, u64) {
    (feed.session, feed.number)
}

/// Joins feeds that follow one another in `numbers` and are the same. `mark` is told of each feed
/// to which others are joined.
fn join_same(
    numbers: &mut Vec<usize>,
    feeds: &mut [Feed],
    is_same: impl Fn(&Feed, &Feed) -> bool,
    mark: impl Fn(&mut Feed),
) {
    let mut joined: Vec<usize> = Vec::new();
    for number in std::mem::take(numbers) {
        let last = joined.last().copied().unwrap_or(number);
        match feeds.get_disjoint_mut([last, number]) {
            Ok([whole, feed]) if is_same(whole, feed) => {
                whole.append(feed);
                mark(whole);
            }
            // Also for the first of all.
            _ => joined.push(number),
        }
    }
    *numbers = joined;
}

/// The index of the first packet of a stream. None if it cannot be read: reading the packets says
/// so.
pub(super) async fn first_index(
    feed: &Feed,
    store: &dyn Store,
) -> Result<Option<PacketIndex>, ArchiveError> {
    let first = feed.first.as_ref();
    let object = first.and_then(|first| feed.object_of(first));
    let (Some(first), Some((session, object))) = (first, object) else {
        return Ok(None);
    };
    let run = Run {
        session,
        object: Arc::clone(object),
        blocks: vec![first.clone()],
    };
    let (memory, moved) = (MemoryBudget::default(), MovedBlocks::default());
    let blocks = run.fetch(store, &memory, &moved).await?;
    let packets = blocks.into_iter().next().map(|(_, packets)| packets);
    let packets = packets.and_then(Result::ok).unwrap_or_default();
    Ok(packets.first().map(|(index, _)| *index))
}
