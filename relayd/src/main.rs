//! Runs the relay until a signal.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use daemon::fd_limit::raise_fd_limit;
use daemon::notify::signal_parent;
use daemon::signals::StopSignals;
use daemon::{background, logging};
use relayd::cli::{Arguments, Mode};
use relayd::config::LogFormat;
use relayd::limits::DELETION_TIMEOUT;
use relayd::net::{Addresses, InheritedPorts, Server};
use relayd::service::{self, Service};
use relayd::store::repair::{Repaired, repair};
use relayd::store::{deletion, make_directory};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// Set in the environment of the process in the background.
const BACKGROUND_MARKER: &str = "RELAYD_IN_BACKGROUND";

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
    let inherited = InheritedPorts::from_environment()
        .context("a socket from the service manager is not a listening TCP socket")?;
    let (arguments, warnings) = arguments.with_files()?;
    let mode = arguments.mode();
    if mode != Mode::Foreground && !background::is_background(BACKGROUND_MARKER) {
        let is_ready = background::start_in_background(BACKGROUND_MARKER)
            .context("cannot start in the background")?;
        if !is_ready {
            return Ok(ExitCode::FAILURE);
        }
        if arguments.signals_parent() {
            signal_parent();
        }
        return Ok(ExitCode::SUCCESS);
    }
    logging::start(arguments.log_level(), log_format(&arguments))?;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    let config = arguments.config(raise_fd_limit())?;
    let warnings = &config.network.warnings;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    if mode != Mode::Foreground {
        background::detach().context("cannot detach from the foreground")?;
    }
    let process = &config.process;
    if let Some(directory) = &process.working_directory {
        service::enter_working_directory(directory)?;
    }
    make_directory(&config.output)?;
    // Before the ports are open: no producer writes and no viewer reads while files are truncated.
    report_repairs(repair(&config.output));
    let server = Server::start(&config, inherited)?;
    // Caught before readiness is reported: a program that waits for that may send a signal at once.
    let signals = server
        .block_on(async { Signals::catch() })
        .context("cannot catch signals")?;
    let addresses = server.addresses();
    let ports = [
        ("control", addresses.control.port()),
        ("data", addresses.data.port()),
        ("live", addresses.live.port()),
    ];
    let service = Service::create(process, &ports, server.health())?;
    let Addresses {
        control,
        data,
        live,
        http,
    } = addresses;
    let (output, grouping) = (config.output.display(), config.grouping);
    info!(%control, %data, %live, %output, by = %grouping, pool = config.pool, "listening");
    if let Some(http) = http {
        info!(%http, "status endpoint enabled");
    }
    match mode {
        Mode::Foreground => background::close_stdin()?,
        Mode::Background | Mode::Daemon => background::report_ready(mode == Mode::Daemon)?,
    }
    service.notify_ready();
    server.block_on(signals.wait_for_stop());
    service.notify_stopping();
    server.stop();
    if !deletion::finish(DELETION_TIMEOUT) {
        warn!("chunks are still being deleted: the next start completes it");
    }
    Ok(ExitCode::SUCCESS)
}

fn log_format(arguments: &Arguments) -> logging::LogFormat {
    match arguments.log_format() {
        LogFormat::Text => logging::LogFormat::Text,
        LogFormat::Json => logging::LogFormat::Json,
    }
}

/// Logs the repairs of the output of a relay that was killed.
fn report_repairs(repaired: Repaired) {
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

/// The signals that the relay catches.
struct Signals {
    stop: StopSignals,
    /// SIGUSR1 and SIGXFSZ, caught so that they do not end the process. SIGUSR1 is the signal that a relay
    /// sends to its parent process; the system sends SIGXFSZ at a write beyond the limit of file sizes,
    /// which also fails with an error.
    _harmless: [Signal; 2],
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            stop: StopSignals::catch()?,
            _harmless: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            ],
        })
    }

    async fn wait_for_stop(mut self) {
        self.stop.wait().await;
    }
}
