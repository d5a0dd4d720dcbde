//! `consumer rings --enable`: changes which events running programs write.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use trace_ring_core::filter::Filter;
use trace_ring_core::format::{CONTROL_FILE, CONTROL_SIZE, Control};
use trace_ring_core::replace_filter;

use super::{find_processes, open_directory, open_without_classes};
use crate::frontend::ring::directory::Access;
use crate::frontend::ring::meta_reader::read_at_most;
use crate::frontend::ring::producer::Producer;

/// How long another process may hold the lock of a control file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two attempts to take it.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Adds directives to the filters of the selected processes that live; of all processes if none is
/// selected. A directive replaces one of the same target. Returns the ids of the processes and
/// their new filters.
///
/// # Errors
/// If the directives are malformed, there is no such process, or a filter cannot be changed.
pub fn enable(
    directory: &Path,
    pids: &[u32],
    directives: &str,
) -> anyhow::Result<Vec<(u32, String)>> {
    Filter::parse(directives)?;
    let mut changed = Vec::new();
    if let Some(run) = open_directory(directory)? {
        for (name, _) in find_processes(&run, pids, |_| None)?.in_turns() {
            let Some(mut producer) = open_without_classes(&run, &name) else {
                continue;
            };
            if producer.check_death()? {
                continue;
            }
            let filter = change(&producer, directives)
                .with_context(|| format!("filter of process {} not changed", name.pid()))?;
            changed.push((name.pid(), filter));
        }
    }
    anyhow::ensure!(
        !changed.is_empty(),
        "no such process writes to rings in {}",
        directory.display()
    );
    Ok(changed)
}

fn change(producer: &Producer, directives: &str) -> anyhow::Result<String> {
    let opened = producer
        .directory()
        .open_file(CONTROL_FILE, Access::ReadWrite);
    let (file, _) = opened?;
    lock(&file)?;
    let mut bytes = [0; CONTROL_SIZE];
    let got = read_at_most(&file, &mut bytes, 0)?;
    let control = Control::decode(bytes.get(..got).unwrap_or_default())?;
    let merged = merge(&control.directives, directives);
    replace_filter(&file, control.generation, &merged)?;
    Ok(merged)
}

fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_TIMEOUT;
    while !file_lock::try_lock_exclusive(file)? {
        if Instant::now() >= until {
            return Err(io::Error::other("another process changes the filter"));
        }
        thread::sleep(LOCK_RETRY_INTERVAL);
    }
    Ok(())
}

/// Returns the directives `old`, without those whose target is also in `new`, and `new` after them.
/// What is none of `old` is left out: the process would use nothing of a filter with it.
fn merge(old: &str, new: &str) -> String {
    let split = |text: &str| -> Vec<String> {
        let parts = text.split(',').map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (mut old, new) = (split(old), split(new));
    if old.is_empty() {
        old.push(Filter::DEFAULT.to_owned());
    }
    old.retain(|part| Filter::parse(part).is_ok());
    let replaced: Vec<&str> = new.iter().map(|part| target(part)).collect();
    let kept = old.iter().filter(|part| !replaced.contains(&target(part)));
    let merged: Vec<&str> = kept.chain(&new).map(String::as_str).collect();
    merged.join(",")
}

/// Returns the target of a directive; empty if it is for all targets.
fn target(directive: &str) -> &str {
    match directive.split_once('=') {
        Some((target, _)) => target.trim(),
        None if is_level(directive) => "",
        None => directive,
    }
}

fn is_level(text: &str) -> bool {
    text.eq_ignore_ascii_case("off") || text.parse::<trace_ring_core::Severity>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_directive_replaces_the_one_of_the_same_target() {
        assert_eq!(merge("info", "app::db=debug"), "info,app::db=debug");
        assert_eq!(
            merge("info, app::db=debug", "app::db=off"),
            "info,app::db=off"
        );
        assert_eq!(merge("info,app", "warn"), "app,warn");
        assert_eq!(merge("", "app=trace,off"), "app=trace,off");
    }

    #[test]
    fn directives_of_a_process_that_was_told_nothing_stay_in_force() {
        assert_eq!(merge("", "app=trace"), "info,app=trace");
        assert_eq!(merge(" ,", "app=trace"), "info,app=trace");
        assert_eq!(merge("app=loud,lib", "app=trace"), "lib,app=trace");
    }
}
