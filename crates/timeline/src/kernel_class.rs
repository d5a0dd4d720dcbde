//! What the classes of events of a Linux kernel say of CPUs and threads, as LTTng and perf name
//! them, and the states that threads have.

use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use viewer::interpret::kernel_threads::has_report_states;
use viewer::interpret::kind::RecordKind;

/// The names of software interrupts, by their numbers.
pub(super) const SOFTIRQS: [&str; 10] = [
    "softirq HI",
    "softirq TIMER",
    "softirq NET_TX",
    "softirq NET_RX",
    "softirq BLOCK",
    "softirq IRQ_POLL",
    "softirq TASKLET",
    "softirq SCHED",
    "softirq HRTIMER",
    "softirq RCU",
];

/// What the events of a class of a kernel say of CPUs and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelClass {
    /// A CPU runs another thread. Says whether [states](has_report_states) are those of Linux 4.14
    /// and later.
    Switch { has_report_states: bool },
    /// A thread can run.
    Wakeup,
    /// There is a new thread.
    Fork,
    /// A thread is gone, and its number may be used again.
    Free,
    /// A thread that existed when recording began.
    Statedump,
    /// The begin or end of what a CPU does besides the thread that it runs.
    Interrupt(Interrupt),
    /// Something that the thread does which runs.
    Other,
}

/// By what an interrupt is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Handler,
    Software,
    /// By the name of its class only.
    Named,
}

impl KernelClass {
    /// The class of a name, whose events are of a kind.
    pub(super) fn of(name: &str, kind: &RecordKind, trace: &Trace) -> Self {
        // perf puts the subsystem in front.
        match name.rsplit(':').next().unwrap_or_default() {
            "sched_switch" => Self::Switch {
                has_report_states: has_report_states(kernel_release(trace)),
            },
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => Self::Wakeup,
            "sched_process_fork" => Self::Fork,
            "sched_process_free" => Self::Free,
            "lttng_statedump_process_state" => Self::Statedump,
            _ if !kind.is_interrupt() => Self::Other,
            name if name.starts_with("irq_handler_") => Self::Interrupt(Interrupt::Handler),
            name if name.contains("softirq_") => Self::Interrupt(Interrupt::Software),
            _ => Self::Interrupt(Interrupt::Named),
        }
    }

    /// Whether fields of the payload count.
    pub(super) fn needs_payload(self) -> bool {
        self != Self::Other
    }
}

/// The release of the kernel, as LTTng and perf call it.
fn kernel_release(trace: &Trace) -> Option<&str> {
    let names = ["kernel_release", "release"];
    names
        .iter()
        .find_map(|name| match trace.environment_value(name)? {
            EnvironmentValue::Text(release) => Some(&**release),
            EnvironmentValue::Integer(_) => None,
        })
}

/// The state of a thread. The page knows them by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ThreadState {
    Running,
    Interrupted,
    Runnable,
    Preempted,
    Sleeping,
    Uninterruptible,
    Stopped,
    Traced,
    Parked,
    Idle,
}

impl ThreadState {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Interrupted => "Interrupted",
            Self::Runnable => "Runnable",
            Self::Preempted => "Runnable (preempted)",
            Self::Sleeping => "Sleeping",
            Self::Uninterruptible => "Uninterruptible sleep",
            Self::Stopped => "Stopped",
            Self::Traced => "Traced",
            Self::Parked => "Parked",
            Self::Idle => "Idle",
        }
    }

    /// The state in which a thread leaves its CPU (`prev_state`), as the kernel has it
    /// (`include/linux/sched.h`) or as its events report it. `None` if it has ended.
    pub(super) const fn after_switch(state: i64, has_report_states: bool) -> Option<Self> {
        /// `TASK_NOLOAD` with `TASK_UNINTERRUPTIBLE`.
        const KERNEL_IDLE: i64 = 0x402;
        /// `EXIT_DEAD` and `EXIT_ZOMBIE`.
        const ENDED: i64 = 0x30;
        Some(match state {
            _ if state & KERNEL_IDLE == KERNEL_IDLE => Self::Idle,
            _ if state & 1 != 0 => Self::Sleeping,
            _ if state & 2 != 0 => Self::Uninterruptible,
            _ if state & 4 != 0 => Self::Stopped,
            _ if state & 8 != 0 => Self::Traced,
            _ if state & ENDED != 0 => return None,
            _ if state & 0x40 != 0 && !has_report_states => return None,
            _ if state & 0x40 != 0 => Self::Parked,
            _ if state & 0x80 != 0 => Self::Idle,
            // The bits above say that it was preempted (`TASK_STATE_MAX`, `TASK_REPORT_MAX`).
            _ => Self::Preempted,
        })
    }

    pub(super) const fn can_run(self) -> bool {
        matches!(
            self,
            Self::Running | Self::Interrupted | Self::Runnable | Self::Preempted
        )
    }
}
