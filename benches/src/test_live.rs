//! The `test-live` program that is measured.

use std::path::PathBuf;
use std::process::Command;

/// Builds it in release mode, and gives its path.
pub(crate) fn build() -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package=test-live"])
        .status()
        .unwrap();
    assert!(status.success(), "test-live cannot be built");
    tests::build_directory().join("test-live")
}
