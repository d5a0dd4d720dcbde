//! What the sessions of an archive are at a glance, from the directories of their objects.

use std::sync::Arc;

use archive::store::Store;
use ctf::Metadata;
use futures_util::stream::{self, StreamExt};
use tokio::sync::Notify;

use super::feed::Feed;
use super::traces::{MAX_FETCHED_STREAMS, feeds, first_index, plan};
use super::{ArchiveError, ArchiveOptions, sessions};
use crate::attach::target::ArchiveTarget;

/// The traces of sessions.
#[derive(Debug)]
pub struct ArchiveSummary {
    /// The traces, as they are shown.
    pub traces: Vec<ArchivedTrace>,
    /// What users should know about the sessions, and is no failure.
    pub notices: Vec<String>,
}

/// A trace of a session.
#[derive(Debug)]
pub struct ArchivedTrace {
    /// The trace's name for users.
    pub name: String,
    /// The URL below which the objects of its session are.
    pub url: String,
    /// The metadata.
    pub metadata: Metadata,
    /// The streams, in the order of their files.
    pub streams: Vec<ArchivedStream>,
}

/// A stream of a trace.
#[derive(Debug)]
pub struct ArchivedStream {
    /// The name of its file.
    pub name: String,
    /// The id of its stream class, by its first packet.
    pub class: u64,
    /// Its number in its class.
    pub id: u64,
    /// The size of its packets together, in bytes.
    pub bytes: u64,
    /// The number of its packets.
    pub packets: u64,
    /// The earliest begin of a packet and the latest end, in cycles.
    pub span: Option<(u64, u64)>,
}

pub(super) async fn summary(
    store: &Arc<dyn Store>,
    target: &ArchiveTarget,
    mut report_failure: impl FnMut(&str),
) -> Result<ArchiveSummary, ArchiveError> {
    let options = ArchiveOptions::default();
    let opened = sessions::open_sessions(&**store, target, &options).await?;
    let notices = opened.notices(target);
    let mut feeds = feeds(&opened.sessions, &Arc::new(Notify::new()));
    let (planned, failures) = plan(&**store, &opened.sessions, &mut feeds).await?;
    for failure in opened.failures.iter().chain(&failures) {
        report_failure(failure);
    }
    let mut traces = Vec::new();
    for trace in planned {
        let session = opened.sessions.get(trace.session);
        let session = session.and_then(|session| session.opened.view.session.as_ref());
        let key = session.map_or_else(String::new, |session| session.session.to_string());
        let own = trace.feeds.iter().filter_map(|number| feeds.get(*number));
        let described = own.enumerate().map(|(number, feed)| async move {
            let mut stream = describe(feed, number as u64);
            if let Some(first) = first_index(feed, &**store).await? {
                stream.class = first.class.0;
                stream.id = first.instance.map_or(stream.id, |instance| instance.0);
            }
            Ok::<_, ArchiveError>(stream)
        });
        let described = stream::iter(described).buffered(MAX_FETCHED_STREAMS);
        let streams: Vec<_> = described.collect().await;
        traces.push(ArchivedTrace {
            name: trace.name,
            url: format!("{}/sessions/{key}", target.url),
            streams: streams.into_iter().collect::<Result<_, _>>()?,
            metadata: trace.metadata,
        });
    }
    Ok(ArchiveSummary { traces, notices })
}

/// Describes a stream by what is known of its blocks.
fn describe(feed: &Feed, number: u64) -> ArchivedStream {
    let records = feed.blocks.iter().map(|used| &used.block.record);
    let spans = records.clone().map(|record| (record.begin.0, record.end.0));
    let span = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    let counts = feed.blocks.iter().map(|used| used.end.0 - used.begin.0);
    let bytes = records.map(|record| record.packet_bytes.0);
    let file = feed.name.rsplit('/').next();
    ArchivedStream {
        name: file.unwrap_or_default().to_owned(),
        class: 0,
        id: number,
        bytes: bytes.fold(0, u64::saturating_add),
        packets: counts.fold(0, u64::saturating_add),
        span: span.filter(|(_, end)| *end != 0),
    }
}
