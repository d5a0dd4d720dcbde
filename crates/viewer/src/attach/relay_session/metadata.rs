//! Metadata: fetched until there is none, before anything that may need it is passed on.

use viewer_proto::metadata::MetadataStatus;
use wire::SessionId;

use super::{RelaySession, SessionTraceId};
use crate::attach::error::AttachError;
use crate::attach::metadata_piece::{MAX_WAITING_METADATA_BYTES, MetadataPiece};
use crate::attach::shown_trace::Phase;
use crate::attach::{SourceEvent, TraceKey};

/// Number of replies without a byte after which a trace's metadata is requested again only with
/// everything else, and no longer at once.
const MAX_EMPTY_REPLIES: u32 = 4;

impl RelaySession {
    /// Fetches metadata where there may be any, and announces new traces as long as the reader has
    /// not enough to parse. Returns whether there was any.
    pub(super) async fn request_metadata(&mut self) -> Result<bool, AttachError> {
        let asked = self.traces.iter().filter_map(|(id, trace)| {
            (trace.is_waiting || trace.may_have_metadata).then_some((trace.is_waiting, *id))
        });
        let mut asked: Vec<(bool, SessionTraceId)> = asked.collect();
        // Those that are not new come first: their packets may need it.
        asked.sort_unstable();
        self.is_metadata_pushed = false;
        let (mut is_progress, mut has_admitted) = (false, false);
        for (is_waiting, id) in asked {
            if is_waiting {
                if self.is_metadata_backlog_full() {
                    break;
                }
                if let Some(trace) = self.traces.get_mut(&id) {
                    trace.is_waiting = false;
                }
                has_admitted = true;
                self.announce_trace(id).await?;
            }
            is_progress |= self.fetch_metadata(id).await?;
        }
        if has_admitted {
            self.announce_streams_of_admitted_traces().await?;
        }
        Ok(is_progress)
    }

    /// Announces new streams after the metadata: one without packets holds the events of others
    /// back. The streams that a session begins with are announced together, because their events
    /// must be put in order.
    async fn announce_streams_of_admitted_traces(&mut self) -> Result<(), AttachError> {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in sessions {
            let has_begun = !self.awaits_first_traces(id);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.has_begun = has_begun;
            }
        }
        let is_admitted = |id: &SessionTraceId| {
            let session = self.sessions.get(&id.0);
            let trace = self.traces.get(id);
            session.is_some_and(|session| session.has_begun)
                && trace.is_some_and(|trace| !trace.is_waiting && trace.unidentified.is_none())
        };
        let streams = self.streams.iter().filter_map(|(id, stream)| {
            let is_new = stream.shown.phase == Phase::Unannounced && is_admitted(&stream.trace);
            is_new.then_some(*id)
        });
        for stream in streams.collect::<Vec<_>>() {
            self.resume_stream(stream).await?;
        }
        Ok(())
    }

    /// Whether the reader has so much metadata to parse that it gets none of further traces.
    pub(super) fn is_metadata_backlog_full(&self) -> bool {
        self.metadata_backlog.bytes() >= MAX_WAITING_METADATA_BYTES
    }

    /// The number of new traces that wait to be announced.
    pub(super) fn waiting_traces(&self) -> usize {
        let traces = self.traces.values();
        traces.filter(|trace| trace.is_waiting).count()
    }

    /// Hands over metadata of a trace.
    pub(super) async fn hand_over_metadata(
        &self,
        trace: TraceKey,
        bytes: Vec<u8>,
    ) -> Result<(), AttachError> {
        let bytes = MetadataPiece::new(bytes, &self.metadata_backlog);
        self.send_event(SourceEvent::Metadata { trace, bytes })
            .await
    }

    /// Fetches what there is of a trace's metadata. Returns whether there was any, or it is
    /// complete.
    pub(super) async fn fetch_metadata(&mut self, id: SessionTraceId) -> Result<bool, AttachError> {
        let mut is_progress = false;
        let mut empty = 0;
        loop {
            let Some(trace) = self.traces.get_mut(&id) else {
                return Ok(is_progress);
            };
            trace.may_have_metadata = false;
            let Some(stream) = trace.metadata.filter(|_| !trace.is_complete) else {
                return Ok(is_progress);
            };
            let (status, bytes) = self.connection.metadata(stream).await?;
            match status {
                MetadataStatus::Ok if bytes.is_empty() => {
                    empty += 1;
                    if empty == MAX_EMPTY_REPLIES {
                        trace.may_have_metadata = true;
                        return Ok(is_progress);
                    }
                }
                MetadataStatus::Ok => {
                    is_progress = true;
                    self.has_read = true;
                    self.send_metadata(id, bytes).await?;
                }
                MetadataStatus::NoNew => {
                    // Some relays reply this forever for metadata that was never written.
                    let session = self.sessions.get(&id.0);
                    let is_over = session.is_none_or(|session| session.is_over);
                    trace.is_complete |= is_over && !trace.has_metadata();
                    return Ok(is_progress);
                }
                MetadataStatus::Failed => {
                    trace.is_complete = true;
                    // lttng-relayd replies this, too, for metadata that is complete and closed.
                    if !trace.has_metadata() {
                        let name = &trace.shown.name;
                        let text =
                            format!("cannot get metadata of trace {name}: refused by the relay");
                        self.send_error(text).await?;
                    }
                    return Ok(true);
                }
            }
        }
    }

    async fn send_metadata(
        &mut self,
        id: SessionTraceId,
        bytes: Vec<u8>,
    ) -> Result<(), AttachError> {
        let Some(trace) = self.traces.get_mut(&id) else {
            return Ok(());
        };
        if let Some(unidentified) = &mut trace.unidentified {
            unidentified.extend_from_slice(&bytes);
            return self.identify_trace(id, false).await;
        }
        let is_first = !trace.has_metadata();
        let bytes = trace.shown.take_new_metadata(bytes);
        let (trace, phase) = (trace.shown.key, trace.shown.phase);
        if is_first {
            let streams = self.streams.values_mut();
            for own in streams.filter(|stream| stream.trace == id) {
                // A packet may have waited for this.
                own.may_have_packets = true;
            }
        }
        // Of a trace that has ended, all of it is handed over if there is anything new.
        if phase != Phase::Followed || bytes.is_empty() {
            return Ok(());
        }
        self.hand_over_metadata(trace, bytes).await
    }
}
