//! Arguments, then the command that they name.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tldrs::cli::{Arguments, Command};
use tldrs::{serve, stored};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    // Prints help to standard output and ends with 0, or what is wrong to standard error and with 2.
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tldrs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log(arguments.log_level())?;
    match arguments.command {
        Command::Serve(options) => serve::run(options),
        Command::List(options) => stored::list(&options),
        Command::Clear(options) => stored::clear(&options),
        Command::Dir(options) => stored::print_directory(&options),
        Command::GetTef(options) => stored::get_tef(&options),
    }
}

/// Logs to standard error, as `RUST_LOG` says, else from `level` on.
fn log(level: LevelFilter) -> anyhow::Result<()> {
    let targets = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives
            .parse()
            .with_context(|| format!("RUST_LOG={directives}"))?,
        _ => Targets::new().with_default(level),
    };
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(targets)
        .init();
    Ok(())
}
