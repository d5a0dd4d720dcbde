//! Which threads a Linux kernel runs, as its own events say, and of which processes they are.
//! Without contexts, an event of the kernel is of the thread that runs on its CPU.

use std::collections::HashMap;
use std::hash::Hash;

/// Largest number of threads whose processes are remembered, and of CPUs. With one more, all are
/// forgotten.
const MAX_REMEMBERED: usize = 1 << 17;

/// The fields of an event of a kernel.
pub trait KernelFields {
    /// The number of a field of the payload, under the first of these names that it has.
    fn number(&self, names: &[&str]) -> Option<i64>;

    /// The number of a field of the contexts, under the first of these names that it has.
    fn context_number(&self, names: &[&str]) -> Option<i64>;
}

/// The threads of kernels, each of which has a host `H`.
#[derive(Debug)]
pub struct KernelThreads<H> {
    /// The threads that run, by host and CPU.
    running: HashMap<(H, i64), i64>,
    /// The processes of threads.
    processes: HashMap<(H, i64), i64>,
}

impl<H> Default for KernelThreads<H> {
    fn default() -> Self {
        Self {
            running: HashMap::new(),
            processes: HashMap::new(),
        }
    }
}

impl<H: Eq + Hash + Clone> KernelThreads<H> {
    /// The thread that an event is of; thread 0 is what an idle CPU runs. Learns from the event
    /// which thread runs then.
    pub fn thread_of(
        &mut self,
        name: &str,
        host: &H,
        cpu: i64,
        fields: &impl KernelFields,
    ) -> Option<i64> {
        if self.running.len().max(self.processes.len()) >= MAX_REMEMBERED {
            *self = Self::default();
        }
        let thread = self.thread(name, host, cpu, fields);
        self.learn(name, host, cpu, fields);
        thread
    }

    /// The process of a thread, if it is known.
    pub fn process(&self, host: H, thread: i64) -> Option<i64> {
        self.processes.get(&(host, thread)).copied()
    }

    /// Forgets which thread a CPU runs: events of it were lost.
    pub fn forget_running(&mut self, host: H, cpu: i64) {
        self.running.remove(&(host, cpu));
    }

    fn thread(&self, name: &str, host: &H, cpu: i64, fields: &impl KernelFields) -> Option<i64> {
        let of_event = match name {
            "sched_switch" => fields.number(&["prev_tid", "prev_pid"]),
            "sched_process_fork" => fields.number(&["parent_tid", "parent_pid"]),
            _ => None,
        };
        let thread = of_event.or_else(|| fields.context_number(&["tid"]));
        let thread = thread.or_else(|| fields.number(&["perf_tid"]));
        thread.or_else(|| self.running.get(&(host.clone(), cpu)).copied())
    }

    /// Learns which thread runs, and of which processes threads are.
    fn learn(&mut self, name: &str, host: &H, cpu: i64, fields: &impl KernelFields) {
        // The number of a thread that is gone is used again.
        let gone = match name {
            "sched_process_fork" => fields.number(&["child_tid", "child_pid"]),
            "sched_process_free" => fields.number(&["tid", "pid"]),
            _ => None,
        };
        if let Some(gone) = gone {
            self.processes.remove(&(host.clone(), gone));
        }
        let of_thread = match name {
            "sched_switch" => {
                if let Some(next) = fields.number(&["next_tid", "next_pid"]) {
                    self.running.insert((host.clone(), cpu), next);
                }
                None
            }
            "sched_process_fork" => fields
                .number(&["child_tid"])
                .zip(fields.number(&["child_pid"])),
            "lttng_statedump_process_state" => fields.number(&["tid"]).zip(fields.number(&["pid"])),
            _ => None,
        };
        let of_event = fields
            .context_number(&["tid"])
            .zip(fields.context_number(&["pid"]));
        let of_event = of_event.or_else(|| {
            fields
                .number(&["perf_tid"])
                .zip(fields.number(&["perf_pid"]))
        });
        for (thread, process) in of_thread.into_iter().chain(of_event) {
            self.processes.insert((host.clone(), thread), process);
        }
    }
}

/// Whether a kernel of this release is of Linux 4.14 or later, or not known. Since then, `0x40` in
/// the state of a thread says that it is parked, and before that it has ended.
#[must_use]
pub fn has_report_states(release: Option<&str>) -> bool {
    let mut numbers = release.unwrap_or_default().split(['.', '-']);
    let mut number = || numbers.next()?.parse::<u32>().ok();
    number().is_none_or(|major| (major, number().unwrap_or(0)) >= (4, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fields(Vec<(&'static str, i64)>);

    impl KernelFields for Fields {
        fn number(&self, names: &[&str]) -> Option<i64> {
            let of = |name: &&str| self.0.iter().find(|(field, _)| field == name);
            names.iter().find_map(of).map(|(_, number)| *number)
        }

        fn context_number(&self, _names: &[&str]) -> Option<i64> {
            None
        }
    }

    #[test]
    fn an_event_without_contexts_is_of_the_thread_that_its_cpu_runs() {
        let mut threads = KernelThreads::default();
        let none = Fields(Vec::new());
        assert_eq!(threads.thread_of("irq", &"h", 0, &none), None);
        let switch = Fields(vec![("prev_tid", 4), ("next_tid", 5)]);
        assert_eq!(threads.thread_of("sched_switch", &"h", 0, &switch), Some(4));
        assert_eq!(threads.thread_of("irq", &"h", 0, &none), Some(5));
        assert_eq!(threads.thread_of("irq", &"h", 1, &none), None);
        assert_eq!(threads.thread_of("irq", &"other", 0, &none), None);
        let state = Fields(vec![("tid", 5), ("pid", 4)]);
        threads.thread_of("lttng_statedump_process_state", &"h", 1, &state);
        assert_eq!(threads.process("h", 5), Some(4));
        // perf does not say of which process a new thread is.
        let fork = Fields(vec![("child_pid", 5)]);
        threads.thread_of("sched_process_fork", &"h", 1, &fork);
        assert_eq!(threads.process("h", 5), None);
        let fork = Fields(vec![("child_tid", 5), ("child_pid", 3)]);
        threads.thread_of("sched_process_fork", &"h", 1, &fork);
        assert_eq!(threads.process("h", 5), Some(3));
        threads.thread_of("sched_process_free", &"h", 1, &Fields(vec![("tid", 5)]));
        assert_eq!(threads.process("h", 5), None);
        threads.forget_running("h", 0);
        assert_eq!(threads.thread_of("irq", &"h", 0, &none), None);
    }

    #[test]
    fn states_are_reported_since_linux_4_14() {
        for (release, is_new) in [
            (Some("4.15.0-65-generic"), true),
            (Some("4.2.0-rc1"), false),
            (Some("3.10.92-stih418_family+"), false),
            (Some("6.1"), true),
            (Some("4.14"), true),
            (None, true),
        ] {
            assert_eq!(has_report_states(release), is_new, "{release:?}");
        }
    }

    #[test]
    fn the_number_of_remembered_kernel_threads_is_bounded() {
        let mut threads = KernelThreads::default();
        for cpu in 0..i64::try_from(2 * MAX_REMEMBERED).unwrap() {
            let switch = Fields(vec![("next_tid", cpu)]);
            threads.thread_of("sched_switch", &"h", cpu, &switch);
            assert!(threads.running.len() <= MAX_REMEMBERED);
        }
    }
}
