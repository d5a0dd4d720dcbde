//! Sessions that appear and end, and the streams that they announce.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use viewer_proto::session::{AttachStatus, ListedSession, Seek};
use viewer_proto::stream::{NewStreamsStatus, StreamRecord};
use wire::SessionId;

use super::{AttachedSession, AttachedStream, AttachedTrace, RelaySession, SessionTraceId};
use crate::attach::error::AttachError;
use crate::attach::relay_options::Missing;
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

/// Time between two requests for new sessions, and for new streams whether or not the relay says that there
/// are any: some say it only while others have packets.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two requests for new sessions while none is attached.
const IDLE_LIST_INTERVAL: Duration = Duration::from_millis(200);

impl RelaySession {
    /// Attaches to the sessions that the target names and that are not attached.
    pub(super) async fn request_sessions(&mut self) -> Result<(), AttachError> {
        let listed = self.connection.sessions().await?;
        // A session number is never reused, so that one no longer listed can be forgotten.
        let ids: HashSet<SessionId> = listed.iter().map(|session| session.session).collect();
        self.skipped_sessions.retain(|id| ids.contains(id));
        let wanted = |session: &ListedSession| {
            self.target.names(session)
                && !self.sessions.contains_key(&session.session)
                && !self.skipped_sessions.contains(&session.session)
        };
        let wanted: Vec<ListedSession> = listed.into_iter().filter(wanted).collect();
        for session in wanted {
            self.attach_session(&session).await?;
        }
        if self.sessions.is_empty() {
            self.handle_no_session().await?;
        }
        for session in self.sessions.values_mut() {
            session.may_have_streams = true;
        }
        let period = if self.sessions.is_empty() {
            IDLE_LIST_INTERVAL
        } else {
            LIST_INTERVAL
        };
        self.list_due = Instant::now() + period;
        self.has_listed = true;
        Ok(())
    }

    /// Waits, fails or ends, because there is no session.
    async fn handle_no_session(&mut self) -> Result<(), AttachError> {
        let is_awaited = self.options.missing == Missing::Wait && !self.has_followed;
        if self.options.follow || is_awaited {
            if !self.has_listed {
                self.send_notice("waiting for a live session").await?;
            }
            return Ok(());
        }
        if !self.has_followed && self.options.missing == Missing::Fail {
            return Err(AttachError::NoSession(self.target.to_string()));
        }
        self.is_finished = true;
        Ok(())
    }

    async fn attach_session(&mut self, listed: &ListedSession) -> Result<(), AttachError> {
        let id = listed.session;
        let name = format!("{}/{}", listed.host, listed.name);
        let live_timer = listed.live_timer.period();
        if live_timer.is_none() {
            self.skipped_sessions.insert(id);
            let text = format_args!("session {name} is not live and cannot be followed");
            return self.send_notice(text).await;
        }
        if !self.is_created {
            self.connection.create().await?;
            self.is_created = true;
        }
        // A session that was not there at first has begun since: all of it is new.
        let seek = if self.has_listed {
            Seek::Beginning
        } else {
            self.options.seek
        };
        let (status, streams) = self.connection.attach(id, seek).await?;
        match status {
            AttachStatus::Ok => {}
            // The session has ended since it was listed.
            AttachStatus::Unknown => return Ok(()),
            AttachStatus::NotLive => {
                self.skipped_sessions.insert(id);
                return Ok(());
            }
            // Old relays allow one viewer.
            AttachStatus::Already if self.options.missing == Missing::Wait => {
                let text = format_args!("session {name} is taken by another viewer; waiting");
                if !self.has_listed {
                    self.send_notice(text).await?;
                }
                return Ok(());
            }
            other => {
                let status = format!("{other:?}");
                return Err(AttachError::Attach {
                    session: name,
                    status,
                });
            }
        }
        self.send_notice(format_args!("following session {name}"))
            .await?;
        let session = AttachedSession {
            name,
            live_timer,
            is_over: false,
            may_have_streams: streams.is_empty(),
        };
        self.sessions.insert(id, session);
        self.has_followed = true;
        self.poll_timer.set_live_timers(self.sessions.values());
        self.announce_streams(id, streams).await
    }

    /// Asks sessions for new streams where there may be any. Returns whether there were.
    pub(super) async fn request_streams(&mut self) -> Result<bool, AttachError> {
        let asked: Vec<SessionId> = self
            .sessions
            .iter_mut()
            .filter_map(|(id, session)| {
                let may_have = std::mem::take(&mut session.may_have_streams);
                (may_have && !session.is_over).then_some(*id)
            })
            .collect();
        let mut is_progress = false;
        for id in asked {
            let (status, streams) = self.connection.new_streams(id).await?;
            is_progress |= !streams.is_empty();
            self.announce_streams(id, streams).await?;
            // A relay that knows nothing of the session adds nothing to it either.
            if matches!(status, NewStreamsStatus::HungUp | NewStreamsStatus::Failed)
                && let Some(session) = self.sessions.get_mut(&id)
            {
                session.is_over = true;
                is_progress = true;
            }
        }
        Ok(is_progress)
    }

