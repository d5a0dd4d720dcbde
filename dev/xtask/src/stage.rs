//! One stage of a job: prints a line about it on standard error, then runs a program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, bail};
use peers::cargo::FEATURES_OF_TESTS;

/// The root of the workspace.
pub(crate) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// When the first stage began.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints what the job does now, and how long it has taken so far. Every stage that can take longer
/// than a second begins with it.
pub(crate) fn announce(stage: &str) {
    eprintln!("xtask: {:>4} s: {stage}", BEGUN.elapsed().as_secs());
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
    let mut cargo = peers::cargo::command();
    cargo.args(arguments.split(' ')).args(further);
    cargo.envs(environment.iter().copied());
    run(&mut cargo).with_context(|| stage.to_owned())
}

/// Builds binaries and examples of the workspace as its tests build them. `targets` are options of
/// `cargo build`, such as `--bin=relayd`.
///
/// Dependencies have the [features of tests](FEATURES_OF_TESTS).
///
/// # Errors
/// If cargo cannot be run, or fails.
pub(crate) fn build(stage: &str, targets: &[&str]) -> anyhow::Result<()> {
    let options = FEATURES_OF_TESTS.join(" ");
    let arguments = format!("build {options} {}", targets.join(" "));
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
