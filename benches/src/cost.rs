//! Processor time of a process.

use std::time::Duration;

/// Processor time of a process so far, in user and system mode, with a resolution of 10 ms.
pub(crate) fn cpu(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: u64 = [11, 12]
        .iter()
        .map(|at| fields[*at].parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}
