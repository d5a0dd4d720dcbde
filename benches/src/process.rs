//! Programs that are measured: building them, their processor time and their memory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Builds a program of this workspace in release mode, and returns its path.
pub(crate) fn build(package: &str) -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", package])
        .status()
        .unwrap();
    assert!(status.success(), "{package} cannot be built");
    tests::build_directory().join(package)
}

/// Processor time of a process so far, in user and system mode, with a resolution of 10 ms.
pub(crate) fn cpu(id: u32) -> Duration {
    cpu_fields(&format!("/proc/{id}/stat"), 11)
}

/// Processor time of all child processes that have ended and been waited for, in user and system mode.
pub(crate) fn children_cpu() -> Duration {
    cpu_fields("/proc/self/stat", 13)
}

/// Sum of two fields of a `stat` file: utime and stime, or cutime and cstime. `first` is the index of the first of them
/// among the fields behind the process name (`proc_pid_stat(5)`).
fn cpu_fields(stat: &str, first: usize) -> Duration {
    let stat = fs::read_to_string(stat).unwrap();
    // The process name may contain blanks and parentheses; the fields behind it do not.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields = fields.split(' ').skip(first).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    // USER_HZ is 100 on Linux.
    Duration::from_millis(ticks * 10)
}

/// Peak resident memory of a process, in KiB. None if the process has ended.
pub(crate) fn peak_memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    // The line is missing while the process is a zombie.
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
