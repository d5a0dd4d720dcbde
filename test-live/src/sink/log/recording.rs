//! What a program did in a recording of CodeTracer. The numbers of paths, types and variables, and
//! what packets need, are not for people.

use std::io::Write;

use ::tef::json_args::visit_object;
use ctf::decode::{Event, FieldError, Visitor};
use ctf::model::Scope;
use daemon::event_text::EventSource;
use daemon::open_spans::{EndedSpan, SpanEdge};
use viewer::interpret::calls::{CallRecord, plain_json};
use viewer::interpret::threads::{Host, OwnerKey, Thread, ThreadKey};

use super::fields::{LogFields, Omitted};
use super::{Head, Log, TRACE_CLOCK};

/// The kinds of `ct:log`, by their numbers.
const LOG_KINDS: [&str; 14] = [
    "write",
    "write file",
    "write other",
    "read",
    "read file",
    "read other",
    "read directory",
    "open directory",
    "close directory",
    "socket",
    "open",
    "error",
    "trace log",
    "EVM",
];

impl<W: Write> Log<W> {
    /// Writes an event of a recording.
    pub(super) fn write_recorded(
        &mut self,
        event: &Event<'_>,
        head: Head<'_>,
        record: &CallRecord,
    ) -> Result<(), FieldError> {
        // Copied, because the rest of the sink changes while the name is in use.
        let program = self.recordings.program(head.trace).map(str::to_owned);
        let head = Head {
            environment: head.environment.of_program(program.as_deref()),
            ..head
        };
        match record {
            CallRecord::None => {}
            CallRecord::Begin(name, args) => self.write_call_begin(head, name, args),
            CallRecord::End(name, args) => self.write_call_end(head, name, args),
            CallRecord::Instant => {
                self.fields.begin_event(Omitted::ShownAndInternal {
                    captured: json_member(head.name),
                    has_cpus: false,
                    has_span_ids: false,
                });
                event.visit(&mut self.fields)?;
                self.write_moment(head);
            }
        }
        Ok(())
    }

    pub(super) fn write_call_begin(&mut self, head: Head<'_>, name: &str, args: &[u8]) {
        let key = thread(head);
        self.collect_members(args);
        self.begin_recorded_line(head, self.spans.depth(&key));
        self.line.push_phase("->", name);
        self.line.end(self.fields.texts(), &mut self.out);
        let edge = edge(head, name);
        self.spans.begin(key, head.trace.0, edge, ());
    }

    pub(super) fn write_call_end(&mut self, head: Head<'_>, name: &str, args: &[u8]) {
        self.collect_members(args);
        let ended: EndedSpan = self.spans.end(&thread(head), edge(head, name));
        self.begin_recorded_line(head, ended.depth);
        self.line.push_phase("<-", name);
        self.line.push_duration(ended.duration);
        self.line.end(self.fields.texts(), &mut self.out);
    }

    /// Writes what is no call, whose fields have been collected.
    pub(super) fn write_moment(&mut self, head: Head<'_>) {
        let text = moment_text(head.name, &mut self.fields);
        self.begin_recorded_line(head, self.spans.depth(&thread(head)));
        self.line.push_printable(&text);
        self.line.end(["", ""], &mut self.out);
    }

    /// Collects the members of an object, without the braces.
    fn collect_members(&mut self, members: &[u8]) {
        self.fields.begin_event(Omitted::Nothing);
        let members = format!("{{{}}}", String::from_utf8_lossy(members));
        if !visit_object(&members, &mut self.fields) {
            self.fields.push_text("args", &members);
        }
    }

    fn begin_recorded_line(&mut self, head: Head<'_>, depth: usize) {
        let source = EventSource {
            host: head.environment.host.unwrap_or_default(),
            program: head.environment.process_name.unwrap_or_default(),
            pid: None,
            tid: None,
        };
        self.line.begin(head.time, source, head.log_level, depth);
    }
}

/// The one thread of a recording.
fn thread(head: Head<'_>) -> ThreadKey {
    ThreadKey {
        host: Host::OfTrace(head.trace),
        process: None,
        thread: Thread::Id(OwnerKey::Number(0)),
    }
}

fn edge<'n>(head: Head<'_>, name: &'n str) -> SpanEdge<'n> {
    SpanEdge {
        name: Some(name),
        time: head.nanoseconds(),
        clock: TRACE_CLOCK,
        id: None,
    }
}

/// The field of a class that has JSON, or a message.
fn json_member(class: &str) -> &'static str {
    match class {
        "ct:log" => "content",
        "ct:other" => "json",
        "ct:call" => "args",
        _ => "value",
    }
}

/// What an event says, without a control character. `fields` has its fields, and is used again.
fn moment_text(class: &str, fields: &mut LogFields) -> String {
    let named = |name: &str| {
        let mut members = fields.members();
        let found = members.find(|(member, _)| *member == name);
        found.map_or_else(String::new, |(_, text)| text.to_owned())
    };
    let [file, line, variable] = ["file", "line", "variable"].map(named);
    let [function, kind, metadata] = ["function", "kind", "metadata"].map(named);
    let content = fields.captured().to_owned();
    match class {
        "ct:step" => format!("step {file}:{line}"),
        "ct:value" => format!("value {variable}={}", json_text(&content, fields)),
        "ct:return" => format!("return={}", json_text(&content, fields)),
        "ct:call" => format!("call {function} args={}", json_text(&content, fields)),
        "ct:other" => format!("{kind} {}", json_text(&content, fields)),
        "ct:log" => {
            let known = kind
                .parse()
                .ok()
                .and_then(|kind: usize| LOG_KINDS.get(kind));
            let kind = known.map_or(kind, |known| (*known).to_owned());
            // Not more than what the program has written; its last line has an end, as any other.
            let content = content.strip_suffix('\n').unwrap_or(&content);
            match &*metadata {
                "" | "\"\"" => format!("{kind}: {content}"),
                metadata => format!("{kind}: {content} metadata={metadata}"),
            }
        }
        class => class.trim_start_matches("ct:").replace('_', " "),
    }
}

/// JSON of a recording as the text of a field. What cannot be read stays as it is.
fn json_text(json: &str, fields: &mut LogFields) -> String {
    fields.begin_event(Omitted::Nothing);
    fields.begin_scope(Scope::Payload);
    let plain = plain_json(json);
    let object = format!("{{\"value\":{}}}", plain.as_deref().unwrap_or(json));
    if !visit_object(&object, fields) {
        fields.begin_event(Omitted::Nothing);
        fields.push_text("value", json);
    }
    let text = fields.members().next().map(|(_, text)| text.to_owned());
    text.unwrap_or_else(|| json.to_owned())
}
