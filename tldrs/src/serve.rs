//! The daemon until a signal, or until a client wants it to end.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use consumer::frontend::tldrs::{Daemon, Settings, Storage};
use listenfd::ListenFd;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::background;
use crate::cli::Serve;
use crate::places;

/// Of a daemon in the background, as the reference has it.
const BACKGROUND_UMASK: u32 = 0o027;

/// Runs the daemon.
///
/// # Errors
/// If it cannot start.
pub fn run(options: Serve) -> anyhow::Result<ExitCode> {
    let daemonize = options.daemonize;
    if daemonize && !background::is_background() {
        let is_ready = background::start().context("cannot start in the background")?;
        return Ok(if is_ready {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    // Paths are as seen from where it was started.
    let settings = settings(options)?;
    if daemonize {
        background::leave().context("cannot leave for the background")?;
        umask(Mode::from_raw_mode(BACKGROUND_UMASK));
    }
    raise_file_limit();
    let runtime = runtime()?;
    let stop = CancellationToken::new();
    let daemon = {
        let _guard = runtime.enter();
        stop_at_signal(stop.clone())?;
        Daemon::start(settings, None)?
    };
    info!("ready");
    if daemonize {
        background::ready()?;
    }
    let why = runtime.block_on(daemon.run(stop));
    info!(?why, "stopped");
    Ok(ExitCode::SUCCESS)
}

fn settings(options: Serve) -> anyhow::Result<Settings> {
    let fixed = |path: &std::path::PathBuf| places::fixed(path);
    let storage = match (&options.into_file, &options.directory.directory) {
        (Some(file), _) => Storage::File(fixed(file)?),
        (None, Some(directory)) => Storage::Directory(fixed(directory)?),
        (None, None) => {
            let directory = places::own_directory()?;
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            Storage::Directory(directory)
        }
    };
    let (usual, extra) = places::sockets();
    let mut settings = Settings::new(usual, storage);
    settings.inherited = inherited()?;
    if !options.socket.is_empty() {
        settings.sockets = options.socket.iter().map(fixed).collect::<Result<_, _>>()?;
    } else if settings.inherited.is_empty() {
        settings.extra_socket = extra;
    } else {
        settings.sockets.clear();
    }
    settings.sync = options.sync;
    settings.longest_line = options.max_line;
    settings.most_clients = usize::try_from(options.max_clients)?;
    settings.most_traces = usize::try_from(options.max_traces)?;
    let users = options.allow_user.iter().map(|user| places::user(user));
    settings.allowed_users = users.collect::<Result<BTreeSet<_>, _>>()?;
    settings.emit_root = options.emit_root.as_ref().map(fixed).transpose()?;
    settings.when_full = options.when_full.into();
    Ok(settings)
}

/// Sockets on which a service manager listens for us.
fn inherited() -> anyhow::Result<Vec<std::os::unix::net::UnixListener>> {
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let listener = passed.take_unix_listener(index);
        listeners.extend(listener.context("a socket that was passed on is none for streams")?);
    }
    Ok(listeners)
}

fn runtime() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .thread_name("tldrs")
        // Writing blocks when the disk does: then some other client can go on.
        .worker_threads(cores.clamp(2, 8))
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Catches signals from now on.
fn stop_at_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let catch = |kind| signal(kind).context("cannot catch signals");
    let mut terminate = catch(SignalKind::terminate())?;
    let mut interrupt = catch(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

/// Clients and traces take file descriptors; the usual limit is meant for programs that would not bear
/// more.
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
