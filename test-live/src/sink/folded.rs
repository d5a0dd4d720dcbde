//! Folded stacks, as programs for flame graphs read them: a line for each stack, with the time in
//! which its last span was the innermost one.
//!
//! A line is `process;thread;outer;inner NANOSECONDS`, where processes have their hosts if there
//! are several. The lines are in the order of their parts. Names come from anywhere: `;` becomes
//! `:`, and control characters are escaped.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use ctf::decode::Event;
use daemon::event_text::printable;
use viewer::interpret::span_meter::SpanMeter;
use viewer::interpret::span_observer::SpanObserver;
use viewer::interpret::span_owners::OwnerNumber;
use viewer::sink::{Ended, Finished, Loss, Needs, Next, OpenSink, Origin, Sink, SinkError};

use super::buffer;
use super::row::{Open, SinkRow};

/// Largest number of stacks. The time of further ones is that of the stack around them.
const MAX_STACKS: usize = 1 << 19;
/// Largest number of spans in a stack. The time of deeper ones is that of the stack around them.
const MAX_DEPTH: u16 = 1024;
/// Largest number of spans in all stacks together: each is written once for each stack that it is
/// around.
const MAX_SPANS: usize = 1 << 25;

/// Folded stacks.
pub const ROW: SinkRow = SinkRow {
    name: "folded",
    help: "The time of each stack of spans in nanoseconds, for flame graphs",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, _| Ok(OpenSink::Events(Box::new(Folded::new(out))))),
    download: None,
};

/// Adds the time of stacks, and writes them at the end.
struct Folded {
    out: Box<dyn Write>,
    meter: SpanMeter<Stacks>,
}

/// The stacks, as trees of threads.
#[derive(Debug, Default)]
struct Stacks {
    stacks: Vec<Stack>,
    threads: HashMap<OwnerNumber, u32>,
    /// The stacks by the one around them and the number of the name.
    places: HashMap<(u32, u32), u32>,
    /// The number of spans in all stacks together.
    spans: usize,
    is_full: bool,
    is_deep: bool,
}

#[derive(Debug, Default)]
struct Stack {
    depth: u16,
    /// Nanoseconds.
    own: u64,
    /// The stacks one span deeper, with the numbers of their names.
    inner: Vec<(u32, u32)>,
}

impl Stacks {
    /// Adds a stack, unless there are too many.
    fn add(&mut self, depth: u16) -> Option<u32> {
        let place = u32::try_from(self.stacks.len()).ok()?;
        let spans = self.spans + usize::from(depth);
        if self.stacks.len() >= MAX_STACKS || spans > MAX_SPANS {
            self.is_full = true;
            return None;
        }
        self.spans = spans;
        self.stacks.push(Stack {
            depth,
            ..Stack::default()
        });
        Some(place)
    }

    fn thread(&mut self, owner: OwnerNumber) -> Option<u32> {
        if let Some(place) = self.threads.get(&owner) {
            return Some(*place);
        }
        let place = self.add(0)?;
        self.threads.insert(owner, place);
        Some(place)
    }

    fn stack(&self, place: u32) -> Option<&Stack> {
        self.stacks.get(usize::try_from(place).ok()?)
    }

    fn stack_mut(&mut self, place: u32) -> Option<&mut Stack> {
        self.stacks.get_mut(usize::try_from(place).ok()?)
    }

    /// The stack of a span within another one. That one if there are too many.
    fn inner(&mut self, around: u32, name: u32) -> u32 {
        if let Some(place) = self.places.get(&(around, name)) {
            return *place;
        }
        let depth = self.stack(around).map_or(0, |around| around.depth);
        if depth >= MAX_DEPTH {
            self.is_deep = true;
            return around;
        }
        let Some(place) = self.add(depth + 1) else {
            return around;
        };
        self.places.insert((around, name), place);
        if let Some(around) = self.stack_mut(around) {
            around.inner.push((name, place));
        }
        place
    }
}

impl SpanObserver for Stacks {
    /// Absent if there are too many stacks.
    type Mark = Option<u32>;

    fn begin(&mut self, owner: OwnerNumber, name: u32, parent: Option<Self::Mark>) -> Self::Mark {
        let around = match parent {
            Some(parent) => parent,
            None => self.thread(owner),
        };
        around.map(|around| self.inner(around, name))
    }

