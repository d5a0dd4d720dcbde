//! The kernel of a web server with four CPUs, as LTTng records it: 50 rounds of 20 ms around 10:02.
//!
//! In each round an interrupt of the network wakes two workers. The second holds a lock, for which
//! the first waits, and then reads from the disk. On CPU 3 a backup computes; a third worker, which
//! gets work from the dispatcher, waits for that CPU.

use std::fs;
use std::path::Path;

use ctf::write::Value::{Signed, Text, Unsigned};

use super::recording::{
    MICROSECOND as US, MILLISECOND as MS, Place, Recording, SECOND, TEN_O_CLOCK,
};

const ROUNDS: u64 = 50;
const ROUND: u64 = 20 * MS;
/// The states in which a thread leaves its CPU.
const RUNNABLE: i64 = 0;
const ASLEEP: i64 = 1;
const WAITS_FOR_DISK: i64 = 2;

const IDLE: i32 = 0;
const DISPATCHER: i32 = 810;
const FIRST_WORKER: i32 = 811;
const SECOND_WORKER: i32 = 812;
const THIRD_WORKER: i32 = 813;
const BACKUP: i32 = 950;

/// Threads, their processes and names.
const THREADS: [(i32, i32, &str); 5] = [
    (DISPATCHER, 810, "shop"),
    (FIRST_WORKER, 810, "worker-1"),
    (SECOND_WORKER, 810, "worker-2"),
    (THIRD_WORKER, 810, "worker-3"),
    (BACKUP, BACKUP, "backup"),
];

const NETWORK: (i64, &str) = (24, "eth0");
const DISK: (i64, &str) = (31, "nvme0q1");
/// The addresses of two locks.
const CART_LOCK: u64 = 0x5590_1000;
const QUEUE_LOCK: u64 = 0x5590_2000;

#[derive(Debug)]
struct Kernel {
    recording: Recording,
    /// The thread that runs on each CPU.
    running: [i32; 4],
}

pub(super) fn record(directory: &Path) {
    let mut kernel = Kernel {
        recording: Recording::new("web1", &[("kernel_release", "6.1.0-18-amd64")]),
        running: [IDLE; 4],
    };
    let begin = TEN_O_CLOCK + 120 * SECOND - ROUNDS / 2 * ROUND;
    for (number, (tid, pid, name)) in (0..).zip(THREADS) {
        kernel.emit(
            begin - MS + number * US,
            0,
            "lttng_statedump_process_state",
            &[
                ("tid", Signed(tid.into())),
                ("pid", Signed(pid.into())),
                ("ppid", Signed(1)),
                ("name", Text(name)),
            ],
        );
    }
    for round in 0..ROUNDS {
        let at = begin + round * ROUND;
        kernel.lock_and_disk(at, round);
        kernel.busy_cpu(at, round);
    }
    kernel.recording.write(directory);
    // The writer is one of user space.
    let metadata = directory.join("metadata");
    let text = fs::read_to_string(&metadata).unwrap();
    let [before, after] = ["ust", "kernel"].map(|domain| format!("domain = \"{domain}\";"));
    assert!(text.contains(&before));
    fs::write(&metadata, text.replace(&before, &after)).unwrap();
}

impl Kernel {
    /// What happens on CPUs 0 to 2 in a round.
    fn lock_and_disk(&mut self, at: u64, round: u64) {
        let (first, second) = (FIRST_WORKER, SECOND_WORKER);
        let unlocked = at + 3 * MS + round % 5 * MS;
        let interrupt = 20 * US + round % 7 * 2 * US;
        self.interrupt(
            at + 100 * US,
            0,
            NETWORK,
            interrupt,
            &[(second, 2), (first, 1)],
        );
        self.switch(at + 160 * US, 2, second, ASLEEP);
        self.switch(at + 180 * US, 1, first, ASLEEP);
        if round > 0 {
            self.exit(at + 162 * US, 2, "syscall_exit_recvfrom", 512);
            self.exit(at + 182 * US, 1, "syscall_exit_recvfrom", 512);
        }
        // The lock is held by the second worker.
        self.futex(at + 500 * US, 1, CART_LOCK, 128);
        self.switch(at + 520 * US, 1, IDLE, ASLEEP);
        self.futex(unlocked, 2, CART_LOCK, 129);
        self.waking(unlocked + 4 * US, 2, first, 1);
        self.exit(unlocked + 8 * US, 2, "syscall_exit_futex", 1);
        self.switch(unlocked + 40 * US, 1, first, RUNNABLE);
        self.exit(unlocked + 42 * US, 1, "syscall_exit_futex", 0);
        // The second worker reads from the disk.
        let disk = 2 * MS + round % 3 * MS;
        let bytes = [("fd", Unsigned(9)), ("count", Unsigned(8192))];
        self.emit(unlocked + 100 * US, 2, "syscall_entry_pread64", &bytes);
        self.switch(unlocked + 110 * US, 2, IDLE, WAITS_FOR_DISK);
        let read = unlocked + 110 * US + disk;
        self.interrupt(read, 0, DISK, 15 * US, &[(second, 2)]);
        self.switch(read + 30 * US, 2, second, RUNNABLE);
        self.exit(read + 32 * US, 2, "syscall_exit_pread64", 8192);
        // Both answer, and wait for the next request.
        for (thread_cpu, done) in [(1, unlocked + 1200 * US), (2, read + 800 * US)] {
            let bytes = [("fd", Unsigned(7)), ("count", Unsigned(2048))];
            self.emit(done, thread_cpu, "syscall_entry_sendto", &bytes);
            self.exit(done + 18 * US, thread_cpu, "syscall_exit_sendto", 2048);
            self.emit(
                done + 30 * US,
                thread_cpu,
                "syscall_entry_recvfrom",
                &[("fd", Unsigned(7))],
            );
            self.switch(done + 35 * US, thread_cpu, IDLE, ASLEEP);
        }
    }

