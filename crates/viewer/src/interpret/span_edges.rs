//! Which events begin and end spans, of which thread, and when: the same for all that measures
//! spans, whatever has recorded them.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use ::tef::Record;
use ::tef::ctf::{Client, Decoded, RecordDecoder};
use ::tef::event::{Event as SentEvent, OwnerId};
use ::tef::perfetto::round_times;
use ctf::decode::{Event, FieldError};
use ctf::model::EnvironmentValue;

use super::calls::{CallRecord, Recordings};
use super::debug_info::EventLocations;
use super::environment::Environment;
use super::interpreted_fields::InterpretedFields;
use super::kernel_threads::{KernelFields, KernelThreads};
use super::kind::{RecordKind, RecordKinds};
use super::process_names::told_name;
use super::span_owners::{FoundOwner, OTHERS, OwnerNumber, SpanOwner, SpanOwners};
use super::threads::{Host, OwnerKey, Thread, ThreadKey, ThreadNames};
use crate::attach::TraceKey;
use crate::sink::Origin;

/// Events of a kernel by which threads and their names are known.
const EVENTS_ABOUT_THREADS: [&str; 3] = [
    "sched_switch",
    "sched_process_fork",
    "lttng_statedump_process_state",
];

/// The begin or end of a span, or a whole span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge<'a> {
    /// What the event says of the span.
    pub kind: EdgeKind,
    /// The name of the span; empty if the end does not say it.
    pub name: Cow<'a, str>,
    /// The id by which begin and end of the span belong together, if there is one.
    pub id: Option<u64>,
    /// Nanoseconds, on the clock of the trace or, if the event was sent, of the program.
    pub time: i64,
    /// The thread, or asynchronous id, within whose spans the span is.
    pub thread: ThreadKey,
    /// The process and thread that the span is shown to be of.
    pub owner: OwnerNumber,
    /// Whether a program has sent the event, with a time of its own.
    pub is_sent: bool,
    /// Whether whole spans may come from this thread: one may be around others that are known
    /// already.
    pub has_whole_spans: bool,
}

/// What an event says of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// The span begins.
    Begin,
    /// The span ends.
    End,
    /// The span takes this number of nanoseconds from its time on.
    Whole(u64),
}

/// Finds the edges of spans among events, and knows the processes and threads that they are of.
#[derive(Debug, Default)]
pub struct EdgeReader {
    kinds: RecordKinds,
    recordings: Recordings,
    sent: RecordDecoder,
    fields: InterpretedFields,
    kernel: KernelThreads<Host>,
    names: ThreadNames,
    owners: SpanOwners,
    /// The time of the last event that had one, in nanoseconds.
    now: i64,
    has_unpaired: bool,
}

impl EdgeReader {
    /// The edge of a span that an event is. `None` if it is none.
    ///
    /// # Errors
    /// If the fields of the event cannot be decoded.
    pub fn read(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<Edge<'_>>, FieldError> {
        // An event without a time is where the one before it was.
        self.now = event.time().unwrap_or(self.now);
        let class = event.class().name().unwrap_or_default();
        let environment = Environment::of(event.trace());
        if RecordDecoder::is_known_class(class) {
            self.sent.clear();
            event.visit(&mut self.sent)?;
            let host = self.names.host(environment.host, origin.trace.key);
            let Self {
                sent,
                names,
                owners,
                ..
            } = self;
            let reader = SentReader {
                host,
                host_name: environment.host,
                trace: origin.trace.key,
                trace_name: &origin.trace.name,
                names,
                owners,
            };
            return Ok(sent.decode(class).and_then(|decoded| reader.read(decoded)));
        }
        if let Some(call) = self.recordings.record(event, origin.trace.key)? {
            return Ok(self.call(call, environment, origin));
        }
        self.declared(event, class, environment, origin)
    }

    /// The process and thread of a number in [`OwnerNumber`], by the names that are known now.
    #[must_use]
    pub fn owner(&self, number: u32) -> SpanOwner {
        self.owners.owner(number, &self.names)
    }

    /// Whether the threads are of several hosts.
    #[must_use]
    pub fn has_several_hosts(&self) -> bool {
        self.owners.has_several_hosts()
    }

    /// Whether there are more threads than are told apart.
    #[must_use]
    pub fn has_other_threads(&self) -> bool {
        self.owners.is_full()
    }

    /// Whether an event was left out although it begins or ends a span, because its thread is not
    /// known.
    #[must_use]
    pub fn has_unpaired(&self) -> bool {
        self.has_unpaired
    }

