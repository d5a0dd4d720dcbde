//! Measurements next to the real peers: the package `benches`, compiled with optimisation.

use clap::Args;

use crate::{packages, stage};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measurements to run, one after another [default: all of them]
    #[arg(value_parser = BENCHES)]
    names: Vec<String>,
}

/// The modules of `benches/`.
const BENCHES: [&str; 9] = [
    "latency",
    "relay",
    "links",
    "tldrs",
    "replay",
    "viewer",
    "durability",
    "ring",
    "codetracer",
];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::install_missing()?;
    let is_chosen =
        |name: &str| options.names.is_empty() || options.names.iter().any(|chosen| chosen == name);
    for name in BENCHES.into_iter().filter(|name| is_chosen(name)) {
        let stage = format!("measuring: {name} (compiles the programs with optimisation first)");
        // The measurement builds the programs that it measures itself.
        let arguments = format!("run --release --package=benches -- {name}");
        stage::cargo(&stage, &arguments, &[])?;
    }
    Ok(())
}
