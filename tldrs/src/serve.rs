//! The daemon until a signal, or until a client wants it to end.

use std::process::ExitCode;

use anyhow::Context;
use consumer::agent::Agent;
use consumer::config::Config;
use daemon::background;
use daemon::fd_limit::raise_fd_limit;
use daemon::signals::StopSignals;
use listenfd::ListenFd;
use rustix::fs::Mode;
use rustix::process::umask;
use tldrs_daemon::forward_queue::TraceSender;
use tldrs_daemon::{Daemon, DaemonSettings};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::Serve;

/// Set in the environment of the process in the background.
const BACKGROUND_MARKER: &str = "TLDRS_IN_BACKGROUND";

/// Of a daemon in the background, as the reference has it.
const BACKGROUND_UMASK: u32 = 0o027;

/// Runs the daemon.
///
/// # Errors
/// If it cannot start.
pub fn run(options: Serve) -> anyhow::Result<ExitCode> {
    let daemonize = options.daemonize;
    if daemonize && !background::is_background(BACKGROUND_MARKER) {
        let is_ready = background::start_in_background(BACKGROUND_MARKER)
            .context("cannot start in the background")?;
        return Ok(if is_ready {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    // Paths are as seen from where it was started.
    let settings = settings(&options)?;
    let relay = options.relay()?;
    if daemonize {
        background::detach().context("cannot leave for the background")?;
        umask(Mode::from_raw_mode(BACKGROUND_UMASK));
    }
    raise_fd_limit();
    let runtime = runtime()?;
    let stop = CancellationToken::new();
    let (daemon, uplink) = {
        let _guard = runtime.enter();
        let mut signals = StopSignals::catch().context("cannot catch signals")?;
        let stopped = stop.clone();
        tokio::spawn(async move {
            signals.wait().await;
            stopped.cancel();
        });
        let (forward, uplink) = match relay {
            None => (None, None),
            Some(config) => {
                let (forward, uplink) = Uplink::start(&config, &stop)?;
                (Some(forward), Some(uplink))
            }
        };
        (Daemon::start(settings, forward)?, uplink)
    };
    info!("ready");
    if daemonize {
        background::report_ready(true)?;
    }
    let why = runtime.block_on(daemon.run(stop.clone()));
    info!(?why, "stopped");
    stop.cancel();
    if let Some(uplink) = uplink {
        runtime.block_on(uplink.finish())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The way to a relay.
struct Uplink {
    agent: Agent,
    /// Takes traces until there will be no more.
    forwarded: JoinHandle<()>,
}

impl Uplink {
    /// Starts it. After `stop` the relay may take what is left, but not for ever.
    fn start(config: &Config, stop: &CancellationToken) -> anyhow::Result<(TraceSender, Self)> {
        let agent = Agent::start(
            config.uplink()?,
            config.queue_capacity(),
            stop,
            config.stop_timeout(),
        );
        let (forward, forwarded) = agent.start_forwarding(config.session.forward());
        let forwarded = tokio::spawn(forwarded);
        Ok((forward, Self { agent, forwarded }))
    }

    async fn finish(self) -> anyhow::Result<()> {
        self.forwarded.await?;
        self.agent.finish().await
    }
}

fn settings(serve: &Serve) -> anyhow::Result<DaemonSettings> {
    let inherited = inherited()?;
    let mut settings = serve.options()?.settings()?;
    if serve.socket.is_empty() && !inherited.is_empty() {
        settings.sockets.clear();
        settings.extra_socket = None;
    }
    settings.inherited = inherited;
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
