//! Spans of `tracing` as lines for people: one where a span begins, and one where it ends.
//!
//! A program writes five kinds of events for a span ([`SpanEvent`]). A span begins when a thread
//! enters it for the first time and ends when it is closed; in between, threads may leave and enter
//! it many times, as tasks do that wait. A span that no thread has entered is one line, when it is
//! closed. Of a span whose `span:new` is not known, because a viewer came later or events were
//! lost, each time that a thread is in it has a begin and an end: it is not known which is the
//! first.
//!
//! A line has no id, which says nothing to people and may be used again. The end repeats the
//! fields, with those that became known later: by them, spans of one name can be told apart.
//!
//! What is remembered is bounded, because spans that are never closed may come from anywhere:
//! beyond the limits everything is forgotten.

use std::collections::HashMap;
use std::hash::Hash;

use crate::event_text::{push_duration, push_printable};
use crate::open_spans::{EndedSpan, OpenSpans, SpanEdge};

/// Largest number of spans that are remembered.
const MAX_SPANS: usize = 1 << 16;
/// Largest number of fields of a span that are remembered; further ones are left out.
const MAX_FIELDS: usize = 64;
/// Largest number of characters of the value of a field that are remembered.
const MAX_VALUE_CHARACTERS: usize = 1024;
/// Largest number of bytes of their names and fields that are remembered.
const MAX_BYTES: usize = 32 << 20;

/// What an event says of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanEvent {
    /// The span was made.
    New,
    /// A thread enters the span.
    Enter,
    /// A thread leaves the span.
    Exit,
    /// Fields of the span became known.
    Record,
    /// The span was closed.
    Close,
}

/// The names of the events of spans, which may follow a target and a colon.
const NAMES: [(&str, SpanEvent); 5] = [
    ("span:new", SpanEvent::New),
    ("span:enter", SpanEvent::Enter),
    ("span:exit", SpanEvent::Exit),
    ("span:record", SpanEvent::Record),
    ("span:close", SpanEvent::Close),
];

impl SpanEvent {
    /// Returns what events of the class of this name say of a span, and the target of the span;
    /// empty if there is none. `None` if they are not events of a span.
    #[must_use]
    pub fn of(class: &str) -> Option<(Self, &str)> {
        NAMES.into_iter().find_map(|(name, event)| {
            let before = class.strip_suffix(name)?;
            let is_whole = before.is_empty() || before.ends_with(':');
            is_whole.then(|| (event, before.strip_suffix(':').unwrap_or(before)))
        })
    }
}

/// An event of a span, without its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanStep<'a> {
    /// What the event says.
    pub event: SpanEvent,
    /// The group of the thread, as for [`OpenSpans`]. Ids of two groups are not those of one span.
    pub group: u64,
    /// The process, whose ids are not those of others.
    pub process: Option<i64>,
    /// The id of the span, which no other open span of the process has. Absent if the program does
    /// not say it.
    pub id: Option<u64>,
    /// The id of the span around it, in [`SpanEvent::New`].
    pub parent: Option<u64>,
    /// The name of the span; empty if the program does not say it.
    pub name: &'a str,
    /// Nanoseconds on the clock of all events of spans.
    pub time: Option<i64>,
    /// Whether the event is to be shown. A span is shown if one of its events is.
    pub is_selected: bool,
}

/// The line of an event of a span, without its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanLine {
    /// The number of spans around the span.
    pub depth: usize,
    /// What follows the target of the span.
    pub text: String,
}

/// The spans that exist, and how their events become lines.
#[derive(Debug, Default)]
pub struct SpanLines {
    spans: HashMap<SpanKey, KnownSpan>,
    /// The bytes of names and fields of all spans.
    bytes: usize,
    /// The number of losses so far.
    losses: u64,
}

/// The group, process and id of a span.
type SpanKey = (u64, Option<i64>, u64);

/// The name and the text of the value of each field.
type Fields = Vec<(Box<str>, Box<str>)>;

/// A span that exists.
#[derive(Debug)]
struct KnownSpan {
    name: Box<str>,
    fields: Fields,
    parent: Option<u64>,
    /// Whether `span:new` is known.
    is_whole: bool,
    is_selected: bool,
    /// The time of the first enter. Absent if that may have been lost.
    begin: Option<i64>,
    enters: u64,
    exits: u64,
    /// Nanoseconds that threads were in the span. Absent if that is not known.
    busy: Option<u64>,
    /// The number of losses when the span was made.
    losses: u64,
}