    fn end(&mut self, _mark: Self::Mark, _duration: u64) {}

    fn add_own_time(&mut self, _mark: Self::Mark, _own: u64) {}

    fn pass(&mut self, mark: Self::Mark, own: u64) {
        if let Some(stack) = mark.and_then(|mark| self.stack_mut(mark)) {
            stack.own = stack.own.saturating_add(own);
        }
    }

    fn leave_open(&mut self, _mark: Self::Mark) {}

    fn count_whole(&mut self, _owner: OwnerNumber, _name: u32, _duration: u64) {}

    fn count_open(&mut self, _owner: OwnerNumber, _name: u32) {}

    fn miss_begin(&mut self, _owner: OwnerNumber, _name: u32) {}
}

impl Folded {
    fn new(out: Box<dyn Write>) -> Self {
        Self {
            out,
            meter: SpanMeter::new(Stacks::default()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let stacks = self.meter.observer();
        let names = self.meter.names();
        let has_hosts = self.meter.has_several_hosts();
        let mut threads: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (owner, place) in &stacks.threads {
            let process = self.meter.owner(owner.process).process_label(has_hosts);
            let thread = self.meter.owner(owner.thread).thread_label();
            let line = format!("{};{}", frame(&process), frame(&thread));
            threads.entry(line).or_default().push(*place);
        }
        let mut buffer = buffer::with_capacity();
        let mut line = String::new();
        // What is to be written, the first last: the length of the line around it, its own part,
        // and the stacks that it stands for. Several names may become the same part.
        let mut next: Vec<(usize, String, Vec<u32>)> = Vec::new();
        let threads = threads.into_iter().rev();
        next.extend(threads.map(|(part, places)| (0, part, places)));
        while let Some((around, part, places)) = next.pop() {
            line.truncate(around);
            if around > 0 {
                line.push(';');
            }
            line.push_str(&part);
            let own = places.iter().filter_map(|place| stacks.stack(*place));
            let mut inner: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (name, place) in own.clone().flat_map(|stack| &stack.inner) {
                inner
                    .entry(frame(names.shown(*name)))
                    .or_default()
                    .push(*place);
            }
            let own = own.fold(0_u64, |sum, stack| sum.saturating_add(stack.own));
            if own > 0 {
                buffer.extend_from_slice(format!("{line} {own}\n").as_bytes());
                buffer::write_if_full(&mut buffer, &mut self.out)?;
            }
            let inner = inner.into_iter().rev();
            next.extend(inner.map(|(part, places)| (line.len(), part, places)));
        }
        buffer::flush(&mut buffer, &mut self.out)
    }

    fn warnings(&self) -> Vec<String> {
        let stacks = self.meter.observer();
        let mut warnings = Vec::new();
        if stacks.is_full {
            warnings.push(format!(
                "more than {MAX_STACKS} stacks, or {MAX_SPANS} spans in them: the time of further \
                 stacks is that of the stack around them; select some spans with --filter"
            ));
        }
        if stacks.is_deep {
            warnings.push(format!(
                "stacks of more than {MAX_DEPTH} spans: the time of deeper ones is that of the \
                 stack around them"
            ));
        }
        warnings.extend(self.meter.warnings());
        warnings
    }
}

/// A name as a part of a line.
fn frame(name: &str) -> String {
    printable(name).replace(';', ":")
}

impl Sink for Folded {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(self.meter.read(event, origin, true)?)
    }

    fn filtered_out(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(self.meter.read(event, origin, false)?)
    }

    fn lost(&mut self, _loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.meter.add_loss(origin.trace.key);
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        self.meter.end(ended);
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        self.meter.finish();
        self.write()?;
        Ok(Finished {
            warnings: self.warnings(),
            ..Finished::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spans_of_all_stacks_together_are_limited() {
        let mut stacks = Stacks::default();
        let owner = OwnerNumber {
            process: 1,
            thread: 1,
        };
        let mut around = None;
        for _ in 1..MAX_DEPTH {
            around = Some(stacks.begin(owner, 0, around));
        }
        for name in 0..40_000 {
            stacks.begin(owner, name, around);
        }
        let spans = stacks.stacks.iter().map(|stack| usize::from(stack.depth));
        assert!(spans.sum::<usize>() <= MAX_SPANS);
        assert!(stacks.is_full);
    }
}
