//! What a new connection has to do with those before it: traces and streams that were followed are
//! recognized and continued, and those that the relay does not have any more are ended.

use std::collections::HashSet;

use tokio::time::Instant;
use wire::StreamId;

use super::{RelaySession, SessionTraceId};
use crate::attach::error::AttachError;
use crate::attach::resume_state::{ResumeState, RetainedSession, TraceIdentity};
use crate::attach::shown_trace::{Phase, ShownTrace};
use crate::attach::{SourceEvent, StreamKey, TraceKey};

impl RelaySession {
    /// Takes the state from which the next connection resumes.
    pub(in crate::attach) fn take_resume_state(&mut self) -> ResumeState {
        let mut resume = std::mem::take(&mut self.resume);
        // Streams first, because they are kept in their traces.
        while let Some((_, stream)) = self.streams.pop_first() {
            if let Some(trace) = self.traces.get_mut(&stream.trace) {
                trace.shown.retain_stream(stream.shown);
            }
        }
        while let Some((id, trace)) = self.traces.pop_first() {
            resume.retain_trace(id, trace.shown);
        }
        while let Some((_, session)) = self.sessions.pop_first() {
            resume.retain_session(RetainedSession {
                name: session.name,
                seek: session.seek,
                is_over: session.is_over,
            });
        }
        resume
    }

    /// Finds out whether a trace is one that was followed before, as soon as there is enough of its
    /// metadata, and continues it, or announces it. `is_final` says that there will be no more
    /// metadata.
    pub(super) async fn identify_trace(
        &mut self,
        id: SessionTraceId,
        is_final: bool,
    ) -> Result<(), AttachError> {
        let Some(trace) = self.traces.get_mut(&id) else {
            return Ok(());
        };
        let Some(metadata) = trace.unidentified.take() else {
            return Ok(());
        };
        let name = &trace.shown.name;
        match self.resume.take_trace(name, id, &metadata, is_final) {
            TraceIdentity::Undecided => {
                trace.unidentified = Some(metadata);
                return Ok(());
            }
            TraceIdentity::Known(shown) => {
                trace.shown = shown;
                let bytes = trace.shown.continue_metadata(metadata);
                let (trace, phase) = (trace.shown.key, trace.shown.phase);
                if phase == Phase::Followed && !bytes.is_empty() {
                    self.hand_over_metadata(trace, bytes).await?;
                }
            }
            TraceIdentity::New => {
                trace.shown.record_metadata(&metadata);
                if self.resume.is_followed(&trace.shown.name) {
                    let text = format!(
                        "trace {}: the relay has one with other metadata, which is shown from its \
                         beginning",
                        trace.shown.name
                    );
                    self.send_notice(text).await?;
                }
                self.announce_trace(id).await?;
            }
        }
        let streams = self.streams.iter();
        let own = streams.filter_map(|(stream, own)| (own.trace == id).then_some(*stream));
        for stream in own.collect::<Vec<_>>() {
            self.resume_stream(stream).await?;
        }
        Ok(())
    }

