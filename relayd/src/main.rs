//! Runs the relay until a signal.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use clap::Parser;
use daemon::checkup::host::max_open_files;
use daemon::checkup::{Report, State};
use daemon::durability::Durability;
use daemon::error_text::describe_error;
use daemon::fd_limit::raise_fd_limit;
use daemon::logging::{Log, LogTarget};
use daemon::notify::signal_parent;
use daemon::output::{is_closed_output, print, print_json, print_line, print_message};
use daemon::signals::StopSignals;
use daemon::{background, logging};
use relayd::cli::{
    ArchiveArguments, ArchiveCommand, Arguments, CertsArguments, CheckArguments, Command,
    CommandLine, Mode,
};
use relayd::config::LogFormat;
use relayd::doctor;
use relayd::limits::DELETION_TIMEOUT;
use relayd::net::{Addresses, InheritedPorts, Server};
use relayd::running_relay::{self, Examined, RunningRelay};
use relayd::service::{self, Service};
use relayd::stopped_service::StoppedService;
use relayd::store::repair::{Repaired, repair};
use relayd::store::session_log::SessionLog;
use relayd::store::sync::sync_file_system;
use relayd::store::{deletion, make_directory};
use relayd::{archive_commands, certs, drain};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// Variable that is set in the environment of the process in the background.
const BACKGROUND_MARKER: &str = "RELAYD_IN_BACKGROUND";

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(message) => return print_usage(&message),
    };
    match line.command {
        None => run_unless_version(line.options, run),
        Some(Command::CheckConfig(check)) => {
            let CheckArguments { settings, json } = *check;
            run_unless_version(settings.options(), |options| {
                check_configuration(options, json)
            })
        }
        Some(Command::Doctor(check)) => {
            let CheckArguments { settings, json } = *check;
            run_unless_version(settings.options(), |options| check_host(options, json))
        }
        Some(Command::Drain(settings)) => run_unless_version(settings.options(), drain_relay),
        Some(Command::Archive(arguments)) => {
            exit_code("relayd archive", run_archive_command(&arguments))
        }
        Some(Command::Certs(arguments)) => {
            exit_code("relayd certs", create_certificates(&arguments))
        }
    }
}

/// Runs a command, or prints the version that the options ask for.
fn run_unless_version(
    options: Arguments,
    command: impl FnOnce(Arguments) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let ended = match options.version() {
        Some(version) => print(version)
            .map(|()| ExitCode::SUCCESS)
            .map_err(anyhow::Error::from),
        None => command(options),
    };
    exit_code("relayd", ended)
}

/// Reports the error of a command. That nobody reads its output any more is none.
fn exit_code(command: &str, ended: anyhow::Result<ExitCode>) -> ExitCode {
    match ended {
        Ok(code) => code,
        Err(error) if is_closed_output(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(format_args!(
                "{command}: {}",
                describe_error(error.as_ref())
            ));
            ExitCode::FAILURE
        }
    }
}

