//! The list of an archive's sessions, for users.

use std::fmt;

use archive::catalog::{ListedSession, read_listed};
use archive::store::Store;
use daemon::event_text::printable;
use serde::Serialize;

use super::sessions::{find_sessions, shown_time};
use super::{ArchiveError, ArchiveOptions};
use crate::attach::target::ArchiveTarget;

/// The sessions of an archive, by the times at which they were created. Shows as lines, one for
/// each; as JSON it is an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ArchiveListing {
    /// The sessions.
    pub sessions: Vec<ArchivedSession>,
}

/// A session of an archive. Several may have the same name: they are read together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchivedSession {
    /// The URL by which the session can be read, together with all others of its name.
    pub url: String,
    /// The name of the traced host.
    #[serde(rename = "host")]
    pub target_hostname: String,
    /// The name of the session on the traced host.
    #[serde(rename = "name")]
    pub session_name: String,
    /// The session, as in the names of its objects.
    pub session: String,
    /// The time of its creation.
    pub created: String,
    /// The time of its end. Absent: it has not ended, or its relay died.
    pub ended: Option<String>,
    /// The number of its packets. Absent until it has ended.
    #[serde(rename = "packets")]
    pub packet_count: Option<u64>,
    /// The format of its traces: `ctf-1.8` or `ctf-2.0`.
    pub trace_format: &'static str,
}

/// Lists the sessions that the target names.
pub(super) async fn list(
    store: &dyn Store,
    target: &ArchiveTarget,
    mut report_failure: impl FnMut(&str),
) -> Result<ArchiveListing, ArchiveError> {
    let found = match find_sessions(store, target, &ArchiveOptions::default()).await {
        // As a relay without sessions.
        Err(ArchiveError::NoSession(_)) => Vec::new(),
        found => found?,
    };
    let (mut listed, failures) = read_listed(store, found).await;
    for error in failures {
        report_failure(&crate::with_sources(&error));
    }
    listed.sort_by_key(|listed| (listed.created.created, listed.found.session));
    let is_wanted = |listed: &ListedSession| {
        let created = &listed.created;
        let wanted = target.session.as_ref();
        wanted.is_none_or(|wanted| wanted.names(&created.host, &created.name))
    };
    listed.retain(is_wanted);
    let sessions = listed.into_iter().map(|listed| {
        let ListedSession {
            found,
            created,
            ended,
        } = listed;
        ArchivedSession {
            url: format!("{}/host/{}/{}", target.url, created.host, created.name),
            target_hostname: created.host,
            session_name: created.name,
            session: found.session.to_string(),
            created: shown_time(created.created),
            ended: ended.as_ref().map(|ended| shown_time(ended.ended)),
            packet_count: ended.map(|ended| ended.packets),
            trace_format: match created.ctf_version {
                2 => "ctf-2.0",
                _ => "ctf-1.8",
            },
        }
    });
    Ok(ArchiveListing {
        sessions: sessions.collect(),
    })
}

impl fmt::Display for ArchiveListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions
            .iter()
            .try_for_each(|session| writeln!(f, "{session}"))
    }
}

impl fmt::Display for ArchivedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = printable(&self.url);
        write!(f, "{url} (created {}, ", self.created)?;
        match &self.ended {
            Some(ended) => write!(
                f,
                "ended {ended}, {} packet(s))",
                self.packet_count.unwrap_or_default()
            ),
            None => f.write_str("not ended)"),
        }
    }
}
