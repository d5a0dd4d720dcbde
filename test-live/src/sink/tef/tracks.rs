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

/// All that have been shown. A process keeps its own number unless one of another host has it.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    hosts: HashMap<TraceKey, usize>,
    host_names: HashMap<Box<str>, usize>,
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
        let fresh = self.hosts.len();
        let host = match environment.host {
            Some(name) => *self.host_names.entry(name.into()).or_insert(fresh),
            None => fresh,
        };
        self.hosts.insert(origin.trace.key, host);
        host
    }

    fn process(&mut self, owner: Owner) -> i64 {
        if let Some(process) = self.processes.get(&owner) {
            return *process;
        }
        let mut process = match owner {
            Owner::Process(_, pid) => pid,
            Owner::Trace(_) => FIRST_INVENTED,
        };
        while !self.taken.insert(process) {
            process = FIRST_INVENTED + self.invented;
            self.invented += 1;
        }
        self.processes.insert(owner, process);
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
