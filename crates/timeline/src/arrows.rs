//! Arrows between places on tracks: what woke a thread, and flows that programs have sent.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use viewer::interpret::flows::FlowStep;

/// Largest number of arrows that are kept, of 40 bytes each. With one more, the first is forgotten.
const MAX_ARROWS: usize = 1 << 18;
/// Largest number of flows whose next event is awaited. With one more, all are forgotten.
const MAX_FLOWS: usize = 1 << 16;
/// Largest number of arrows of one row that are found.
const MAX_ARROWS_OF_ROW: usize = 32;

/// An end of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrowEnd {
    pub(super) track: u32,
    /// Nanoseconds since the clock's origin.
    pub(super) time: i64,
}

/// An arrow from a cause to its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) from: ArrowEnd,
    pub(super) to: ArrowEnd,
    /// The number of the name: of a flow, or of the CPU on which a thread was woken.
    pub(super) name: u32,
    /// Whether the effect is that a thread can run.
    pub(super) is_wakeup: bool,
}

/// The id of a session, and what the events of a flow have in common.
pub(super) type FlowKey = (u32, u64);

/// The latest arrows, and the flows that go on.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    arrows: Mutex<VecDeque<Arrow>>,
    /// The latest event of each flow, by its key in a session.
    flows: Mutex<HashMap<FlowKey, ArrowEnd>>,
}

impl Arrows {
    pub(super) fn add(&self, arrow: Arrow) {
        let mut arrows = self.arrows.lock();
        if arrows.len() >= MAX_ARROWS {
            arrows.pop_front();
        }
        arrows.push_back(arrow);
    }

    /// Adds an event of a flow.
    pub(super) fn add_flow(&self, key: FlowKey, step: FlowStep, at: ArrowEnd, name: u32) {
        let mut flows = self.flows.lock();
        let last = flows.get(&key).copied();
        let (from, to) = match last {
            // Events of another program may come later although they were earlier.
            Some(last) if last.time > at.time => (at, last),
            Some(last) if step != FlowStep::Begin => (last, at),
            _ => (at, at),
        };
        match (step, last) {
            (FlowStep::End, Some(_)) => {
                flows.remove(&key);
            }
            _ => {
                if flows.len() >= MAX_FLOWS {
                    flows.clear();
                }
                flows.insert(key, to);
            }
        }
        drop(flows);
        if from != to {
            self.add(Arrow {
                from,
                to,
                name,
                is_wakeup: false,
            });
        }
    }

    /// The arrows that begin or end on a track from one time to another, the first ones in order of
    /// time.
    pub(super) fn of(&self, track: u32, from: i64, to: i64) -> Vec<Arrow> {
        let is_there = |end: ArrowEnd| end.track == track && (from..=to).contains(&end.time);
        let arrows = self.arrows.lock();
        // Few milliseconds for all that are kept: an index of them would cost more at each event.
        let found = arrows
            .iter()
            .filter(|arrow| is_there(arrow.from) || is_there(arrow.to));
        let mut found: Vec<Arrow> = found.copied().collect();
        drop(arrows);
        found.sort_by_key(|arrow| (arrow.to.time, arrow.from.time));
        found.truncate(MAX_ARROWS_OF_ROW);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(track: u32, time: i64) -> ArrowEnd {
        ArrowEnd { track, time }
    }

    #[test]
    fn events_of_a_flow_are_joined_in_order_of_time() {
        let arrows = Arrows::default();
        arrows.add_flow((1, 7), FlowStep::Begin, at(1, 10), 0);
        arrows.add_flow((1, 8), FlowStep::Begin, at(1, 11), 0);
        arrows.add_flow((1, 7), FlowStep::Next, at(2, 20), 0);
        arrows.add_flow((1, 7), FlowStep::End, at(3, 30), 0);
        // The same key again, and the end comes first.
        arrows.add_flow((1, 7), FlowStep::End, at(2, 60), 0);
        arrows.add_flow((1, 7), FlowStep::Begin, at(1, 50), 0);
        // Another session has flows of its own.
        arrows.add_flow((2, 7), FlowStep::End, at(2, 70), 0);
        let ends = |track, from, to| -> Vec<_> {
            let found = arrows.of(track, from, to);
            found.iter().map(|arrow| (arrow.from, arrow.to)).collect()
        };
        assert_eq!(ends(1, 0, 15), [(at(1, 10), at(2, 20))]);
        assert_eq!(
            ends(2, 20, 20),
            [(at(1, 10), at(2, 20)), (at(2, 20), at(3, 30))]
        );
        assert_eq!(ends(1, 40, 70), [(at(1, 50), at(2, 60))]);
        assert_eq!(ends(4, 0, 100), []);
    }

    #[test]
    fn numbers_of_arrows_and_of_flows_are_bounded() {
        let arrows = Arrows::default();
        for key in 0..2 * MAX_ARROWS as u64 {
            arrows.add_flow((1, key), FlowStep::Begin, at(1, 10), 0);
            arrows.add_flow((1, key), FlowStep::Next, at(2, 20), 0);
        }
        assert_eq!(arrows.arrows.lock().len(), MAX_ARROWS);
        assert!(arrows.flows.lock().len() <= MAX_FLOWS);
        assert_eq!(arrows.of(2, 20, 20).len(), MAX_ARROWS_OF_ROW);
    }
}
