//! The state from which a relay is followed again after a reconnect: which sessions were attached,
//! and what of each trace and stream has been handed over.
//!
//! A relay may assign other numbers on a new connection, or the same ones to something else. A
//! session is found again by its host and name, a stream by its path and channel, and a trace by
//! its path and its metadata: the relay must still have what was handed over of it, which has the
//! trace's own UUID in it.
//!
//! Traces and streams that are being followed are always remembered. A relay may announce one again
//! on a new connection although it has ended: of those the last ones are remembered. An older one
//! that is announced again is shown again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;
use viewer_proto::session::Seek;
use wire::{SessionId, TraceId};

use super::SourceEvent;
use super::relay_options::Missing;
use super::shown_trace::{MAX_ENDED_STREAMS, MetadataMatch, Phase, ShownStream, ShownTrace};

/// Largest number of traces that have ended and are remembered.
const MAX_ENDED_TRACES: usize = 256;

/// What was attached and handed over, kept from one connection to the next.
#[derive(Debug, Default)]
pub(super) struct ResumeState {
    /// Whether the sessions have been listed on any connection.
    pub(super) has_listed: bool,
    /// Whether any session has been attached.
    pub(super) has_followed: bool,
    /// Whether any trace has been found in a session.
    pub(super) has_had_traces: bool,
    /// Whether the connection was lost, which has been reported, and none is restored.
    pub(super) is_disconnected: bool,
    /// Whether the connections were to more than one address: relays may differ.
    pub(super) has_moved: bool,
    /// Whether the sessions are looked for at one relay after the other, which has been reported.
    pub(super) is_searching: bool,
    /// When what was followed on an earlier connection ends, unless a relay has announced it again.
    /// Absent if everything has been found or ended, and before a relay has answered.
    pub(super) orphans_due: Option<Instant>,
    /// Whether anything that was followed has not been found again.
    pub(super) is_incomplete: bool,
    /// Notified whenever a packet is removed from the backlog of a stream.
    pub(super) packet_removed: Arc<Notify>,
    /// Sessions that were attached when the connection was lost, and have not been found again.
    pub(super) sessions: Vec<RetainedSession>,
    /// Traces that are not attached now, by their names.
    traces: HashMap<String, VecDeque<RetainedTrace>>,
    /// The names of the traces that have ended, in the order in which they ended, each with the
    /// number of its streams.
    ended: VecDeque<(String, usize)>,
    /// The number of streams of all traces that have ended.
    ended_streams: usize,
}

/// A session that was attached when the connection was lost.
#[derive(Debug)]
pub(super) struct RetainedSession {
    /// The session's name for users: `HOST/SESSION`.
    pub(super) name: String,
    /// The place where the session was attached first.
    pub(super) seek: Seek,
    /// Whether the session had ended; packets of it may have been left to read.
    pub(super) is_over: bool,
}

#[derive(Debug)]
struct RetainedTrace {
    /// The numbers of session and trace on the last connection.
    id: (SessionId, TraceId),
    trace: ShownTrace,
}

/// The trace that one on a new connection is.
#[derive(Debug)]
pub(super) enum TraceIdentity {
    /// The trace has not been followed before.
    New,
    Known(ShownTrace),
    /// More of the trace's metadata is needed to tell.
    Undecided,
}

impl ResumeState {
    /// Where to begin in a session that is attached now: not where the options say, if all of it is
    /// new or if there is something to continue.
    pub(super) fn seek(&self, session: &str, first: Seek) -> Seek {
        let retained = self.sessions.iter().find(|known| known.name == session);
        let seek = match retained {
            Some(known) => known.seek,
            None if self.has_listed => Seek::Beginning,
            None => first,
        };
        let mut traces = self.traces.values().flatten().map(|known| &known.trace);
        let has_position = |trace: &ShownTrace| trace.session == session && trace.has_times();
        if traces.any(has_position) {
            // What was handed over is found again by going through the streams from their
            // beginning.
            return Seek::Beginning;
        }
        seek
    }

    /// Keeps a session that is attached while the connection is lost.
    pub(super) fn retain_session(&mut self, session: RetainedSession) {
        self.sessions.push(session);
    }

