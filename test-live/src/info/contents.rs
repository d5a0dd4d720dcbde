//! What the events of traces say: their numbers by name, their processes, and losses.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::event::OwnerId;
use ctf::decode::{Event, FieldError};
use ctf::model::EnvironmentValue;
use viewer::attach::TraceKey;
use viewer::interpret::environment::Environment;
use viewer::interpret::event_name::counted_name;
use viewer::interpret::flows::flow_of;
use viewer::interpret::process_context::ProcessContext;
use viewer::interpret::process_names::ProcessNames;
use viewer::sink::losses::LossSum;
use viewer::sink::{Ended, Finished, Loss, Next, Origin, Sink, SinkError};

use super::messages::{MessageCounts, Messages};

/// Largest number of names and of processes that are listed. The events of further names are
/// counted together; further processes are not listed.
const MAX_LISTED: usize = 1 << 16;
/// The name under which those are listed.
const OTHER_NAMES: &str = "<other names>";

/// What the events of traces say.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The number of events by name.
    pub(super) events: BTreeMap<String, u64>,
    /// The times of the first and last event, in nanoseconds.
    pub(super) span: Option<(i64, i64)>,
    pub(super) processes: BTreeSet<Process>,
    pub(super) losses: LossSum,
    pub(super) messages: MessageCounts,
}

/// Host and id of a process.
type ProcessKey = (String, OwnerId<'static>);

/// A process, as the contexts of its events or the environment of its trace say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    pub(super) host: String,
    pub(super) name: String,
    pub(super) pid: OwnerId<'static>,
}

/// Counts events. The counts are shared with the maker of the sink.
pub(super) struct CountingSink {
    contents: Rc<RefCell<Contents>>,
    classes: HashMap<(TraceKey, u64, u64), u64>,
    names: HashMap<(TraceKey, u64, u64), String>,
    /// The numbers of events that were sent in Trace Event Format, by the names that they were sent
    /// with.
    sent: HashMap<String, u64>,
    messages: Messages,
    decoder: RecordDecoder,
    context: ProcessContext,
    process_names: ProcessNames,
    /// The names that the processes of hosts had first, and those that events have told.
    processes: HashMap<ProcessKey, String>,
    told_names: HashMap<ProcessKey, String>,
    /// The process of the event before: most have the same.
    last: Option<(TraceKey, OwnerId<'static>)>,
    losses: LossSum,
    span: Option<(i64, i64)>,
}

/// A sink, and the place where its counts are when it has finished.
pub(super) fn counting_sink() -> (CountingSink, Rc<RefCell<Contents>>) {
    // Shared, because the sink is given away.
    let contents = Rc::new(RefCell::new(Contents::default()));
    let sink = CountingSink {
        contents: Rc::clone(&contents),
        classes: HashMap::new(),
        names: HashMap::new(),
        sent: HashMap::new(),
        messages: Messages::default(),
        decoder: RecordDecoder::default(),
        context: ProcessContext::default(),
        process_names: ProcessNames::default(),
        processes: HashMap::new(),
        told_names: HashMap::new(),
        last: None,
        losses: LossSum::default(),
        span: None,
    };
    (sink, contents)
}

impl CountingSink {
    /// Counts an event that was sent in Trace Event Format by its name, and adds its process.
    /// `None` if it is another one; else whether it has a name.
    fn count_sent(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<bool>, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !RecordDecoder::is_known_class(class) {
            return Ok(None);
        }
        // The decoded values borrow from the decoder while the rest of the sink changes.
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.clear();
        event.visit_fields(&mut decoder)?;
        let has_name = match decoder.decode(class) {
            Some(Decoded::Record { record, .. }) => {
                let name = match &record {
                    Record::Event(sent) => {
                        if let Some(pid) = sent.process() {
                            self.add_process(event, origin, pid.into_owned());
                        }
                        if let (Some(flow), Some(time)) = (flow_of(sent), event.time())
                            && let Some(EnvironmentValue::Text(host)) =
                                event.trace().environment_value("hostname")
                        {
                            self.messages.add(flow, host, time);
                        }
                        counted_name(sent)
                    }
                    Record::Raw(_) => None,
                };
                if let Some(name) = name {
                    self.add_name(name);
                }
                Some(name.is_some())
            }
            _ => None,
        };
        self.decoder = decoder;
        Ok(has_name)
    }

