//! Shows the events of all streams, the earliest first.

use super::input::Step;
use super::order::Place;
use super::{Mux, Progress, Stage};
use crate::sink::{Origin, SinkError};

impl Mux {
    /// Shows all events that are certain to be next, until `stop` says so.
    ///
    /// # Errors
    /// If they cannot be shown.
    pub fn run(
        &mut self,
        stage: &mut impl Stage,
        stop: &impl Fn() -> bool,
    ) -> Result<Progress, SinkError> {
        for slot in std::mem::take(&mut self.waiting) {
            self.advance(slot, stage)?;
        }
        self.remove_ended_traces(stage);
        self.update_watermark();
        loop {
            if !self.show_found(stage, stop)? {
                return Ok(Progress::Enough);
            }
            let first = self.ready.first();
            if first == Place::NONE {
                break;
            }
            // An event without a time is shown at once.
            if first.time().is_some() && first >= self.watermark {
                return Ok(Progress::Waiting);
            }
            if stop() || !self.show_first(first, stage)? {
                return Ok(Progress::Enough);
            }
        }
        self.remove_ended_traces(stage);
        Ok(if self.waiting.is_empty() {
            Progress::Ended
        } else {
            Progress::Waiting
        })
    }

    /// Shows events as long as the first of all is one after which the next of its stream has been
    /// found: then its stream has nothing else to do. Returns false if no more is wanted.
    fn show_found(
        &mut self,
        stage: &mut impl Stage,
        stop: &impl Fn() -> bool,
    ) -> Result<bool, SinkError> {
        let watermark = self.watermark;
        // Asked once, because it is the same for all events of a run.
        let counts_only = stage.counts_only();
        loop {
            let first = self.ready.first();
            let Some(input) = self.streams.get_mut(first.slot()) else {
                return Ok(true);
            };
            let Some(next) = input.time_behind() else {
                return Ok(true);
            };
            if first >= watermark {
                return Ok(true);
            }
            if stop() {
                return Ok(false);
            }
            let time = first.time();
            let is_wanted = if counts_only {
                stage.count_event(time, input.trace_key)?
            } else {
                let Some(trace) = self.traces.get(input.trace) else {
                    return Ok(true);
                };
                if let Some(event) = input.event(trace.metadata.trace()) {
                    let origin = Origin {
                        trace: &trace.info,
                        stream: &input.info,
                        locations: None,
                    };
                    stage.event(&event, time, origin)?
                } else {
                    return Ok(true);
                }
            };
            if !is_wanted {
                return Ok(false);
            }
            input.check_order(time, stage);
            input.pass_event();
            self.ready.replace(first.at(next));
        }
    }

    /// Shows the event or losses of the stream that is first of those ready. Returns false if no
    /// more is wanted.
    fn show_first(&mut self, first: Place, stage: &mut impl Stage) -> Result<bool, SinkError> {
        let (slot, time) = (first.slot(), first.time());
        let input = self.streams.get_mut(slot);
        let trace = input
            .as_ref()
            .and_then(|input| self.traces.get(input.trace));
        let (Some(input), Some(trace)) = (input, trace) else {
            self.ready.remove(slot);
            return Ok(true);
        };
        if let Err(step) = input.load_event() {
            self.ready.remove(slot);
            return self.handle_step(slot, step, stage).map(|()| true);
        }
        let declared = trace.metadata.trace();
        let origin = Origin {
            trace: &trace.info,
            stream: &input.info,
            locations: None,
        };
        let is_wanted = if let Some(event) = input.event(declared) {
            stage.event(&event, time, origin)?
        } else {
            for loss in input.losses() {
                stage.lost(loss, origin)?;
            }
            true
        };
        if !is_wanted {
            return Ok(false);
        }
        if input.has_event() {
            input.check_order(time, stage);
        } else {
            input.remove_losses();
        }
        match input.advance(declared) {
            Step::Event(next) => {
                let next = first.at(next);
                self.ready.replace(next);
                if self.ready.first() != next {
                    // Another stream comes first: meanwhile this event takes no memory.
                    input.free_event();
                }
                Ok(true)
            }
            step => {
                self.ready.remove(slot);
                self.handle_step(slot, step, stage).map(|()| true)
            }
        }
    }
}
