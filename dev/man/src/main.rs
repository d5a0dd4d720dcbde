//! Writes the man pages and shell completions of all programs, from the definitions that `--help`
//! shows, below the directory of the first argument. `page` writes a page, `sections` has what
//! `--help` does not show.

mod page;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

/// The directory without an argument: it is not checked in.
const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");

/// The relay daemon of LTTng. Sites that replace it install `relayd` by this name too.
const REFERENCE: &str = "lttng-relayd";

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// The directories of pages and completions.
struct Output {
    pages: PathBuf,
    completions: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let output = std::env::args_os().nth(1);
    let output = output.map_or_else(|| PathBuf::from(OUTPUT), PathBuf::from);
    let output = Output {
        pages: output.join("man"),
        completions: output.join("completions"),
    };
    let relayd = relayd::cli::Arguments::command();
    output.write_pages(relayd.clone(), "8")?;
    output.write_pages(
        relayd::cli::ArchiveArguments::command().name("relayd-archive"),
        "8",
    )?;
    output.write_pages(
        relayd::cli::CertsArguments::command().name("relayd-certs"),
        "8",
    )?;
    output.write_pages(
        test_live::cli::ProxyArguments::command().name("test-live-proxy"),
        "1",
    )?;
    output.write_pages(
        test_live::cli::InfoArguments::command().name("test-live-info"),
        "1",
    )?;
    output.write_pages(
        test_live::cli::TopArguments::command().name("test-live-top"),
        "1",
    )?;
    output.write_pages(
        test_live::cli::SpansArguments::command().name("test-live-spans"),
        "1",
    )?;
    output.write_pages(
        // A command with options of its own has a parser of its own, and so a page.
        test_live::cli::WebArguments::command().name("test-live-web"),
        "1",
    )?;
    output.write_completions(relayd.clone(), "relayd")?;
    // No page: lttng-tools has one of this name.
    output.write_completions(relayd, REFERENCE)?;
    for program in [
        consumer::cli::Arguments::command(),
        test_live::cli::Arguments::command(),
        tldrs::cli::Arguments::command(),
    ] {
        let name = program.get_name().to_owned();
        output.write_pages(program.clone(), "1")?;
        output.write_completions(program, &name)?;
    }
    Ok(())
}

impl Output {
    /// Writes the page of a program in this section of the manual, and one page for each of its
    /// commands.
    fn write_pages(&self, mut program: Command, section: &str) -> anyhow::Result<()> {
        make_directory(&self.pages)?;
        // Gives commands what they inherit from the program: pages show it.
        program.build();
        let commands = program.get_subcommands().cloned();
        // The command that clap adds has nothing to say on a page of its own.
        let commands = commands.filter(|command| command.get_name() != "help");
        for command in commands.collect::<Vec<_>>().into_iter().chain([program]) {
            let (name, text) = page::render(command, section)?;
            let path = self.pages.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        Ok(())
    }

    /// Writes what shells complete for a program of this name.
    fn write_completions(&self, mut command: Command, name: &str) -> anyhow::Result<()> {
        make_directory(&self.completions)?;
        for shell in SHELLS {
            let written = generate_to(shell, &mut command, name, &self.completions);
            let path = written
                .with_context(|| format!("cannot write to {}", self.completions.display()))?;
            println!("{}", path.display());
        }
        Ok(())
    }
}

fn make_directory(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}
