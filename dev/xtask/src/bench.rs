//! Measurements next to the real peers: the package `benches`, compiled with optimisation.

use clap::Args;

use crate::{packages, stage};

/// The measurements that are run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measurements to run, one after another [default: all of them]. The measurement `archive`
    /// installs Ceph
    #[arg(value_parser = BENCHES)]
    names: Vec<String>,
    /// With `relay`: every combination of producers, streams, packet sizes and send modes, in pairs
    #[arg(long)]
    matrix: bool,
    /// With `--matrix`: other programs use half of each processor meanwhile
    #[arg(long, requires = "matrix")]
    noise: bool,
    /// With `--matrix`: number of pairs [default: 5]
    #[arg(long, requires = "matrix", value_name = "NUMBER")]
    pairs: Option<u32>,
    /// With `--matrix`: multiply the number of packets in each measurement [default: 1]
    #[arg(long, requires = "matrix", value_name = "NUMBER")]
    times: Option<u32>,
    /// With `--matrix`: only rows whose name contains this text, such as "8 x 64 x 4 KiB" or
    /// "Nagle"; may be repeated
    #[arg(long = "row", requires = "matrix", value_name = "TEXT")]
    rows: Vec<String>,
    /// With `relay`: only viewers on one session, from none to 1,000, and idle connections
    #[arg(long, conflicts_with = "matrix")]
    viewers: bool,
    /// With `relay`: only the processor time for a packet, beside a loop that receives and writes
    /// it and does nothing else
    #[arg(long, conflicts_with_all = ["matrix", "viewers"])]
    lower_bound: bool,
}

/// The modules of `dev/benches/`.
const BENCHES: [&str; 12] = [
    "latency",
    "relay",
    "links",
    "tldrs",
    "replay",
    "viewer",
    "export",
    "durability",
    "archive",
    "ring",
    "codetracer",
    "web",
];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::install_missing()?;
    let is_chosen =
        |name: &str| options.names.is_empty() || options.names.iter().any(|chosen| chosen == name);
    for name in BENCHES.into_iter().filter(|name| is_chosen(name)) {
        if name == "archive" {
            packages::install_ceph()?;
        }
        let stage = format!("measuring: {name} (compiles the programs with optimisation first)");
        // The measurement builds the programs that it measures itself.
        let arguments = format!("run --release --package=benches -- {name}");
        let further = if name == "relay" {
            options.relay_arguments()
        } else {
            Vec::new()
        };
        stage::cargo_with(&stage, &arguments, &further, &[])?;
    }
    Ok(())
}

impl Options {
    /// The arguments of the measurement `relay`.
    fn relay_arguments(&self) -> Vec<String> {
        if self.viewers {
            return vec!["--viewers".to_owned()];
        }
        if self.lower_bound {
            return vec!["--lower-bound".to_owned()];
        }
        if !self.matrix {
            return Vec::new();
        }
        let mut arguments = vec!["--matrix".to_owned()];
        if self.noise {
            arguments.push("--noise".to_owned());
        }
        if let Some(pairs) = self.pairs {
            arguments.extend(["--pairs".to_owned(), pairs.to_string()]);
        }
        if let Some(times) = self.times {
            arguments.extend(["--times".to_owned(), times.to_string()]);
        }
        arguments.extend(self.rows.iter().cloned());
        arguments
    }
}
