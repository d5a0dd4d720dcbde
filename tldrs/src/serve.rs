//! Runs the daemon until a signal, or until a client stops it.

use std::process::ExitCode;

use anyhow::Context;
use consumer::agent::Agent;
use consumer::config::Config;
use consumer::frontend::tldrs::{ForwardSettings, start_forwarding};
use daemon::background;
use daemon::fd_limit::raise_fd_limit;
use daemon::logging::Log;
use daemon::signals::{StopSignals, reopen_log_on_hangup};
use listenfd::ListenFd;
use rustix::fs::Mode;
use rustix::process::umask;
use tldrs_daemon::forward_queue::TraceSender;
use tldrs_daemon::{Daemon, DaemonSettings};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::ServeArguments;

/// Set in the environment of the process in the background.
const BACKGROUND_MARKER: &str = "TLDRS_IN_BACKGROUND";

/// The umask of a daemon in the background: that of the reference.
const BACKGROUND_UMASK: u32 = 0o027;

/// Runs the daemon, and with a relay the uplink. SIGHUP opens the file of `log` again.
///
/// # Errors
/// If the daemon cannot start, or the uplink panics.
pub fn run(options: ServeArguments, log: Log) -> anyhow::Result<ExitCode> {
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
    // Before `detach`, which changes the working directory: paths on the command line are relative
    // to the old one.
    let settings = settings(&options)?;
    let relay = options.relay()?;
    if daemonize {
        background::detach().context("cannot detach from the foreground")?;
        umask(Mode::from_raw_mode(BACKGROUND_UMASK));
    }
    // Each client takes a descriptor, and each open trace takes some.
    raise_fd_limit();
    let runtime = runtime()?;
    let stop = CancellationToken::new();
    let (daemon, uplink) = {
        // Signals and sockets register with the runtime of the thread that makes them.
        let _guard = runtime.enter();
        let mut signals = StopSignals::catch().context("cannot catch signals")?;
        reopen_log_on_hangup(log).context("cannot catch signals")?;
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
    // A client may have stopped the daemon, and the uplink does not know of that.
    stop.cancel();
    if let Some(uplink) = uplink {
        runtime.block_on(uplink.finish())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The uplink to a relay.
struct Uplink {
    agent: Agent,
    /// The task that forwards traces.
    forwarded: JoinHandle<()>,
}

impl Uplink {
    /// Starts the uplink. After `stop`, queued packets are sent until the stop timeout.
    fn start(config: &Config, stop: &CancellationToken) -> anyhow::Result<(TraceSender, Self)> {
        let agent = Agent::for_config(config, stop)?;
        let settings = ForwardSettings::new(&config.session);
        let (forward, forwarded) = start_forwarding(agent.opener(), settings);
        let forwarded = tokio::spawn(forwarded);
        Ok((forward, Self { agent, forwarded }))
    }

    async fn finish(self) -> anyhow::Result<()> {
        // First, because the forwarder has an opener, and the agent ends when all of them are
        // dropped.
        self.forwarded.await?;
        self.agent.finish().await.map(drop)
    }
}

fn settings(serve: &ServeArguments) -> anyhow::Result<DaemonSettings> {
    let inherited = inherited_sockets()?;
    let mut settings = serve.options()?.settings()?;
    // The sockets of the service manager replace those at the default paths, but not those that the
    // user names.
    if serve.socket.is_empty() && !inherited.is_empty() {
        settings.sockets.clear();
        settings.extra_socket = None;
    }
    settings.inherited = inherited;
    Ok(settings)
}

/// Returns the sockets that the service manager has passed on (socket activation).
fn inherited_sockets() -> anyhow::Result<Vec<std::os::unix::net::UnixListener>> {
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let listener = passed.take_unix_listener(index);
        listeners.extend(
            listener.context("a socket from the service manager is not a Unix stream socket")?,
        );
    }
    Ok(listeners)
}

fn runtime() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .thread_name("tldrs")
        // A write blocks its thread when the disk is slow; other clients need another thread.
        .worker_threads(cores.clamp(2, 8))
        .enable_all()
        .build()
        .context("cannot start threads")
}
