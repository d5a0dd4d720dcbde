//! What the events of traces say: their numbers by name, their processes, and losses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use ctf::decode::Event;
use ctf::model::EnvironmentValue;

use crate::attach::TraceKey;
use crate::sink::losses::LossSum;
use crate::sink::process_context::ProcessContext;
use crate::sink::{Loss, Origin, Sink, SinkError};

/// Largest number of names and of processes that are listed. Further ones are not.
const MAX_LISTED: usize = 1 << 16;

/// What the events of traces say.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The number of events by name.
    pub(super) events: BTreeMap<String, u64>,
    /// The times of the first and last event, in nanoseconds.
    pub(super) span: Option<(i64, i64)>,
    pub(super) processes: BTreeSet<Process>,
    pub(super) losses: LossSum,
}

/// A process, as the contexts of its events or the environment of its trace say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    pub(super) host: String,
    pub(super) name: String,
    pub(super) pid: i64,
}

/// Counts events. The counts are shared with the maker of the sink.
pub(super) struct CountingSink {
    contents: Rc<RefCell<Contents>>,
    classes: HashMap<(TraceKey, u64, u64), u64>,
    names: HashMap<(TraceKey, u64, u64), String>,
    context: ProcessContext,
    /// The process of the event before: most have the same.
    last: Option<(TraceKey, i64)>,
    losses: LossSum,
    span: Option<(i64, i64)>,
}

/// A sink, and the place where its counts are when it has finished.
pub(super) fn counting_sink() -> (CountingSink, Rc<RefCell<Contents>>) {
    let contents = Rc::new(RefCell::new(Contents::default()));
    let sink = CountingSink {
        contents: Rc::clone(&contents),
        classes: HashMap::new(),
        names: HashMap::new(),
        context: ProcessContext::default(),
        last: None,
        losses: LossSum::default(),
        span: None,
    };
    (sink, contents)
}

impl CountingSink {
    fn add_process(&mut self, event: &Event<'_>, origin: Origin<'_>) {
        let text = |name| match event.trace().environment_value(name) {
            Some(EnvironmentValue::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let of_trace = match event.trace().environment_value("vpid") {
            Some(EnvironmentValue::Integer(pid)) => Some(*pid),
            _ => None,
        };
        let Some(pid) = self.context.pid.or(of_trace) else {
            return;
        };
        if self.last == Some((origin.trace.key, pid)) {
            return;
        }
        self.last = Some((origin.trace.key, pid));
        let own_name = text("procname");
        let name = match of_trace {
            Some(_) => own_name,
            None => String::from_utf8_lossy(&self.context.name).into_owned(),
        };
        let host = text("hostname");
        let mut contents = self.contents.borrow_mut();
        // A thread may have another name than its process.
        let mut known = contents.processes.iter();
        let is_known = known.any(|process| process.pid == pid && process.host == host);
        if !is_known && contents.processes.len() < MAX_LISTED {
            contents.processes.insert(Process { host, name, pid });
        }
    }
}

impl Sink for CountingSink {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let class = event.class();
        let key = (origin.trace.key, event.stream_class().id(), class.id());
        *self.classes.entry(key).or_default() += 1;
        if let Some(time) = event.time() {
            let (first, last) = self.span.get_or_insert((time, time));
            (*first, *last) = ((*first).min(time), (*last).max(time));
        }
        self.names
            .entry(key)
            .or_insert_with(|| class.name().unwrap_or("<unknown>").to_owned());
        self.context.clear();
        if event.stream_class().event_context().is_some() || class.context().is_some() {
            event.visit_contexts(&mut self.context)?;
        }
        self.add_process(event, origin);
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        self.losses.add(loss);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Drop for CountingSink {
    fn drop(&mut self) {
        let mut contents = self.contents.borrow_mut();
        contents.losses = self.losses;
        contents.span = self.span;
        for (key, count) in &self.classes {
            let name = self.names.get(key).cloned().unwrap_or_default();
            if contents.events.len() < MAX_LISTED || contents.events.contains_key(&name) {
                *contents.events.entry(name).or_default() += count;
            }
        }
    }
}
