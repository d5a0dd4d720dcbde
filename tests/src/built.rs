//! The programs of this project, built as the tests were.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The relay.
///
/// # Panics
/// If it cannot be built.
pub fn relayd() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("relayd"))
}

/// The viewer.
///
/// # Panics
/// If it cannot be built.
pub fn test_live() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("test-live"))
}

/// The agent.
///
/// # Panics
/// If it cannot be built.
pub fn consumer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("consumer"))
}

/// The local trace daemon.
///
/// # Panics
/// If it cannot be built.
pub fn tldrs() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("tldrs"))
}

fn build(binary: &str) -> PathBuf {
    let profile = crate::build_directory();
    let mut cargo = Command::new(env!("CARGO"));
    // The whole workspace, so that the features of dependencies are those that the tests were built
    // with and nothing is compiled twice.
    cargo.args(["build", "--quiet", "--workspace", "--bin", binary]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "{binary} cannot be built");
    profile.join(binary)
}