    /// Forgets a trace that has ended.
    pub fn forget_trace(&mut self, trace: TraceKey) {
        self.kinds.forget_trace(trace);
        self.recordings.forget_trace(trace);
    }

    /// The edge of a call in a recording of CodeTracer.
    fn call(
        &mut self,
        call: CallRecord,
        environment: Environment<'_>,
        origin: Origin<'_>,
    ) -> Option<Edge<'static>> {
        let (kind, name) = match call {
            CallRecord::Begin(name, _) => (EdgeKind::Begin, name),
            CallRecord::End(name, _) => (EdgeKind::End, name),
            CallRecord::None | CallRecord::Instant => return None,
        };
        let key = ThreadKey {
            host: Host::OfTrace(origin.trace.key),
            process: None,
            thread: Thread::Id(OwnerKey::Number(0)),
        };
        let program = self.recordings.program(origin.trace.key);
        let program = program.filter(|program| !program.is_empty());
        let owner = self.owners.number(key, || FoundOwner {
            key,
            host: environment.host,
            process: None,
            thread: None,
            trace: origin.trace.key,
            trace_name: program.unwrap_or(&origin.trace.name),
            what: "recording",
        });
        Some(Edge {
            kind,
            name: Cow::Owned(name),
            id: None,
            time: self.now,
            thread: key,
            owner,
            is_sent: false,
            has_whole_spans: false,
        })
    }

    /// The edge that an event of a class is whose trace declares it.
    fn declared(
        &mut self,
        event: &Event<'_>,
        class: &str,
        environment: Environment<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<Edge<'_>>, FieldError> {
        let kind = self.kinds.kind(event, origin.trace.key);
        // perf puts the subsystem in front.
        let plain = class.rsplit(':').next().unwrap_or_default();
        let is_about_threads = environment.is_kernel && EVENTS_ABOUT_THREADS.contains(&plain);
        if matches!(kind, RecordKind::Log | RecordKind::Instant) && !is_about_threads {
            return Ok(None);
        }
        self.fields.clear();
        event.visit_packet_context(&mut self.fields)?;
        let is_function = matches!(kind, RecordKind::FunctionEntry | RecordKind::FunctionExit);
        // The payload of other events says nothing here, except that of perf: whose they are.
        let is_payload_needed = kind.is_generic() || is_function || is_about_threads;
        match is_payload_needed || environment.is_kernel && is_of_perf(event) {
            true => event.visit_fields(&mut self.fields)?,
            false => event.visit_contexts(&mut self.fields)?,
        }
        let host = self.names.host(environment.host, origin.trace.key);
        let (key, process, thread) = self.owner_of(plain, host, environment);
        if is_about_threads {
            self.learn_names(plain, host);
        }
        if matches!(kind, RecordKind::Log | RecordKind::Instant) {
            return Ok(None);
        }
        if !kind.fits(thread.is_some(), environment.is_kernel) {
            self.has_unpaired |= !environment.is_kernel;
            return Ok(None);
        }
        let owner = self.shown_owner(key, process, thread, environment, origin);
        let Some((kind, name)) = edge_of(&kind, class, &self.fields, environment.is_kernel, origin)
        else {
            return Ok(None);
        };
        Ok(Some(Edge {
            kind,
            name,
            id: self.fields.span,
            time: self.now,
            thread: key,
            owner,
            is_sent: false,
            has_whole_spans: !self.fields.phase.is_empty(),
        }))
    }

    /// The thread whose spans are nested, and the process and thread as far as they are known.
    fn owner_of(
        &mut self,
        class: &str,
        host: Host,
        environment: Environment<'_>,
    ) -> (ThreadKey, Option<i64>, Option<i64>) {
        let fields = &self.fields;
        let (mut process, mut thread) = (fields.process(), fields.thread());
        let mut cpu = fields.cpu.unwrap_or(0);
        if environment.is_kernel {
            cpu = fields.number(&["perf_cpu"]).unwrap_or(cpu);
            let running = self.kernel.thread_of(class, &host, cpu, fields);
            thread = running.filter(|thread| *thread > 0);
            let of_thread = thread.and_then(|thread| self.kernel.process(host, thread));
            process = process.filter(|_| thread.is_some()).or(of_thread);
        } else {
            process = process.or(environment.process);
            thread = environment.thread(thread);
        }
        let key = ThreadKey {
            host,
            // Of a kernel, the number of a thread is enough, and its process may be known later.
            process: process
                .filter(|_| !environment.is_kernel)
                .map(OwnerKey::Number),
            thread: match thread {
                Some(thread) => Thread::Id(OwnerKey::Number(thread)),
                None => Thread::Cpu(cpu),
            },
        };
        (key, process, thread)
    }

    /// Learns the names of processes from an event of a kernel.
    fn learn_names(&mut self, class: &str, host: Host) {
        let fields = &self.fields;
        let (thread, name) = match class {
            "sched_switch" => (
                fields.number(&["next_tid", "next_pid"]),
                fields.comm("next_comm"),
            ),
            "lttng_statedump_process_state" => (fields.number(&["tid"]), &*fields.name),
            _ => return,
        };
        let Some(thread) = thread.filter(|thread| *thread > 0 && !name.is_empty()) else {
            return;
        };
        let name = String::from_utf8_lossy(name);
        let (id, process) = (OwnerKey::Number(thread), self.kernel.process(host, thread));
        for process in [None, process.map(OwnerKey::Number)] {
            let key = ThreadKey {
                host,
                process,
                thread: Thread::Id(id),
            };
            self.owners.name_thread(key, &name);
        }
        // The name of the first thread is that of the process.
        if process.is_none_or(|process| process == thread) {
            self.names.set_program(host, id, &name);
        }
    }

    fn shown_owner(
        &mut self,
        key: ThreadKey,
        process: Option<i64>,
        thread: Option<i64>,
        environment: Environment<'_>,
        origin: Origin<'_>,
    ) -> OwnerNumber {
        let shown = ThreadKey {
            process: process.map(OwnerKey::Number),
            ..key
        };
        let (fields, names, kernel) = (&self.fields, &mut self.names, environment.is_kernel);
        let (process, thread) = (process.map(OwnerId::Number), thread.map(OwnerId::Number));
        let what = match key.thread {
            Thread::Cpu(cpu) => format!("CPU {cpu}"),
            _ => String::new(),
        };
        let mut is_new = false;
        let number = self.owners.number(shown, || {
            is_new = true;
            FoundOwner {
                key: shown,
                host: environment.host,
                process: process.as_ref(),
                thread: thread.as_ref(),
                trace: origin.trace.key,
                trace_name: &origin.trace.name,
                what: &what,
            }
        });
        if is_new && number != OTHERS {
            let procname = String::from_utf8_lossy(&fields.procname);
            self.owners.name_thread(shown, &procname);
            let is_main = !kernel || thread == process;
            let own = environment.process_name.unwrap_or(match is_main {
                true => &procname,
                false => "",
            });
            if let Some(process) = shown.process.filter(|_| !own.is_empty())
                && names.program(shown.host, Some(process)).is_empty()
            {
                names.set_program(shown.host, process, own);
            }
        }
        number
    }
}

