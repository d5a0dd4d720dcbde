//! Man pages and shell completions, made of the same definitions that `--help` shows, so that nothing
//! is written twice.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

/// Where they go: below the workspace, and not checked in.
const MAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/man");
const COMPLETIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/completions");

/// What the relay daemon that ours stands in for is called: sites install it by this name too.
const REFERENCE: &str = "lttng-relayd";

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

pub(crate) fn run() -> anyhow::Result<()> {
    let relayd = relayd::cli::Arguments::command();
    page(relayd.clone(), "8")?;
    completions(relayd.clone(), "relayd")?;
    completions(relayd, REFERENCE)?;
    let test_live = test_live::cli::Arguments::command();
    page(test_live.clone(), "1")?;
    completions(test_live, "test-live")
}

/// The page of a program in this section of the manual.
fn page(command: Command, section: &str) -> anyhow::Result<()> {
    make(MAN)?;
    let path = Path::new(MAN).join(format!("{}.{section}", command.get_name()));
    let mut text = Vec::new();
    Man::new(command).section(section).render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// What shells complete for a program of this name.
fn completions(mut command: Command, name: &str) -> anyhow::Result<()> {
    make(COMPLETIONS)?;
    for shell in SHELLS {
        let written = generate_to(shell, &mut command, name, COMPLETIONS);
        let path = written.with_context(|| format!("cannot write to {COMPLETIONS}"))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn make(directory: &str) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {directory}"))
}
