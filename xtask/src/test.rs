//! Everything that must pass.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;

use crate::packages;

/// How much is run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also what takes long: many more cases of every property, every whole-program test ten times, half
    /// an hour at full load
    #[arg(long)]
    long: bool,
}

/// How often whole programs are tested in a long run.
const LONG_ROUNDS: usize = 10;

/// How long the relay is kept at full load in a long run.
const LONG_SOAK: &str = "1800";

/// Cases of every property in a long run.
const LONG_CASES: &str = "20000";

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let begun = Instant::now();
    packages::provide()?;
    cargo("format", &["fmt", "--all", "--check"], &[])?;
    let lints = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "--deny=warnings",
    ];
    cargo("lints", &lints, &[])?;
    let documentation = ["doc", "--workspace", "--no-deps", "--quiet"];
    cargo(
        "documentation",
        &documentation,
        &[("RUSTDOCFLAGS", "--deny=warnings")],
    )?;
    cargo("all tests", &["test", "--workspace", "--no-fail-fast"], &[])?;
    if options.long {
        let cases = [("PROPTEST_CASES", LONG_CASES)];
        cargo(
            "properties, long",
            &["test", "--workspace", "--exclude=tests"],
            &cases,
        )?;
        for round in 1..=LONG_ROUNDS {
            let name = format!("whole programs, round {round} of {LONG_ROUNDS}");
            cargo(&name, &["test", "--package=tests"], &[])?;
        }
        let soak = [
            "test",
            "--package=tests",
            "--test=soak",
            "--",
            "--nocapture",
        ];
        cargo("full load", &soak, &[("SOAK_SECONDS", LONG_SOAK)])?;
    }
    eprintln!(
        "xtask: everything passed in {} s",
        begun.elapsed().as_secs()
    );
    Ok(())
}

fn cargo(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    eprintln!("xtask: {name}");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).envs(environment.iter().copied());
    let status = cargo
        .status()
        .with_context(|| format!("cannot run {cargo:?}"))?;
    if !status.success() {
        bail!("{name}: {cargo:?} failed");
    }
    Ok(())
}
