//! Man pages, made of the same definitions that `--help` shows, so that nothing is written twice.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
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
    let mut program = A::command();
    program.build();
    let commands = program.get_subcommands().cloned();
    let commands = commands.filter(|command| command.get_name() != "help");
    for command in commands.collect::<Vec<_>>().into_iter().chain([program]) {
        let man = Man::new(command).section(section);
        let path = directory.join(man.get_filename());
        let mut text = Vec::new();
        man.render(&mut text)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}
