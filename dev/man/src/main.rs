//! Writes the man pages and shell completions of all programs, from the definitions that `--help`
//! shows, below the directory of the first argument. `page` writes a page, `sections` has what
//! `--help` does not show, `completions` writes the scripts of shells.

mod completions;
mod page;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::completions::SHELLS;

/// The directory without an argument: it is not checked in.
const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");

/// The relay daemon of LTTng. Sites that replace it install `relayd` by this name too.
const REFERENCE: &str = "lttng-relayd";

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
    let relayd = relayd::cli::CommandLine::command();
    output.write_pages(relayd.clone(), "8")?;
    output.write_completions(&relayd, "relayd")?;
    // No page: lttng-tools has one of this name.
    output.write_completions(&relayd, REFERENCE)?;
    for (name, program) in [
        ("consumer", consumer::cli::Arguments::command()),
        ("test-live", test_live::cli::Arguments::command()),
        ("tldrs", tldrs::cli::Arguments::command()),
    ] {
        output.write_pages(program.clone(), "1")?;
        output.write_completions(&program, name)?;
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
        self.write_page(program, section)
    }

    fn write_page(&self, command: Command, section: &str) -> anyhow::Result<()> {
        for command in command.get_subcommands() {
            // The command that clap adds has nothing to say on a page of its own.
            if command.get_name() != "help" {
                self.write_page(command.clone(), section)?;
            }
        }
        let (name, text) = page::render(command, section)?;
        write_file(&self.pages.join(name), text)
    }

    /// Writes what shells complete for a program of this name.
    fn write_completions(&self, program: &Command, name: &'static str) -> anyhow::Result<()> {
        make_directory(&self.completions)?;
        for shell in SHELLS {
            let (file, script) = completions::render(shell, program, name);
            write_file(&self.completions.join(file), script)?;
        }
        Ok(())
    }
}

/// Writes a file, and prints its path.
fn write_file(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn make_directory(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}
