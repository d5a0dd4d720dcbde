//! Man pages, made of the same definitions that `--help` shows, so that nothing is written twice.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

/// Where they go: below the workspace, and not checked in.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/man");

pub(crate) fn run() -> anyhow::Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    page::<relayd::cli::Arguments>(directory, "8")?;
    page::<consumer::cli::Arguments>(directory, "1")?;
    page::<test_live::cli::Arguments>(directory, "1")?;
    page::<tldrs::cli::Arguments>(directory, "1")
}

/// The program that takes these arguments, in this section of the manual: one page, and one for each
/// of its commands.
fn page<A: CommandFactory>(directory: &Path, section: &str) -> anyhow::Result<()> {
    let mut command = A::command().disable_help_subcommand(true);
    command.build();
    render(command, directory, section)
}

fn render(command: Command, directory: &Path, section: &str) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands() {
        render(subcommand.clone(), directory, section)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    let mut text = Vec::new();
    Man::new(command).section(section).render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
