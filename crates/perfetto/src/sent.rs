//! Events that programs have sent in Trace Event Format.

use tef::Event;
use tef::json_args::visit_object;
use tef::open_slices::EndOf;

use crate::canvas::Canvas;
use crate::fields::EventFields;
use crate::tracks::{Host, Owner, Place, hash};
use crate::{Argument, CounterValue, Mark, Value};

/// Draws events that were sent in Trace Event Format.
#[derive(Debug, Default)]
pub struct SentEvents {
    /// The arguments of an event.
    fields: EventFields,
}

impl SentEvents {
    /// Draws an event at `time`, of a trace of this name. Returns where; nothing is drawn for an
    /// event that names a process or thread.
    pub fn draw(
        &mut self,
        sent: &Event<'_>,
        time: i64,
        (host, trace): (Host<'_>, &str),
        canvas: &mut Canvas,
    ) -> Option<Place> {
        let owner = Owner {
            host,
            trace,
            process: sent.process(),
            process_name: None,
            thread: sent.thread(),
            thread_name: None,
            cpu: 0,
            is_recording: false,
        };
        self.fields.begin_event(false);
        if let Some(args) = sent.args {
            visit_object(args, &mut self.fields);
        }
        if sent.phase == "M" {
            canvas.encoder.set_time(time);
            self.rename(sent, owner, time, canvas);
            return None;
        }
        let place = canvas.place(&owner, time);
        self.draw_at(sent, time, place, canvas);
        Some(place)
    }

    /// Names a process or thread.
    fn rename(&mut self, sent: &Event<'_>, owner: Owner<'_>, time: i64, canvas: &mut Canvas) {
        let name = self.fields.take_text("name");
        let name = Some(name.as_str());
        match sent.name.as_deref() {
            Some("process_name") => {
                canvas.name_process(&Owner {
                    process_name: name,
                    thread: None,
                    ..owner
                });
            }
            Some("thread_name") => {
                let owner = Owner {
                    thread_name: name,
                    ..owner
                };
                canvas.place(&owner, time);
            }
            _ => {}
        }
    }

    fn draw_at(&mut self, sent: &Event<'_>, time: i64, place: Place, canvas: &mut Canvas) {
        if sent.phase == "C" {
            return self.draw_counters(sent, time, place, canvas);
        }
        let mark = self.mark(sent);
        let is_async = matches!(sent.phase, "b" | "e" | "n" | "S" | "T" | "p" | "F")
            && [sent.id, sent.id2_local, sent.id2_global]
                .iter()
                .any(Option::is_some);
        let of = match (mark.name.is_empty(), is_async) {
            (true, _) => EndOf::Innermost,
            (false, true) => EndOf::Asynchronous(mark.name.as_str()),
            (false, false) => EndOf::Name(mark.name.as_str()),
        };
        let place = match is_async {
            true => canvas.asynchronous(place, async_id(sent), &mark.name),
            false => place,
        };
        let end = |canvas: &mut Canvas, place, mark: &Mark| {
            let arguments = mark.arguments.clone();
            let is_ended = canvas.end(place, time, of, |ended| ended.arguments.extend(arguments));
            if !is_ended {
                // The begin is not known: a point in time is left of the slice.
                canvas.instant(place, time, mark);
            }
        };
        match sent.phase {
            "B" => canvas.begin(place, time, None, mark),
            "b" | "S" if is_async => canvas.begin(place, time, None, mark),
            "E" => end(canvas, place, &mark),
            "e" | "F" if is_async => end(canvas, place, &mark),
            "X" | "T" if sent.dur.is_some() => {
                let dur = sent.dur.unwrap_or(0).max(0);
                canvas.slice(place, time, Some(time.saturating_add(dur)), &mark);
            }
            _ => canvas.instant(place, time, &mark),
        }
    }

    /// Draws the numbers of the arguments, each as a counter.
    fn draw_counters(&mut self, sent: &Event<'_>, time: i64, place: Place, canvas: &mut Canvas) {
        let mut name = sent.name.as_deref().unwrap_or_default().to_owned();
        if let Some(id) = sent.id {
            name = format!("{name} ({id})");
        }
        for Argument { name: of, value } in self.fields.take_arguments() {
            let number = match value {
                Value::Unsigned(value) => CounterValue::from(value),
                Value::Signed(value) => CounterValue::Integer(value),
                Value::Float(value) => CounterValue::Float(value),
                _ => continue,
            };
            match &*of {
                "value" => canvas.counter(place.parent, &name, time, number),
                of => canvas.counter(place.parent, &format!("{name} {of}"), time, number),
            }
        }
    }

    fn mark(&mut self, sent: &Event<'_>) -> Mark {
        let mut arguments = self.fields.take_arguments();
        for (name, time) in [("tts", sent.tts), ("tdur", sent.tdur)] {
            if let Some(time) = time {
                arguments.push(Argument::new(name, Value::Signed(time)));
            }
        }
        let rest = sent.rest_without_owners();
        if !rest.is_empty() {
            self.fields.begin_event(false);
            visit_object(&rest, &mut self.fields);
            let rest = self.fields.take_arguments();
            if !rest.is_empty() {
                arguments.push(Argument::new("other", Value::Structure(rest)));
            }
        }
        let mut mark = Mark {
            name: sent.name.as_deref().unwrap_or_default().into(),
            category: sent.cat.as_deref().unwrap_or_default().into(),
            arguments,
            ..Mark::default()
        };
        match (sent.phase, sent.bind_id) {
            ("s" | "t", _) => mark.flows.push(hash(("flow", async_id(sent)))),
            ("f", _) => mark.ending_flows.push(hash(("flow", async_id(sent)))),
            (_, Some(bind)) => mark.flows.push(hash(("bind", bind))),
            _ => {}
        }
        mark
    }
}

/// What distinguishes an asynchronous slice or a flow from others.
fn async_id<'a>(sent: &'a Event<'_>) -> impl std::hash::Hash + 'a {
    let category = sent.cat.as_deref().unwrap_or_default();
    (
        category,
        sent.scope.as_deref(),
        sent.id,
        sent.id2_local,
        sent.id2_global,
    )
}
