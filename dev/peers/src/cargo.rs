//! Cargo in this workspace, as `cargo xtask` and the tests run it: with the same environment and
//! features, so that nothing is compiled twice.

use std::process::Command;

/// Options of `cargo build` with which dependencies have the features that `cargo test --workspace`
/// gives them.
///
/// Features are unified over the packages that a command builds and, only if it also builds tests
/// or examples, over development dependencies.
pub const FEATURES_OF_TESTS: [&str; 2] = ["--workspace", "--example=shop"];

/// A command that runs cargo in the workspace.
#[must_use]
pub fn command() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    // What cargo tells the calling program about its package: build scripts, as that of `ring`,
    // would run again because these differ from one cargo to the next, and everything that depends
    // on the library would be compiled again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}
