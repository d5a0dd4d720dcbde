//! Events that programs have sent to a `tldrs` daemon, in Trace Event Format.
//!
//! Their times are on the clock of the program. On the timeline they are moved to the clock of all
//! other events, by a distance that is the same for all events of a client, so that its spans stay
//! nested.

use std::sync::Arc;

use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::event::{Event as SentEvent, OwnerId};
use ctf::decode::{Event, FieldError};
use serde_json::Value;
use viewer::attach::TraceKey;
use viewer::interpret::flows::{Flow, async_key, flow_of};

use super::client_clocks::ClientClocks;
use super::row::Action;
use super::store::Store;
use super::thread_tracks::Id;

/// Series of one counter that are shown.
const MAX_SERIES: usize = 16;

/// What an event that was sent is on the timeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SentAction {
    Nothing,
    /// A process and its name.
    ProcessName(Id, String),
    /// A process and the path of its program.
    Program(Id, String),
    /// A process, its thread, and the name of that.
    ThreadName(Id, Id, String),
    /// Something on the track of a thread, at a time.
    Row {
        process: Option<Id>,
        thread: Id,
        action: Action,
        time: i64,
        /// The flow that it belongs to.
        flow: Option<Flow>,
    },
    /// Something of this category that belongs to no thread.
    Async {
        process: Option<Id>,
        category: Arc<str>,
        action: Action,
        time: i64,
    },
    /// Values of counters at a time.
    Values {
        process: Option<Id>,
        time: i64,
        values: Vec<(String, f64)>,
    },
}

impl SentAction {
    /// The process that the action is about.
    pub(super) fn process(&self) -> Option<&Id> {
        match self {
            Self::Nothing => None,
            Self::ProcessName(process, _)
            | Self::Program(process, _)
            | Self::ThreadName(process, ..) => Some(process),
            Self::Row { process, .. }
            | Self::Async { process, .. }
            | Self::Values { process, .. } => process.as_ref(),
        }
    }

    /// The time of the action on the timeline, in nanoseconds. Absent if it has none.
    pub(super) fn time(&self) -> Option<i64> {
        match self {
            Self::Row { time, .. } | Self::Async { time, .. } | Self::Values { time, .. } => {
                Some(*time)
            }
            _ => None,
        }
    }

    /// The end of the action on the timeline, in nanoseconds: of a span that has ended that of the
    /// span, else the time of the action.
    pub(super) fn end(&self) -> Option<i64> {
        match self {
            Self::Row {
                action: Action::Complete(_, _, end),
                ..
            } => Some(*end),
            _ => self.time(),
        }
    }
}

/// The time of an event that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentTime {
    /// In nanoseconds, as on the timeline.
    At(i64),
    /// No time: the event names processes, threads or clients for all times.
    Always,
}

/// Decodes events that programs have sent, and knows the clock of each program.
#[derive(Debug)]
pub(super) struct SentEvents {
    decoder: RecordDecoder,
    clocks: Arc<ClientClocks>,
}

/// An event that was decoded.
#[expect(clippy::large_enum_variant, reason = "it is on the stack for one call")]
enum Sent<'a> {
    Program(Option<(i64, &'a str)>),
    Event {
        sent: SentEvent<'a>,
        offset: i64,
        arrival: i64,
    },
    Other,
}

impl SentEvents {
    pub(super) fn new(clocks: Arc<ClientClocks>) -> Self {
        Self {
            decoder: RecordDecoder::default(),
            clocks,
        }
    }

    /// What an event is on the timeline. `None` if no program has sent it.
    pub(super) fn record(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
        store: &Store,
    ) -> Result<Option<SentAction>, FieldError> {
        Ok(self.decode(event, trace)?.map(|sent| match sent {
            Sent::Program(Some((pid, exe))) => SentAction::Program(Id::Number(pid), exe.to_owned()),
            Sent::Program(None) | Sent::Other => SentAction::Nothing,
            Sent::Event {
                sent,
                offset,
                arrival,
            } => action(&sent, offset, arrival, store),
        }))
    }

    /// The time of an event on the timeline. `None` if no program has sent it.
    pub(super) fn time(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
    ) -> Result<Option<SentTime>, FieldError> {
        Ok(self.decode(event, trace)?.map(|sent| match sent {
            Sent::Event {
                sent,
                offset,
                arrival,
            } if sent.phase != "M" => SentTime::At(shown_time(&sent, offset, arrival)),
            _ => SentTime::Always,
        }))
    }

    fn decode(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
    ) -> Result<Option<Sent<'_>>, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !RecordDecoder::is_known_class(class) {
            return Ok(None);
        }
        self.decoder.clear();
        event.visit(&mut self.decoder)?;
        let arrival = event.time().unwrap_or(0);
        Ok(match self.decoder.decode(class) {
            None => None,
            Some(Decoded::Client(client)) => {
                if let Some(offset) = client.offset {
                    self.clocks
                        .offset_or_insert_with(trace, client.client, || offset);
                }
                Some(Sent::Program(
                    client.pid.map(|pid| (pid.into(), client.exe)),
                ))
            }
            Some(Decoded::Record {
                client,
                record: Record::Event(sent),
            }) => {
                // A record without a time, such as the name of a process, says nothing about the
                // clock.
                let offset = sent.end().map_or(0, |end| {
                    let arrived = || arrival.saturating_sub(end);
                    self.clocks.offset_or_insert_with(trace, client, arrived)
                });
                Some(Sent::Event {
                    sent,
                    offset,
                    arrival,
                })
            }
            Some(Decoded::Record { .. } | Decoded::Lost(_)) => Some(Sent::Other),
        })
    }
}