/// What an event of this kind says, and the name of the span. `None` if it is no edge.
fn edge_of<'f>(
    kind: &RecordKind,
    class: &str,
    fields: &'f InterpretedFields,
    is_kernel: bool,
    origin: Origin<'_>,
) -> Option<(EdgeKind, Cow<'f, str>)> {
    let (edge, name) = match kind {
        RecordKind::Record => {
            let edge = match &*fields.phase {
                b"B" => EdgeKind::Begin,
                b"E" => EdgeKind::End,
                b"X" => EdgeKind::Whole(fields.duration),
                _ => return None,
            };
            (edge, String::from_utf8_lossy(&fields.name))
        }
        RecordKind::SpanEnter => (EdgeKind::Begin, String::from_utf8_lossy(&fields.name)),
        RecordKind::SpanExit => (EdgeKind::End, String::from_utf8_lossy(&fields.name)),
        RecordKind::FunctionEntry => (EdgeKind::Begin, function_name(fields, origin)),
        RecordKind::FunctionExit => (EdgeKind::End, function_name(fields, origin)),
        RecordKind::Begin(span) => (EdgeKind::Begin, span.shown_name(class, is_kernel).into()),
        RecordKind::End(span) => (EdgeKind::End, span.shown_name(class, is_kernel).into()),
        RecordKind::Log | RecordKind::Instant => return None,
    };
    Some((edge, name))
}

