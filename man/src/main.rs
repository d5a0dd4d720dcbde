//! Writes the man pages and shell completions of all programs, from the definitions that `--help` shows. `page` writes
//! a page, `sections` has what `--help` does not show.

mod page;
mod sections;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

/// The output directories, below the workspace and not checked in.
const MAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/man");
const COMPLETIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/completions");

/// The relay daemon of LTTng. Sites that replace it install `relayd` by this name too.
const REFERENCE: &str = "lttng-relayd";

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> anyhow::Result<()> {
    let relayd = relayd::cli::Arguments::command();
    write_pages(relayd.clone(), "8")?;
    write_pages(
        relayd::cli::CertsArguments::command().name("relayd-certs"),
        "8",
    )?;
    write_pages(
        test_live::cli::ProxyArguments::command().name("test-live-proxy"),
        "1",
    )?;
    write_pages(
        test_live::cli::InfoArguments::command().name("test-live-info"),
        "1",
    )?;
    write_pages(
        test_live::cli::TopArguments::command().name("test-live-top"),
        "1",
    )?;
    write_pages(
        test_live::cli::WebArguments::command().name("test-live-web"),
        "1",
    )?;
    write_completions(relayd.clone(), "relayd")?;
    write_completions(relayd, REFERENCE)?;
    for program in [
        consumer::cli::Arguments::command(),
        test_live::cli::Arguments::command(),
        tldrs::cli::Arguments::command(),
    ] {
        let name = program.get_name().to_owned();
        write_pages(program.clone(), "1")?;
        write_completions(program, &name)?;
    }
    Ok(())
}

/// Writes the page of a program in this section of the manual, and one page for each of its commands.
fn write_pages(mut program: Command, section: &str) -> anyhow::Result<()> {
    make_directory(MAN)?;
    program.build();
    let commands = program.get_subcommands().cloned();
    let commands = commands.filter(|command| command.get_name() != "help");
    for command in commands.collect::<Vec<_>>().into_iter().chain([program]) {
        let (name, text) = page::render(command, section)?;
        let path = Path::new(MAN).join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Writes what shells complete for a program of this name.
fn write_completions(mut command: Command, name: &str) -> anyhow::Result<()> {
    make_directory(COMPLETIONS)?;
    for shell in SHELLS {
        let written = generate_to(shell, &mut command, name, COMPLETIONS);
        let path = written.with_context(|| format!("cannot write to {COMPLETIONS}"))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn make_directory(directory: &str) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {directory}"))
}