    fn add_name(&mut self, name: &str) {
        let name = match self.sent.len() < MAX_LISTED || self.sent.contains_key(name) {
            true => name,
            false => OTHER_NAMES,
        };
        match self.sent.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.sent.insert(name.to_owned(), 1);
            }
        }
    }

    /// Adds the process that the contexts of an event name, or its trace.
    fn add_process_of_contexts(&mut self, event: &Event<'_>, origin: Origin<'_>) {
        let of_trace = Environment::of(event.trace()).process;
        if let Some(pid) = self.context.pid.or(of_trace) {
            self.add_process(event, origin, OwnerId::Number(pid));
        }
    }

    fn add_process(&mut self, event: &Event<'_>, origin: Origin<'_>, pid: OwnerId<'static>) {
        let is_last = |(trace, last): &(TraceKey, OwnerId<'static>)| {
            (trace, last) == (&origin.trace.key, &pid)
        };
        if self.last.as_ref().is_some_and(is_last) {
            return;
        }
        self.last = Some((origin.trace.key, pid.clone()));
        let environment = Environment::of(event.trace());
        let name = match environment.process {
            Some(_) => environment.process_name.unwrap_or_default().into(),
            None => String::from_utf8_lossy(&self.context.name),
        };
        let host = environment.host.unwrap_or_default().to_owned();
        let has_room = self.processes.len() < MAX_LISTED;
        match self.processes.entry((host, pid)) {
            // A thread may have another name than its process.
            Entry::Occupied(known) if !known.get().is_empty() => {}
            Entry::Occupied(mut known) => *known.get_mut() = name.into_owned(),
            Entry::Vacant(new) if has_room => {
                new.insert(name.into_owned());
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Keeps the name of a process that an event tells, if it does.
    fn learn_name(&mut self, event: &Event<'_>) {
        let Some((pid, name)) = self.process_names.read(event) else {
            return;
        };
        let host = Environment::of(event.trace()).host.unwrap_or_default();
        let has_room = self.told_names.len() < MAX_LISTED;
        match self.told_names.entry((host.to_owned(), pid)) {
            Entry::Occupied(mut known) => *known.get_mut() = name,
            Entry::Vacant(new) if has_room => {
                new.insert(name);
            }
            Entry::Vacant(_) => {}
        }
    }
}

impl Sink for CountingSink {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let class = event.class();
        let key = (origin.trace.key, event.stream_class().id(), class.id());
        // Times of clocks that are more than 292 years from their origin do not fit into
        // nanoseconds.
        let time = event.time().filter(|_| event.far_seconds() == 0);
        if let Some(time) = time {
            let (first, last) = self.span.get_or_insert((time, time));
            (*first, *last) = ((*first).min(time), (*last).max(time));
        }
        self.learn_name(event);
        self.context.clear();
        let has_name = self.count_sent(event, origin)?;
        if has_name == Some(true) {
            return Ok(());
        }
        // Counted by class: a key of numbers is found faster than a name.
        *self.classes.entry(key).or_default() += 1;
        self.names
            .entry(key)
            .or_insert_with(|| class.name().unwrap_or("<unknown>").to_owned());
        // The contexts of an event that was sent have what comes nearest to its process.
        if has_name.is_none() {
            // Without a context in the metadata, the walk over the event would find nothing.
            if event.stream_class().event_context().is_some() || class.context().is_some() {
                event.visit_contexts(&mut self.context)?;
            }
            self.add_process_of_contexts(event, origin);
        }
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        self.losses.add(loss);
        Ok(())
    }

    fn flush(&mut self, _ended: &Ended) -> Result<Next, SinkError> {
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        let mut contents = self.contents.borrow_mut();
        for (key, name) in self.processes.drain() {
            let told = self.told_names.remove(&key);
            let (host, pid) = key;
            let name = told.unwrap_or(name);
            contents.processes.insert(Process { host, name, pid });
        }
        contents.losses = self.losses;
        contents.messages = self.messages.counts;
        contents.span = self.span;
        let name = |key| self.names.get(key).map_or("", String::as_str);
        let classes = self.classes.iter().map(|(key, count)| (name(key), count));
        let sent = self.sent.iter().map(|(name, count)| (name.as_str(), count));
        for (name, count) in classes.chain(sent) {
            let is_listed =
                contents.events.len() < MAX_LISTED || contents.events.contains_key(name);
            let name = if is_listed { name } else { OTHER_NAMES };
            *contents.events.entry(name.to_owned()).or_default() += count;
        }
        Ok(Finished::default())
    }
}
