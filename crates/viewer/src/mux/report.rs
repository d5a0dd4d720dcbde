//! What sources report: most of it changes the mux, the rest is for users.

use super::{Mux, Stage};
use crate::attach::SourceEvent;
use crate::sink::SinkError;

/// A report of a source for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Something that is no failure. ([`SourceEvent::Notice`])
    Notice(String),
    /// Something could not be read, and the source continues. ([`SourceEvent::Missing`])
    Missing(String),
    /// The source has failed. ([`SourceEvent::Failed`])
    Failed(String),
}

impl Mux {
    /// Handles what a source reports, and returns what is for users.
    ///
    /// # Errors
    /// If metadata cannot be shown.
    pub fn handle(
        &mut self,
        event: SourceEvent,
        stage: &mut impl Stage,
    ) -> Result<Option<Report>, SinkError> {
        match event {
            SourceEvent::Trace { trace, name, .. } => self.add_trace(trace, name),
            SourceEvent::Metadata { trace, bytes } => self.extend_metadata(trace, &bytes, stage)?,
            SourceEvent::Stream {
                stream,
                trace,
                name,
                backlog,
                is_newcomer,
            } => {
                self.add_stream(stream, trace, name, backlog);
                if is_newcomer {
                    self.set_newcomer(stream);
                }
            }
            SourceEvent::Packet { stream, packet } => self.push_packet(stream, packet, stage),
            SourceEvent::Watermark { stream, until } => self.advance_watermark(stream, until),
            SourceEvent::StreamHold { stream, is_holding } => self.set_holding(stream, is_holding),
            SourceEvent::StreamEnd { stream } => self.end_stream(stream),
            SourceEvent::TraceEnd { trace } => self.end_trace(trace),
            SourceEvent::Notice(text) => return Ok(Some(Report::Notice(text))),
            SourceEvent::Missing(text) => return Ok(Some(Report::Missing(text))),
            SourceEvent::Failed(text) => return Ok(Some(Report::Failed(text))),
            SourceEvent::CaughtUp | SourceEvent::Done => {}
        }
        Ok(None)
    }
}
