//! Measurements beside the real peers. They are programs of their own, built to be fast.

use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

use crate::packages;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to measure: see below. Nothing: everything
    #[arg(value_parser = names())]
    names: Vec<String>,
}

type Bench = fn() -> anyhow::Result<()>;

/// What can be measured, and how.
const BENCHES: &[(&str, Bench)] = &[
    ("latency", || program("latency")),
    ("relay", || program("relay")),
    ("tldrs", || program("tldrs")),
    ("replay", || program("replay")),
    ("viewer", || program("viewer")),
];

fn names() -> Vec<&'static str> {
    BENCHES.iter().map(|(name, _)| *name).collect()
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::provide()?;
    let is_chosen =
        |name: &str| options.names.is_empty() || options.names.iter().any(|n| n == name);
    for (_, bench) in BENCHES.iter().filter(|(name, _)| is_chosen(name)) {
        bench()?;
    }
    Ok(())
}

/// A module of `benches/`.
fn program(name: &str) -> anyhow::Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    // The relay that is measured is built by the program itself, just so.
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "--package=benches",
        "--",
        name,
    ]);
    let status = cargo
        .status()
        .with_context(|| format!("cannot run {cargo:?}"))?;
    if !status.success() {
        bail!("{cargo:?} failed");
    }
    Ok(())
}
