//! Events that programs have sent in Trace Event Format, as a `tldrs` daemon has recorded them.

use std::io::Write;
use std::path::Path;

use ::tef::ctf::Decoded;
use ::tef::event::OwnerId;
use ::tef::json_args::visit_object;
use ::tef::{Event as SentEvent, Record};
use ctf::decode::{Event, FieldError, Visitor};
use ctf::model::Scope;
use daemon::event_text::{EventSource, SourceId};
use daemon::open_spans::{EndedSpan, SpanEdge};
use viewer::interpret::threads::{OwnerKey, Thread, ThreadKey};

use super::fields::{LogFields, Omitted};
use super::{Head, Log, PROGRAM_CLOCK};

/// The name of the metadata that names a process.
const PROCESS_NAME: &str = "process_name";

impl<W: Write> Log<W> {
    /// Writes an event of a class of Trace Event Format. Returns whether it did: what the daemon
    /// says itself, and the events of a foreign producer that uses the name, are to be shown as any
    /// other.
    pub(super) fn write_sent(
        &mut self,
        event: &Event<'_>,
        head: Head<'_>,
    ) -> Result<bool, FieldError> {
        // Decoded values borrow from the decoder while the rest of the sink changes.
        let mut decoder = std::mem::take(&mut self.sent);
        decoder.clear();
        let visited = event.visit(&mut decoder);
        let is_written = match decoder.decode(head.name) {
            // Looked at only here, because the decoder is put back in any case.
            _ if visited.is_err() => false,
            Some(Decoded::Record { record, .. }) => {
                match &record {
                    Record::Event(sent) => self.write_sent_event(sent, head),
                    Record::Raw(line) => self.write_raw(line, head),
                }
                true
            }
            Some(Decoded::Client(client)) => {
                // Users know a program by its name, not by where it lies.
                let exe = Path::new(client.exe).file_name();
                if let (Some(pid), Some(exe)) = (client.pid, exe) {
                    let exe = exe.to_string_lossy();
                    self.names
                        .set_program(head.host, OwnerKey::Number(pid.into()), &exe);
                }
                false
            }
            Some(Decoded::Lost(lost)) => {
                self.write_lost_lines(lost.count, lost.reason, head);
                true
            }
            None => false,
        };
        self.sent = decoder;
        visited.map(|()| is_written)
    }

    pub(super) fn write_sent_event(&mut self, sent: &SentEvent<'_>, head: Head<'_>) {
        let (pid, tid) = (sent.process(), sent.thread());
        let process = pid.as_ref().map(|pid| self.names.owner(pid));
        let thread = tid.as_ref().map(|tid| self.names.owner(tid));
        let name = sent.name.as_deref().filter(|name| !name.is_empty());
        self.fields.begin_event(Omitted::Nothing);
        push_members(&mut self.fields, sent);
        if let ("M", Some(PROCESS_NAME), Some(process)) = (sent.phase, name, process)
            && let Some(name) = sent.args.and_then(process_name)
        {
            self.names.set_program(head.host, process, &name);
        }
        let key = ThreadKey {
            host: head.host,
            process,
            // As viewers take it: an event of no thread is of the first.
            thread: Thread::Id(thread.or(process).unwrap_or(OwnerKey::Number(0))),
        };
        let edge = SpanEdge {
            name,
            time: sent.ts,
            clock: PROGRAM_CLOCK,
            id: None,
        };
        let ended = match sent.phase {
            "E" => self.spans.end(&key, edge),
            "X" => EndedSpan {
                name: None,
                duration: sent.dur.and_then(|duration| u64::try_from(duration).ok()),
                ..EndedSpan::default()
            },
            _ => EndedSpan::default(),
        };
        // After the span has been ended: its end is indented as its begin.
        let depth = self.spans.depth(&key);
        self.begin_sent_line(head, pid.as_ref(), tid.as_ref(), process, depth);
        let begun = ended.name.as_deref().unwrap_or_default();
        self.line.push_phase(sent.phase, name.unwrap_or(begun));
        self.line.push_duration(ended.duration);
        self.line.end(self.fields.texts(), &mut self.out);
        if sent.phase == "B" {
            self.spans.begin(key, head.trace.0, edge, ());
        }
    }

    fn begin_sent_line(
        &mut self,
        head: Head<'_>,
        pid: Option<&OwnerId<'_>>,
        tid: Option<&OwnerId<'_>>,
        process: Option<OwnerKey>,
        depth: usize,
    ) {
        let source = EventSource {
            host: head.environment.host.unwrap_or_default(),
            program: self.names.program(head.host, process),
            pid: pid.map(source_id),
            tid: tid.map(source_id),
        };
        self.line.begin(head.time, source, head.log_level, depth);
    }

    /// Writes a line that is no event.
    fn write_raw(&mut self, json: &str, head: Head<'_>) {
        self.fields.begin_event(Omitted::Nothing);
        push_object(&mut self.fields, "json", json);
        self.begin_sent_line(head, None, None, None, 0);
        self.line.push_printable("raw");
        self.line.end(self.fields.texts(), &mut self.out);
    }

    /// Writes that the daemon has left lines out.
    fn write_lost_lines(&mut self, count: u64, reason: &str, head: Head<'_>) {
        let plural = if count == 1 { "" } else { "s" };
        self.begin_sent_line(head, None, None, None, 0);
        let sentence = format!("{count} line{plural} lost: {reason}");
        self.line.push_loss(&sentence);
        self.line.end(["", ""], &mut self.out);
    }
}

fn source_id<'a>(id: &'a OwnerId<'_>) -> SourceId<'a> {
    match id {
        OwnerId::Number(number) => SourceId::Number(*number),
        OwnerId::Text(text) => SourceId::Text(text),
    }
}

/// Adds the arguments of an event, then its other members, as far as they mean something to people.
fn push_members(fields: &mut LogFields, sent: &SentEvent<'_>) {
    push_object(fields, "args", sent.args.unwrap_or_default());
    push_object(fields, "rest", &sent.rest_without_owners());
    for (name, json) in [
        ("id", sent.id),
        ("id2.local", sent.id2_local),
        ("id2.global", sent.id2_global),
        ("bind_id", sent.bind_id),
    ] {
        if let Some(json) = json {
            // An id may be a number or a text in JSON: people see the same.
            fields.push_text(name, json.trim_matches('"'));
        }
    }
    if let Some(cat) = sent.cat.as_deref().filter(|cat| !cat.is_empty()) {
        fields.push_text("cat", cat);
    }
}

/// Adds the members of a JSON object; what is none is a field of this name.
fn push_object(fields: &mut LogFields, name: &str, json: &str) {
    if json.is_empty() {
        return;
    }
    fields.begin_scope(Scope::Payload);
    if !visit_object(json, fields) {
        fields.push_text(name, json);
    }
}

/// The name of a process in the arguments of the metadata that names it.
fn process_name(args: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Args {
        name: String,
    }
    serde_json::from_str::<Args>(args)
        .ok()
        .map(|args| args.name)
}
