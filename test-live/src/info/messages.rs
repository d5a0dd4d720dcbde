//! Messages between hosts: whether each was received after it was sent. No alignment of clocks is
//! right by which one was not.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::Serialize;
use viewer::interpret::flows::{Flow, FlowStep};

/// Largest number of messages of which only one end is known. When there are more, all are
/// forgotten.
const MAX_OPEN: usize = 1 << 16;

/// The messages between hosts.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// For each flow the end that came first: whether it is a send, the host, and the time.
    open: HashMap<u64, (bool, u64, i64)>,
    pub(super) counts: MessageCounts,
}

/// The numbers of messages between hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct MessageCounts {
    /// Messages of which both ends are known.
    pub(super) matched: u64,
    /// Those that were received before they were sent.
    pub(super) reversed: u64,
    /// By how much at most, in nanoseconds.
    pub(super) max_reversed_ns: u64,
}

impl fmt::Display for MessageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} between hosts", self.matched)?;
        match self.reversed {
            0 => f.write_str(", all received after they were sent"),
            count => {
                let most = Duration::from_nanos(self.max_reversed_ns);
                write!(
                    f,
                    ", {count} received before they were sent, by up to {most:.3?}"
                )
            }
        }
    }
}

impl Messages {
    /// Adds an event of a flow, at this time of a host.
    pub(super) fn add(&mut self, flow: Flow, host: &str, time: i64) {
        let is_send = match flow.step {
            FlowStep::Begin => true,
            FlowStep::End => false,
            FlowStep::Next => return,
        };
        if flow.is_local {
            return;
        }
        let mut hasher = DefaultHasher::new();
        host.hash(&mut hasher);
        let host = hasher.finish();
        let other = self.open.remove(&flow.key);
        let Some((_, other_host, other_time)) = other.filter(|(of_send, ..)| *of_send != is_send)
        else {
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            self.open.insert(flow.key, (is_send, host, time));
            return;
        };
        if host == other_host {
            return;
        }
        self.counts.matched += 1;
        let (sent, received) = if is_send {
            (time, other_time)
        } else {
            (other_time, time)
        };
        if received < sent {
            self.counts.reversed += 1;
            let by = sent.abs_diff(received);
            self.counts.max_reversed_ns = self.counts.max_reversed_ns.max(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_matched_in_either_order_between_different_hosts() {
        let mut messages = Messages::default();
        let flow = |key, step| Flow {
            key,
            step,
            is_local: false,
        };
        for (key, step, host, time) in [
            (1, FlowStep::Begin, "a", 100),
            (1, FlowStep::End, "b", 150),
            // Received first, by the clocks.
            (2, FlowStep::End, "b", 170),
            (2, FlowStep::Begin, "a", 200),
            // Within a host, and of which one end is missing.
            (3, FlowStep::Begin, "a", 210),
            (3, FlowStep::End, "a", 205),
            (4, FlowStep::Begin, "a", 220),
            (4, FlowStep::Begin, "a", 230),
            (4, FlowStep::End, "b", 225),
        ] {
            messages.add(flow(key, step), host, time);
        }
        let local = Flow {
            is_local: true,
            ..flow(5, FlowStep::Begin)
        };
        messages.add(local, "a", 300);
        messages.add(
            Flow {
                step: FlowStep::End,
                ..local
            },
            "b",
            299,
        );
        let counts = MessageCounts {
            matched: 3,
            reversed: 2,
            max_reversed_ns: 30,
        };
        assert_eq!(messages.counts, counts);
    }
}
