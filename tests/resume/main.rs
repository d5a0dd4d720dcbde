//! Resumable sessions: their connections are lost, the relay is killed or stopped, and what the
//! producer has sent is in the trace once and in order.

mod connections;
mod detached;
mod disk_full;
mod empty;
mod expiry;
mod lost_packets;
mod relay_list;
mod restart;
mod same_second;
mod streams;
mod viewers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tests::producer::live_session;
use tests::resumable::{RecordedStream, Recording};
use tests::tree::{Node, tree};
use tests::wait_for;

/// Returns a recording with an unlimited tracefile, tracefiles of limited size, and a ring of them.
fn recording(name: &str) -> Recording {
    let streams = vec![
        RecordedStream::made_up("plain", 2, 40, 0, 0),
        RecordedStream::made_up("sized", 3, 40, 80, 0),
        RecordedStream::made_up("ring", 5, 40, 80, 2),
    ];
    Recording::new(live_session(name), streams)
}

/// Returns the directory of the session with this name.
fn session_directory(output: &Path, name: &str) -> PathBuf {
    output.join(format!("host/{name}-20261120-213831"))
}

/// Returns the files of the session with this name, once no connection of it is left: until then
/// its directories are marked.
fn session_tree(output: &Path, name: &str) -> BTreeMap<String, Node> {
    let directory = session_directory(output, name);
    wait_for("the session is closed", || {
        let files = tree(&directory);
        let is_marked = files.keys().any(|name| name.contains(".relayd-open-"));
        (!is_marked).then_some(files)
    })
}

/// Compares the files of two sessions, and names those that differ.
fn assert_same(got: &BTreeMap<String, Node>, want: &BTreeMap<String, Node>, what: &str) {
    let names: BTreeSet<_> = got.keys().chain(want.keys()).collect();
    let differ: Vec<_> = names
        .iter()
        .filter(|name| got.get(**name) != want.get(**name))
        .collect();
    assert!(differ.is_empty(), "{what}: {differ:?}");
}
