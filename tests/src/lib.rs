//! What whole-program tests are made of: programs in directories of their own, and producers and
//! viewers that do what no real one does.
//!
//! Every test has a [`Lab`]: a directory in which everything it starts lives, and which goes with
//! it. Ports are whichever are free. Ours: [`relay`], [`test_live`], [`consumer`], [`tldrs`], built by
//! [`binaries`], some on a small [`disk`], some with files that hang ([`file_lease`]). Real peers:
//! [`lttng`], [`traced_app`] (a program to be traced), [`babeltrace`]. Made up, on the protocol crates:
//! [`producer`], [`replay`] (a recording as a producer), [`viewer`], [`push`], [`status_endpoint`]. Traces to read:
//! [`traces`].

pub mod babeltrace;
pub mod binaries;
pub mod capture_proxy;
pub mod consumer;
pub mod disk;
pub mod file_lease;
pub mod lab;
pub mod lttng;
pub mod peers;
pub mod probe_session;
pub mod process;
pub mod producer;
pub mod push;
pub mod relay;
pub mod replay;
pub mod status_endpoint;
pub mod test_live;
pub mod tldrs;
pub mod traced_app;
pub mod traces;
pub mod tree;
pub mod viewer;

pub use lab::Lab;

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long anything may take before a test takes it to have failed. Nothing waits for time to
/// pass: this only bounds the wait for events.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Looks again and again, until it is so.
///
/// # Panics
/// If it is not so within [`TEST_TIMEOUT`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Looks again and again, until there is something.
///
/// # Panics
/// If there is nothing within [`TEST_TIMEOUT`].
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where programs are built, those of this profile: `target/debug`, say.
///
/// # Panics
/// If this program is not built by cargo.
#[must_use]
pub fn build_directory() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    // Tests are one level further down.
    let is_profile = |directory: &&std::path::Path| !directory.ends_with("deps");
    this.ancestors()
        .skip(1)
        .find(is_profile)
        .unwrap()
        .to_owned()
}
