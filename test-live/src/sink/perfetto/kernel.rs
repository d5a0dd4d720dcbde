//! Events of a Linux kernel, as LTTng and perf record them: those for which Perfetto has tables
//! become events of ftrace, and all others get the thread that runs on their CPU.
//!
//! Perfetto knows the threads of a kernel by their numbers. Events of several hosts are of several
//! machines, and what else is known of the threads of other machines than the first is drawn on
//! tracks that name the host.

use std::collections::HashMap;

use ::perfetto::canvas::Canvas;
use ::perfetto::fields::EventFields;
use ::perfetto::ftrace::{
    CpuState, IrqHandlerEntry, IrqHandlerExit, KernelEvent, SchedProcessExec, SchedProcessExit,
    SchedProcessFork, SchedProcessFree, SchedSwitch, SchedWakeup, Softirq, TaskNewtask, TaskRename,
};
use ::perfetto::message::{Process, ProcessTree, Thread, Utsname};
use ::perfetto::tracks::{Host, Owner, hash};
use ::perfetto::{Cpu, Machine};
use ::tef::event::OwnerId;
use ctf::decode::Event;
use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use viewer::attach::StreamKey;
use viewer::interpret::kernel_threads::{KernelFields, KernelThreads, has_report_states};
use viewer::sink::Origin;

/// Largest number of hosts whose events become those of ftrace.
const MAX_MACHINES: u32 = 256;
/// Largest number of streams whose CPUs are remembered. With one more, all are forgotten.
const MAX_REMEMBERED: usize = 1 << 17;
/// The flag of a clone that makes a thread, not a process. (`CLONE_THREAD`)
const CLONE_THREAD: u64 = 0x1_0000;

/// What is known of the kernel.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// The hosts whose events become those of ftrace.
    machines: HashMap<HostHash, KernelMachine>,
    threads: KernelThreads<HostHash>,
    /// The CPUs of streams.
    cpus: HashMap<StreamKey, Cpu>,
}

#[derive(Debug, Clone, Copy)]
struct KernelMachine {
    machine: Machine,
    /// Whether the states of threads are those of Linux 4.14 and later.
    has_report_states: bool,
}

/// The [`hash`] of a host.
type HostHash = u64;

/// The fields of an event, as [`KernelThreads`] reads them.
struct Fields<'f>(&'f EventFields);

impl KernelFields for Fields<'_> {
    fn number(&self, names: &[&str]) -> Option<i64> {
        self.0.number(names)
    }

    fn context_number(&self, names: &[&str]) -> Option<i64> {
        self.0.context_number(names)
    }
}

impl Kernel {
    /// Draws an event that Perfetto has a table for. Otherwise sets the thread of `owner`, and
    /// returns false.
    pub(super) fn draw(
        &mut self,
        event: &Event<'_>,
        fields: &EventFields,
        owner: &mut Owner<'_>,
        origin: Origin<'_>,
        now: i64,
        canvas: &mut Canvas,
    ) -> bool {
        self.forget_if_many();
        let host = hash(owner.host);
        let machine = self.machine(host, owner.host, event.trace(), canvas);
        let cpu = fields.number(&["perf_cpu"]).or(fields.cpu).unwrap_or(0);
        owner.cpu = cpu;
        let name = event.class().name().unwrap_or_default();
        // perf puts the subsystem in front.
        let name = name.rsplit(':').next().unwrap_or_default();
        let thread = self.threads.thread_of(name, &host, cpu, &Fields(fields));
        if let Some(KernelMachine {
            machine,
            has_report_states,
        }) = machine
        {
            if let Some(tree) = process_tree(name, fields) {
                canvas.encoder.process_tree(machine, now, tree);
                return true;
            }
            let cpu = Cpu {
                machine,
                number: u32::try_from(cpu).unwrap_or(0),
            };
            self.cpus.insert(origin.stream.key, cpu);
            let tid = thread.and_then(|thread| u32::try_from(thread).ok());
            if let Some(event) = kernel_event(name, fields, has_report_states) {
                canvas
                    .encoder
                    .kernel_event(cpu, now, tid.unwrap_or(0), event);
                return true;
            }
        }
        self.set_owner(host, thread, fields, owner);
        if machine.is_some_and(|known| known.machine == Machine(0)) {
            // The events of ftrace name threads, and the tree names processes.
            owner.thread_name = None;
            owner.process_name = None;
        }
        false
    }

