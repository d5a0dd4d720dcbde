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
    pages(relayd.clone(), "8")?;
    completions(relayd.clone(), "relayd")?;
    completions(relayd, REFERENCE)?;
    for program in [
        consumer::cli::Arguments::command(),
        test_live::cli::Arguments::command(),
        tldrs::cli::Arguments::command(),
    ] {
        let name = program.get_name().to_owned();
        pages(program.clone(), "1")?;
        completions(program, &name)?;
    }
    Ok(())
}

/// A program, in this section of the manual: one page, and one for each of its commands.
fn pages(mut program: Command, section: &str) -> anyhow::Result<()> {
    make(MAN)?;
    program.build();
    let commands = program.get_subcommands().cloned();
    let commands = commands.filter(|command| command.get_name() != "help");
    for command in commands.collect::<Vec<_>>().into_iter().chain([program]) {
        let man = Man::new(command).section(section);
        let path = Path::new(MAN).join(man.get_filename());
        let mut text = Vec::new();
        man.render(&mut text)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
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
