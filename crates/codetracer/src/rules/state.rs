//! What a replay knows at a place of the recording: open calls, whether there was a step, places of
//! sequences.

use std::collections::HashSet;
use std::ops::Range;

/// Places of sequences that are remembered; items of later ones are left out. Each takes about 18
/// bytes.
const MAX_PLACES: usize = 1 << 22;

/// The effect of a record on the replay, and what the record needs before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// No effect: the record may stand anywhere.
    None,
    /// A step: from here on the replay has one.
    Step,
    /// Enters a function: one more call is open.
    Call,
    /// Leaves a function, which must be a known call.
    Return,
    /// None, after the first step.
    AfterStep,
    /// None, after the first step and in a call.
    InCall,
    /// There is a sequence at a place.
    DefinePlace(i64),
    /// Needs a sequence at a place.
    UsePlace(i64),
}

/// The state of a replay.
#[derive(Debug, Default)]
pub(super) struct ReplayState {
    calls: OpenCalls,
    places: HashSet<i64>,
    /// The state before the step that is held back, and the places since then.
    saved: Option<(OpenCalls, Vec<i64>)>,
}

#[derive(Debug, Clone, Default)]
struct OpenCalls {
    /// Whether there was a step or a call.
    is_started: bool,
    has_step: bool,
    depth: u64,
    /// The depth as the producer counts: the top level, which the replay enters by itself, is none
    /// of its calls.
    producer_depth: u64,
    /// The calls, by depth, that were lost on the way: the replay does not know of them.
    lost: Vec<Range<u64>>,
}

impl ReplayState {
    /// Applies a record. Returns false if it breaks a rule: it must be left out.
    pub(super) fn apply(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::None => true,
            Effect::Step => {
                self.calls.add_step();
                true
            }
            Effect::Call => {
                self.calls.enter();
                true
            }
            Effect::Return => self.calls.leave(),
            Effect::AfterStep => self.calls.has_step,
            Effect::InCall => self.calls.has_step && self.calls.has_known_call(),
            Effect::DefinePlace(place) => {
                if !self.calls.has_step {
                    return false;
                }
                // A place too many is no fault of the record: only what refers to it later is left
                // out.
                if self.places.len() < MAX_PLACES
                    && self.places.insert(place)
                    && let Some((_, added)) = &mut self.saved
                {
                    added.push(place);
                }
                true
            }
            Effect::UsePlace(place) => self.places.contains(&place),
        }
    }

    /// Saves the state, which the next records may have to be removed from.
    pub(super) fn save(&mut self) {
        // The list is kept for its memory: a step comes every few records.
        let mut added = self.saved.take().map_or_else(Vec::new, |(_, added)| added);
        added.clear();
        self.saved = Some((self.calls.clone(), added));
    }

    /// Goes back to the state that was saved.
    pub(super) fn restore(&mut self) {
        if let Some((calls, added)) = self.saved.take() {
            self.calls = calls;
            for place in added {
                self.places.remove(&place);
            }
        }
    }

    /// Sets the depth, as the producer counts it, after a gap, and returns the number of calls of
    /// which the return was lost.
    pub(super) fn set_depth(&mut self, depth: u64) -> u64 {
        self.saved = None;
        self.calls.set_depth(depth)
    }
}

impl OpenCalls {
    fn add_step(&mut self) {
        self.has_step = true;
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        // The replay enters the top level by itself.
        match self.lost.first_mut() {
            Some(lost) => lost.start = lost.start.saturating_add(1),
            None => self.depth = 1,
        }
        self.lost.retain(|lost| !lost.is_empty());
    }

    fn enter(&mut self) {
        self.is_started = true;
        self.depth = self.depth.saturating_add(1);
        self.producer_depth = self.producer_depth.saturating_add(1);
    }

    /// Leaves the innermost call. False if there is none, or none that the replay knows.
    fn leave(&mut self) -> bool {
        self.producer_depth = self.producer_depth.saturating_sub(1);
        let Some(depth) = self.depth.checked_sub(1) else {
            return false;
        };
        self.depth = depth;
        let is_lost = self.lost.last().is_some_and(|lost| lost.end > depth);
        self.cut_lost();
        !is_lost
    }

    fn has_known_call(&self) -> bool {
        let lost: u64 = self.lost.iter().map(|lost| lost.end - lost.start).sum();
        self.depth > lost
    }

    fn set_depth(&mut self, depth: u64) -> u64 {
        let known = |calls: &Self| {
            let lost: u64 = calls.lost.iter().map(|lost| lost.end - lost.start).sum();
            // No underflow, because lost calls are open calls (`cut_lost`).
            calls.depth - lost
        };
        let before = known(self);
        let top_level = self.depth.saturating_sub(self.producer_depth);
        self.producer_depth = depth;
        let depth = depth.saturating_add(top_level);
        if depth > self.depth {
            self.lost.push(self.depth..depth);
        }
        self.depth = depth;
        self.cut_lost();
        before.saturating_sub(known(self))
    }

    /// Forgets lost calls that are not open.
    fn cut_lost(&mut self) {
        while let Some(lost) = self.lost.last_mut()
            && lost.end > self.depth
        {
            lost.end = self.depth;
            if lost.is_empty() {
                self.lost.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply<const N: usize>(state: &mut ReplayState, effects: [Effect; N]) -> [bool; N] {
        effects.map(|effect| state.apply(effect))
    }

    #[test]
    fn the_first_step_makes_the_depth_one_and_a_later_one_does_not() {
        use Effect::{Return, Step};
        let mut state = ReplayState::default();
        let applied = apply(&mut state, [Return, Step, Return, Return, Step, Return]);
        assert_eq!(applied, [false, true, true, false, true, false]);
    }

    #[test]
    fn returns_of_lost_calls_are_left_out_and_those_of_known_calls_are_not() {
        use Effect::{Call, Return, Step};
        let mut state = ReplayState::default();
        apply(&mut state, [Call, Step, Call]);
        assert_eq!(state.set_depth(4), 0);
        let applied = apply(&mut state, [Call, Return, Return, Return, Return, Return]);
        assert_eq!(applied, [true, true, false, false, true, true]);
        apply(&mut state, [Call, Call, Call]);
        assert_eq!(state.set_depth(1), 2);
        assert_eq!(state.set_depth(3), 0);
        assert_eq!(state.set_depth(0), 1);
        assert_eq!(apply(&mut state, [Return]), [false]);
    }

    #[test]
    fn the_top_level_that_a_step_has_entered_stays_open_after_a_gap() {
        let mut state = ReplayState::default();
        apply(&mut state, [Effect::Step, Effect::Call]);
        assert_eq!(state.set_depth(0), 1);
        let applied = apply(&mut state, [Effect::Return, Effect::Return]);
        assert_eq!(applied, [true, false]);
    }

    #[test]
    fn a_step_after_a_lost_beginning_enters_the_top_level() {
        let mut state = ReplayState::default();
        assert_eq!(state.set_depth(2), 0);
        assert_eq!(apply(&mut state, [Effect::InCall]), [false]);
        let applied = apply(
            &mut state,
            [Effect::Step, Effect::InCall, Effect::Return, Effect::Return],
        );
        assert_eq!(applied, [true, true, false, true]);
    }
}
