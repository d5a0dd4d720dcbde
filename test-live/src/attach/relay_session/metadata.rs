//! Metadata: fetched until there is none, before anything that may need it is passed on.

use viewer_proto::metadata::MetadataStatus;

use super::{RelaySession, SessionTraceId};
use crate::attach::SourceEvent;
use crate::attach::error::AttachError;
use crate::attach::shown_trace::Phase;

/// Number of replies without a byte after which a trace's metadata is requested again only with
/// everything else, and no longer at once.
const MAX_EMPTY_REPLIES: u32 = 4;

impl RelaySession {
    /// Fetches metadata where there may be any. Returns whether there was.
    pub(super) async fn request_metadata(&mut self) -> Result<bool, AttachError> {
        let asked: Vec<SessionTraceId> = self
            .traces
            .iter()
            .filter_map(|(id, trace)| trace.may_have_metadata.then_some(*id))
            .collect();
        self.is_metadata_pushed = false;
        let mut is_progress = false;
        for trace in asked {
            is_progress |= self.fetch_metadata(trace).await?;
        }
        Ok(is_progress)
    }

    /// Fetches what there is of a trace's metadata. Returns whether there was any, or it is complete.
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
        self.send_event(SourceEvent::Metadata { trace, bytes })
            .await
    }
}
