//! The processes and threads of spans, as they are shown.

use std::collections::HashMap;

use ::tef::event::OwnerId;

use super::name_numbers::{OTHER, shortened};
use super::threads::{Host, OwnerKey, Thread, ThreadKey, ThreadNames};
use crate::attach::TraceKey;

/// Largest number of threads that are told apart. Further ones are shown as one.
pub(super) const MAX_OWNERS: usize = 1 << 16;
/// Largest number of names of threads that are remembered. With one more, all are forgotten.
const MAX_THREAD_NAMES: usize = MAX_OWNERS;

/// The numbers of a thread and its process in [`SpanOwners`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerNumber {
    /// The number of the process, which is that of one of its threads.
    pub process: u32,
    /// The number of the thread.
    pub thread: u32,
}

/// The number of all threads that are not told apart.
pub(super) const OTHERS: OwnerNumber = OwnerNumber {
    process: 0,
    thread: 0,
};

/// A process and thread, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpanOwner {
    /// Name of the host; empty if it is not known.
    pub host: String,
    /// Name of the process; empty if it is not known. Without a process, that of the trace.
    pub process: String,
    /// Id of the process.
    pub pid: Option<OwnerId<'static>>,
    /// Name of the thread, or of what stands for it; empty if it is not known.
    pub thread: String,
    /// Id of the thread.
    pub tid: Option<OwnerId<'static>>,
}

impl SpanOwner {
    /// The process as one text: `NAME[PID]`, as far as it is known, with `@ HOST` if that is asked
    /// for.
    #[must_use]
    pub fn process_label(&self, has_host: bool) -> String {
        let label = label(&self.process, self.pid.as_ref());
        match &*self.host {
            host if has_host && !host.is_empty() => format!("{label} @ {host}"),
            _ => label,
        }
    }

    /// The thread as one text: `NAME[TID]`, as far as it is known.
    #[must_use]
    pub fn thread_label(&self) -> String {
        label(&self.thread, self.tid.as_ref())
    }
}

fn label(name: &str, id: Option<&OwnerId<'_>>) -> String {
    match id {
        Some(id) => format!("{name}[{id}]"),
        None if name.is_empty() => "?".to_owned(),
        None => name.to_owned(),
    }
}

/// What is known of a thread when its first span is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundOwner<'a> {
    pub(super) key: ThreadKey,
    pub(super) host: Option<&'a str>,
    pub(super) process: Option<&'a OwnerId<'a>>,
    pub(super) thread: Option<&'a OwnerId<'a>>,
    pub(super) trace: TraceKey,
    /// The name of the trace, or of the program that it is a recording of.
    pub(super) trace_name: &'a str,
    /// What is shown in place of a thread, such as a CPU; empty if the owner is a thread.
    pub(super) what: &'a str,
}

/// A process of a host, or all of a trace of which no process is known.
type ProcessKey = (Host, Option<OwnerKey>, Option<TraceKey>);

/// The threads that have had spans, each with a number.
#[derive(Debug)]
pub struct SpanOwners {
    numbers: HashMap<ThreadKey, OwnerNumber>,
    processes: HashMap<ProcessKey, u32>,
    owners: Vec<(Option<ThreadKey>, SpanOwner)>,
    thread_names: HashMap<ThreadKey, Box<str>>,
    /// The thread that was asked for last: the next event is often of the same.
    last: Option<(ThreadKey, OwnerNumber)>,
    is_full: bool,
}

impl Default for SpanOwners {
    fn default() -> Self {
        let others = SpanOwner {
            process: OTHER.to_owned(),
            ..SpanOwner::default()
        };
        Self {
            numbers: HashMap::new(),
            processes: HashMap::new(),
            owners: vec![(None, others)],
            thread_names: HashMap::new(),
            last: None,
            is_full: false,
        }
    }
}

