//! Threads that lines are of, and the names of programs that were sent.

use std::collections::HashMap;

use crate::attach::TraceKey;

/// Largest number of hosts and of programs that are remembered. With one more, all are forgotten.
const MAX_REMEMBERED: usize = 1 << 14;
/// Number of characters of a program's name that are shown.
const MAX_NAME_CHARACTERS: usize = 64;

/// A thread, whose spans are nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ThreadKey {
    pub(super) host: Host,
    pub(super) process: Option<i64>,
    pub(super) thread: Thread,
}

/// The host of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Host {
    /// The number of a name.
    Named(u64),
    /// That of a trace which does not name it.
    OfTrace(TraceKey),
}

/// A thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Thread {
    Id(i64),
    /// What runs on this CPU, when no thread is known.
    Cpu(i64),
}

/// The hosts and programs of traces.
#[derive(Debug, Default)]
pub(super) struct Names {
    hosts: HashMap<Box<str>, u64>,
    /// The number of hosts so far.
    seen_hosts: u64,
    programs: HashMap<(Host, i64), Box<str>>,
}

impl Names {
    /// The host of a trace, by its name if the trace says it.
    pub(super) fn host(&mut self, name: Option<&str>, trace: TraceKey) -> Host {
        let Some(name) = name else {
            return Host::OfTrace(trace);
        };
        if let Some(number) = self.hosts.get(name) {
            return Host::Named(*number);
        }
        if self.hosts.len() >= MAX_REMEMBERED {
            self.hosts.clear();
        }
        self.seen_hosts += 1;
        self.hosts.insert(name.into(), self.seen_hosts);
        Host::Named(self.seen_hosts)
    }

    /// The name of a process; empty if it is not known.
    pub(super) fn program(&self, host: Host, process: Option<i64>) -> &str {
        let name = process.and_then(|process| self.programs.get(&(host, process)));
        name.map_or("", |name| name)
    }

    /// Remembers the name of a process.
    pub(super) fn set_program(&mut self, host: Host, process: i64, name: &str) {
        if self.programs.len() >= MAX_REMEMBERED {
            self.programs.clear();
        }
        let name: String = name.chars().take(MAX_NAME_CHARACTERS).collect();
        self.programs.insert((host, process), name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_one_host_share_it_and_those_without_a_name_do_not() {
        let mut names = Names::default();
        let (one, other) = (TraceKey::fresh(), TraceKey::fresh());
        assert_eq!(names.host(Some("a"), one), names.host(Some("a"), other));
        assert_ne!(names.host(Some("a"), one), names.host(Some("b"), one));
        assert_ne!(names.host(None, one), names.host(None, other));
    }

    #[test]
    fn the_numbers_of_hosts_and_programs_in_the_log_sink_are_bounded() {
        let mut names = Names::default();
        let trace = TraceKey::fresh();
        let mut seen = std::collections::HashSet::new();
        for number in 0..i64::try_from(2 * MAX_REMEMBERED).unwrap() {
            let host = names.host(Some(&number.to_string()), trace);
            assert!(seen.insert(host));
            names.set_program(host, number, &"x".repeat(1000));
            assert_eq!(names.program(host, Some(number)).len(), MAX_NAME_CHARACTERS);
            assert!(names.hosts.len().max(names.programs.len()) <= MAX_REMEMBERED);
        }
    }
}