    /// Removes the retained session of this name, which has been attached again, and returns it.
    pub(super) fn take_session(&mut self, name: &str) -> Option<RetainedSession> {
        let found = self.sessions.iter().position(|known| known.name == name)?;
        Some(self.sessions.swap_remove(found))
    }

    /// Begins anew to look for what was followed, at the next relay that answers.
    pub(super) fn restart_search(&mut self) {
        (self.is_searching, self.orphans_due) = (false, None);
    }

    /// Whether the session was attached when the connection was lost, and may still be found again.
    pub(super) fn awaits_session(&self, name: &str) -> bool {
        let mut sessions = self.sessions.iter();
        self.orphans_due.is_some() && sessions.any(|known| known.name == name)
    }

    /// Keeps a trace with its streams, whether it is followed or has ended.
    pub(super) fn retain_trace(&mut self, id: (SessionId, TraceId), mut trace: ShownTrace) {
        // The reader does not know of the trace: there is nothing to continue.
        if trace.phase == Phase::Unannounced {
            return;
        }
        if trace.phase == Phase::Ended {
            trace.truncate_metadata();
            let streams = trace.retained_streams();
            self.ended_streams += streams;
            self.ended.push_back((trace.name.clone(), streams));
        }
        let same = self.traces.entry(trace.name.clone()).or_default();
        same.push_back(RetainedTrace { id, trace });
        self.evict_ended_traces();
    }

    fn evict_ended_traces(&mut self) {
        while self.ended.len() > MAX_ENDED_TRACES
            || self.ended_streams > MAX_ENDED_STREAMS && self.ended.len() > 1
        {
            let Some((name, streams)) = self.ended.pop_front() else {
                return;
            };
            self.ended_streams -= streams;
            let is_ended = |known: &RetainedTrace| known.trace.phase == Phase::Ended;
            if let Some(same) = self.traces.get_mut(&name)
                && let Some(oldest) = same.iter().position(is_ended)
            {
                same.remove(oldest);
                if same.is_empty() {
                    self.traces.remove(&name);
                }
            }
        }
    }

    /// Whether a trace of this name is retained.
    pub(super) fn has_trace(&self, name: &str) -> bool {
        self.traces.contains_key(name)
    }

    /// Whether a trace of this name was followed when the connection was lost, and has not been
    /// found again.
    pub(super) fn is_followed(&self, name: &str) -> bool {
        let mut same = self.traces.get(name).into_iter().flatten();
        same.any(|known| known.trace.phase == Phase::Followed)
    }

    /// Whether sessions are waited for, and those that have been attached had no trace. A producer
    /// that is killed while it opens its session leaves such a one, and opens another one when it
    /// is started again.
    pub(super) fn awaits_first_trace(&self, missing: Missing) -> bool {
        missing == Missing::Wait && !self.has_had_traces
    }

    /// Whether any session or trace was followed when the connection was lost, and has not been
    /// found again.
    pub(super) fn has_orphans(&self) -> bool {
        let mut traces = self.traces.values().flatten();
        !self.sessions.is_empty() || traces.any(|known| known.trace.phase == Phase::Followed)
    }

    /// Finds the retained trace that has this name and begins with this metadata, and removes it.
    /// `is_final` says that no more metadata will come.
    pub(super) fn take_trace(
        &mut self,
        name: &str,
        id: (SessionId, TraceId),
        metadata: &[u8],
        is_final: bool,
    ) -> TraceIdentity {
        let Some(same) = self.traces.get_mut(name) else {
            return TraceIdentity::New;
        };
        let matches: Vec<MetadataMatch> = same
            .iter()
            .map(|known| known.trace.compare_metadata(metadata))
            .collect();
        // More of its metadata may be that of another with the same beginning.
        let is_undecided = !is_final && matches.contains(&MetadataMatch::Prefix);
        let fits = |found: MetadataMatch| {
            found == MetadataMatch::Whole || is_final && found == MetadataMatch::Prefix
        };
        let candidates = same.iter().zip(matches).enumerate();
        // Metadata tells traces of one name apart best. Among equals the one that is still followed
        // is meant, then that of the same number, then the oldest.
        let best = candidates
            .filter(|(_, (_, found))| fits(*found))
            .max_by_key(|(place, (known, _))| {
                let has_metadata = known.trace.has_metadata();
                let is_followed = known.trace.phase == Phase::Followed;
                (
                    has_metadata,
                    is_followed,
                    known.id == id,
                    std::cmp::Reverse(*place),
                )
            });
        let Some((place, (best, _))) = best else {
            return if is_undecided {
                TraceIdentity::Undecided
            } else {
                TraceIdentity::New
            };
        };
        // Without metadata it matches anything: another one may turn out to match by its metadata.
        if is_undecided && !best.trace.has_metadata() {
            return TraceIdentity::Undecided;
        }
        let Some(known) = same.remove(place) else {
            return TraceIdentity::New;
        };
        if same.is_empty() {
            self.traces.remove(name);
        }
        if known.trace.phase == Phase::Ended
            && let Some(place) = self.ended.iter().position(|(ended, _)| ended == name)
            && let Some((_, streams)) = self.ended.remove(place)
        {
            self.ended_streams -= streams;
        }
        TraceIdentity::Known(known.trace)
    }

