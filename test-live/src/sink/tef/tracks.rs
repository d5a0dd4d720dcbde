//! Processes and threads as the viewer shows them.

use std::collections::{HashMap, HashSet};

use super::super::Origin;
use super::super::json_text::{integer, lossy_string};
use super::own::Identity;
use crate::attach::TraceKey;

/// Numbers above every real process: Linux has at most 2^22.
const FIRST_INVENTED: i64 = 1 << 23;
/// Added to the number of a CPU that stands for a thread, for the same reason.
const FIRST_CPU: i64 = 1 << 24;
/// Hosts, processes or threads that are remembered. Beyond it all are forgotten: names are written
/// again, and a process may get another number.
const MAX_REMEMBERED: usize = 1 << 16;

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) process: i64,
    pub(crate) thread: i64,
    /// Events of several threads come here, one after the other.
    pub(crate) is_kernel_cpu: bool,
}

/// What a trace says of its process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Environment<'a> {
    pub(crate) host: Option<&'a str>,
    pub(crate) process_name: Option<&'a str>,
    pub(crate) process: Option<i64>,
    pub(crate) is_kernel: bool,
}

/// All that have been shown, but for those that stood for a trace that has ended. A process keeps its
/// own number unless one of another host has it.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    hosts: HashMap<TraceKey, usize>,
    host_names: HashMap<Box<str>, usize>,
    /// How many hosts there have been.
    seen_hosts: usize,
    processes: HashMap<Owner, i64>,
    taken: HashSet<i64>,
    named_threads: HashSet<(i64, i64)>,
    invented: i64,
    record: Vec<u8>,
}

/// Whose a process number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    /// A process of a host.
    Process(usize, i64),
    /// All of a trace of which no process is known.
    Trace(TraceKey),
}

impl Tracks {
    /// Where an event of this identity is shown; `name` is given the records that name what is new.
    pub(crate) fn track(
        &mut self,
        identity: &Identity,
        environment: Environment<'_>,
        origin: Origin<'_>,
        mut name: impl FnMut(&[u8]),
    ) -> Track {
        self.forget_if_many();
        let pid = identity.process().or(environment.process);
        let owner = match pid {
            Some(pid) => Owner::Process(self.host(environment, origin), pid),
            None => Owner::Trace(origin.trace.key),
        };
        let is_new = !self.processes.contains_key(&owner);
        let process = self.process(owner);
        if is_new {
            let known = environment
                .process_name
                .filter(|_| pid == environment.process);
            let known = known.map(str::as_bytes);
            // Of the kernel `procname` is a thread's name, which is not always the process' own.
            let procname = (!identity.procname.is_empty()).then_some(&*identity.procname);
            let shown = known.or(procname.filter(|_| pid.is_some()));
            let shown = shown.unwrap_or(origin.trace.name.as_bytes());
            let mut text = shown.to_vec();
            if let Some(host) = environment.host.filter(|_| pid.is_some()) {
                text.extend_from_slice(b" @ ");
                text.extend_from_slice(host.as_bytes());
            }
            self.write_name("process_name", process, 0, &text);
            name(&self.record);
        }
        let (thread, is_cpu) = match (identity.thread(), identity.cpu) {
            (Some(thread), _) => (thread, false),
            (None, cpu) => (FIRST_CPU.saturating_add(cpu.unwrap_or(0)), true),
        };
        if self.named_threads.insert((process, thread)) {
            if is_cpu {
                let text = format!("CPU {}", identity.cpu.unwrap_or(0));
                self.write_name("thread_name", process, thread, text.as_bytes());
                name(&self.record);
            } else if !identity.procname.is_empty() {
                self.write_name("thread_name", process, thread, &identity.procname);
                name(&self.record);
            }
        }
        Track {
            process,
            thread,
            is_kernel_cpu: is_cpu && environment.is_kernel,
        }
    }

