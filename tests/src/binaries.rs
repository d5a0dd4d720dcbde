//! The paths of this project's programs, built with the profile of the tests at the first call.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use peers::cargo::FEATURES_OF_TESTS;

/// Returns the relay daemon, `relayd`.
///
/// # Panics
/// If it cannot be built.
pub fn relayd() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("relayd"))
}

/// Returns the live viewer, `test-live`.
///
/// # Panics
/// If it cannot be built.
pub fn test_live() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("test-live"))
}

/// Returns the agent on a traced host, `consumer`.
///
/// # Panics
/// If it cannot be built.
pub fn consumer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("consumer"))
}

/// Returns the local trace daemon, `tldrs`.
///
/// # Panics
/// If it cannot be built.
pub fn tldrs() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("tldrs"))
}

/// `xtask`, which builds packages, and beside it `man`, which writes their man pages.
///
/// # Panics
/// If one of them cannot be built.
pub fn xtask() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| cargo_build(&["--bin", "xtask", "--bin", "man"], "xtask").join("xtask"))
}

/// Returns the traced program of the tests of shared-memory rings, `ring-writer`.
///
/// # Panics
/// If it cannot be built.
pub fn ring_writer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("ring-writer"))
}

/// Returns the traced program with more event classes than a trace may have, `ring-classes`.
///
/// # Panics
/// If it cannot be built.
pub fn ring_classes() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("ring-classes"))
}

/// Returns the example `app`, which writes events and spans of `tracing` to rings.
///
/// # Panics
/// If it cannot be built.
pub fn ring_app() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build_example("app"))
}

/// Returns the example `requests`, which writes events to rings for a second.
///
/// # Panics
/// If it cannot be built.
pub fn ring_requests() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build_example("requests"))
}

/// Returns the directory of `libtrace_ring.a`, the library for traced programs in C.
///
/// # Panics
/// If it cannot be built.
pub fn ring_library() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| cargo_build(&["--lib"], "libtrace_ring.a"))
}

/// Returns `libtrace_ring_functions.so`, which records instrumented functions.
///
/// # Panics
/// If it cannot be built.
pub fn ring_functions() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let profile = crate::build_directory();
        // A directory of its own: a build of the workspace gives the library the features of other
        // packages, by which it exports more.
        let target = profile.parent().unwrap().join("functions");
        let mut cargo = peers::cargo::command();
        cargo
            .args([
                "build",
                "--quiet",
                "--package=trace-ring-functions",
                "--target-dir",
            ])
            .arg(&target);
        let profile = profile.file_name().unwrap();
        if profile == "release" {
            cargo.arg("--release");
        }
        let built = cargo.status().unwrap();
        assert!(
            built.success(),
            "libtrace_ring_functions.so cannot be built"
        );
        target.join(profile).join("libtrace_ring_functions.so")
    })
}

/// Returns the example `shop`, which writes spans and counters of three threads to a socket of
/// `tldrs`.
///
/// # Panics
/// If it cannot be built.
pub fn shop() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build_example("shop"))
}

fn build_example(name: &str) -> PathBuf {
    let profile = cargo_build(&["--example", name], name);
    profile.join("examples").join(name)
}

fn build(binary: &str) -> PathBuf {
    cargo_build(&["--bin", binary], binary).join(binary)
}

/// Builds a program and returns the directory of the profile.
fn cargo_build(which: &[&str], name: &str) -> PathBuf {
    let profile = crate::build_directory();
    let mut cargo = peers::cargo::command();
    cargo.args(["build", "--quiet"]).args(which);
    match profile.ends_with("release") {
        // Benchmarks measure what is installed, without features of development dependencies.
        true => cargo.args(["--workspace", "--release"]),
        false => cargo.args(FEATURES_OF_TESTS),
    };
    let built = cargo.status().unwrap();
    assert!(built.success(), "{name} cannot be built");
    profile
}
