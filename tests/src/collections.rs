//! Two collections of traces of other programs, beside the project: `../shared/ctf-traces` and
//! `../shared/real-traces`, or `$CTF_TRACES` and `$REAL_TRACES`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Set in the environment if all traces are to be read.
const ALL: &str = "ALL_COLLECTED_TRACES";

/// The traces that are read otherwise: every type of fields, both versions of the format, contexts,
/// both byte orders, losses, no clock, kernels of LTTng and perf, and functions.
const SOME: [&str; 11] = [
    "bt-2packets",
    "bt-multi-domains",
    "ctf2-ust-types-uid",
    "cyg-profile",
    "flipping-endianness",
    "lttng-ust-contexts-uid",
    "lttng-ust-types-uid",
    "perf-taskset2",
    "synth-discarded",
    "synth-mixed-byte-order",
    "synth-no-clock",
];

/// Returns the valid traces of both collections by their names: some of them, or all if
/// `$ALL_COLLECTED_TRACES` is set. Without the collections there are none.
///
/// # Panics
/// If a collection cannot be read.
#[must_use]
pub fn valid_traces() -> BTreeMap<String, PathBuf> {
    let cases = entries(&directory("CTF_TRACES", "ctf-traces")).into_iter();
    let cases = cases.filter(|(_, case)| !case.join("FAIL").exists());
    let cases = cases.map(|(name, case)| (name, case.join("trace")));
    let real = entries(&directory("REAL_TRACES", "real-traces"));
    let is_wanted = |name: &str| std::env::var_os(ALL).is_some() || SOME.contains(&name);
    cases
        .chain(real)
        .filter(|(name, trace)| trace.is_dir() && is_wanted(name))
        .collect()
}

/// Returns a trace of `../shared/real-traces` or `$REAL_TRACES`, if it is there.
#[must_use]
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let trace = directory("REAL_TRACES", "real-traces").join(name);
    trace.is_dir().then_some(trace)
}

fn directory(variable: &str, name: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    std::env::var_os(variable).map_or(beside.join(name), PathBuf::from)
}

/// The entries of a directory by their names.
fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else {
        println!("{} does not exist: nothing to read", directory.display());
        return Vec::new();
    };
    let entries = entries.map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.collect()
}