/// Runs `relayd check-config [FILE]`: prints the settings with which the relay would start. Lines
/// of the files that it would ignore count as faults.
fn check_configuration(arguments: Arguments, is_json: bool) -> anyhow::Result<ExitCode> {
    let (arguments, ignored) = arguments.with_files()?;
    let config = arguments.config(raise_fd_limit())?;
    Server::check(&config)?;
    let output = &config.output;
    anyhow::ensure!(
        !output.exists() || output.is_dir(),
        "output {} is not a directory",
        output.display()
    );
    let warnings = ignored.iter().chain(&config.network.warnings);
    warnings.clone().for_each(print_warning);
    match is_json {
        true => print_json(&config.to_json())?,
        false => print(config.to_file())?,
    }
    Ok(match warnings.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Runs `relayd doctor [FILE]`: prints what would keep a relay with these settings from working on
/// this host. Without settings it examines the relays that run, each in its place, or else the
/// service.
fn check_host(arguments: Arguments, is_json: bool) -> anyhow::Result<ExitCode> {
    let examined = running_relay::examined();
    let process = match examined {
        Some(Examined::Process(process)) => Some(process),
        Some(Examined::Service) | None => None,
    };
    if examined.is_none() && !arguments.has_settings() {
        let relays = match arguments.pid_file() {
            Some(file) => vec![running_relay::of_pid_file(file)?],
            None => running_relay::find().0,
        };
        if relays.is_empty()
            && let Some(service) = StoppedService::find()
        {
            return print_report(&service.examine(), is_json);
        }
        let relays = relays.into_iter().map(RunningRelay::read);
        // One that cannot be read has ended meanwhile.
        let relays: Vec<_> = relays.flatten().collect();
        if let Some(report) = examine_in_place(&relays, None) {
            return print_report(&report, is_json);
        }
    }
    let (arguments, ignored) = arguments.with_files()?;
    let open_files = match process {
        Some(_) => max_open_files(process).unwrap_or(u64::MAX),
        None => raise_fd_limit(),
    };
    let config = arguments.config(open_files)?;
    if examined.is_none()
        && let Some(relay) = doctor::find_relay_of_lesser_user(&config)
    {
        let given = std::env::args_os().skip(2).filter(|word| word != "--json");
        let given: Vec<_> = given.collect();
        if let Some(report) = examine_in_place(&[relay], Some(&given)) {
            return print_report(&report, is_json);
        }
    }
    print_report(&doctor::check(&config, &ignored, process), is_json)
}

/// Runs a doctor in the place of each relay, with these options instead of its own if there are
/// any. None: all of them have ended meanwhile.
fn examine_in_place(relays: &[RunningRelay], given: Option<&[OsString]>) -> Option<Report> {
    let mut all = Report::default();
    for relay in relays {
        match relay.run_doctor(given) {
            Ok(report) => all.append(report),
            Err(_) if relay.has_ended() => {}
            Err(error) => all.problem(
                format!(
                    "relay of process {}: cannot be examined: {error}",
                    relay.pid()
                ),
                "relayd doctor with the options of that relay, as its user",
            ),
        }
    }
    (!all.findings().is_empty()).then_some(all)
}

fn print_report(report: &Report, is_json: bool) -> anyhow::Result<ExitCode> {
    match is_json {
        true => print_json(report)?,
        false => print(report)?,
    }
    Ok(match report.count(State::Problem) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Runs `relayd drain [FILE]`: has the relay with these settings send its producers to another one,
/// and waits until they are gone.
fn drain_relay(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (arguments, ignored) = arguments.with_files()?;
    let config = arguments.config(raise_fd_limit())?;
    ignored.iter().for_each(print_warning);
    drain::drain(config.http.as_ref(), |progress| {
        print_line(progress).map_err(anyhow::Error::from)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print_warning(warning: impl Display) {
    print_message(format_args!("relayd: {warning}"));
}

/// Runs `relayd certs`: creates certificates, and prints what to do with them.
fn create_certificates(arguments: &CertsArguments) -> anyhow::Result<ExitCode> {
    print(certs::create(arguments, SystemTime::now())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `relayd archive`.
fn run_archive_command(arguments: &ArchiveArguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (text, is_faultless) = match &arguments.command {
        ArchiveCommand::Check(location) => {
            (runtime.block_on(archive_commands::check(location))?, true)
        }
        ArchiveCommand::Ls { location, json } => {
            let (sessions, is_whole) = runtime.block_on(archive_commands::ls(location))?;
            if *json {
                print_json(&sessions)?;
                return Ok(exit_status(is_whole));
            }
            (sessions.to_string(), is_whole)
        }
        ArchiveCommand::Verify(location) => runtime.block_on(archive_commands::verify(location))?,
    };
    print(text)?;
    Ok(exit_status(is_faultless))
}

fn exit_status(is_faultless: bool) -> ExitCode {
    match is_faultless {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints what `clap` says about a command line, or the help that was asked for.
fn print_usage(message: &clap::Error) -> ExitCode {
    let _ = message.print();
    if message.use_stderr() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
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
    let target = match (arguments.log_file(), mode) {
        (Some(file), _) => LogTarget::File(file),
        (None, Mode::Daemon) => LogTarget::Syslog("relayd"),
        (None, Mode::Foreground | Mode::Background) => LogTarget::Stderr,
    };
    let log = logging::start(arguments.log_level(), log_format(&arguments), target)?;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    let config = arguments.config(raise_fd_limit())?;
    let warnings = &config.network.warnings;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    if mode != Mode::Foreground {
        background::detach().context("cannot detach from the foreground")?;
    }
    let process = &config.process;
    // After the configuration, whose relative paths are those of the first directory.
    if let Some(directory) = &process.working_directory {
        service::enter_working_directory(directory)?;
    }
    make_directory(&config.output)?;
    // Before the ports are open: no producer writes and no viewer reads while files are truncated.
    let resumable = if config.resume_timeout.is_zero() {
        BTreeSet::new()
    } else {
        SessionLog::trace_directories(&config.output)
    };
    report_repairs(repair(&config.output, &resumable));
    if config.sync.durability != Durability::Process {
        // A killed relay leaves data that is written and not synced, and nothing tells which files
        // have it.
        sync_file_system(&config.output)?;
    }
    let server = Server::start(&config, inherited)?;
    // Caught before readiness is reported: a program that waits for that may send a signal at once.
    let mut signals = server
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
        quic,
    } = addresses;
    let (output, grouping) = (config.output.display(), config.grouping);
    info!(%control, %data, %live, %output, by = %grouping, pool = config.pool, "listening");
    if let Some(http) = http {
        info!(%http, "status endpoint enabled");
    }
    if let Some(quic) = quic {
        info!(%quic, "QUIC port enabled");
    }
    match mode {
        Mode::Foreground => background::close_stdin()?,
        Mode::Background | Mode::Daemon => background::report_ready(mode == Mode::Daemon)?,
    }
    service.notify_ready();
    serve_until_stopped(&server, &mut signals, &log);
    service.notify_stopping();
    Ok(stop(server))
}

/// Does what signals ask for, until one asks to stop.
fn serve_until_stopped(server: &Server, signals: &mut Signals, log: &Log) {
    loop {
        match server.block_on(signals.next()) {
            Request::Stop => return,
            Request::Reload => {
                log.reopen();
                server.reload_certificates();
            }
            Request::Drain => server.drain(),
        }
    }
}

/// Shuts down. Fails if not all traces are in the archive.
fn stop(server: Server) -> ExitCode {
    let is_archived = server.stop();
    if !deletion::finish(DELETION_TIMEOUT) {
        warn!("chunks are still being deleted: the next start completes it");
    }
    if !is_archived {
        error!("not all traces are in the archive: the rest is in the output of this host");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
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
        rebuilt,
        tracefiles,
        bytes,
        metadata,
        chunks,
        damaged,
        failed,
    } = repaired;
    if repaired != Repaired::default() {
        info!(
            indexes,
            rebuilt,
            tracefiles,
            bytes,
            metadata,
            chunks,
            damaged,
            failed,
            "output repaired after a crash"
        );
    }
}

/// The request that a signal makes.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Stop,
    /// The log file is to be opened and the certificates are to be read again.
    Reload,
    /// Producers are to be sent to another relay.
    Drain,
}

/// The signals that the relay catches.
struct Signals {
    stop: StopSignals,
    /// SIGHUP, which asks to reload. The signal ends `lttng-relayd`.
    reload: Signal,
    /// SIGUSR2, which asks to drain. The signal ends `lttng-relayd`.
    drain: Signal,
    /// SIGUSR1 and SIGXFSZ, caught so that they do not end the process. SIGUSR1 is the signal that
    /// a relay sends to its parent process; the system sends SIGXFSZ at a write beyond the limit of
    /// file sizes, which also fails with an error.
    _harmless: [Signal; 2],
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            stop: StopSignals::catch()?,
            reload: signal(SignalKind::hangup())?,
            drain: signal(SignalKind::user_defined2())?,
            _harmless: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            ],
        })
    }

    async fn next(&mut self) -> Request {
        tokio::select! {
            () = self.stop.wait() => Request::Stop,
            _ = self.reload.recv() => Request::Reload,
            _ = self.drain.recv() => Request::Drain,
        }
    }
}

/// pow(3), the only function of the C library's libm that the relay needs: tokio's scheduler calls
/// it. Because it is defined here, libm is not loaded, half a megabyte of which would be resident.
#[expect(
    unsafe_code,
    reason = "it has the name of the C function, and does what that does"
)]
#[unsafe(no_mangle)]
extern "C" fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}