impl KnownSpan {
    fn new(step: &SpanStep<'_>, losses: u64) -> Self {
        Self {
            name: step.name.into(),
            fields: Vec::new(),
            parent: step.parent,
            is_whole: step.event == SpanEvent::New,
            is_selected: step.is_selected,
            begin: None,
            enters: 0,
            exits: 0,
            busy: Some(0),
            losses,
        }
    }

    fn bytes(&self) -> usize {
        let fields = self.fields.iter();
        self.name.len() + fields.map(field_bytes).sum::<usize>()
    }
}

fn field_bytes((name, value): &(Box<str>, Box<str>)) -> usize {
    // Empty ones take memory too.
    size_of::<(Box<str>, Box<str>)>() + name.len() + value.len()
}

impl SpanLines {
    /// Returns the line of an event of a span, if it has one. `fields` has the names and texts of
    /// the fields of the span, as they are shown; `open` has the spans that threads are in.
    pub fn line<'f, T: Eq + Hash>(
        &mut self,
        open: &mut OpenSpans<T>,
        thread: T,
        step: &SpanStep<'_>,
        fields: impl Iterator<Item = (&'f str, &'f str)>,
    ) -> Option<SpanLine> {
        let key = step.id.map(|id| (step.group, step.process, id));
        if let Some(key) = key {
            self.learn(key, step, fields);
        }
        match step.event {
            SpanEvent::New | SpanEvent::Record => None,
            SpanEvent::Enter => self.enter(open, thread, key, step),
            SpanEvent::Exit => self.exit(open, &thread, key, step),
            SpanEvent::Close => self.close(open, &thread, key?, step),
        }
    }

    /// Counts a loss of events: some of open spans may be among them.
    pub fn add_loss(&mut self) {
        self.losses += 1;
    }

    /// Forgets the spans of a group.
    pub fn forget_group(&mut self, group: u64) {
        self.spans.retain(|key, _| key.0 != group);
        self.bytes = self.spans.values().map(KnownSpan::bytes).sum();
    }

    /// Remembers what an event says of the span of this key.
    fn learn<'f>(
        &mut self,
        key: SpanKey,
        step: &SpanStep<'_>,
        fields: impl Iterator<Item = (&'f str, &'f str)>,
    ) {
        let is_other = |known: &KnownSpan| !step.name.is_empty() && *known.name != *step.name;
        if step.event == SpanEvent::New || self.spans.get(&key).is_some_and(is_other) {
            // An id may be used again, and what was before may have been lost.
            self.remove(&key);
        }
        if matches!(step.event, SpanEvent::New | SpanEvent::Record) {
            if self.spans.len() >= MAX_SPANS || self.bytes >= MAX_BYTES {
                self.spans = HashMap::new();
                self.bytes = 0;
            }
            let losses = self.losses;
            let span = self.spans.entry(key).or_insert_with(|| {
                self.bytes += step.name.len();
                KnownSpan::new(step, losses)
            });
            for (name, value) in fields {
                let end = value.char_indices().nth(MAX_VALUE_CHARACTERS);
                let value = end.map_or(value, |(end, _)| &value[..end]);
                let field = (name.into(), value.into());
                let bytes = field_bytes(&field);
                let has_room = span.fields.len() < MAX_FIELDS;
                match span.fields.iter_mut().find(|known| known.0 == field.0) {
                    Some(known) => self.bytes -= field_bytes(&std::mem::replace(known, field)),
                    None if has_room => span.fields.push(field),
                    None => continue,
                }
                self.bytes += bytes;
            }
        }
        if let Some(span) = self.spans.get_mut(&key) {
            span.is_selected |= step.is_selected;
        }
    }

    fn remove(&mut self, key: &SpanKey) -> Option<KnownSpan> {
        let span = self.spans.remove(key)?;
        self.bytes -= span.bytes();
        Some(span)
    }

    fn enter<T: Eq + Hash>(
        &mut self,
        open: &mut OpenSpans<T>,
        thread: T,
        key: Option<SpanKey>,
        step: &SpanStep<'_>,
    ) -> Option<SpanLine> {
        let losses = self.losses;
        let mut is_first = true;
        let mut is_selected = step.is_selected;
        if let Some(span) = key.and_then(|key| self.spans.get_mut(&key)) {
            is_first = !span.is_whole || span.enters == 0 && span.exits == 0;
            is_selected = span.is_selected;
            if is_first && span.losses == losses {
                span.begin = step.time;
            }
            span.enters += 1;
        }
        if !is_selected {
            return None;
        }
        let around = open.innermost_id(&thread);
        let depth = open.depth(&thread);
        open.begin(thread, step.group, edge(step), ());
        if !is_first {
            return None;
        }
        let span = key.and_then(|key| self.spans.get(&key));
        let mut text = "-> ".to_owned();
        push_span(&mut text, step.name, span);
        // What the thread is in is seen by the indentation.
        let parent = span.and_then(|span| span.parent);
        if let Some(parent) = parent.filter(|parent| Some(*parent) != around)
            && let Some(parent) = self.spans.get(&(step.group, step.process, parent))
        {
            text.push_str(" parent=");
            push_printable(&mut text, &parent.name);
        }
        Some(SpanLine { depth, text })
    }

    fn exit<T: Eq + Hash>(
        &mut self,
        open: &mut OpenSpans<T>,
        thread: &T,
        key: Option<SpanKey>,
        step: &SpanStep<'_>,
    ) -> Option<SpanLine> {
        let mut span = key.and_then(|key| self.spans.get_mut(&key));
        let is_selected = match &span {
            Some(span) => span.is_selected,
            None => step.is_selected,
        };
        let ended = match is_selected {
            true => open.end(thread, edge(step)),
            false => EndedSpan::default(),
        };
        if let Some(span) = &mut span {
            span.exits += 1;
            let busy = span.busy.zip(ended.duration);
            span.busy = busy.and_then(|(busy, more)| busy.checked_add(more));
        }
        if !is_selected || span.as_ref().is_some_and(|span| span.is_whole) {
            return None;
        }
        let mut text = "<- ".to_owned();
        // Not every producer says at the end which span it is.
        let begun = ended.name.as_deref().unwrap_or_default();
        let name = if step.name.is_empty() {
            begun
        } else {
            step.name
        };
        push_span(&mut text, name, span.as_deref());
        if let Some(duration) = ended.duration {
            text.push_str(" (");
            push_duration(&mut text, duration);
            text.push(')');
        }
        Some(SpanLine {
            depth: ended.depth,
            text,
        })
    }

    fn close<T: Eq + Hash>(
        &mut self,
        open: &mut OpenSpans<T>,
        thread: &T,
        key: SpanKey,
        step: &SpanStep<'_>,
    ) -> Option<SpanLine> {
        let span = self.remove(&key)?;
        if !span.is_selected {
            return None;
        }
        let depth = match span.enters > span.exits {
            // The exit was lost.
            true => open.end(thread, edge(step)).depth,
            false => open.depth(thread),
        };
        if !span.is_whole {
            return None;
        }
        let mut text = "<- ".to_owned();
        push_span(&mut text, &span.name, Some(&span));
        let is_certain = span.losses == self.losses;
        let times = span.begin.zip(step.time);
        let duration = times.and_then(|(begin, end)| u64::try_from(end.checked_sub(begin)?).ok());
        if span.enters == 0 && span.exits == 0 && is_certain {
            text.push_str(" (never entered)");
        } else if let Some(duration) = duration {
            text.push_str(" (");
            push_duration(&mut text, duration);
            let is_counted = span.enters > 1 && span.enters == span.exits && is_certain;
            if let Some(busy) = span.busy.filter(|_| is_counted) {
                text.push_str(", busy ");
                push_duration(&mut text, busy);
            }
            text.push(')');
        }
        Some(SpanLine { depth, text })
    }
}

/// Appends the name of a span, and its fields as far as they are known.
fn push_span(text: &mut String, name: &str, span: Option<&KnownSpan>) {
    let known = span.map(|span| &*span.name).unwrap_or_default();
    push_printable(text, if name.is_empty() { known } else { name });
    let fields = span.map(|span| &*span.fields).unwrap_or_default();
    for (number, (name, value)) in fields.iter().enumerate() {
        text.push(if number == 0 { '{' } else { ' ' });
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    if !fields.is_empty() {
        text.push('}');
    }
}

fn edge<'a>(step: &SpanStep<'a>) -> SpanEdge<'a> {
    SpanEdge {
        name: Some(step.name).filter(|name| !name.is_empty()),
        time: step.time,
        clock: 0,
        id: step.id,
    }
}

#[cfg(test)]
mod tests;