    async fn announce_streams(
        &mut self,
        session: SessionId,
        records: Vec<StreamRecord>,
    ) -> Result<(), AttachError> {
        for record in records {
            let id = record.stream;
            let metadata_twice = |trace: &AttachedTrace| trace.metadata == Some(id);
            if self.streams.contains_key(&id) || self.traces.values().any(metadata_twice) {
                return Err(AttachError::StreamTwice { stream: id });
            }
            self.announce_stream(session, &record).await?;
        }
        Ok(())
    }

    async fn announce_stream(
        &mut self,
        session: SessionId,
        record: &StreamRecord,
    ) -> Result<(), AttachError> {
        let id: SessionTraceId = (session, record.trace);
        if !self.traces.contains_key(&id) {
            let trace = self.announce_trace(session, record).await?;
            self.traces.insert(id, trace);
        }
        let Some(trace) = self.traces.get_mut(&id) else {
            return Ok(());
        };
        if record.is_metadata != 0 {
            if trace.metadata.replace(record.stream).is_some() {
                let trace = record.trace;
                return Err(AttachError::MetadataTwice { trace });
            }
            trace.may_have_metadata = true;
            return Ok(());
        }
        trace.streams += 1;
        trace.has_had_streams = true;
        let stream = AttachedStream {
            key: StreamKey::fresh(),
            name: join_names(record.path.0.to_string(), &record.channel.0.to_string()),
            trace: id,
            backlog: Backlog::with_notify(Arc::clone(&self.packet_removed)),
            may_have_packets: true,
            unread: 0,
            replies: VecDeque::new(),
            watermark: None,
            is_broken: false,
        };
        let event = SourceEvent::Stream {
            stream: stream.key,
            trace: trace.key,
            name: stream.name.clone(),
            backlog: stream.backlog.clone(),
        };
        self.streams.insert(record.stream, stream);
        self.send_event(event).await
    }

    async fn announce_trace(
        &self,
        session: SessionId,
        record: &StreamRecord,
    ) -> Result<AttachedTrace, AttachError> {
        let session = self.sessions.get(&session);
        let name = session.map(|session| session.name.clone());
        let trace = AttachedTrace {
            key: TraceKey::fresh(),
            metadata: None,
            has_metadata: false,
            is_complete: false,
            may_have_metadata: false,
            is_known: false,
            has_had_streams: false,
            streams: 0,
        };
        let name = join_names(name.unwrap_or_default(), &record.path.0.to_string());
        let event = SourceEvent::Trace {
            trace: trace.key,
            name,
        };
        self.send_event(event).await?;
        Ok(trace)
    }

    /// Ends the traces and sessions that have no streams left and get none.
    pub(super) async fn end_finished_traces_and_sessions(&mut self) -> Result<(), AttachError> {
        let sessions = &self.sessions;
        let is_over = |id: &SessionTraceId, trace: &mut AttachedTrace| {
            let session_is_over = sessions.get(&id.0).is_none_or(|session| session.is_over);
            trace.streams == 0 && (session_is_over || trace.is_complete && trace.has_had_streams)
        };
        let over: Vec<_> = self.traces.extract_if(.., is_over).collect();
        for (id, trace) in over {
            self.resume.trace_ended(id);
            let trace = trace.key;
            self.send_event(SourceEvent::TraceEnd { trace }).await?;
        }
        let has_traces = |id: SessionId| self.traces.keys().any(|trace| trace.0 == id);
        let is_over =
            |id: &SessionId, session: &mut AttachedSession| session.is_over && !has_traces(*id);
        let over: Vec<_> = self.sessions.extract_if(.., is_over).collect();
        for (id, session) in over {
            self.skipped_sessions.insert(id);
            if self.connection.can_detach() {
                self.connection.detach(id).await?;
            }
            self.poll_timer.set_live_timers(self.sessions.values());
            // Another session may have taken its place; if none has, that was all.
            self.list_due = Instant::now();
            self.send_notice(format_args!("session {} has ended", session.name))
                .await?;
        }
        Ok(())
    }
}

/// A name and a name below it.
fn join_names(above: String, below: &str) -> String {
    if above.is_empty() || below.is_empty() {
        return above + below;
    }
    let slash = if above.ends_with('/') || below.starts_with('/') {
        ""
    } else {
        "/"
    };
    format!("{above}{slash}{below}")
}