    /// Records that events of a stream were lost.
    pub(super) fn lose(&mut self, origin: Origin<'_>, canvas: &mut Canvas) {
        if let Some(cpu) = self.cpus.get(&origin.stream.key) {
            canvas.encoder.kernel_loss(*cpu);
        }
    }

    /// Forgets a stream that has ended.
    pub(super) fn forget_stream(&mut self, stream: StreamKey) {
        self.cpus.remove(&stream);
    }

    /// The machine of a host, unless there are too many.
    fn machine(
        &mut self,
        key: HostHash,
        host: Host<'_>,
        trace: &Trace,
        canvas: &mut Canvas,
    ) -> Option<KernelMachine> {
        if let Some(known) = self.machines.get(&key) {
            return Some(*known);
        }
        let number = u32::try_from(self.machines.len()).ok();
        let machine = Machine(number.filter(|number| *number < MAX_MACHINES)?);
        let utsname = utsname(trace);
        let new = KernelMachine {
            machine,
            has_report_states: has_report_states(utsname.release.as_deref()),
        };
        canvas.kernel(machine, host, utsname);
        self.machines.insert(key, new);
        Some(new)
    }

    fn set_owner(
        &self,
        host: HostHash,
        thread: Option<i64>,
        fields: &EventFields,
        owner: &mut Owner<'_>,
    ) {
        let Some(thread) = thread.filter(|thread| *thread > 0) else {
            owner.thread = None;
            owner.process = None;
            return;
        };
        owner.thread = Some(OwnerId::Number(thread));
        let process = fields.context_number(&["pid"]);
        let process = process.or_else(|| self.threads.process(host, thread));
        owner.process = process.map(OwnerId::Number);
    }

    fn forget_if_many(&mut self) {
        if self.cpus.len() >= MAX_REMEMBERED {
            self.cpus.clear();
        }
    }
}

/// The state of a thread as ftrace reports it since Linux 4.14. LTTng may have recorded the state
/// of the kernel itself, which has more bits (`include/linux/sched.h`).
fn report_state(state: i64) -> i64 {
    const REPORTED: i64 = 0x7f;
    /// As ftrace reports a thread that could go on. (`TASK_REPORT_MAX`)
    const PREEMPTED: i64 = 0x100;
    /// As ftrace reports a thread that waits, but not for what the load counts.
    const IDLE: i64 = 0x80;
    /// `TASK_NOLOAD` with `TASK_UNINTERRUPTIBLE`.
    const KERNEL_IDLE: i64 = 0x402;
    match state {
        0..=PREEMPTED => state,
        _ if state & KERNEL_IDLE == KERNEL_IDLE => IDLE,
        // Such as `TASK_WAKEKILL` with `TASK_UNINTERRUPTIBLE`.
        _ if state & REPORTED != 0 => state & REPORTED,
        // `TASK_STATE_MAX`, whose value depends on the kernel.
        _ => PREEMPTED,
    }
}

/// The kernel that a trace is of.
fn utsname(trace: &Trace) -> Utsname {
    let text = |names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| match trace.environment_value(name) {
                Some(EnvironmentValue::Text(text)) => Some(text.to_string()),
                _ => None,
            })
    };
    Utsname {
        sysname: text(["sysname", "sysname"]),
        version: text(["kernel_version", "version"]),
        release: text(["kernel_release", "release"]),
        machine: text(["machine", "architecture_bit_width"]),
    }
}

/// A process or thread that existed when recording began.
fn process_tree(name: &str, fields: &EventFields) -> Option<ProcessTree> {
    if name != "lttng_statedump_process_state" {
        return None;
    }
    let number = |name| {
        fields
            .number(&[name])
            .and_then(|number| i32::try_from(number).ok())
    };
    let (tid, pid) = (number("tid")?, number("pid")?);
    let name = fields.text(&["name"]).to_owned();
    let mut tree = ProcessTree::default();
    if tid == pid {
        tree.processes.push(Process {
            pid: Some(pid),
            ppid: number("ppid"),
            cmdline: vec![name.clone()],
        });
    }
    tree.threads.push(Thread {
        tid: Some(tid),
        tgid: Some(pid),
        name: Some(name),
    });
    Some(tree)
}

/// What an event says of a thread that can run again.
fn wakeup(fields: &EventFields) -> SchedWakeup {
    let number = |names: &[&str]| {
        let number = fields.number(names)?;
        i32::try_from(number).ok()
    };
    SchedWakeup {
        comm: Some(fields.text(&["comm"]).to_owned()),
        pid: number(&["tid", "pid"]),
        prio: number(&["prio"]),
        success: number(&["success"]).or(Some(1)),
        target_cpu: number(&["target_cpu"]),
    }
}

