//! Threads that events are of, and the names of programs.

use std::collections::HashMap;

use ::tef::event::OwnerId;

use super::name_numbers::first_characters;
use crate::attach::TraceKey;

/// Largest number of names of hosts and of owners, and of programs, that are remembered. With one
/// more, all are forgotten.
const MAX_REMEMBERED: usize = 1 << 14;
/// Number of characters of a program's name that are shown.
const MAX_NAME_CHARACTERS: usize = 64;

/// A thread, whose spans are nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadKey {
    /// The host that the thread runs on.
    pub host: Host,
    /// The process that the thread is of. Absent if it is not known.
    pub process: Option<OwnerKey>,
    /// The thread itself.
    pub thread: Thread,
}

/// The host of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host {
    /// The number that stands for a name.
    Named(u64),
    /// The host of a trace that does not name it.
    OfTrace(TraceKey),
}

/// A thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thread {
    /// The id of the thread.
    Id(OwnerKey),
    /// What runs on this CPU, when no thread is known.
    Cpu(i64),
    /// No thread, but something asynchronous of the process: a hash of what tells it from others.
    Async(u64),
}

/// The id of a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerKey {
    /// The number of a process or thread.
    Number(i64),
    /// The number that stands for a name.
    Named(u64),
}

/// The hosts and programs of traces, and the processes and threads that have names for ids.
#[derive(Debug, Default)]
pub struct ThreadNames {
    hosts: RecentNames,
    owners: RecentNames,
    programs: HashMap<(Host, OwnerKey), Box<str>>,
}

/// The numbers that have been given to names.
#[derive(Debug, Default)]
struct RecentNames {
    names: HashMap<Box<str>, u64>,
    /// The number of names so far.
    seen: u64,
}

impl RecentNames {
    fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        if self.names.len() >= MAX_REMEMBERED {
            // All at once: hosts and owners this many are not worth an order of use.
            self.names.clear();
        }
        // Counted on when all are forgotten: no number ever stands for two names.
        self.seen += 1;
        self.names.insert(name.into(), self.seen);
        self.seen
    }
}

impl ThreadNames {
    /// The host of a trace, by its name if the trace says it.
    pub fn host(&mut self, name: Option<&str>, trace: TraceKey) -> Host {
        match name {
            Some(name) => Host::Named(self.hosts.number(name)),
            None => Host::OfTrace(trace),
        }
    }

    /// The key of an id that a program has sent.
    pub fn owner(&mut self, id: &OwnerId<'_>) -> OwnerKey {
        match id {
            OwnerId::Number(number) => OwnerKey::Number(*number),
            OwnerId::Text(text) => OwnerKey::Named(self.owners.number(text)),
        }
    }

    /// The name of a process; empty if it is not known.
    pub fn program(&self, host: Host, process: Option<OwnerKey>) -> &str {
        let name = process.and_then(|process| self.programs.get(&(host, process)));
        name.map_or("", |name| name)
    }

    /// Remembers the name of a process.
    pub fn set_program(&mut self, host: Host, process: OwnerKey, name: &str) {
        let key = (host, process);
        let name = first_characters(name, MAX_NAME_CHARACTERS);
        let known = self.programs.get(&key);
        if known.is_some_and(|known| **known == *name) {
            return;
        }
        if known.is_none() && self.programs.len() >= MAX_REMEMBERED {
            self.programs.clear();
        }
        self.programs.insert(key, name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_one_host_share_it_and_those_without_a_name_do_not() {
        let mut names = ThreadNames::default();
        let (one, other) = (TraceKey::fresh(), TraceKey::fresh());
        assert_eq!(names.host(Some("a"), one), names.host(Some("a"), other));
        assert_ne!(names.host(Some("a"), one), names.host(Some("b"), one));
        assert_ne!(names.host(None, one), names.host(None, other));
    }

    #[test]
    fn the_numbers_of_hosts_owners_and_programs_in_the_log_sink_are_bounded() {
        let mut names = ThreadNames::default();
        let trace = TraceKey::fresh();
        let mut seen = std::collections::HashSet::new();
        for number in 0..i64::try_from(2 * MAX_REMEMBERED).unwrap() {
            let host = names.host(Some(&number.to_string()), trace);
            assert!(seen.insert(host));
            let owner = names.owner(&OwnerId::Text(number.to_string().into()));
            names.set_program(host, owner, &"x".repeat(1000));
            assert_eq!(names.program(host, Some(owner)).len(), MAX_NAME_CHARACTERS);
            let remembered = [&names.hosts, &names.owners].map(|of| of.names.len());
            assert!(remembered.into_iter().all(|count| count <= MAX_REMEMBERED));
            assert!(names.programs.len() <= MAX_REMEMBERED);
        }
    }

    #[test]
    fn a_program_that_is_known_already_costs_no_other_its_name() {
        let mut names = ThreadNames::default();
        let host = Host::OfTrace(TraceKey::fresh());
        let all = i64::try_from(MAX_REMEMBERED).unwrap();
        for process in 0..all {
            names.set_program(host, OwnerKey::Number(process), "first");
        }
        for name in ["first", "second"] {
            names.set_program(host, OwnerKey::Number(all - 1), name);
            assert_eq!(names.program(host, Some(OwnerKey::Number(0))), "first");
            assert_eq!(names.program(host, Some(OwnerKey::Number(all - 1))), name);
        }
    }
}