    /// Removes the traces of some sessions, by their names, that were followed when the connection
    /// was lost and have not been found again.
    pub(super) fn take_followed_traces(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<((SessionId, TraceId), ShownTrace)> {
        let mut followed = Vec::new();
        for same in self.traces.values_mut() {
            let is_taken = |known: &RetainedTrace| {
                known.trace.phase == Phase::Followed && is_wanted(&known.trace.session)
            };
            let (taken, kept): (Vec<_>, _) = std::mem::take(same).into_iter().partition(is_taken);
            *same = kept.into();
            followed.extend(taken.into_iter().map(|known| (known.id, known.trace)));
        }
        self.traces.retain(|_, same| !same.is_empty());
        // Keys count up: this is the order in which the traces were announced.
        followed.sort_by_key(|(_, trace)| trace.key);
        followed
    }

    /// Ends everything that was followed when the connection was lost: it is not followed again.
    /// Returns the events that say so.
    pub(super) fn end_all(&mut self) -> Vec<SourceEvent> {
        self.sessions.clear();
        let mut events = Vec::new();
        for (id, mut trace) in self.take_followed_traces(|_| true) {
            events.extend(trace.end());
            self.retain_trace(id, trace);
        }
        events
    }

    /// The streams that were followed when the connection was lost.
    pub(super) fn followed_streams(&mut self) -> impl Iterator<Item = &mut ShownStream> {
        let traces = self.traces.values_mut().flatten();
        traces.flat_map(|known| known.trace.followed_streams())
    }
}

#[cfg(test)]
mod tests {
    use viewer_proto::index::{IndexStatus, NextIndex};

    use super::*;
    use crate::attach::Backlog;

    const ID: (SessionId, TraceId) = (SessionId(1), TraceId(1));

    /// A trace with this metadata and a stream.
    fn trace(name: &str, metadata: &[u8], phase: Phase) -> ShownTrace {
        let mut trace = ShownTrace::new("vm/s".to_owned(), name.to_owned(), Seek::Beginning);
        trace.phase = phase;
        trace.record_metadata(metadata);
        let mut stream = ShownStream::new("a/c".to_owned(), Backlog::default());
        stream.phase = phase;
        let index = NextIndex::without_packet(IndexStatus::Ready, 0);
        stream.position.record_packet(&index);
        trace.retain_stream(stream);
        trace
    }

    fn take(resume: &mut ResumeState, metadata: &[u8], is_final: bool) -> TraceIdentity {
        resume.take_trace("vm/s/a", ID, metadata, is_final)
    }

    #[test]
    fn a_trace_is_known_when_its_metadata_is_what_was_handed_over_or_more() {
        let retained = || {
            let mut resume = ResumeState::default();
            resume.retain_trace(ID, trace("vm/s/a", b"uuid 1, and", Phase::Followed));
            resume
        };
        for (metadata, is_final, want) in [
            (&b""[..], false, "undecided"),
            (b"uuid 1", false, "undecided"),
            (b"uuid 1", true, "known"),
            (b"uuid 1, and", false, "known"),
            (b"uuid 1, and more", false, "known"),
            (b"uuid 2", false, "new"),
            (b"uuid 1, but", true, "new"),
        ] {
            let identity = match take(&mut retained(), metadata, is_final) {
                TraceIdentity::New => "new",
                TraceIdentity::Undecided => "undecided",
                TraceIdentity::Known(mut trace) => {
                    let rest = trace.continue_metadata(metadata.to_vec());
                    assert_eq!(rest, metadata.get(11..).unwrap_or_default());
                    "known"
                }
            };
            assert_eq!(identity, want, "{metadata:?}");
        }
        let other = retained().take_trace("vm/s/b", ID, b"uuid 1, and", false);
        assert!(matches!(other, TraceIdentity::New));
    }

