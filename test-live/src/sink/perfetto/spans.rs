//! The fields of spans of `tracing`, which are known before or after a thread enters them.

use std::collections::HashMap;

use ::perfetto::fields::EventFields;
use ::perfetto::tracks::Place;
use ::perfetto::{Argument, TrackId};
use daemon::span_lines::SpanEvent;

/// Largest number of spans whose fields are remembered. With one more, all are forgotten.
const MAX_SPANS: usize = 1 << 16;
/// Largest number of bytes of memory for their fields, about. With more, all are forgotten.
const MAX_BYTES: usize = 32 << 20;
/// Members of the events of a span that are not its fields.
const NOT_FIELDS: [&str; 3] = ["span", "name", "target"];

/// The fields of the spans that exist.
#[derive(Debug, Default)]
pub(super) struct SpanFields {
    /// Fields by the process and the id of the span.
    spans: HashMap<(TrackId, u64), Vec<Argument>>,
    bytes: usize,
}

impl SpanFields {
    /// Learns from an event of this class what it says of a span.
    pub(super) fn learn(&mut self, class: &str, place: Place, fields: &EventFields) {
        let event = SpanEvent::of(class).map(|(event, _)| event);
        let Some(event @ (SpanEvent::New | SpanEvent::Record | SpanEvent::Close)) = event else {
            return;
        };
        let span = fields
            .number(&["span"])
            .and_then(|span| u64::try_from(span).ok());
        let Some(span) = span.map(|span| (place.parent, span)) else {
            return;
        };
        if event != SpanEvent::Record {
            // An id may be used again.
            let forgotten = self.spans.remove(&span).unwrap_or_default();
            let bytes: usize = forgotten.iter().map(Argument::bytes).sum();
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        if event == SpanEvent::Close {
            return;
        }
        if self.spans.len() >= MAX_SPANS || self.bytes >= MAX_BYTES {
            *self = Self::default();
        }
        let known = self.spans.entry(span).or_default();
        for field in &fields.payload {
            if NOT_FIELDS.contains(&&*field.name) {
                continue;
            }
            self.bytes += field.bytes();
            match known.iter_mut().find(|known| known.name == field.name) {
                Some(known) => known.value = field.value.clone(),
                None => known.push(field.clone()),
            }
        }
    }

    /// The fields of a span.
    pub(super) fn fields(&self, place: Place, span: u64) -> &[Argument] {
        self.spans
            .get(&(place.parent, span))
            .map_or(&[], Vec::as_slice)
    }
}
