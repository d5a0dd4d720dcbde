//! The fields of an event that say whose it is, and of which span.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::Labels;

use super::kernel_threads::KernelFields;

/// Numbers in the payload of events of a kernel.
const KERNEL_NUMBERS: [&str; 17] = [
    "prev_state",
    "success",
    "irq",
    "vec",
    "prev_tid",
    "prev_pid",
    "next_tid",
    "next_pid",
    "parent_tid",
    "parent_pid",
    "child_tid",
    "child_pid",
    "tid",
    "pid",
    "perf_tid",
    "perf_pid",
    "perf_cpu",
];

/// Names of threads and processes in the payload.
const COMMS: [&str; 5] = ["prev_comm", "next_comm", "comm", "child_comm", "procname"];

/// A field that viewers interpret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Vpid,
    Vtid,
    Pid,
    Tid,
    Cpu,
    Procname,
    Address,
    Phase,
    Name,
    Message,
    Duration,
    Span,
    Parent,
    /// One of [`COMMS`].
    Comm(usize),
    /// One of [`KERNEL_NUMBERS`].
    Kernel(usize),
}

/// The interpreted fields of one event. The buffers are kept from event to event.
#[derive(Debug, Default)]
pub struct InterpretedFields {
    vpid: Option<i64>,
    vtid: Option<i64>,
    pid: Option<i64>,
    tid: Option<i64>,
    /// The number of the CPU of the packet.
    pub cpu: Option<i64>,
    /// The name of the process or thread; empty if there is none.
    pub procname: Vec<u8>,
    /// The address of a function.
    pub address: Option<u64>,
    /// The phase of a record in Trace Event Format.
    pub phase: Vec<u8>,
    /// The name of what the event is about.
    pub name: Vec<u8>,
    /// The text of a line in a log.
    pub message: Vec<u8>,
    /// The duration of a complete span, in nanoseconds.
    pub duration: u64,
    /// The id of a span.
    pub span: Option<u64>,
    /// The id of the span around it.
    pub parent: Option<u64>,
    comms: [Vec<u8>; COMMS.len()],
    kernel_numbers: [Option<i64>; KERNEL_NUMBERS.len()],
    in_payload: bool,
    depth: usize,
    member: Option<Member>,
}

impl InterpretedFields {
    /// Forgets the event before.
    pub fn clear(&mut self) {
        (self.vpid, self.vtid, self.pid, self.tid) = (None, None, None, None);
        (self.cpu, self.address, self.duration, self.span) = (None, None, 0, None);
        self.parent = None;
        for text in [
            &mut self.procname,
            &mut self.phase,
            &mut self.name,
            &mut self.message,
        ] {
            text.clear();
        }
        self.comms.iter_mut().for_each(Vec::clear);
        self.kernel_numbers = Default::default();
        (self.in_payload, self.depth, self.member) = (false, 0, None);
    }

    /// Forgets the event before, for one of which the context of its packet is known.
    #[inline]
    pub fn begin_event(&mut self, packet: &Self) {
        self.clear();
        (self.vpid, self.vtid, self.pid, self.tid) =
            (packet.vpid, packet.vtid, packet.pid, packet.tid);
        self.cpu = packet.cpu;
        self.procname.extend_from_slice(&packet.procname);
    }

    /// The process, as the contexts say.
    pub fn process(&self) -> Option<i64> {
        // Traces of programs have the first, traces of a kernel the second.
        self.vpid.or(self.pid)
    }

    /// The name of a thread in the payload, in the field `prev_comm`, `next_comm`, `comm`,
    /// `child_comm` or `procname`; empty if there is none.
    pub fn comm(&self, name: &str) -> &[u8] {
        let place = COMMS.iter().position(|known| *known == name);
        let comm = place.and_then(|place| self.comms.get(place));
        comm.map_or(&[], Vec::as_slice)
    }

    /// The thread, as the contexts say.
    pub fn thread(&self) -> Option<i64> {
        self.vtid.or(self.tid)
    }

    fn set_number(&mut self, value: i128, labels: Option<&Labels>) {
        if self.depth != 1 {
            return;
        }
        let signed = i64::try_from(value).ok();
        let unsigned = u64::try_from(value).ok();
        match self.member {
            Some(Member::Vpid) => self.vpid = signed,
            Some(Member::Vtid) => self.vtid = signed,
            Some(Member::Pid) => self.pid = signed,
            Some(Member::Tid) => self.tid = signed,
            Some(Member::Cpu) => self.cpu = signed,
            Some(Member::Address) => self.address = unsigned,
            Some(Member::Duration) => self.duration = unsigned.unwrap_or(0),
            // By our producers, 0 stands for a span without an id.
            Some(Member::Span) => self.span = unsigned.filter(|id| *id != 0),
            Some(Member::Parent) => self.parent = unsigned.filter(|id| *id != 0),
            Some(Member::Phase) => match labels.and_then(|labels| labels.of(value).next()) {
                Some(label) => self.phase.extend_from_slice(label.as_bytes()),
                // A phase is the character that it stands for.
                None => self
                    .phase
                    .extend(u8::try_from(value).ok().filter(u8::is_ascii_graphic)),
            },
            Some(Member::Kernel(place)) => {
                if let Some(number) = self.kernel_numbers.get_mut(place) {
                    *number = signed;
                }
            }
            _ => {}
        }
    }
}

impl KernelFields for InterpretedFields {
    fn number(&self, names: &[&str]) -> Option<i64> {
        names.iter().find_map(|name| {
            let place = KERNEL_NUMBERS.iter().position(|known| known == name)?;
            self.kernel_numbers.get(place).copied().flatten()
        })
    }

    fn context_number(&self, names: &[&str]) -> Option<i64> {
        names.iter().find_map(|name| match *name {
            "pid" => self.pid,
            "tid" => self.tid,
            _ => None,
        })
    }
}

impl Visitor for InterpretedFields {
    visit_depth!();

    fn member(&mut self, name: &str) {
        if self.depth != 1 {
            return;
        }
        self.member = match (self.in_payload, name) {
            (false, "vpid") => Some(Member::Vpid),
            (false, "vtid") => Some(Member::Vtid),
            (false, "pid") => Some(Member::Pid),
            (false, "tid") => Some(Member::Tid),
            (false, "cpu_id") => Some(Member::Cpu),
            (false, "procname") => Some(Member::Procname),
            (true, "addr") => Some(Member::Address),
            (true, "ph") => Some(Member::Phase),
            (true, "name") => Some(Member::Name),
            (true, "message") => Some(Member::Message),
            (true, "dur_ns") => Some(Member::Duration),
            (true, "span") => Some(Member::Span),
            (true, "parent") => Some(Member::Parent),
            (true, name) => {
                let place = |names: &[&str]| names.iter().position(|known| *known == name);
                let number = place(&KERNEL_NUMBERS).map(Member::Kernel);
                number.or_else(|| place(&COMMS).map(Member::Comm))
            }
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.set_number(i128::from(value), format.labels);
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.set_number(i128::from(value), format.labels);
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.depth != 1 {
            return;
        }
        let text = match self.member {
            Some(Member::Procname) => &mut self.procname,
            Some(Member::Phase) => &mut self.phase,
            Some(Member::Name) => &mut self.name,
            Some(Member::Message) => &mut self.message,
            Some(Member::Comm(place)) => match self.comms.get_mut(place) {
                Some(comm) => comm,
                None => return,
            },
            _ => return,
        };
        text.clear();
        text.extend_from_slice(bytes);
    }
}
