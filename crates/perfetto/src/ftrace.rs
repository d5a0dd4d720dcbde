//! The messages of events of a Linux kernel, with the fields that are used. Names and numbers are
//! those of Perfetto's `protos/perfetto/trace/ftrace`.

use prost::{Message, Oneof};

/// Events of one CPU, but for the events themselves.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    /// Whether events before these were lost.
    #[prost(bool, optional, tag = "3")]
    pub lost_events: Option<bool>,
}

impl FtraceEventBundle {
    /// The number of the field with an event, which comes once for each: a [`FtraceEvent`].
    pub(crate) const EVENT: u32 = 2;
}

/// An event of a kernel.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct FtraceEvent {
    /// Nanoseconds on the clock of the trace.
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    /// The thread that ran. (`pid`)
    #[prost(uint32, optional, tag = "2")]
    pub thread: Option<u32>,
    #[prost(
        oneof = "KernelEvent",
        tags = "4, 11, 13, 17, 20, 24, 25, 36, 37, 114, 235, 236, 237, 238, 239, 240"
    )]
    pub event: Option<KernelEvent>,
}

/// What has happened in a kernel.
#[expect(missing_docs, reason = "the names are those of the kernel's events")]
#[derive(Clone, PartialEq, Oneof)]
pub enum KernelEvent {
    #[prost(message, tag = "4")]
    SchedSwitch(SchedSwitch),
    #[prost(message, tag = "11")]
    CpuFrequency(CpuState),
    #[prost(message, tag = "13")]
    CpuIdle(CpuState),
    #[prost(message, tag = "17")]
    SchedWakeup(SchedWakeup),
    #[prost(message, tag = "20")]
    SchedWaking(SchedWakeup),
    #[prost(message, tag = "24")]
    SoftirqEntry(Softirq),
    #[prost(message, tag = "25")]
    SoftirqExit(Softirq),
    #[prost(message, tag = "36")]
    IrqHandlerEntry(IrqHandlerEntry),
    #[prost(message, tag = "37")]
    IrqHandlerExit(IrqHandlerExit),
    #[prost(message, tag = "114")]
    SchedWakeupNew(SchedWakeup),
    #[prost(message, tag = "235")]
    TaskNewtask(TaskNewtask),
    #[prost(message, tag = "236")]
    TaskRename(TaskRename),
    #[prost(message, tag = "237")]
    SchedProcessExec(SchedProcessExec),
    #[prost(message, tag = "238")]
    SchedProcessExit(SchedProcessExit),
    #[prost(message, tag = "239")]
    SchedProcessFork(SchedProcessFork),
    #[prost(message, tag = "240")]
    SchedProcessFree(SchedProcessFree),
}

/// Another thread runs on a CPU.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    pub prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub next_prio: Option<i32>,
}

/// A thread can run again.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedWakeup {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub target_cpu: Option<i32>,
}

/// The frequency in kHz of a CPU, or how deep it sleeps: 2^32-1 stands for not at all.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct CpuState {
    #[prost(uint32, optional, tag = "1")]
    pub state: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub cpu_id: Option<u32>,
}

/// A software interrupt by its number.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct Softirq {
    #[prost(uint32, optional, tag = "1")]
    pub vec: Option<u32>,
}

/// The handler of an interrupt begins.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct IrqHandlerEntry {
    #[prost(int32, optional, tag = "1")]
    pub irq: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// The handler of an interrupt ends.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct IrqHandlerExit {
    #[prost(int32, optional, tag = "1")]
    pub irq: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub ret: Option<i32>,
}

/// There is a new process or thread.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct TaskNewtask {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub comm: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub clone_flags: Option<u64>,
}

/// A thread has another name.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct TaskRename {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub oldcomm: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub newcomm: Option<String>,
}

/// A process executes another program.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedProcessExec {
    #[prost(string, optional, tag = "1")]
    pub filename: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub old_pid: Option<i32>,
}

/// A thread has ended.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedProcessExit {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub prio: Option<i32>,
}

/// There is a new thread.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedProcessFork {
    #[prost(string, optional, tag = "1")]
    pub parent_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub parent_pid: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub child_comm: Option<String>,
    #[prost(int32, optional, tag = "4")]
    pub child_pid: Option<i32>,
}

/// The id of a thread may be used again.
#[expect(missing_docs, reason = "the names are those of the kernel's event")]
#[derive(Clone, PartialEq, Message)]
pub struct SchedProcessFree {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prio: Option<i32>,
}