/// The event of ftrace that an event becomes. Absent if there is none for it.
fn kernel_event(name: &str, fields: &EventFields, has_report_states: bool) -> Option<KernelEvent> {
    let number = |names: &[&str]| {
        let number = fields.number(names)?;
        i32::try_from(number).ok()
    };
    let unsigned = |names: &[&str]| {
        let number = fields.number(names)?;
        u32::try_from(number).ok()
    };
    let text = |names: &[&str]| Some(fields.text(names).to_owned());
    let comm = text(&["comm"]);
    let (pid, prio) = (number(&["tid", "pid"]), number(&["prio"]));
    Some(match name {
        "sched_switch" => KernelEvent::SchedSwitch(SchedSwitch {
            prev_comm: text(&["prev_comm"]),
            prev_pid: number(&["prev_tid", "prev_pid"]),
            prev_prio: number(&["prev_prio"]),
            prev_state: fields.number(&["prev_state"]).map(|state| {
                if has_report_states {
                    report_state(state)
                } else {
                    state
                }
            }),
            next_comm: text(&["next_comm"]),
            next_pid: number(&["next_tid", "next_pid"]),
            next_prio: number(&["next_prio"]),
        }),
        "sched_waking" => KernelEvent::SchedWaking(wakeup(fields)),
        "sched_wakeup" => KernelEvent::SchedWakeup(wakeup(fields)),
        "sched_wakeup_new" => KernelEvent::SchedWakeupNew(wakeup(fields)),
        // Of the two events by which Perfetto knows new threads, the one that tells them from
        // processes. perf does not.
        "sched_process_fork" => match (number(&["child_tid"]), number(&["child_pid"])) {
            (Some(tid), Some(tgid)) => KernelEvent::TaskNewtask(TaskNewtask {
                pid: Some(tid),
                comm: text(&["child_comm"]),
                clone_flags: Some(if tid == tgid { 0 } else { CLONE_THREAD }),
            }),
            (child_tid, child_pid) => KernelEvent::SchedProcessFork(SchedProcessFork {
                parent_comm: text(&["parent_comm"]),
                parent_pid: number(&["parent_tid", "parent_pid"]),
                child_comm: text(&["child_comm"]),
                child_pid: child_tid.or(child_pid),
            }),
        },
        "sched_process_exec" => KernelEvent::SchedProcessExec(SchedProcessExec {
            filename: text(&["filename"]),
            pid,
            old_pid: number(&["old_tid", "old_pid"]),
        }),
        "sched_process_exit" => KernelEvent::SchedProcessExit(SchedProcessExit {
            comm,
            pid,
            tgid: None,
            prio,
        }),
        "sched_process_free" => KernelEvent::SchedProcessFree(SchedProcessFree { comm, pid, prio }),
        "task_rename" => KernelEvent::TaskRename(TaskRename {
            pid,
            oldcomm: text(&["oldcomm"]),
            newcomm: text(&["newcomm"]),
        }),
        "irq_softirq_entry" | "softirq_entry" => KernelEvent::SoftirqEntry(Softirq {
            vec: unsigned(&["vec"]),
        }),
        "irq_softirq_exit" | "softirq_exit" => KernelEvent::SoftirqExit(Softirq {
            vec: unsigned(&["vec"]),
        }),
        "irq_handler_entry" => KernelEvent::IrqHandlerEntry(IrqHandlerEntry {
            irq: number(&["irq"]),
            name: text(&["name"]),
        }),
        "irq_handler_exit" => KernelEvent::IrqHandlerExit(IrqHandlerExit {
            irq: number(&["irq"]),
            ret: number(&["ret"]),
        }),
        "power_cpu_frequency" | "cpu_frequency" => KernelEvent::CpuFrequency(CpuState {
            state: unsigned(&["state"]),
            cpu_id: unsigned(&["cpu_id"]),
        }),
        "power_cpu_idle" | "cpu_idle" => KernelEvent::CpuIdle(CpuState {
            state: unsigned(&["state"]),
            cpu_id: unsigned(&["cpu_id"]),
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_kernel_become_those_that_ftrace_reports() {
        // As LTTng 2.10 recorded them on Linux 4.15.
        let states = [
            (0, 0),
            (1, 1),
            (2, 2),
            (258, 2),
            (1026, 0x80),
            (4096, 0x100),
            (256, 256),
        ];
        for (state, reported) in states {
            assert_eq!(report_state(state), reported, "{state}");
        }
    }
}
