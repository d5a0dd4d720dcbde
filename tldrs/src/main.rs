//! Runs the command that the arguments name.

use std::process::ExitCode;

use clap::Parser;
use daemon::error_text::describe_error;
use daemon::logging::{self, LogFormat};
use daemon::output::{is_closed_output, print_message};
use tldrs::cli::{Arguments, Command};
use tldrs::{serve, stored};

fn main() -> ExitCode {
    // On --help this prints to standard output and exits with 0; on an error, to standard error and
    // with 2.
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_closed_output(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(format_args!("tldrs: {}", describe_error(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let log = logging::start(
        arguments.log_level(),
        LogFormat::Text,
        arguments.log_target(),
    )?;
    match arguments.command {
        Command::Serve(options) => serve::run(*options, log),
        Command::List(options) => stored::list(&options),
        Command::Clear(options) => stored::clear(&options),
        Command::Dir(options) => stored::print_directory(&options),
        Command::GetTef(options) => stored::get_tef(&options),
        Command::GetPerfetto(options) => stored::get_perfetto(&options),
    }
}
