//! The page of `test-live web`: builds it from TypeScript, with the tools of
//! `crates/timeline/web/package-lock.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

use crate::stage;

/// Options of the job: whether the page is only checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if the page that is checked in is not what its source gives
    #[arg(long)]
    check: bool,
}

/// The source of the page, and below it what is checked in as its result.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/timeline/web");
const RESULT: &str = "dist";
/// The part of the page that is served as it is.
const INDEX: &str = "src/index.html";

/// Largest size of the page in bytes, all files together.
const MAX_BYTES: usize = 300 << 10;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let result = Path::new(DIRECTORY).join(RESULT);
    let before = read_files(&result)?;
    npm(
        "installing the tools of the page (npm ci)",
        // Without the scripts of packages, which could do anything on this machine.
        &["ci", "--ignore-scripts"],
    )?;
    // First, because the build removes types without looking at them.
    npm("checking types", &["run", "check"])?;
    npm("building the page", &["run", "build"])?;
    let after = read_files(&result)?;
    if options.check && before != after {
        // `--check` changes nothing: the result is put back.
        for (path, text) in before {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        bail!("crates/timeline/web/dist is not what its source gives; run: cargo xtask web");
    }
    let index = fs::read(Path::new(DIRECTORY).join(INDEX)).context("cannot read the page")?;
    let bytes = index.len() + after.iter().map(|(_, text)| text.len()).sum::<usize>();
    if bytes > MAX_BYTES {
        bail!("the page has {bytes} bytes, more than {MAX_BYTES}");
    }
    stage::announce(&format!("the page has {bytes} bytes"));
    Ok(())
}

fn npm(stage: &str, arguments: &[&str]) -> anyhow::Result<()> {
    stage::announce(stage);
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(DIRECTORY);
    stage::run(&mut npm).context("is npm installed?")
}

fn read_files(directory: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push((path, text));
    }
    files.sort();
    Ok(files)
}
