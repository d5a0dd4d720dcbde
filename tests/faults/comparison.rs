//! Compares the events that a reader has shown with those that were sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::load::{ConnectionId, Event, Sent};

/// The time within which an event that was sent has to be in the spool. It is far above what the
/// consumer needs, so that a busy machine does not fail the test.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The number of deviations that are printed.
const MAX_REPORTED: usize = 20;

/// The numbers of the events that one connection must have in the trace: all below `accepted`, and
/// none from `sent` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    accepted: u64,
    sent: u64,
}

/// Checks that the events of each connection are consecutive from the first on and in the order in
/// which they were sent, and that only those are missing at the end which the consumer had no time
/// to accept before it was killed.
///
/// # Panics
/// If an event is missing, repeated or in the wrong place.
pub fn assert_exactly_once(reader: &str, shown: &[Event], sent: &[Sent], kills: &[Instant]) {
    let mut numbers: BTreeMap<ConnectionId, Vec<u64>> = BTreeMap::new();
    for event in shown {
        numbers
            .entry(event.connection)
            .or_default()
            .push(event.number);
    }
    let mut deviations = Vec::new();
    for sent in sent {
        let numbers = numbers.remove(&sent.id).unwrap_or_default();
        let bounds = bounds(sent, kills);
        if let Err(what) = check_numbers(&numbers, bounds) {
            deviations.push(format!("{:?}: {what}", sent.id));
        }
    }
    for (id, numbers) in numbers {
        deviations.push(format!("{id:?}: {} events, none were sent", numbers.len()));
    }
    deviations.truncate(MAX_REPORTED);
    assert!(deviations.is_empty(), "{reader}: {deviations:#?}");
}

/// Checks that two readers have shown the same events in the same order.
///
/// # Panics
/// If they have not.
pub fn assert_same(reader: &str, shown: &[Event], expected: &[Event]) {
    let same = shown.iter().zip(expected).take_while(|(a, b)| a == b);
    let same = same.count();
    let describe = |events: &[Event]| {
        let around = events.iter().skip(same.saturating_sub(2)).take(5);
        let around: Vec<_> = around.map(ToString::to_string).collect();
        format!("{} of {}: {around:?}", same, events.len())
    };
    assert!(
        shown == expected,
        "{reader} deviates from event {same} on: shown {}; recorded {}",
        describe(shown),
        describe(expected)
    );
}

fn bounds(sent: &Sent, kills: &[Instant]) -> Bounds {
    let Some((last, all)) = sent.progress.last().copied() else {
        return Bounds {
            accepted: 0,
            sent: 0,
        };
    };
    let first = sent.progress[0].0;
    // The consumer is killed before the connection breaks, and the client may notice before the
    // test has recorded the time of the kill. A kill long after the end of the connection concerns
    // it no longer.
    let kill = kills
        .iter()
        .find(|kill| **kill >= first && **kill <= last + ACCEPT_TIMEOUT);
    let accepted = match kill.and_then(|kill| kill.checked_sub(ACCEPT_TIMEOUT)) {
        None => all,
        Some(until) => {
            let in_time = sent.progress.partition_point(|(at, _)| *at <= until);
            in_time.checked_sub(1).map_or(0, |at| sent.progress[at].1)
        }
    };
    Bounds {
        accepted,
        sent: all,
    }
}

fn check_numbers(numbers: &[u64], bounds: Bounds) -> Result<(), String> {
    let wrong = (0..)
        .zip(numbers)
        .find(|(expected, number)| expected != *number);
    let len = numbers.len() as u64;
    let Bounds { accepted, sent } = bounds;
    if let Some((expected, number)) = wrong {
        let mut distinct = numbers.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let repeated = numbers.len() - distinct.len();
        Err(format!(
            "{number} in place of {expected}; {len} shown of {sent} sent, {repeated} repeated"
        ))
    } else if len < accepted {
        Err(format!(
            "ends with {len}; {accepted} were sent in time, {sent} in all"
        ))
    } else if len > sent {
        Err(format!("{len} events, {sent} sent"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        accepted: 3,
        sent: 5,
    };

    #[test]
    fn comparison_accepts_consecutive_numbers_within_the_bounds() {
        for count in 3..=5 {
            let numbers: Vec<_> = (0..count).collect();
            assert_eq!(check_numbers(&numbers, BOUNDS), Ok(()));
        }
    }

    #[test]
    fn comparison_reports_every_kind_of_deviation() {
        for (case, numbers) in [
            ("a missing event", &[0, 2, 3][..]),
            ("a missing first event", &[1, 2, 3]),
            ("a repeated event", &[0, 1, 1, 2]),
            ("events in the wrong order", &[0, 2, 1, 3]),
            ("an accepted event missing at the end", &[0, 1]),
            ("more events than were sent", &[0, 1, 2, 3, 4, 5]),
        ] {
            assert!(check_numbers(numbers, BOUNDS).is_err(), "{case}");
        }
    }

    #[test]
    fn only_the_end_of_a_connection_to_a_killed_consumer_may_be_missing() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let sent = Sent {
            id: ConnectionId {
                generation: 0,
                trace: 0,
                client: 0,
                connection: 0,
            },
            progress: (1..=10).map(|second| (at(second), second)).collect(),
        };
        let accepted = |kills: &[Instant]| bounds(&sent, kills).accepted;
        assert_eq!(accepted(&[]), 10);
        assert_eq!(accepted(&[at(10)]), 7);
        assert_eq!(accepted(&[begin, at(12)]), 9);
        assert_eq!(accepted(&[at(14)]), 10);
        assert_eq!(bounds(&sent, &[at(10)]).sent, 10);
    }
}
