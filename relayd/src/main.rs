//! Arguments, then the relay until a signal, then out.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use relayd::background;
use relayd::cli::{Arguments, Mode};
use relayd::net::{Addresses, Server};
use relayd::store::make_directory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => {
            let _ = message.print();
            return if message.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    if let Some(version) = arguments.version() {
        print!("{version}");
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("relayd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mode = arguments.mode();
    if mode != Mode::Foreground && !background::is_background() {
        let is_ready = background::start().context("cannot start in the background")?;
        return Ok(if is_ready {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    log(arguments.log_level())?;
    let config = arguments.config()?;
    if mode != Mode::Foreground {
        background::leave().context("cannot leave for the background")?;
    }
    make_directory(&config.output)?;
    raise_file_limit();
    let server = Server::start(&config)?;
    let signals = server
        .block_on(async { Signals::catch() })
        .context("cannot catch signals")?;
    let Addresses {
        control,
        data,
        live,
    } = server.addresses();
    info!(%control, %data, %live, output = %config.output.display(), "listening");
    match mode {
        Mode::Foreground => background::close_stdin()?,
        Mode::Background | Mode::Daemon => background::ready(mode == Mode::Daemon)?,
    }
    server.block_on(signals.wait_for_stop());
    server.stop();
    Ok(ExitCode::SUCCESS)
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

/// Streams and connections take file descriptors; the usual limit is meant for programs that would
/// not bear more.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "limit of open files not raised");
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Caught, so that it does no harm.
    _user: tokio::signal::unix::Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _user: signal(SignalKind::user_defined1())?,
        })
    }

    async fn wait_for_stop(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