/// The name of a function: its address, if its name is not known. Not every exit says it.
fn function_name(fields: &InterpretedFields, origin: Origin<'_>) -> Cow<'static, str> {
    if let Some(name) = origin.locations.and_then(EventLocations::function_name) {
        return Cow::Owned(name.to_owned());
    }
    let address = fields.address.map(|address| format!("{address:#x}"));
    Cow::Owned(address.unwrap_or_default())
}

/// Whether a trace was converted from one of perf, whose events have their owner in the payload.
/// Whether an event was recorded by perf, which says in the payload whose it is.
pub fn is_of_perf(event: &Event<'_>) -> bool {
    let tracer = event.trace().environment_value("tracer_name");
    matches!(tracer, Some(EnvironmentValue::Text(name)) if **name == *"perf")
}

/// Reads events that programs have sent in Trace Event Format.
struct SentReader<'r> {
    host: Host,
    host_name: Option<&'r str>,
    trace: TraceKey,
    trace_name: &'r str,
    names: &'r mut ThreadNames,
    owners: &'r mut SpanOwners,
}

impl SentReader<'_> {
    fn read<'d>(self, decoded: Decoded<'d>) -> Option<Edge<'d>> {
        match decoded {
            Decoded::Record {
                record: Record::Event(sent),
                ..
            } => self.sent(sent),
            Decoded::Client(client) => {
                self.set_program(&client);
                None
            }
            Decoded::Record { .. } | Decoded::Lost(_) => None,
        }
    }

    fn set_program(self, client: &Client<'_>) {
        let exe = Path::new(client.exe).file_name();
        if let (Some(pid), Some(exe)) = (client.pid, exe) {
            let process = OwnerKey::Number(pid.into());
            // A process that has said its name keeps it.
            if self.names.program(self.host, Some(process)).is_empty() {
                self.names
                    .set_program(self.host, process, &exe.to_string_lossy());
            }
        }
    }

    fn sent<'d>(self, mut sent: SentEvent<'d>) -> Option<Edge<'d>> {
        round_times(&mut sent);
        let Self {
            host,
            host_name,
            trace,
            trace_name,
            names,
            owners,
        } = self;
        let (pid, tid) = (sent.process(), sent.thread());
        let process = pid.as_ref().map(|pid| names.owner(pid));
        let thread = tid.as_ref().map(|tid| names.owner(tid));
        // As viewers take it: an event of no thread is of the first.
        let first = thread.or(process).unwrap_or(OwnerKey::Number(0));
        let mut key = ThreadKey {
            host,
            process,
            thread: Thread::Id(first),
        };
        let kind = match sent.phase {
            "B" | "b" | "S" => EdgeKind::Begin,
            "E" | "e" | "F" => EdgeKind::End,
            "X" => EdgeKind::Whole(u64::try_from(sent.dur?).unwrap_or(0)),
            "M" => {
                rename(&sent, key, names, owners);
                return None;
            }
            _ => return None,
        };
        let is_async = !matches!(sent.phase, "B" | "E" | "X");
        if is_async {
            key.thread = Thread::Async(async_id(&sent)?);
        }
        let shown = ThreadKey {
            // All that is asynchronous in a process is shown together.
            thread: if is_async {
                Thread::Async(0)
            } else {
                key.thread
            },
            ..key
        };
        let owner = owners.number(shown, || FoundOwner {
            key: shown,
            host: host_name,
            process: pid.as_ref(),
            thread: tid.as_ref().or(pid.as_ref()).filter(|_| !is_async),
            trace,
            trace_name,
            what: if is_async { "async" } else { "" },
        });
        if sent.id2_global.is_some() && is_async {
            // One process may end what another has begun.
            key.process = None;
        }
        let time = sent.ts?;
        let name = sent.name.unwrap_or_default();
        Some(Edge {
            kind,
            // Spans of one asynchronous id need not nest: an end is of the last begin of its name.
            id: (is_async && !name.is_empty()).then(|| hash(&*name)),
            name,
            time,
            thread: key,
            owner,
            is_sent: true,
            has_whole_spans: !is_async,
        })
    }
}

/// What an asynchronous span has in common with its end. `None` if it has no id.
fn async_id(sent: &SentEvent<'_>) -> Option<u64> {
    let ids = [sent.id, sent.id2_local, sent.id2_global];
    ids.iter().find_map(|id| *id)?;
    Some(hash((sent.cat.as_deref(), sent.scope.as_deref(), ids)))
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Learns the name of a process or thread, as the process says it.
fn rename(sent: &SentEvent<'_>, key: ThreadKey, names: &mut ThreadNames, owners: &mut SpanOwners) {
    let Some(name) = told_name(sent) else {
        return;
    };
    match (sent.name.as_deref(), key.process) {
        (Some("process_name"), Some(process)) => names.set_program(key.host, process, &name),
        (Some("thread_name"), _) => owners.name_thread(key, &name),
        _ => {}
    }
}
