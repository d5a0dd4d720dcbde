//! Runs the command that the arguments name, and turns its result into the exit status.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use consumer::agent::{self, UsageError};
use consumer::cli::{Arguments, Command, RingsCommand};
use consumer::command;
use consumer::config::{Config, ConfigError};
use consumer::doctor;
use consumer::rings::filter::enable;
use consumer::rings::list::RingTable;
use consumer::rings::{print, record};
use consumer::status;
use daemon::checkup::State;
use daemon::error_text::describe_error;
use daemon::fd_limit::raise_fd_limit;
use daemon::logging::{self, LogFormat};
use daemon::output::{is_closed_output, print, print_json, print_line, print_message};
use daemon::signals::{StopSignals, reopen_log_on_hangup};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A reader like `head` has what it wants when it closes the pipe.
        Err(error) if is_closed_output(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(format_args!("consumer: {}", describe_error(error.as_ref())));
            let is_usage = error.is::<UsageError>() || error.is::<ConfigError>();
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// Runs a command. Returns whether the relay has acknowledged everything; true for commands without
/// one.
fn run(arguments: Arguments) -> anyhow::Result<bool> {
    let log = logging::start(
        arguments.log_level(),
        LogFormat::Text,
        arguments.log_target(),
    )?;
    match arguments.command {
        Command::Serve(serve) => {
            let config = serve.config()?;
            until_stopped(|stop| async {
                reopen_log_on_hangup(log).context("cannot catch signals")?;
                agent::serve(config, stop).await.map(|()| true)
            })
        }
        Command::Clock(clock) => {
            let config = clock.config()?;
            until_stopped(|stop| command::clock::sample_clock(config, stop))
        }
        Command::Replay(replay) => {
            raise_fd_limit();
            let is_held = replay.hold;
            let spool = replay.spool()?;
            let (settings, uplink) = replay.settings()?;
            until_stopped(|stop| command::replay::replay(settings, uplink, spool, is_held, stop))
        }
        Command::Codetracer(recording) => {
            let spool = recording.spool()?;
            let (job, uplink) = recording.job()?;
            until_stopped(|stop| command::codetracer::send_recording(job, uplink, spool, stop))
        }
        Command::Status(asked) => {
            let socket = asked.socket.unwrap_or_else(status::default_socket);
            let report = status::request_status(&socket)?;
            print_report(&report, asked.json)?;
            Ok(true)
        }
        Command::Rings(arguments) => run_rings(arguments.command()),
        Command::Doctor { serve, json } => {
            // The check of open files is about the limit that an agent would have.
            raise_fd_limit();
            let config = serve.config()?;
            let report = runtime()?.block_on(doctor::check(&config));
            print_report(&report, json)?;
            Ok(report.count(State::Problem) == 0)
        }
        Command::CheckConfig { file, json } => {
            let config = Config::read(&file)?;
            config.check()?;
            if json {
                print_json(&config)?;
            } else {
                print(config.to_toml()?)?;
            }
            Ok(true)
        }
    }
}

/// Prints a report, as text or as JSON.
fn print_report(report: &(impl Display + Serialize), is_json: bool) -> io::Result<()> {
    match is_json {
        true => print_json(report),
        false => print(report),
    }
}

/// Runs a command of `consumer rings`.
fn run_rings(command: RingsCommand) -> anyhow::Result<bool> {
    raise_fd_limit();
    match command {
        RingsCommand::List {
            directory,
            pids,
            is_json,
        } => {
            print_report(&RingTable::read(&directory, &pids)?, is_json)?;
            Ok(true)
        }
        RingsCommand::Print(settings) => {
            until_stopped(|stop| async { print::print(settings, stop).await.map(|()| true) })
        }
        RingsCommand::Record(settings) => {
            until_stopped(|stop| async { record::record(settings, stop).await.map(|()| true) })
        }
        RingsCommand::Snapshot(settings) => until_stopped(|_| async {
            let processes = record::snapshot(settings).await?;
            print_message(format_args!(
                "flight recorders of {processes} processes recorded"
            ));
            Ok(true)
        }),
        RingsCommand::Enable {
            directory,
            pids,
            directives,
        } => {
            for (pid, filter) in enable(&directory, &pids, &directives)? {
                print_line(format_args!("{pid} {filter}"))?;
            }
            Ok(true)
        }
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Runtime::new().context("cannot start threads")
}

/// Runs a future on a new runtime. The token is cancelled at the first SIGTERM or SIGINT.
fn until_stopped<F>(run: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<bool>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let stopped = stop.clone();
        tokio::spawn(signals.stop_or_exit(move || stopped.cancel()));
        run(stop).await
    });
    // Dropping the runtime would wait for a thread that still reads from a slow disk.
    runtime.shutdown_background();
    ended
}
