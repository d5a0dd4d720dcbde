//! Programs that are measured: building them, their processor time and their memory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// Milliseconds in a tick of the kernel's figures: USER_HZ is 100 on Linux.
const TICK_MS: u64 = 10;

/// Builds a program of this workspace in release mode, and returns its path.
pub(crate) fn build(package: &str) -> PathBuf {
    build_with(package, &[])
}

/// As [`build`], with these options of cargo.
pub(crate) fn build_with(package: &str, options: &[&str]) -> PathBuf {
    // The cargo that built this program, with the same toolchain.
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", package])
        .args(options)
        .status()
        .unwrap();
    assert!(status.success(), "{package} cannot be built");
    tests::build_directory().join(package)
}

/// Processor time of a running process so far, in user and system mode, with a resolution of
/// nanoseconds.
pub(crate) fn cpu(id: u32) -> Duration {
    let id = Pid::from_raw(i32::try_from(id).unwrap());
    clock_getcpuclockid(id).unwrap().now().unwrap().into()
}

/// Processor time of everything on this machine so far, interrupts included, with a resolution of
/// 10 ms.
pub(crate) fn machine_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let line = stat.lines().next().unwrap();
    // user, nice, system, idle, iowait, irq, softirq (proc_stat(5)).
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap())
        .collect();
    // Without idle and iowait, in which a processor does nothing.
    let busy = [0, 1, 2, 5, 6].map(|at: usize| fields[at]);
    Duration::from_millis(busy.iter().sum::<u64>() * TICK_MS)
}

/// Processor time of all child processes that have ended and been waited for, in user and system
/// mode, with a resolution of microseconds.
pub(crate) fn children_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let times = [usage.user_time(), usage.system_time()];
    let microseconds = times.map(|time| u64::try_from(time.num_microseconds()).unwrap());
    Duration::from_micros(microseconds.iter().sum())
}

/// Peak resident memory of a process, in KiB. None if the process has ended.
pub(crate) fn peak_memory(id: u32) -> Option<u64> {
    status(id, "VmHWM:")
}

/// Resident memory of a process, in KiB. None if the process has ended.
pub(crate) fn resident_memory(id: u32) -> Option<u64> {
    status(id, "VmRSS:")
}

fn status(id: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    // The line is missing while the process is a zombie.
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
