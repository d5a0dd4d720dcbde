//! The running agent: the uplink with a frontend or more before it, until a signal.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use tldrs_daemon::Daemon;
use tldrs_daemon::forward_queue::{TraceSender, trace_channel};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::config::Config;
use crate::frontend::replay::{self, ContinueReceiver, Progress, ReplaySummary};
use crate::frontend::tldrs;
use crate::limits::{DEFAULT_STOP_TIMEOUT, PROGRESS_INTERVAL};
use crate::queue::{QueueCapacity, SessionEnd, SessionOpener, session_channel};
use crate::status::{self, StatusRegistry};
use crate::uplink;

/// The command line asks for nothing that can be done.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The uplink, running, with nothing before it yet.
#[derive(Debug)]
pub struct Agent {
    opener: SessionOpener,
    registry: StatusRegistry,
    uplink: JoinHandle<()>,
}

impl Agent {
    /// Starts it. After `stop` is cancelled, relays get `stop_timeout` to take what is left.
    #[must_use]
    pub fn start(
        settings: uplink::UplinkSettings,
        queue_capacity: QueueCapacity,
        stop: &CancellationToken,
        stop_timeout: Duration,
    ) -> Self {
        let (opener, sessions) = session_channel(queue_capacity);
        let registry = StatusRegistry::default();
        let give_up = CancellationToken::new();
        let uplink = uplink::run(sessions, settings, registry.clone(), give_up.clone());
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            tokio::time::sleep(stop_timeout).await;
            give_up.cancel();
        });
        Self {
            opener,
            registry,
            uplink: tokio::spawn(uplink),
        }
    }

    /// The way for traces of a `tldrs` daemon, and what takes them. It ends when the way is dropped and
    /// the relay has everything.
    pub fn start_forwarding(
        &self,
        settings: tldrs::ForwardSettings,
    ) -> (TraceSender, impl Future<Output = ()> + Send + use<>) {
        let (forward, traces) = trace_channel();
        let forwarded = tldrs::run(traces, self.opener.clone(), settings);
        (forward, forwarded)
    }

    /// Waits until all sessions have ended; no other can be opened.
    ///
    /// # Errors
    /// If the uplink has failed.
    pub async fn finish(self) -> anyhow::Result<()> {
        drop(self.opener);
        Ok(self.uplink.await?)
    }
}

/// Runs the agent with all frontends that the configuration names, until `stop`.
///
/// # Errors
/// If it cannot start, a frontend fails, or something was lost.
pub async fn serve(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    config.check()?;
    let agent = Agent::start(
        config.uplink()?,
        config.queue_capacity(),
        &stop,
        config.stop_timeout(),
    );
    let mut frontends = start_frontends(&config, &agent, &stop)?;
    if frontends.is_empty() {
        let usage = "nothing to serve: --tldrs, or [tldrs] in the configuration, is what there is";
        return Err(UsageError(usage.to_owned()).into());
    }
    let socket = &config.agent.status_socket;
    let status = status::listen(socket, agent.registry.clone())
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    info!("ready");
    let mut failed = None;
    while let Some(ended) = frontends.join_next().await {
        if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
            error!("frontend failed: {error:#}");
            failed.get_or_insert(error);
        }
    }
    let registry = agent.registry.clone();
    agent.finish().await?;
    drop(status);
    let (_, ended) = registry.sessions();
    match failed {
        Some(error) => Err(error),
        None if ended.lost > 0 => Err(anyhow::anyhow!("{} packets were lost", ended.lost)),
        None => Ok(()),
    }
}

/// Starts every frontend that the configuration asks for: the only place that knows them all. Each
/// ends when `stop` is cancelled.
fn start_frontends(
    config: &Config,
    agent: &Agent,
    stop: &CancellationToken,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut frontends = JoinSet::new();
    if let Some(options) = &config.tldrs {
        let (forward, forwarded) = agent.start_forwarding(config.session.forward());
        let daemon = Daemon::start(options.settings()?, Some(forward))?;
        let stop = stop.clone();
        frontends.spawn(async move {
            // The daemon's end of the way goes with it.
            tokio::join!(daemon.run(stop), forwarded);
            Ok(())
        });
    }
    Ok(frontends)
}

/// Sends traces of a directory, and says what has come of it. Whether all of it is with the relay.
///
/// # Errors
/// If there is nothing to send, or no relay takes it.
pub async fn replay(
    settings: replay::ReplaySettings,
    uplink: uplink::UplinkSettings,
    queue_capacity: QueueCapacity,
    is_held: bool,
    stop: CancellationToken,
) -> anyhow::Result<bool> {
    let agent = Agent::start(uplink, queue_capacity, &stop, DEFAULT_STOP_TIMEOUT);
    let progress = Arc::new(Progress::default());
    let stop_drawing = stop.child_token();
    let bar = tokio::spawn(draw_progress(Arc::clone(&progress), stop_drawing.clone()));
    let begun = Instant::now();
    let to_continue = is_held.then(continue_on_enter);
    if is_held {
        eprintln!("Enter sends the packets, and Enter once more ends the session.");
    }
    let summary = replay::run(settings, agent.opener.clone(), progress, to_continue, stop).await;
    stop_drawing.cancel();
    bar.await?;
    agent.finish().await?;
    let summary = summary?;
    for broken in &summary.broken {
        error!("{:#}", anyhow::Error::from(Arc::clone(broken)));
    }
    eprintln!("{}", summary_line(&summary, begun.elapsed()));
    let is_whole = !summary.is_partial && summary.broken.is_empty();
    match summary.outcome.end {
        SessionEnd::Failed(why) => anyhow::bail!("{why}"),
        SessionEnd::Abandoned => anyhow::bail!("the uplink has stopped"),
        SessionEnd::Complete => Ok(is_whole && summary.outcome.lost == 0),
    }
}

/// Goes on with each line of standard input.
fn continue_on_enter() -> ContinueReceiver {
    let (go_on, to_continue) = mpsc::unbounded_channel();
    // Not one of the runtime's threads: nothing can end a read of a terminal.
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            if line.is_err() || go_on.send(()).is_err() {
                return;
            }
        }
    });
    to_continue
}

/// One line.
fn summary_line(summary: &ReplaySummary, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "to be read by people")]
    let megabytes = summary.bytes as f64 / 1e6;
    let mut line = format!(
        "{} packets, {megabytes:.1} MB in {seconds:.2} s, {:.1} MB/s",
        summary.outcome.acknowledged,
        megabytes / seconds.max(1e-6)
    );
    if summary.outcome.lost > 0 {
        line.push_str(&format!("; {} packets LOST", summary.outcome.lost));
    }
    if !summary.broken.is_empty() {
        line.push_str(&format!("; {} files broken", summary.broken.len()));
    }
    if summary.is_partial {
        line.push_str("; stopped before the end");
    }
    line
}

/// Shows on a terminal how far a replay has come.
async fn draw_progress(progress: Arc<Progress>, until: CancellationToken) {
    if !io::stderr().is_terminal() {
        return;
    }
    let bar = ProgressBar::no_length();
    let style = "{wide_bar} {human_pos}/{human_len} packets, {per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    while !until.is_cancelled() {
        bar.set_length(progress.packets.load(Ordering::Relaxed));
        bar.set_position(progress.sent.load(Ordering::Relaxed));
        tokio::select! {
            () = tokio::time::sleep(PROGRESS_INTERVAL) => {}
            () = until.cancelled() => {}
        }
    }
    bar.finish_and_clear();
}
