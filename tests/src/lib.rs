//! The helper library of the whole-program tests: it starts programs in temporary directories, and
//! provides producers and viewers that do what no real one does.
//!
//! Every test has a [`Lab`], the temporary directory of everything that the test starts. Ports are
//! whichever are free. Programs of this project ([`relay`], [`test_live`], [`consumer`], [`tldrs`])
//! are built by [`binaries`]; [`disk`] mounts a small file system for them, [`network`] puts them
//! on two hosts, [`file_lease`] makes a file hang, [`certificates`] are those of encrypted links,
//! [`terminal`] is a terminal with keys to press. [`machine`] is a host of its own for the commands
//! of a [`page`]. Real peers are [`lttng`], [`traced_app`], [`babeltrace`], [`ceph`] and
//! [`perfetto`]. Synthetic peers on the protocol crates are [`producer`], [`resumable`] (a producer
//! that resumes its session), [`replay`] (a trace directory sent by a producer), [`viewer`],
//! [`push`] and [`probe_session`]; [`capture_proxy`] records what real ones send, [`cut_proxy`]
//! cuts their connections, and [`udp_link`] is a bad network. [`status_endpoint`] reads a relay's
//! metrics, [`tree`] what it wrote, [`traces`] makes traces to read, and [`collections`] has traces
//! of others.

pub mod babeltrace;
pub mod binaries;
pub mod browser;
pub mod capture_proxy;
pub mod ceph;
pub mod certificates;
pub mod collections;
pub mod consumer;
pub mod cut_proxy;
pub mod disk;
pub mod file_lease;
pub mod lab;
pub mod lttng;
pub mod machine;
pub mod network;
pub mod page;
pub mod perfetto;
pub mod probe_session;
pub mod process;
pub mod producer;
pub mod push;
pub mod relay;
pub mod replay;
pub mod resumable;
pub mod socket_queues;
pub mod status_endpoint;
pub mod terminal;
pub mod test_live;
pub mod tldrs;
pub mod traced_app;
pub mod traces;
pub mod tree;
pub mod udp_link;
pub mod viewer;

pub use lab::Lab;
pub use peers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time after which a wait for an event fails its test. No test waits for this long to pass:
/// the timeout only bounds the wait.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Polls a condition every 5 ms until it holds; `what` names it in the failure message.
///
/// # Panics
/// If the condition does not hold within [`TEST_TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Polls every 5 ms until `poll` returns a value; `what` names it in the failure message.
///
/// # Panics
/// If there is no value within [`TEST_TIMEOUT`].
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the directory in which cargo puts programs of this profile, as `target/debug`.
///
/// # Panics
/// If this program was not built by cargo.
#[must_use]
pub fn build_directory() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    // Test programs are one level further down, in `deps`.
    let is_profile = |directory: &&std::path::Path| !directory.ends_with("deps");
    this.ancestors()
        .skip(1)
        .find(is_profile)
        .unwrap()
        .to_owned()
}
