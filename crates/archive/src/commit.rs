//! The log of one relay, as its writer keeps it: which commit objects are on their way, in which
//! order they are acknowledged, and which of them parts have made superfluous.
//!
//! Several objects are written at once, but acknowledged in the order of their numbers: what is
//! acknowledged can be found by reading the log from its beginning to the first missing number.
//! Objects are deleted in that order, too, so that a number is never missing between others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use wire::SessionId;

/// The log of a relay. `T` is what its owner acknowledges when a commit object is stored.
#[derive(Debug)]
pub struct CommitLog<T> {
    next: u64,
    /// Commits that are not acknowledged, from the oldest on.
    in_flight: VecDeque<InFlight<T>>,
    /// The commits of each session whose data is in no part. By the number that the relay has given
    /// to the session: it may have a session twice, if the producer comes back late.
    uncovered: HashMap<SessionId, BTreeSet<u64>>,
    /// The number of sessions that each commit has such data of.
    holders: BTreeMap<u64, usize>,
    /// Number of the first object that has not been deleted.
    first: u64,
}

#[derive(Debug)]
struct InFlight<T> {
    number: u64,
    is_stored: bool,
    value: T,
}

impl<T> Default for CommitLog<T> {
    fn default() -> Self {
        Self {
            next: 0,
            in_flight: VecDeque::new(),
            uncovered: HashMap::new(),
            holders: BTreeMap::new(),
            first: 0,
        }
    }
}

impl<T> CommitLog<T> {
    /// Number of the next commit object.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of commits that are not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What the oldest commit that is not acknowledged has. None: all are acknowledged.
    #[must_use]
    pub fn oldest(&self) -> Option<&T> {
        self.in_flight.front().map(|commit| &commit.value)
    }

    /// Number of commits that are acknowledged: all before this one.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.in_flight
            .front()
            .map_or(self.next, |commit| commit.number)
    }

    /// Begins the next commit, which has data of these sessions. Returns its number.
    pub fn begin(&mut self, sessions: impl IntoIterator<Item = SessionId>, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.push_back(InFlight {
            number,
            is_stored: false,
            value,
        });
        for session in sessions {
            if self.uncovered.entry(session).or_default().insert(number) {
                *self.holders.entry(number).or_default() += 1;
            }
        }
        number
    }

    /// Records that a commit object is stored. Returns what is acknowledged now, in order: nothing
    /// while an earlier object is on its way.
    pub fn stored(&mut self, number: u64) -> Vec<T> {
        let commit = self.in_flight.iter_mut().find(|own| own.number == number);
        if let Some(commit) = commit {
            commit.is_stored = true;
        }
        let mut acknowledged = Vec::new();
        while let Some(commit) = self.in_flight.pop_front_if(|commit| commit.is_stored) {
            acknowledged.push(commit.value);
        }
        acknowledged
    }

    /// Records that parts have all data of a session from commits before `end`.
    pub fn cover(&mut self, session: SessionId, end: u64) {
        let Some(commits) = self.uncovered.get_mut(&session) else {
            return;
        };
        let kept = commits.split_off(&end);
        for number in std::mem::replace(commits, kept) {
            if let Some(count) = self.holders.get_mut(&number) {
                *count -= 1;
                if *count == 0 {
                    self.holders.remove(&number);
                }
            }
        }
        if commits.is_empty() {
            self.uncovered.remove(&session);
        }
    }

    /// Takes the numbers of the objects that may be deleted now: all before the first one that is
    /// on its way, or that has data in no part.
    pub fn take_deletable(&mut self) -> std::ops::Range<u64> {
        let on_its_way = self.in_flight.front().map(|commit| commit.number);
        let held = self.holders.first_key_value().map(|(number, _)| *number);
        let end = [on_its_way, held, Some(self.next)];
        let end = end.into_iter().flatten().min().unwrap_or(self.next);
        let range = self.first..end.max(self.first);
        self.first = range.end;
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    #[test]
    fn commits_are_acknowledged_in_order_though_stored_in_another() {
        let mut log = CommitLog::default();
        for value in ["first", "second", "third"] {
            log.begin([A], value);
        }
        assert_eq!((log.next(), log.in_flight()), (3, 3));
        assert!(log.stored(2).is_empty());
        assert!(log.stored(1).is_empty());
        assert_eq!(log.stored(0), ["first", "second", "third"]);
        assert_eq!(log.in_flight(), 0);
    }

    #[test]
    fn an_object_is_deleted_after_all_before_it_are_in_parts() {
        let mut log = CommitLog::default();
        log.begin([A, B], ());
        log.begin([B], ());
        log.begin([A], ());
        log.begin([], ());
        (0..4).for_each(|number| drop(log.stored(number)));
        assert!(log.take_deletable().is_empty());
        log.cover(B, 4);
        assert!(log.take_deletable().is_empty());
        log.cover(A, 2);
        assert_eq!(log.take_deletable(), 0..2);
        log.begin([], ());
        log.cover(A, 3);
        assert_eq!(log.take_deletable(), 2..4, "the last is on its way");
    }
}
