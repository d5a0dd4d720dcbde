//! What events mean besides their fields: names, spans and calls, processes. Filters, sinks, the
//! timeline and `test-live top` ask here, so that they agree.
//!
//! Read in this order: `kind` (which events begin and end spans), `event_name`, `calls` (recordings
//! of CodeTracer), `flows` (messages), `environment` and `process_context` (the process of an
//! event), `process_names` (what events tell of other processes), `debug_info` (functions and
//! source lines), `interpreted_fields` (whose an event is, and of which span), `kernel_threads`,
//! `threads`, `name_numbers`; `span_owners` and `span_edges` (begins and ends of spans, from
//! whatever source), `span_observer`, `whole_spans`, `span_times` and `span_meter` (how long spans
//! take), `duration_histogram` (percentiles).

/// The methods of a `Visitor` that count in its `depth` how deep a field is in its scope, 1 for the
/// members of the scope, and keep in `in_payload` whether the scope is the payload.
macro_rules! visit_depth {
    () => {
        fn begin_scope(&mut self, scope: ctf::model::Scope) {
            self.depth = 0;
            self.in_payload = scope == ctf::model::Scope::Payload;
        }

        fn begin_structure(&mut self) {
            self.depth += 1;
        }

        fn end_structure(&mut self) {
            self.depth = self.depth.saturating_sub(1);
        }

        fn begin_array(&mut self, _length: u64) {
            self.begin_structure();
        }

        fn end_array(&mut self) {
            self.end_structure();
        }
    };
}

pub mod calls;
pub mod debug_info;
pub mod duration_histogram;
pub mod environment;
pub mod event_name;
pub mod flows;
pub mod interpreted_fields;
pub mod kernel_threads;
pub mod kind;
pub mod name_numbers;
pub mod process_context;
pub mod process_names;
pub mod span_edges;
pub mod span_meter;
pub mod span_observer;
pub mod span_owners;
mod span_times;
pub mod threads;
mod whole_spans;
