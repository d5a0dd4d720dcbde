//! Events that programs have sent in Trace Event Format.

use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::event::OwnerId;
use ::tef::json_args::visit_object;
use ::tef::open_slices::EndOf;
use ::tef::perfetto::round_times;
use ::tef::{Event as SentEvent, Record};
use ctf::decode::{Event, FieldError};
use perfetto::{Argument, Mark, Value};
use viewer::sink::{Number, Origin};

use super::super::tef::SentTimes;
use super::canvas::Canvas;
use super::fields::EventFields;
use super::tracks::{Host, Owner, Place, hash};

/// Draws events that were sent in Trace Event Format.
#[derive(Debug, Default)]
pub(super) struct SentRecords {
    decoder: RecordDecoder,
    arguments: Arguments,
}

/// The arguments of an event.
#[derive(Debug, Default)]
struct Arguments {
    fields: EventFields,
}

/// What was drawn: the time, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) time: i64,
    pub(super) place: Place,
}

/// How an event of a class of Trace Event Format was drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sent {
    Drawn(Drawn),
    /// There is nothing to draw.
    Nothing,
    /// The event is to be drawn as any other.
    Other,
}

impl SentRecords {
    /// Draws an event that was sent in Trace Event Format; `now` is the time of one without.
    pub(super) fn draw(
        &mut self,
        event: &Event<'_>,
        times: SentTimes,
        (host, origin): (Host<'_>, Origin<'_>),
        now: i64,
        canvas: &mut Canvas,
    ) -> Result<Sent, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !RecordDecoder::is_known_class(class) {
            return Ok(Sent::Other);
        }
        self.decoder.clear();
        event.visit(&mut self.decoder)?;
        let record = match self.decoder.decode(class) {
            Some(Decoded::Record { record, .. }) => record,
            // What is lost has been reported where all losses are. On the clock of the host these
            // can be shown like any other, on that of the programs not.
            Some(_) if times == SentTimes::Producer => return Ok(Sent::Nothing),
            _ => return Ok(Sent::Other),
        };
        let mut sent = match record {
            Record::Event(sent) => sent,
            Record::Raw(_) if times == SentTimes::Producer => return Ok(Sent::Nothing),
            Record::Raw(_) => return Ok(Sent::Other),
        };
        round_times(&mut sent);
        let time = match (times, event.time()) {
            (SentTimes::Arrival, Some(arrival)) => {
                // A program sends a slice when it ends.
                let took = if sent.phase == "X" { sent.dur } else { None };
                arrival.saturating_sub(took.unwrap_or(0))
            }
            _ => sent.ts.unwrap_or(now),
        };
        let owner = Owner {
            host,
            process: sent.process().map(OwnerId::into_owned),
            process_name: None,
            thread: sent.thread().map(OwnerId::into_owned),
            thread_name: None,
            cpu: 0,
            is_recording: false,
        };
        let arguments = &mut self.arguments;
        arguments.fields.begin_event(false);
        if let Some(args) = sent.args {
            visit_object(args, &mut arguments.fields);
        }
        if sent.phase == "M" {
            canvas.encoder.set_time(time);
            arguments.rename(&sent, owner, (origin, time), canvas);
            return Ok(Sent::Nothing);
        }
        let place = canvas.place(&owner, origin, time);
        arguments.draw_at(&sent, time, place, canvas);
        Ok(Sent::Drawn(Drawn { time, place }))
    }
}

impl Arguments {
    /// Names a process or thread.
    fn rename(
        &mut self,
        sent: &SentEvent<'_>,
        mut owner: Owner<'_>,
        (origin, time): (Origin<'_>, i64),
        canvas: &mut Canvas,
    ) {
        let name = Some(self.fields.take_text("name"));
        match sent.name.as_deref() {
            Some("process_name") => {
                owner.process_name = name;
                owner.thread = None;
                canvas.name_process(&owner, origin);
            }
            Some("thread_name") => {
                owner.thread_name = name;
                canvas.place(&owner, origin, time);
            }
            _ => {}
        }
    }

    fn draw_at(&mut self, sent: &SentEvent<'_>, time: i64, place: Place, canvas: &mut Canvas) {
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
    fn draw_counters(
        &mut self,
        sent: &SentEvent<'_>,
        time: i64,
        place: Place,
        canvas: &mut Canvas,
    ) {
        let mut name = sent.name.as_deref().unwrap_or_default().to_owned();
        if let Some(id) = sent.id {
            name = format!("{name} ({id})");
        }
        for Argument { name: of, value } in self.fields.take_arguments() {
            let number = match value {
                Value::Unsigned(value) => Number::Unsigned(value),
                Value::Signed(value) => Number::Signed(value),
                Value::Float(value) => Number::Float(value),
                _ => continue,
            };
            match &*of {
                "value" => canvas.counter(place.parent, &name, time, number),
                of => canvas.counter(place.parent, &format!("{name} {of}"), time, number),
            }
        }
    }

    fn mark(&mut self, sent: &SentEvent<'_>) -> Mark {
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
            name: sent.name.as_deref().unwrap_or_default().to_owned(),
            category: sent.cat.as_deref().unwrap_or_default().to_owned(),
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
fn async_id<'a>(sent: &'a SentEvent<'_>) -> impl std::hash::Hash + 'a {
    let category = sent.cat.as_deref().unwrap_or_default();
    (
        category,
        sent.scope.as_deref(),
        sent.id,
        sent.id2_local,
        sent.id2_global,
    )
}