/// The time on the timeline, in nanoseconds.
fn shown_time(sent: &SentEvent<'_>, offset: i64, arrival: i64) -> i64 {
    sent.ts.map_or(arrival, |ts| ts.saturating_add(offset))
}

fn action(sent: &SentEvent<'_>, offset: i64, arrival: i64, store: &Store) -> SentAction {
    let process = sent.process().map(OwnerId::into_owned);
    // As viewers take it: an event of no thread is of the first.
    let thread = sent.thread().map(OwnerId::into_owned);
    let thread = thread.or_else(|| process.clone());
    let thread = thread.unwrap_or(Id::Number(0));
    let name = sent.name.as_deref().unwrap_or_default();
    if sent.phase == "M" {
        let named = argument(sent.args, "name");
        return match (name, process, named) {
            ("process_name", Some(process), Some(named)) => SentAction::ProcessName(process, named),
            ("thread_name", Some(process), Some(named)) => {
                SentAction::ThreadName(process, thread, named)
            }
            _ => SentAction::Nothing,
        };
    }
    let time = shown_time(sent, offset, arrival);
    if sent.phase == "C" {
        return SentAction::Values {
            process,
            time,
            values: values(name, sent.args),
        };
    }
    let shown = if name.is_empty() { "<unnamed>" } else { name };
    if let "b" | "e" | "n" = sent.phase {
        let name = store.name(shown);
        return SentAction::Async {
            process,
            category: sent.cat.as_deref().unwrap_or_default().into(),
            action: match sent.phase {
                "b" => Action::AsyncBegin(name, async_key(sent)),
                "e" => Action::AsyncEnd(name, async_key(sent)),
                _ => Action::Instant(name, time),
            },
            time,
        };
    }
    let action = match sent.phase {
        "B" => Action::Begin(store.name(shown)),
        "E" if name.is_empty() => Action::End(None),
        "E" => Action::End(Some(store.name(name))),
        "X" => {
            let end = time.saturating_add(sent.dur.unwrap_or(0));
            Action::Complete(store.name(shown), time, end)
        }
        _ => Action::Instant(store.name(shown), time),
    };
    SentAction::Row {
        process,
        thread,
        action,
        time,
        flow: flow_of(sent),
    }
}

/// A text in the object `args`.
fn argument(args: Option<&str>, name: &str) -> Option<String> {
    let args: Value = serde_json::from_str(args?).ok()?;
    args.get(name)?.as_str().map(str::to_owned)
}

/// The numbers in the object `args`, each a series of the counter `name`.
fn values(name: &str, args: Option<&str>) -> Vec<(String, f64)> {
    let args = args.and_then(|args| serde_json::from_str(args).ok());
    let Some(Value::Object(members)) = args else {
        return Vec::new();
    };
    let series = members
        .iter()
        .filter_map(|(series, value)| Some((series, value.as_f64()?)));
    let label = |series: &str| match (members.len(), series) {
        (1, _) | (_, "value") => name.to_owned(),
        _ => format!("{name} {series}"),
    };
    series
        .take(MAX_SERIES)
        .map(|(series, value)| (label(series), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action_of(line: &str) -> SentAction {
        let Ok(Record::Event(sent)) = Record::parse(line) else {
            panic!("{line}");
        };
        action(&sent, 100, 7, &Store::new(10, None))
    }

    #[test]
    fn records_become_spans_instants_counters_and_names() {
        let row = |action, time| SentAction::Row {
            process: Some(Id::Number(1)),
            thread: Id::Number(2),
            action,
            time,
            flow: None,
        };
        for (line, want) in [
            (
                r#"{"ph":"B","name":"a","pid":1,"tid":2,"ts":1}"#,
                row(Action::Begin(0), 1100),
            ),
            (
                r#"{"ph":"E","pid":1,"tid":2,"ts":1}"#,
                row(Action::End(None), 1100),
            ),
            (
                r#"{"ph":"X","name":"a","pid":1,"tid":2,"ts":1,"dur":2}"#,
                row(Action::Complete(0, 1100, 3100), 1100),
            ),
            (
                r#"{"ph":"i","name":"a","pid":1,"tid":2}"#,
                row(Action::Instant(0, 7), 7),
            ),
            (
                r#"{"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}}"#,
                SentAction::ProcessName(Id::Number(1), "p".to_owned()),
            ),
            (
                r#"{"ph":"M","name":"process_name","pid":1,"args":{"name":5}}"#,
                SentAction::Nothing,
            ),
        ] {
            assert_eq!(action_of(line), want, "{line}");
        }
        let of = |phase: &str| {
            let line =
                format!(r#"{{"ph":"{phase}","cat":"io","id":"0x5","name":"read","pid":1,"ts":1}}"#);
            match action_of(&line) {
                SentAction::Async {
                    category, action, ..
                } => (category, action),
                other => panic!("{other:?}"),
            }
        };
        let (category, begin) = of("b");
        let (Action::AsyncBegin(_, key), (_, end)) = (begin, of("e")) else {
            panic!("{begin:?}");
        };
        assert_eq!((&*category, end), ("io", Action::AsyncEnd(0, key)));
        let counter = r#"{"ph":"C","name":"c","pid":1,"ts":1,"args":{"a":1,"b":"x","c":2.5}}"#;
        let SentAction::Values { values, time, .. } = action_of(counter) else {
            panic!("no values");
        };
        assert_eq!(time, 1100);
        assert_eq!(values, [("c a".to_owned(), 1.0), ("c c".to_owned(), 2.5)]);
    }
}
