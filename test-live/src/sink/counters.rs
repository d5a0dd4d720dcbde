//! Numbers of fields that become counters, beside the records of their events.

use ctf::decode::{Event, FieldError};
use viewer::attach::TraceKey;
use viewer::filter::NumberSelector;
use viewer::sink::Number;

/// The counters that `--counter` selects.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counters: Vec<Counter>,
    /// The trace and the stream class that were looked at last, and how many event classes that
    /// had: names are compared with what has been declared.
    known: Option<(TraceKey, u64, usize)>,
}

#[derive(Debug)]
struct Counter {
    selector: NumberSelector,
    has_values: bool,
}

impl Counters {
    /// Counters without values so far.
    pub(super) fn new(selectors: Vec<NumberSelector>) -> Self {
        let counter = |selector| Counter {
            selector,
            has_values: false,
        };
        Self {
            counters: selectors.into_iter().map(counter).collect(),
            known: None,
        }
    }

    /// Whether no counter was selected.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Passes the value of each counter in an event to `show`, which says whether it was shown.
    pub(super) fn each_value(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
        mut show: impl FnMut(&str, Number) -> bool,
    ) -> Result<(), FieldError> {
        let class = event.stream_class();
        let known = Some((trace, class.id(), class.events().len()));
        // Declarations change rarely: to compare names at each event would take long.
        if self.known != known {
            self.known = known;
            for counter in &mut self.counters {
                counter.selector.add_declarations(event.trace());
            }
        }
        for counter in &mut self.counters {
            if let Some(value) = counter.selector.find(event, trace)? {
                counter.has_values |= show(counter.selector.name(), value);
            }
        }
        Ok(())
    }

    /// Describes each counter that has had no value.
    pub(super) fn describe_missing(&mut self) -> Vec<String> {
        let counters = self.counters.iter_mut();
        let missing = counters.filter(|counter| !counter.has_values);
        missing
            .map(|counter| counter.selector.describe_no_match())
            .collect()
    }
}
