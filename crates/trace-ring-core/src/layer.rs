//! The layer for `tracing_subscriber`.
//!
//! Each event of the program becomes an event of the same fields; the message is the field
//! `message`. A span becomes `span:new`, `span:enter`, `span:exit`, `span:record` and `span:close`,
//! each with the id of the span in the field `span` and its name in `name`; `span:new` has the id
//! of the parent in `parent` (0 = none). Ids are unique among the spans that are open. Fields of a
//! span have their names, with an underscore when the name is one of these three.
//!
//! Integers are i64 or u64, as `tracing` gives them; what has only `Debug` or `Display` becomes a
//! string.

mod append_list;
mod field_buffer;
mod filter_watch;
mod tracing_sites;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use self::field_buffer::{EventKind, FieldBuffer};
use self::tracing_sites::TracingSite;
use crate::producer::filter_words;

/// Returns a layer that writes events and spans to the rings of this process:
/// `tracing_subscriber::registry().with(trace_ring_core::layer()).init()`.
///
/// Cannot fail: a program that can make no ring runs on without, after one line on stderr.
/// `TRACE_RING_FILTER`, or the filter set from outside while the program runs, decides what the
/// layer writes, and nothing else: other layers see what they would see without this one. An event
/// that no layer wants costs one load. For that a thread, which sleeps, waits for a changed filter.
pub fn layer<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    crate::init().then(|| {
        filter_watch::start();
        RingLayer.with_filter(RingFilter)
    })
}

/// What the filter of the rings lets pass, for `tracing`.
#[derive(Debug)]
struct RingFilter;

impl<S> Filter<S> for RingFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        // Not seen before: the call site is asked again before anything is written.
        TracingSite::find(metadata).is_none_or(TracingSite::is_enabled)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if !filter_watch::is_running() {
            Interest::sometimes()
        } else if TracingSite::of(metadata).is_enabled() {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        if !filter_watch::is_running() {
            return None;
        }
        // The codes of the severities are in the order of the levels.
        let levels = [
            LevelFilter::OFF,
            LevelFilter::ERROR,
            LevelFilter::WARN,
            LevelFilter::INFO,
            LevelFilter::DEBUG,
        ];
        let index = usize::try_from(filter_words().max_severity()).ok();
        let level = index.and_then(|index| levels.get(index).copied());
        Some(level.unwrap_or(LevelFilter::TRACE))
    }
}

/// Writes what the filter lets pass.
#[derive(Debug)]
struct RingLayer;

impl<S> Layer<S> for RingLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let site = TracingSite::of(event.metadata());
        if site.is_enabled() {
            FieldBuffer::with(EventKind::Event, |buffer| {
                event.record(buffer);
                site.write(EventKind::Event, buffer);
            });
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        let site = TracingSite::of(metadata);
        if !site.is_enabled() {
            return;
        }
        let parent = context.span(id).and_then(|span| span.parent());
        FieldBuffer::with(EventKind::SpanNew, |buffer| {
            buffer.put_own_number(id.into_u64());
            buffer.put_own_text(metadata.name());
            buffer.put_own_number(parent.map_or(0, |parent| parent.id().into_u64()));
            attributes.record(buffer);
            site.write(EventKind::SpanNew, buffer);
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        write_span(EventKind::SpanRecord, id, &context, |buffer| {
            values.record(buffer)
        });
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        write_span(EventKind::SpanEnter, id, &context, |_| {});
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        write_span(EventKind::SpanExit, id, &context, |_| {});
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        write_span(EventKind::SpanClose, &id, &context, |_| {});
    }
}

/// Writes an event of a span that was made earlier, when the filter lets it pass now.
fn write_span<S>(
    kind: EventKind,
    id: &Id,
    context: &Context<'_, S>,
    record: impl FnOnce(&mut FieldBuffer),
) where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let Some(metadata) = context.span(id).map(|span| span.metadata()) else {
        return;
    };
    let site = TracingSite::of(metadata);
    if !site.is_enabled() {
        return;
    }
    FieldBuffer::with(kind, |buffer| {
        buffer.put_own_number(id.into_u64());
        buffer.put_own_text(metadata.name());
        record(buffer);
        site.write(kind, buffer);
    });
}
