//! One stage of a job: prints a line about it on standard error, then runs a program.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// The root of the workspace.
pub(crate) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Prints what the job does now. Every stage that can take longer than a second begins with it.
pub(crate) fn announce(stage: &str) {
    eprintln!("xtask: {stage}");
}

/// Announces a stage, then runs cargo for it in the workspace. `arguments` are separated by spaces.
///
/// # Errors
/// If cargo cannot be run, or fails.
pub(crate) fn cargo(
    stage: &str,
    arguments: &str,
    environment: &[(&str, &str)],
) -> anyhow::Result<()> {
    cargo_with(stage, arguments, &[], environment)
}

/// [`cargo`] with further arguments, which may contain spaces.
///
/// # Errors
/// If cargo cannot be run, or fails.
pub(crate) fn cargo_with(
    stage: &str,
    arguments: &str,
    further: &[String],
    environment: &[(&str, &str)],
) -> anyhow::Result<()> {
    announce(stage);
    let mut cargo = command();
    cargo.args(arguments.split(' ')).args(further);
    cargo.envs(environment.iter().copied());
    run(&mut cargo).with_context(|| stage.to_owned())
}

/// A command that runs cargo in the workspace.
pub(crate) fn command() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(WORKSPACE);
    // What cargo tells this program about its package: build scripts, as that of `ring`, would run again because these
    // differ from one cargo to the next, and everything that depends on the library would be compiled again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Builds binaries and examples of the workspace as its tests build them. `targets` are options of
/// `cargo build`, such as `--bin=relayd`.
///
/// The features of dependencies are unified over the packages that a command names. With `--workspace` they
/// are those of `cargo test --workspace`, and nothing is compiled twice.
///
/// # Errors
/// If cargo cannot be run, or fails.
pub(crate) fn build(stage: &str, targets: &[&str]) -> anyhow::Result<()> {
    let arguments = format!("build --workspace {}", targets.join(" "));
    cargo(stage, &arguments, &[])
}

/// Runs a program that [`build`] has built.
///
/// # Errors
/// If the program cannot be run, or fails.
pub(crate) fn run_built(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    run(Command::new(built(name)?).args(arguments))
}

/// Returns the path of a program that [`build`] has built.
///
/// # Errors
/// If the system does not tell the path of this process.
pub(crate) fn built(name: &str) -> anyhow::Result<PathBuf> {
    // This program is in the directory that cargo builds to, whatever CARGO_TARGET_DIR says.
    let this = std::env::current_exe().context("cannot find this program")?;
    Ok(this.with_file_name(name))
}

/// Runs a command to its end.
///
/// # Errors
/// If the command cannot be run, or fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
