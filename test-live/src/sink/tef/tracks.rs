//! Processes and threads as the viewer shows them.

use std::collections::{HashMap, HashSet};

use ::tef::document::Records;
use viewer::attach::TraceKey;
use viewer::interpret::environment::Environment;
use viewer::json_text::lossy_string;
use viewer::sink::Origin;

use super::fields::{EventFields, Member};

/// Numbers above every real process: Linux has at most 2^22.
const FIRST_INVENTED: i64 = 1 << 23;
/// Added to the number of a CPU that stands for a thread, so that it is above every real thread.
const FIRST_CPU: i64 = 1 << 24;
/// Largest number of hosts, processes or threads that are remembered. When there are more, all are
/// forgotten: names are written again, and a process may get another number.
const MAX_REMEMBERED: usize = 1 << 16;

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    pub(super) process: i64,
    pub(super) thread: i64,
    /// Whether only events of one thread come here. Otherwise those of a CPU do, of several threads
    /// one after the other.
    pub(super) is_thread: bool,
    /// Whether the events are those of a kernel.
    pub(super) is_kernel: bool,
}

/// The tracks that have been shown, without those of traces that have ended. A process keeps its
/// own number unless one of another host has it.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    hosts: HashMap<TraceKey, usize>,
    host_names: HashMap<Box<str>, usize>,
    /// The number of hosts so far.
    seen_hosts: usize,
    processes: HashMap<Owner, i64>,
    taken: HashSet<i64>,
    named_threads: HashSet<(i64, i64)>,
    /// The numbers of threads, by process and id, that viewers do not know by their own.
    wide_threads: HashMap<(i64, i64), i64>,
    invented: i64,
}

/// The owner of a process number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    /// A process of a host.
    Process(usize, i64),
    /// All of a trace of which no process is known.
    Trace(TraceKey),
}

impl Tracks {
    /// The track of an event with these fields; the records that name a new one are added to
    /// `records`.
    pub(super) fn track(
        &mut self,
        fields: &EventFields,
        environment: Environment<'_>,
        origin: Origin<'_>,
        records: &mut Records,
    ) -> Track {
        self.forget_if_many();
        let procname = fields.text(Member::Procname);
        let pid = fields.process().or(environment.process);
        // The contexts of a recording say nothing.
        let pid = pid.filter(|_| !environment.is_recording);
        let owner = match pid {
            Some(pid) => Owner::Process(self.host(environment, origin), pid),
            None => Owner::Trace(origin.trace.key),
        };
        let known = self.processes.get(&owner).copied();
        let process = known.unwrap_or_else(|| self.add_process(owner));
        if known.is_none() {
            let own_name = environment
                .process_name
                .filter(|_| pid == environment.process || environment.is_recording);
            let mut name = match own_name {
                Some(name) => name.as_bytes().to_vec(),
                // Of the kernel `procname` is a thread's name, which is not always the process'
                // own.
                None if pid.is_some() && !procname.is_empty() => procname.to_vec(),
                None => origin.trace.name.clone().into_bytes(),
            };
            // Processes of several hosts often have the same name.
            if let Some(host) = environment.host.filter(|_| pid.is_some()) {
                name.extend_from_slice(b" @ ");
                name.extend_from_slice(host.as_bytes());
            }
            write_name("process_name", process, 0, &name, records);
        }
        let cpu = fields.signed(Member::Cpu).unwrap_or(0);
        let own_thread = environment.thread(fields.thread());
        let thread = match own_thread {
            // The first thread has the id of its process.
            Some(thread) if pid == Some(thread) => process,
            Some(thread) if is_known(thread) => thread,
            Some(thread) => self.wide_thread(process, thread),
            None => FIRST_CPU.saturating_add(cpu),
        };
        if self.named_threads.insert((process, thread)) {
            if own_thread.is_none() {
                let name = match environment.is_recording {
                    true => "recording".to_owned(),
                    false => format!("CPU {cpu}"),
                };
                write_name("thread_name", process, thread, name.as_bytes(), records);
            } else if !procname.is_empty() {
                write_name("thread_name", process, thread, procname, records);
            } else if let Some(id) = own_thread.filter(|id| *id != thread) {
                let id = id.to_string();
                write_name("thread_name", process, thread, id.as_bytes(), records);
            }
        }
        Track {
            process,
            thread,
            is_thread: own_thread.is_some() || environment.is_recording,
            is_kernel: environment.is_kernel,
        }
    }

    /// The number of a trace's host. A trace that does not name its host has one of its own.
    fn host(&mut self, environment: Environment<'_>, origin: Origin<'_>) -> usize {
        if let Some(host) = self.hosts.get(&origin.trace.key) {
            return *host;
        }
        let known = environment.host.and_then(|name| self.host_names.get(name));
        let host = known.copied().unwrap_or(self.seen_hosts);
        self.seen_hosts = self.seen_hosts.max(host + 1);
        if let Some(name) = environment.host {
            self.host_names.insert(name.into(), host);
        }
        self.hosts.insert(origin.trace.key, host);
        host
    }

    /// Forgets a trace that has ended.
    pub(super) fn forget_trace(&mut self, trace: TraceKey) {
        self.hosts.remove(&trace);
        if let Some(process) = self.processes.remove(&Owner::Trace(trace)) {
            self.taken.remove(&process);
            self.named_threads.retain(|(of, _)| *of != process);
            self.wide_threads.retain(|(of, _), _| *of != process);
        }
    }

    fn forget_if_many(&mut self) {
        let processes = self.processes.len().max(self.host_names.len());
        let threads = self.named_threads.len().max(self.wide_threads.len());
        if processes >= MAX_REMEMBERED || threads >= MAX_REMEMBERED {
            // Numbers go on: one that was shown must not mean another process now.
            *self = Self {
                seen_hosts: self.seen_hosts,
                invented: self.invented,
                ..Self::default()
            };
        }
    }

    fn add_process(&mut self, owner: Owner) -> i64 {
        let mut process = match owner {
            Owner::Process(_, pid) if is_known(pid) || pid == 0 => pid,
            Owner::Process(..) => self.invent_number(),
            // Not that of a trace which has ended: what has been shown of it is still to be seen.
            Owner::Trace(_) => self.invent_number(),
        };
        // A process of another host may have the same number.
        while !self.taken.insert(process) {
            process = self.invent_number();
        }
        self.processes.insert(owner, process);
        process
    }

    fn wide_thread(&mut self, process: i64, id: i64) -> i64 {
        if let Some(thread) = self.wide_threads.get(&(process, id)) {
            return *thread;
        }
        let thread = self.invent_number();
        self.wide_threads.insert((process, id), thread);
        thread
    }

    fn invent_number(&mut self) -> i64 {
        self.invented += 1;
        FIRST_INVENTED + self.invented - 1
    }
}

/// Whether viewers know a number of a process or thread: others become 0 or that of the process.
fn is_known(number: i64) -> bool {
    number > 0 && u32::try_from(number).is_ok()
}

/// Adds the record that names a process or thread.
fn write_name(what: &str, process: i64, thread: i64, name: &[u8], records: &mut Records) {
    let head = format!(
        "\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":"
    );
    let mut members = head.into_bytes();
    lossy_string(name, &mut members);
    members.push(b'}');
    records.add(None, &members);
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::test_support::TestOrigin;

    fn track(tracks: &mut Tracks, of: Environment<'_>, place: &TestOrigin) -> i64 {
        let mut records = Records::new(false);
        let fields = EventFields::default();
        let track = tracks.track(&fields, of, place.origin(), &mut records);
        track.process
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
            // The tracks of ended traces must stay distinct from those of later traces.
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
