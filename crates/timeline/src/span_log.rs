//! Where the fields of spans of `tracing` were recorded, and which spans these were within: a
//! thread that enters a span says only its id and name.

use std::collections::VecDeque;

use parking_lot::Mutex;
use viewer::attach::TraceKey;
use viewer::interpret::interpreted_fields::InterpretedFields;

use super::row::EventPlace;

/// Largest number of events that are remembered, of 64 bytes each. With one more, the first is
/// forgotten.
const MAX_EVENTS: usize = 1 << 17;
/// Largest number of spans around a span that are found.
const MAX_PARENTS: usize = 32;
/// Largest number of events of one span that are found.
const MAX_EVENTS_OF_SPAN: usize = 16;

/// A span, until its id is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanKey {
    pub(super) trace: TraceKey,
    pub(super) process: Option<i64>,
    pub(super) id: u64,
}

impl SpanKey {
    /// The span that an event is of, by its fields.
    pub(super) fn of(fields: &InterpretedFields, trace: TraceKey) -> Option<Self> {
        Some(Self {
            trace,
            process: fields.process(),
            id: fields.span?,
        })
    }
}

/// An event with fields of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanFieldsEvent {
    pub(super) span: SpanKey,
    /// Whether the span is a new one. Otherwise some of its fields became known.
    pub(super) is_new: bool,
    /// The id of the span around it, which a new one has.
    pub(super) parent: Option<u64>,
    /// The number of the name.
    pub(super) name: u32,
    pub(super) time: i64,
    pub(super) place: EventPlace,
}

/// What is known of a span.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FoundSpan {
    /// Where its fields were recorded, in order.
    pub(super) events: Vec<EventPlace>,
    /// The names of the spans around it, the outermost first.
    pub(super) parents: Vec<u32>,
}

/// The latest events with fields of spans.
#[derive(Debug, Default)]
pub(super) struct SpanLog(Mutex<VecDeque<SpanFieldsEvent>>);

impl SpanLog {
    pub(super) fn add(&self, event: SpanFieldsEvent) {
        let mut events = self.0.lock();
        if events.len() >= MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// What is known of the span that had a key at a time.
    pub(super) fn find(&self, key: SpanKey, time: i64) -> FoundSpan {
        let events = self.0.lock();
        let is_begin = |event: &SpanFieldsEvent, of: SpanKey| event.is_new && event.span == of;
        let begin = events
            .iter()
            .rposition(|event| is_begin(event, key) && event.time <= time);
        let Some(begin) = begin else {
            return FoundSpan::default();
        };
        let ends = |event: &&SpanFieldsEvent| !is_begin(event, key);
        let rest = events.iter().skip(begin + 1).take_while(ends);
        let of_span = rest.filter(|event| event.span == key);
        let all = events.iter().skip(begin).take(1).chain(of_span);
        let mut found = FoundSpan {
            events: all
                .map(|event| event.place)
                .take(MAX_EVENTS_OF_SPAN)
                .collect(),
            parents: Vec::new(),
        };
        let mut at = begin;
        while let Some(id) = events.get(at).and_then(|event| event.parent)
            && found.parents.len() < MAX_PARENTS
        {
            // A parent is made before what is within it.
            let of = SpanKey { id, ..key };
            let parent = events.range(..at).rposition(|event| is_begin(event, of));
            let Some(parent) = parent else {
                break;
            };
            found
                .parents
                .extend(events.get(parent).map(|event| event.name));
            at = parent;
        }
        found.parents.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_the_fields_and_parents_of_its_own_time_although_ids_are_used_again() {
        let log = SpanLog::default();
        let trace = TraceKey::fresh();
        let key = |id| SpanKey {
            trace,
            process: Some(7),
            id,
        };
        let event = |id, is_new, parent, time: i64| SpanFieldsEvent {
            span: key(id),
            is_new,
            parent,
            name: u32::try_from(time).unwrap(),
            time,
            place: EventPlace {
                packet: 1,
                event: u32::try_from(time).unwrap(),
            },
        };
        for event in [
            event(1, true, None, 10),
            event(2, true, Some(1), 20),
            event(3, true, Some(2), 30),
            event(3, false, None, 40),
            event(2, true, None, 50),
            event(3, true, Some(2), 60),
        ] {
            log.add(event);
        }
        let found = |id, time| {
            let found = log.find(key(id), time);
            let events: Vec<_> = found.events.iter().map(|place| place.event).collect();
            (events, found.parents)
        };
        assert_eq!(found(3, 35), (vec![30, 40], vec![10, 20]));
        assert_eq!(found(3, 70), (vec![60], vec![50]));
        assert_eq!(found(3, 29), (vec![], vec![]));
        let other = SpanKey {
            process: Some(8),
            ..key(3)
        };
        assert_eq!(log.find(other, 70), FoundSpan::default());
    }

    #[test]
    fn number_of_remembered_events_is_bounded() {
        let log = SpanLog::default();
        let trace = TraceKey::fresh();
        for id in 0..2 * MAX_EVENTS as u64 {
            log.add(SpanFieldsEvent {
                span: SpanKey {
                    trace,
                    process: None,
                    id,
                },
                is_new: true,
                parent: Some(id),
                name: 0,
                time: 0,
                place: EventPlace::default(),
            });
        }
        assert_eq!(log.0.lock().len(), MAX_EVENTS);
    }
}