    #[test]
    fn of_traces_of_one_name_the_one_with_the_same_metadata_is_known() {
        let mut resume = ResumeState::default();
        for metadata in [&b"uuid 1"[..], b"uuid 2", b""] {
            resume.retain_trace(ID, trace("vm/s/a", metadata, Phase::Followed));
        }
        assert!(matches!(
            take(&mut resume, b"uuid", false),
            TraceIdentity::Undecided
        ));
        let TraceIdentity::Known(known) = take(&mut resume, b"uuid 2 and", false) else {
            panic!("it is known");
        };
        assert_eq!(known.metadata(), b"uuid 2");
        // One without metadata may be any.
        let TraceIdentity::Known(known) = take(&mut resume, b"uuid 3", false) else {
            panic!("it is known");
        };
        assert_eq!(known.metadata(), b"");
        assert!(matches!(
            take(&mut resume, b"uuid 3", false),
            TraceIdentity::New
        ));
        assert!(resume.has_orphans());
        let events = resume.end_all();
        assert_eq!(events.len(), 2);
        assert!(!resume.has_orphans());
    }

    #[test]
    fn the_oldest_ended_traces_are_evicted_and_followed_ones_are_not() {
        let mut resume = ResumeState::default();
        resume.retain_trace(ID, trace("vm/s/followed", b"uuid 0", Phase::Followed));
        for number in 0..10_000 {
            let name = format!("vm/s/{number}");
            resume.retain_trace(ID, trace(&name, b"uuid", Phase::Ended));
        }
        assert_eq!(resume.traces.len(), MAX_ENDED_TRACES + 1);
        assert_eq!(
            (resume.ended.len(), resume.ended_streams),
            (MAX_ENDED_TRACES, MAX_ENDED_TRACES)
        );
        for (name, is_known) in [("followed", true), ("0", false), ("9999", true)] {
            assert_eq!(resume.has_trace(&format!("vm/s/{name}")), is_known);
        }
        let known = resume.take_trace("vm/s/9999", ID, b"uuid", false);
        assert!(matches!(known, TraceIdentity::Known(_)));
        assert_eq!(resume.ended_streams, MAX_ENDED_TRACES - 1);
        let mut large = trace("vm/s/large", b"uuid", Phase::Ended);
        for number in 0..2 * MAX_ENDED_STREAMS {
            let mut stream = ShownStream::new(number.to_string(), Backlog::default());
            stream.phase = Phase::Ended;
            large.retain_stream(stream);
        }
        assert_eq!(large.retained_streams(), MAX_ENDED_STREAMS);
        assert!(large.take_stream("0").is_none() && large.take_stream("8191").is_some());
        resume.retain_trace(ID, large);
        assert!(resume.ended_streams <= MAX_ENDED_STREAMS);
    }

    #[test]
    fn a_session_that_is_continued_is_read_from_the_beginning_if_anything_of_it_was_handed_over() {
        let mut resume = ResumeState::default();
        assert_eq!(resume.seek("vm/s", Seek::Last), Seek::Last);
        resume.has_listed = true;
        assert_eq!(resume.seek("vm/s", Seek::Last), Seek::Beginning);
        resume.retain_session(RetainedSession {
            name: "vm/s".to_owned(),
            seek: Seek::Last,
            is_over: false,
        });
        assert_eq!(resume.seek("vm/s", Seek::Last), Seek::Last);
        let mut shown = trace("vm/s/a", b"uuid", Phase::Followed);
        shown.record_time(7);
        resume.retain_trace(ID, shown);
        assert_eq!(resume.seek("vm/s", Seek::Last), Seek::Beginning);
        assert_eq!(resume.seek("vm/other", Seek::Last), Seek::Beginning);
        assert!(resume.take_session("vm/s").is_some() && resume.take_session("vm/s").is_none());
    }
}
