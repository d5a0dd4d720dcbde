//! Sessions that appear and end, and the streams that they announce.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use viewer_proto::session::{AttachStatus, ListedSession};
use viewer_proto::stream::{NewStreamsStatus, StreamRecord};
use wire::{SessionId, TraceId};

use super::{AttachedSession, AttachedStream, AttachedTrace, RelaySession, SessionTraceId};
use crate::attach::error::AttachError;
use crate::attach::list::describe_missing;
use crate::attach::relay_options::Missing;
use crate::attach::shown_trace::{Phase, ShownStream, ShownTrace};
use crate::attach::{Backlog, SourceEvent};

/// Time between two requests for new sessions, and for new streams whether or not the relay says
/// that there are any: some say it only while others have packets.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Largest number of new traces that wait to be announced; more sessions are attached when there
/// are fewer. Few, so that they do not use up what the relay allows.
const MAX_WAITING_TRACES: usize = 16;

/// Number of sessions from which on `relayd` attaches a viewer to no other one, which it calls
/// unknown.
const MAX_ATTACHED_SESSIONS: usize = 64;

/// Time between two requests for new sessions while none is attached.
const IDLE_LIST_INTERVAL: Duration = Duration::from_millis(200);

impl RelaySession {
    /// Attaches to the sessions that the target names and that are not attached.
    pub(super) async fn request_sessions(&mut self) -> Result<(), AttachError> {
        let mut listed = self.connection.sessions().await?;
        if std::mem::take(&mut self.resume.is_disconnected) {
            let is_only = self.target.relays.len() == 1 && !self.resume.has_moved;
            if is_only {
                self.send_notice("connection restored").await?;
            } else {
                let relay = &self.relay;
                self.send_notice(format_args!("connection restored, to {relay}"))
                    .await?;
            }
        }
        // A session number is never reused, so that one no longer listed can be forgotten.
        let ids: HashSet<SessionId> = listed.iter().map(|session| session.session).collect();
        self.skipped_sessions.retain(|id| ids.contains(id));
        let wanted = |session: &ListedSession| {
            self.target.names(session)
                && !self.sessions.contains_key(&session.session)
                && !self.skipped_sessions.contains(&session.session)
        };
        let wanted: Vec<&ListedSession> = listed.iter().filter(|listed| wanted(listed)).collect();
        for session in wanted {
            if self.waiting_traces() >= MAX_WAITING_TRACES {
                let reason = format_args!("{MAX_WAITING_TRACES} new traces wait to be read");
                self.report_waiting_sessions(reason).await?;
                break;
            }
            self.attach_session(session).await?;
        }
        if self.sessions.is_empty() {
            listed.retain(|listed| !self.skipped_sessions.contains(&listed.session));
            self.handle_no_session(&listed).await?;
        }
        // Not at each announcement of a session: there may be many in a second.
        let now = Instant::now();
        if now >= self.streams_due {
            self.streams_due = now + LIST_INTERVAL;
            for session in self.sessions.values_mut() {
                session.may_have_streams = true;
            }
        }
        let is_idle = self.sessions.is_empty() || !self.resume.sessions.is_empty();
        let period = if is_idle {
            IDLE_LIST_INTERVAL
        } else {
            LIST_INTERVAL
        };
        self.list_due = Instant::now() + period;
        self.has_listed = true;
        self.resume.has_listed = true;
        Ok(())
    }

    /// Reports, once, that not all sessions are attached.
    async fn report_waiting_sessions(
        &mut self,
        reason: impl std::fmt::Display,
    ) -> Result<(), AttachError> {
        if std::mem::replace(&mut self.has_reported_waiting, true) {
            return Ok(());
        }
        self.send_notice(format_args!(
            "{reason}: further sessions wait; those that end before are not shown"
        ))
        .await
    }