    /// What happens on CPU 3 in a round.
    fn busy_cpu(&mut self, at: u64, round: u64) {
        if round > 0 {
            self.waking(at + 950 * US, 3, BACKUP, 3);
        }
        self.switch(at + MS, 3, BACKUP, RUNNABLE);
        if round > 0 {
            self.exit(at + 1002 * US, 3, "syscall_exit_clock_nanosleep", 0);
        }
        for part in 0..3 {
            let at = at + 1100 * US + part * 900 * US;
            self.emit(
                at,
                3,
                "syscall_entry_read",
                &[("fd", Unsigned(5)), ("count", Unsigned(65_536))],
            );
            self.exit(at + 60 * US, 3, "syscall_exit_read", 65_536);
        }
        // A worker waits until the backup is preempted.
        let wanted = at + 4 * MS;
        self.switch(wanted - 50 * US, 0, DISPATCHER, RUNNABLE);
        self.futex(wanted - 2 * US, 0, QUEUE_LOCK, 129);
        self.waking(wanted, 0, THIRD_WORKER, 3);
        self.exit(wanted + 4 * US, 0, "syscall_exit_futex", 1);
        self.switch(wanted + 20 * US, 0, IDLE, ASLEEP);
        let runs = wanted + 2 * MS + round % 4 * 1500 * US;
        self.switch(runs, 3, THIRD_WORKER, RUNNABLE);
        if round > 0 {
            self.exit(runs + 2 * US, 3, "syscall_exit_futex", 0);
        }
        self.futex(runs + 1500 * US, 3, QUEUE_LOCK, 128);
        self.switch(runs + 1510 * US, 3, BACKUP, ASLEEP);
        let done = at + 13 * MS;
        self.emit(
            done,
            3,
            "syscall_entry_clock_nanosleep",
            &[("flags", Unsigned(0))],
        );
        self.switch(done + 5 * US, 3, IDLE, ASLEEP);
    }

    fn emit(
        &mut self,
        at: u64,
        cpu: usize,
        name: &'static str,
        fields: &[(&'static str, ctf::write::Value<'static>)],
    ) {
        let thread = self.running[cpu];
        let place = Place {
            cpu,
            process: process_of(thread),
            thread,
        };
        self.recording.emit(at, place, name, fields);
    }

    fn exit(&mut self, at: u64, cpu: usize, name: &'static str, result: i64) {
        self.emit(at, cpu, name, &[("ret", Signed(result))]);
    }

    fn futex(&mut self, at: u64, cpu: usize, address: u64, operation: u64) {
        let fields = [("uaddr", Unsigned(address)), ("op", Unsigned(operation))];
        self.emit(at, cpu, "syscall_entry_futex", &fields);
    }

    /// Lets another thread run on a CPU. The one that ran is then in a state.
    fn switch(&mut self, at: u64, cpu: usize, next: i32, state: i64) {
        let previous = self.running[cpu];
        // The idle thread is always runnable.
        let state = if previous == IDLE { RUNNABLE } else { state };
        self.emit(
            at,
            cpu,
            "sched_switch",
            &[
                ("prev_comm", Text(name_of(previous))),
                ("prev_tid", Signed(previous.into())),
                ("prev_prio", Signed(20)),
                ("prev_state", Signed(state)),
                ("next_comm", Text(name_of(next))),
                ("next_tid", Signed(next.into())),
                ("next_prio", Signed(20)),
            ],
        );
        self.running[cpu] = next;
    }

    /// Makes a thread runnable, by the thread that runs on `cpu`.
    fn waking(&mut self, at: u64, cpu: usize, thread: i32, target: i64) {
        self.emit(
            at,
            cpu,
            "sched_waking",
            &[
                ("comm", Text(name_of(thread))),
                ("tid", Signed(thread.into())),
                ("prio", Signed(20)),
                ("target_cpu", Signed(target)),
            ],
        );
    }

    fn interrupt(
        &mut self,
        at: u64,
        cpu: usize,
        (number, name): (i64, &'static str),
        duration: u64,
        wakes: &[(i32, i64)],
    ) {
        let irq = ("irq", Signed(number));
        self.emit(at, cpu, "irq_handler_entry", &[irq, ("name", Text(name))]);
        for (order, (thread, target)) in (1..).zip(wakes) {
            self.waking(at + order * US, cpu, *thread, *target);
        }
        self.emit(
            at + duration,
            cpu,
            "irq_handler_exit",
            &[irq, ("ret", Signed(1))],
        );
    }
}

fn name_of(thread: i32) -> &'static str {
    let found = THREADS.iter().find(|(tid, ..)| *tid == thread);
    found.map_or("swapper", |(_, _, name)| name)
}

fn process_of(thread: i32) -> i32 {
    let found = THREADS.iter().find(|(tid, ..)| *tid == thread);
    found.map_or(0, |(_, pid, _)| *pid)
}