    /// Identifies the traces of which no more metadata will come.
    pub(super) async fn identify_traces_without_metadata(&mut self) -> Result<(), AttachError> {
        let traces = self.traces.iter().filter(|(id, trace)| {
            let session_is_over = self
                .sessions
                .get(&id.0)
                .is_none_or(|session| session.is_over);
            let is_final = trace.is_complete || session_is_over && trace.metadata.is_none();
            trace.unidentified.is_some() && is_final
        });
        for id in traces.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.identify_trace(id, true).await?;
        }
        Ok(())
    }

    /// Continues a stream of an identified trace, or announces it.
    pub(super) async fn resume_stream(&mut self, id: StreamId) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let Some(trace) = self.traces.get_mut(&stream.trace) else {
            return Ok(());
        };
        let wanted_from = trace.shown.wanted_from();
        let has_moved = self.resume.has_moved;
        let Some(mut shown) = trace.shown.take_stream(&stream.shown.name) else {
            // A stream that is new here may have packets from before the viewer, too.
            stream.shown.position.search(wanted_from, has_moved);
            return self.announce_stream_to_reader(id).await;
        };
        shown.position.search(wanted_from, has_moved);
        let is_released = std::mem::take(&mut shown.is_released);
        let key = shown.key;
        stream.shown = shown;
        if is_released {
            self.send_event(SourceEvent::StreamHold {
                stream: key,
                is_holding: true,
            })
            .await?;
        }
        Ok(())
    }

    /// Announces a trace that the reader does not know, with the metadata that there is.
    pub(super) async fn announce_trace(&mut self, id: SessionTraceId) -> Result<(), AttachError> {
        let Some(trace) = self.traces.get_mut(&id) else {
            return Ok(());
        };
        let shown = &mut trace.shown;
        if shown.phase == Phase::Followed {
            return Ok(());
        }
        if shown.phase == Phase::Ended {
            // A key is announced once: the reader has forgotten this one.
            shown.key = TraceKey::fresh();
        }
        shown.phase = Phase::Followed;
        let (trace, name) = (shown.key, shown.name.clone());
        let session = shown.session.clone();
        let bytes = shown.metadata().to_vec();
        self.send_event(SourceEvent::Trace {
            trace,
            name,
            session: Some(session),
        })
        .await?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.hand_over_metadata(trace, bytes).await
    }

    /// Announces a stream that the reader does not know: a new one, or one that has ended and of
    /// which there is more nevertheless.
    pub(super) async fn announce_stream_to_reader(
        &mut self,
        id: StreamId,
    ) -> Result<(), AttachError> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(());
        };
        if stream.shown.phase == Phase::Followed {
            return Ok(());
        }
        let trace = stream.trace;
        self.announce_trace(trace).await?;
        let trace = self.traces.get(&trace).map(|trace| trace.shown.key);
        let (Some(trace), Some(stream)) = (trace, self.streams.get_mut(&id)) else {
            return Ok(());
        };
        let shown = &mut stream.shown;
        if shown.phase == Phase::Ended {
            shown.key = StreamKey::fresh();
            // The reader knows nothing of the new key: watermarks begin again.
            shown.watermark = None;
        }
        shown.phase = Phase::Followed;
        let event = SourceEvent::Stream {
            stream: shown.key,
            trace,
            name: shown.name.clone(),
            backlog: shown.backlog.clone(),
            is_newcomer: self.has_listed && self.has_sent_packet,
        };
        self.send_event(event).await
    }

    /// Whether anything that was followed when the connection was lost has not been found again.
    pub(super) fn has_orphans(&self) -> bool {
        let mut traces = self.traces.values();
        self.resume.has_orphans()
            || traces
                .any(|trace| trace.unidentified.is_some() || trace.shown.has_followed_streams())
    }

    /// Ends the sessions that had ended before the connection was lost and that are not listed any
    /// more, and when the grace period is over, everything else that has not been found again.
    pub(super) async fn end_orphans_if_due(&mut self) -> Result<(), AttachError> {
        let Some(due) = self.resume.orphans_due else {
            return Ok(());
        };
        if Instant::now() < due {
            if self.resume.has_moved {
                // Another relay may list them with some delay.
                return Ok(());
            }
            let is_over = |session: &RetainedSession| session.is_over;
            return self.end_retained_sessions(is_over).await;
        }
        self.resume.orphans_due = None;
        let unidentified = self.traces.iter();
        let unidentified = unidentified.filter(|(_, trace)| trace.unidentified.is_some());
        for id in unidentified.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.identify_trace(id, true).await?;
        }
        for id in self.traces.keys().copied().collect::<Vec<_>>() {
            self.end_orphan_streams(id).await?;
        }
        self.end_retained_sessions(|_| true).await?;
        for (id, trace) in self.resume.take_followed_traces(|_| true) {
            let text = format!("trace {}: {}", trace.name, self.describe_absence("it"));
            self.end_retained_trace(id, trace).await?;
            self.send_missing(text).await?;
        }
        // A list of the sessions tells whether anything is left to be followed.
        self.list_due = Instant::now();
        Ok(())
    }

    /// Ends the streams of a trace that were followed on an earlier connection and have not been
    /// announced on this one.
    pub(super) async fn end_orphan_streams(
        &mut self,
        id: SessionTraceId,
    ) -> Result<(), AttachError> {
        let Some(trace) = self.traces.get_mut(&id) else {
            return Ok(());
        };
        let mut ended = Vec::new();
        for stream in trace.shown.followed_streams() {
            stream.phase = Phase::Ended;
            ended.push(stream.key);
        }
        if ended.is_empty() {
            return Ok(());
        }
        let name = trace.shown.name.clone();
        let streams = format!("{} of its streams", ended.len());
        let text = format!("trace {name}: {}", self.describe_absence(&streams));
        for stream in ended {
            self.send_event(SourceEvent::StreamEnd { stream }).await?;
        }
        self.send_missing(text).await
    }

    /// Ends sessions that were attached on an earlier connection and are not listed on this one.
    async fn end_retained_sessions(
        &mut self,
        is_ended: impl Fn(&RetainedSession) -> bool,
    ) -> Result<(), AttachError> {
        let sessions = std::mem::take(&mut self.resume.sessions);
        let (ended, kept): (Vec<_>, _) = sessions.into_iter().partition(is_ended);
        self.resume.sessions = kept;
        let kept = self.resume.sessions.iter();
        let kept = kept.map(|session| session.name.clone());
        let attached = self.sessions.values().map(|session| session.name.clone());
        // Of two sessions of one name, the traces may be the other's.
        let kept: HashSet<String> = kept.chain(attached).collect();
        for session in ended {
            let mut is_missing = !session.is_over;
            let is_its = |name: &str| name == session.name && !kept.contains(name);
            for (id, mut trace) in self.resume.take_followed_traces(is_its) {
                is_missing |= trace.followed_streams().next().is_some();
                self.end_retained_trace(id, trace).await?;
            }
            let name = &session.name;
            if is_missing {
                let text = format!("session {name}: {}", self.describe_absence("it"));
                self.send_missing(text).await?;
            } else {
                self.send_notice(format_args!("session {name} has ended"))
                    .await?;
            }
            self.list_due = Instant::now();
        }
        Ok(())
    }

    async fn end_retained_trace(
        &mut self,
        id: SessionTraceId,
        mut trace: ShownTrace,
    ) -> Result<(), AttachError> {
        let ends = trace.end();
        self.resume.retain_trace(id, trace);
        for event in ends {
            self.send_event(event).await?;
        }
        Ok(())
    }

    fn describe_absence(&self, what: &str) -> String {
        let relay = match self.relay.is_one_of_several {
            true => "none of the relays has",
            false => "the relay does not have",
        };
        format!("{relay} {what} any more; what had not been sent is missing")
    }

    async fn send_missing(&mut self, text: String) -> Result<(), AttachError> {
        self.resume.is_incomplete = true;
        let text = format!("{}: {text}", self.target);
        self.send_event(SourceEvent::Missing(text)).await
    }
}