impl SpanOwners {
    /// The number of a thread; `find` is asked about a new one.
    pub(super) fn number<'a>(
        &mut self,
        key: ThreadKey,
        find: impl FnOnce() -> FoundOwner<'a>,
    ) -> OwnerNumber {
        if let Some((last, number)) = self.last
            && last == key
        {
            return number;
        }
        let known = self.numbers.get(&key).copied();
        let number = known.unwrap_or_else(|| self.add(&find()));
        self.last = Some((key, number));
        number
    }

    fn add(&mut self, found: &FoundOwner<'_>) -> OwnerNumber {
        if self.owners.len() >= MAX_OWNERS {
            self.is_full = true;
            return OTHERS;
        }
        let thread = u32::try_from(self.owners.len()).unwrap_or(OTHERS.thread);
        let (trace, trace_name) = match found.process {
            Some(_) => (None, ""),
            None => (Some(found.trace), found.trace_name),
        };
        let process = (found.key.host, found.key.process, trace);
        let process = *self.processes.entry(process).or_insert(thread);
        let number = OwnerNumber { process, thread };
        let owner = SpanOwner {
            host: shortened(found.host.unwrap_or_default()).to_owned(),
            process: shortened(trace_name).to_owned(),
            pid: found.process.cloned().map(OwnerId::into_owned),
            thread: shortened(found.what).to_owned(),
            tid: found.thread.cloned().map(OwnerId::into_owned),
        };
        self.numbers.insert(found.key, number);
        self.owners.push((Some(found.key), owner));
        number
    }

    /// Whether there was a thread that is not told apart from others.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the threads are of several hosts.
    pub(super) fn has_several_hosts(&self) -> bool {
        let mut hosts = self.owners.iter().skip(1).map(|(_, owner)| &owner.host);
        let first = hosts.next();
        hosts.any(|host| Some(host) != first)
    }

    /// Gives a thread a name, which replaces the one it had.
    pub(super) fn name_thread(&mut self, key: ThreadKey, name: &str) {
        let name = shortened(name);
        let known = self.thread_names.get(&key);
        if name.is_empty() || known.is_some_and(|known| **known == *name) {
            return;
        }
        if known.is_none() && self.thread_names.len() >= MAX_THREAD_NAMES {
            self.thread_names.clear();
        }
        self.thread_names.insert(key, name.into());
    }

    /// A thread with this number, by the names that are known now.
    pub(super) fn owner(&self, number: u32, names: &ThreadNames) -> SpanOwner {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some((key, owner)) = self.owners.get(place) else {
            return SpanOwner::default();
        };
        let mut owner = owner.clone();
        let Some(key) = key else {
            return owner;
        };
        let program = names.program(key.host, key.process);
        if !program.is_empty() {
            program.clone_into(&mut owner.process);
        }
        if let (Thread::Id(_), Some(name)) = (key.thread, self.thread_names.get(key)) {
            owner.thread = name.to_string();
        }
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_thread_that_changes_its_name_costs_no_other_its_name() {
        let (mut owners, names) = (SpanOwners::default(), ThreadNames::default());
        let trace = TraceKey::fresh();
        let key = |thread| ThreadKey {
            host: Host::OfTrace(trace),
            process: None,
            thread: Thread::Id(OwnerKey::Number(thread)),
        };
        let all = i64::try_from(MAX_OWNERS).unwrap();
        for thread in 0..all {
            let number = owners.number(key(thread), || FoundOwner {
                key: key(thread),
                host: None,
                process: None,
                thread: None,
                trace,
                trace_name: "t",
                what: "",
            });
            owners.name_thread(key(thread), "first");
            assert_eq!(owners.is_full(), number == OTHERS);
        }
        owners.name_thread(key(all - 1), "second");
        assert_eq!(owners.owner(1, &names).thread, "first");
        assert!(owners.is_full());
    }

    #[test]
    fn threads_beyond_the_limit_are_one_and_later_names_are_shown() {
        let (mut owners, mut names) = (SpanOwners::default(), ThreadNames::default());
        let trace = TraceKey::fresh();
        let key = |thread| ThreadKey {
            host: Host::OfTrace(trace),
            process: Some(OwnerKey::Number(7)),
            thread: Thread::Id(OwnerKey::Number(thread)),
        };
        let pid = OwnerId::Number(7);
        let find = |key| FoundOwner {
            key,
            host: Some("h"),
            process: Some(&pid),
            thread: None,
            trace,
            trace_name: "t",
            what: "",
        };
        let mut last = OTHERS;
        for thread in 0..2 * i64::try_from(MAX_OWNERS).unwrap() {
            last = owners.number(key(thread), || find(key(thread)));
            owners.name_thread(key(thread), &"é".repeat(1000));
            assert!(owners.thread_names.len() <= MAX_THREAD_NAMES);
        }
        assert_eq!((last, owners.owners.len()), (OTHERS, MAX_OWNERS));
        assert_eq!(owners.owner(last.thread, &names).process, OTHER);
        let first = owners.number(key(0), || unreachable!());
        assert_eq!((first.process, first.thread), (1, 1));
        let second = owners.number(key(1), || unreachable!());
        assert_eq!((second.process, second.thread), (1, 2));
        assert_eq!(owners.owner(first.thread, &names).process, "");
        names.set_program(Host::OfTrace(trace), OwnerKey::Number(7), "app");
        owners.name_thread(key(0), "worker");
        let owner = owners.owner(first.thread, &names);
        assert_eq!((&*owner.process, &*owner.thread), ("app", "worker"));
    }
}
