//! Arguments, then the relay until a signal, then out.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use relayd::background;
use relayd::cli::{Arguments, Mode};
use relayd::config::LogFormat;
use relayd::limits::DELETION_TIMEOUT;
use relayd::net::{Addresses, Server};
use relayd::service::sockets::Inherited;
use relayd::service::{self, Service, signal_parent};
use relayd::store::repair::{Repaired, repair};
use relayd::store::{deletion, make_directory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::Layer;
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
    let inherited = Inherited::take().context("what was handed over is no port")?;
    let (arguments, warnings) = arguments.with_files()?;
    let mode = arguments.mode();
    if mode != Mode::Foreground && !background::is_background() {
        let is_ready = background::start().context("cannot start in the background")?;
        if !is_ready {
            return Ok(ExitCode::FAILURE);
        }
        if arguments.signals_parent() {
            signal_parent();
        }
        return Ok(ExitCode::SUCCESS);
    }
    log(arguments.log_level(), arguments.log_format())?;
    warnings.iter().for_each(|doubt| warn!("{doubt}"));
    let config = arguments.config(raise_file_limit())?;
    let warnings = &config.network.warnings;
    warnings.iter().for_each(|doubt| warn!("{doubt}"));
    if mode != Mode::Foreground {
        background::leave().context("cannot leave for the background")?;
    }
    let process = &config.process;
    if let Some(directory) = &process.working_directory {
        service::enter(directory)?;
    }
    make_directory(&config.output)?;
    report(repair(&config.output));
    let server = Server::start(&config, inherited)?;
    let signals = server
        .block_on(async { Signals::catch() })
        .context("cannot catch signals")?;
    let addresses = server.addresses();
    let service = Service::begin(process, addresses, server.health())?;
    let Addresses {
        control,
        data,
        live,
        http,
    } = addresses;
    let (output, grouping) = (config.output.display(), config.grouping);
    info!(%control, %data, %live, %output, by = %grouping, pool = config.pool, "listening");
    if let Some(http) = http {
        info!(%http, "telling how it is");
    }
    match mode {
        Mode::Foreground => background::close_stdin()?,
        Mode::Background | Mode::Daemon => background::ready(mode == Mode::Daemon)?,
    }
    service.ready();
    server.block_on(signals.wait_for_stop());
    service.stopping();
    server.stop();
    if !deletion::finish(DELETION_TIMEOUT) {
        warn!("chunks are still being deleted: the next start completes it");
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs to standard error, as `RUST_LOG` says, else from `level` on.
fn log(level: LevelFilter, format: LogFormat) -> anyhow::Result<()> {
    let targets = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives
            .parse()
            .with_context(|| format!("RUST_LOG={directives}"))?,
        _ => Targets::new().with_default(level),
    };
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let to_stderr = match format {
        LogFormat::Text => to_stderr.boxed(),
        LogFormat::Json => to_stderr.with_ansi(false).json().boxed(),
    };
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(targets)
        .init();
    Ok(())
}

/// Says what an earlier relay that was killed had left.
fn report(repaired: Repaired) {
    let Repaired {
        indexes,
        tracefiles,
        bytes,
        chunks,
    } = repaired;
    if repaired != Repaired::default() {
        info!(
            indexes,
            tracefiles, bytes, chunks, "output repaired after a crash"
        );
    }
}

/// Streams and connections take file descriptors; the usual limit is meant for programs that would
/// not bear more. Gives how many there may be.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "limit of open files not raised");
    }
    // None: there is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Caught, so that they do no harm: sent by ourselves, and by a limit to the size of files, which
    /// is an error of the write too.
    _harmless: [tokio::signal::unix::Signal; 2],
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _harmless: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            ],
        })
    }

    async fn wait_for_stop(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