    /// A trace that does not say its host is one of its own.
    fn host(&mut self, environment: Environment<'_>, origin: Origin<'_>) -> usize {
        if let Some(host) = self.hosts.get(&origin.trace.key) {
            return *host;
        }
        let known = environment.host.and_then(|name| self.host_names.get(name));
        let host = known.copied().unwrap_or(self.seen_hosts);
        if known.is_none() {
            self.seen_hosts += 1;
        }
        if let Some(name) = environment.host {
            self.host_names.insert(name.into(), host);
        }
        self.hosts.insert(origin.trace.key, host);
        host
    }

    /// Nothing further comes of a trace.
    pub(crate) fn forget_trace(&mut self, trace: TraceKey) {
        self.hosts.remove(&trace);
        if let Some(process) = self.processes.remove(&Owner::Trace(trace)) {
            self.taken.remove(&process);
            self.named_threads.retain(|(of, _)| *of != process);
        }
    }

    fn forget_if_many(&mut self) {
        let processes = self.processes.len().max(self.host_names.len());
        if processes >= MAX_REMEMBERED || self.named_threads.len() >= MAX_REMEMBERED {
            self.hosts.clear();
            self.host_names.clear();
            self.processes.clear();
            self.taken.clear();
            self.named_threads.clear();
        }
    }

    fn process(&mut self, owner: Owner) -> i64 {
        if let Some(process) = self.processes.get(&owner) {
            return *process;
        }
        let mut process = match owner {
            Owner::Process(_, pid) => pid,
            // Not that of a trace which has ended: what has been shown of it is still to be seen.
            Owner::Trace(_) => self.invent(),
        };
        while !self.taken.insert(process) {
            process = self.invent();
        }
        self.processes.insert(owner, process);
        process
    }

    fn invent(&mut self) -> i64 {
        let process = FIRST_INVENTED + self.invented;
        self.invented += 1;
        process
    }

    fn write_name(&mut self, what: &str, process: i64, thread: i64, name: &[u8]) {
        let out = &mut self.record;
        out.clear();
        out.extend_from_slice(b"\"ph\":\"M\",\"name\":\"");
        out.extend_from_slice(what.as_bytes());
        out.extend_from_slice(b"\",\"pid\":");
        integer(process, out);
        out.extend_from_slice(b",\"tid\":");
        integer(thread, out);
        out.extend_from_slice(b",\"args\":{\"name\":");
        lossy_string(name, out);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests_support::TestOrigin;

    fn track(tracks: &mut Tracks, of: Environment<'_>, place: &TestOrigin) -> i64 {
        let identity = Identity::default();
        tracks.track(&identity, of, place.origin(), |_| {}).process
    }

    #[test]
    fn the_tef_sink_keeps_only_hosts_and_processes_of_ended_traces() {
        let mut tracks = Tracks::default();
        let host = Environment {
            host: Some("h"),
            process: Some(7),
            ..Environment::default()
        };
        let mut seen = HashSet::new();
        for _ in 0..100 {
            let (anonymous, known) = (TestOrigin::new("t", "s"), TestOrigin::new("t", "s"));
            // What is shown of traces that have ended is still to be told from the next.
            assert!(seen.insert(track(&mut tracks, Environment::default(), &anonymous)));
            assert_eq!(track(&mut tracks, host, &known), 7);
            tracks.forget_trace(anonymous.trace.key);
            tracks.forget_trace(known.trace.key);
        }
        assert!(tracks.hosts.is_empty());
        assert_eq!((tracks.host_names.len(), tracks.processes.len()), (1, 1));
        assert_eq!((tracks.taken.len(), tracks.named_threads.len()), (1, 1));
    }

    #[test]
    fn the_number_of_processes_in_the_tef_sink_is_limited() {
        let mut tracks = Tracks::default();
        let place = TestOrigin::new("t", "s");
        for process in 0..2 * i64::try_from(MAX_REMEMBERED).unwrap() {
            let of = Environment {
                host: Some("h"),
                process: Some(process),
                ..Environment::default()
            };
            assert_eq!(track(&mut tracks, of, &place), process);
            assert!(tracks.processes.len() <= MAX_REMEMBERED);
        }
    }
}