    /// Waits, fails or ends, because there is no session.
    async fn handle_no_session(&mut self, listed: &[ListedSession]) -> Result<(), AttachError> {
        if let Some(due) = self.resume.orphans_due
            && self.has_orphans()
        {
            let now = Instant::now();
            // A relay that has been restarted restores its sessions first.
            return match self
                .leave_due
                .is_some_and(|leave| leave <= now && now < due)
            {
                true => Err(AttachError::NotHere),
                false => Ok(()),
            };
        }
        let has_followed = self.resume.has_followed && !self.awaits_first_trace();
        // Sessions that follow one are waited for, the first one only if the options say so.
        let is_awaited = match has_followed {
            true => self.options.follow,
            false => self.options.missing == Missing::Wait,
        };
        if is_awaited {
            if !self.resume.has_listed {
                let missing = describe_missing(&self.target, listed);
                self.send_notice(format_args!("waiting for a live session: {missing}"))
                    .await?;
            }
            return Ok(());
        }
        if !has_followed && !self.has_refused {
            let missing = describe_missing(&self.target, listed);
            if self.options.missing == Missing::Fail {
                return Err(AttachError::NoSession(missing));
            }
            self.send_notice(missing).await?;
        }
        if self.resume.is_incomplete {
            return Err(AttachError::Incomplete);
        }
        self.is_finished = true;
        Ok(())
    }

    fn awaits_first_trace(&self) -> bool {
        self.resume.awaits_first_trace(self.options.missing)
    }

