//! Hostile input for the parsers, for a limited time: `dev/fuzz/README.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use clap::Args;

use crate::stage;

/// The target that is fuzzed, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Target in dev/fuzz/fuzz_targets [default: all of them]
    target: Option<String>,
    /// Duration of each target, in seconds
    #[arg(default_value_t = 60)]
    seconds: u32,
}

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz");

/// A single input that takes longer is a finding. Inputs of this size take milliseconds.
const MAX_SECONDS: u32 = 10;
/// A single input that needs more memory is a finding.
const MAX_MEBIBYTES: u32 = 2048;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let directory = Path::new(DIRECTORY);
    let targets = match &options.target {
        Some(target) => vec![target.clone()],
        None => targets(directory)?,
    };
    for target in targets {
        stage::announce(&format!("fuzzing {target} for {} s", options.seconds));
        fuzz(directory, &target, options.seconds)?;
    }
    Ok(())
}

fn targets(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut targets = Vec::new();
    for file in fs::read_dir(directory.join("fuzz_targets"))? {
        let path = file?.path();
        let name = path.file_stem().context("a file without a name")?;
        targets.push(name.to_string_lossy().into_owned());
    }
    // A directory has no order.
    targets.sort();
    Ok(targets)
}

fn fuzz(directory: &Path, target: &str, seconds: u32) -> anyhow::Result<()> {
    // Inputs that are found are kept apart from the corpus, which is checked in.
    let found = directory.join("found").join(target);
    fs::create_dir_all(&found)?;
    // Without a sanitizer, which costs time and needs a nightly toolchain.
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(directory)
        .args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir"])
        .arg(directory)
        .arg(target)
        .arg(&found)
        .arg(directory.join("corpus").join(target))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={MAX_SECONDS}"))
        .arg(format!("-rss_limit_mb={MAX_MEBIBYTES}"));
    let dictionary = directory.join("dictionaries").join(target);
    if dictionary.exists() {
        cargo.arg(format!("-dict={}", dictionary.display()));
    }
    stage::run(&mut cargo).with_context(|| {
        format!("a finding in {target}, or `cargo install cargo-fuzz` has not been run")
    })
}