    async fn attach_session(&mut self, listed: &ListedSession) -> Result<(), AttachError> {
        let id = listed.session;
        let name = format!("{}/{}", listed.host, listed.name);
        let live_timer = listed.live_timer.period();
        if live_timer.is_none() {
            let reason = "the session is not live and cannot be followed";
            return self.handle_refused_session(id, &name, reason).await;
        }
        if !self.is_created {
            self.connection.create().await?;
            self.is_created = true;
        }
        let seek = self.resume.seek(&name, self.options.seek);
        let (status, streams) = self.connection.attach(id, seek).await?;
        match status {
            AttachStatus::Ok => {}
            AttachStatus::Unknown if self.sessions.len() >= MAX_ATTACHED_SESSIONS => {
                let reason = format!("{} sessions are attached", self.sessions.len());
                return self.report_waiting_sessions(reason).await;
            }
            // Another relay may list a session before it can read all of it.
            AttachStatus::Unknown if self.resume.awaits_session(&name) => return Ok(()),
            // It has ended meanwhile. The next one of that name is waited for.
            AttachStatus::Unknown if self.options.missing == Missing::Wait => {
                self.skipped_sessions.insert(id);
                return Ok(());
            }
            AttachStatus::Unknown => {
                let reason = "unknown to the relay: it may have ended since it was listed";
                return self.handle_refused_session(id, &name, reason).await;
            }
            AttachStatus::NotLive => {
                let reason = "refused by the relay: the session is not live";
                return self.handle_refused_session(id, &name, reason).await;
            }
            // Old relays allow one viewer.
            AttachStatus::Already
                if self.options.missing == Missing::Wait || self.resume.has_followed =>
            {
                let text = format_args!("session {name} is taken by another viewer; waiting");
                if !self.has_listed {
                    self.send_notice(text).await?;
                }
                // The other may be the lost connection, which the relay has not noticed yet.
                if let Some(due) = &mut self.resume.orphans_due {
                    *due = Instant::now() + self.options.grace_period;
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
        let retained = self.resume.take_session(&name);
        let word = if retained.is_some() {
            "continuing"
        } else {
            "following"
        };
        let at = match std::mem::take(&mut self.resume.is_searching) {
            true => {
                // The streams may come one after the other, too.
                self.resume.orphans_due = Some(Instant::now() + self.options.grace_period);
                format!(" at {}", self.relay)
            }
            false => String::new(),
        };
        self.send_notice(format_args!("{word} session {name}{at}"))
            .await?;
        let session = AttachedSession {
            name,
            seek: retained.map_or(seek, |retained| retained.seek),
            live_timer,
            is_over: false,
            has_begun: !self.has_listed,
            may_have_streams: streams.is_empty(),
        };
        self.sessions.insert(id, session);
        self.resume.has_followed = true;
        self.poll_timer.set_live_timers(self.sessions.values());
        self.announce_streams(id, streams).await
    }

    /// Passes over a session that cannot be followed, and reports it: as an error if the target
    /// names it.
    async fn handle_refused_session(
        &mut self,
        id: SessionId,
        name: &str,
        reason: &str,
    ) -> Result<(), AttachError> {
        self.skipped_sessions.insert(id);
        let text = format!("cannot attach to session {name}: {reason}");
        if self.target.session.is_none() {
            return self.send_notice(text).await;
        }
        self.has_refused = true;
        self.send_error(text).await
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
                if status == NewStreamsStatus::Failed {
                    let text = format!(
                        "cannot get new streams of session {}: the relay replies with an error; \
                         streams may be missing",
                        session.name
                    );
                    self.send_error(text).await?;
                }
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
            self.add_trace(id, record).await?;
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
        let is_known = trace.unidentified.is_none() && !trace.is_waiting;
        let name = join_names(record.path.0.to_string(), &record.channel.0.to_string());
        let packet_removed = Arc::clone(&self.resume.packet_removed);
        let stream = AttachedStream {
            shown: ShownStream::new(name, Backlog::with_notify(packet_removed)),
            trace: id,
            may_have_packets: true,
            unread: 0,
            is_at_end: false,
            replies: VecDeque::new(),
        };
        self.streams.insert(record.stream, stream);
        if is_known && !self.awaits_first_traces(session) {
            self.resume_stream(record.stream).await?;
        }
        Ok(())
    }

    /// Whether a trace with which a session begins waits to be announced.
    pub(super) fn awaits_first_traces(&self, id: SessionId) -> bool {
        let has_begun = |session: &AttachedSession| session.has_begun;
        let mut own = self.traces.range((id, TraceId(0))..);
        !self.sessions.get(&id).is_none_or(has_begun)
            && own
                .by_ref()
                .take_while(|(trace, _)| trace.0 == id)
                .any(|(_, trace)| trace.is_waiting)
    }

    async fn add_trace(
        &mut self,
        id: SessionTraceId,
        record: &StreamRecord,
    ) -> Result<(), AttachError> {
        let Some(session) = self.sessions.get(&id.0) else {
            return Ok(());
        };
        let name = join_names(session.name.clone(), &record.path.0.to_string());
        let may_be_known = self.resume.has_trace(&name);
        let trace = AttachedTrace {
            shown: ShownTrace::new(session.name.clone(), name, session.seek),
            unidentified: may_be_known.then(Vec::new),
            metadata: None,
            // What was there before the viewer is announced at once, so that all of it is put in
            // order.
            is_waiting: self.has_listed && !may_be_known,
            is_complete: false,
            may_have_metadata: false,
            has_had_streams: false,
            streams: 0,
        };
        self.traces.insert(id, trace);
        self.resume.has_had_traces = true;
        if may_be_known {
            return self.identify_trace(id, false).await;
        }
        if self.has_listed {
            return Ok(());
        }
        self.announce_trace(id).await
    }

    /// Ends the traces and sessions that have no streams left and get none.
    pub(super) async fn end_finished_traces_and_sessions(&mut self) -> Result<(), AttachError> {
        let sessions = &self.sessions;
        let session_is_over =
            |id: SessionId| sessions.get(&id).is_none_or(|session| session.is_over);
        let of_ended_sessions = self.traces.keys().filter(|id| session_is_over(id.0));
        for id in of_ended_sessions.copied().collect::<Vec<_>>() {
            self.end_orphan_streams(id).await?;
        }
        let sessions = &self.sessions;
        let is_over = |id: &SessionTraceId, trace: &mut AttachedTrace| {
            let session_is_over = sessions.get(&id.0).is_none_or(|session| session.is_over);
            let has_no_streams = trace.streams == 0 && !trace.shown.has_followed_streams();
            let is_complete = trace.is_complete && trace.has_had_streams;
            trace.unidentified.is_none() && has_no_streams && (session_is_over || is_complete)
        };
        let over: Vec<_> = self.traces.extract_if(.., is_over).collect();
        for (id, mut trace) in over {
            let is_followed = trace.shown.phase == Phase::Followed;
            let key = trace.shown.key;
            trace.shown.phase = Phase::Ended;
            self.resume.retain_trace(id, trace.shown);
            if is_followed {
                self.send_event(SourceEvent::TraceEnd { trace: key })
                    .await?;
            }
        }
        let has_traces = |id: SessionId| self.traces.keys().any(|trace| trace.0 == id);
        let is_over =
            |id: &SessionId, session: &mut AttachedSession| session.is_over && !has_traces(*id);
        let over: Vec<_> = self.sessions.extract_if(.., is_over).collect();
        for (id, session) in over {
            // The relay may go on listing the session for a while.
            self.skipped_sessions.insert(id);
            if self.connection.can_detach() {
                self.connection.detach(id).await?;
            }
            self.poll_timer.set_live_timers(self.sessions.values());
            // Another session may have taken its place; if none has, that was all.
            self.list_due = Instant::now();
            let then = match self.awaits_first_trace() {
                true => " before it had any trace; waiting for the next one",
                false => "",
            };
            self.send_notice(format_args!("session {} has ended{then}", session.name))
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
