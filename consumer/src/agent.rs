//! The running agent: the uplink, and the frontends that open sessions on it.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use daemon::output::print_message;
use daemon::progress::byte_bar;
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
use crate::frontend::{codetracer, ring, tldrs};
use crate::limits::{DEFAULT_STOP_TIMEOUT, PROGRESS_INTERVAL};
use crate::queue::{QueueCapacity, SessionEnd, SessionOpener, session_channel};
use crate::spool::{self, RunningSpool, SpoolSettings};
use crate::status::{self, StatusRegistry};
use crate::uplink;

/// Neither the command line nor the configuration enables a frontend.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A running uplink, on which frontends open sessions.
#[derive(Debug)]
pub struct Agent {
    opener: SessionOpener,
    registry: StatusRegistry,
    uplink: JoinHandle<()>,
    spool: Option<RunningSpool>,
}

impl Agent {
    /// Starts the uplink of a configuration, and its spool. Packets that no relay has acknowledged
    /// by the stop timeout after `stop` is cancelled stay in the spool; without a spool they are
    /// lost.
    ///
    /// # Errors
    /// If no relay is named, its URL is malformed, or the spool cannot be used.
    pub fn for_config(config: &Config, stop: &CancellationToken) -> anyhow::Result<Self> {
        let stop_timeout = Duration::from_secs(config.agent.stop_within_s.into());
        let uplink = config.uplink()?;
        let spool = config.spool.as_ref();
        Self::start(uplink, config.queue, spool, stop, stop_timeout)
    }

    fn start(
        settings: uplink::UplinkSettings,
        queue_capacity: QueueCapacity,
        spool: Option<&SpoolSettings>,
        stop: &CancellationToken,
        stop_timeout: Duration,
    ) -> anyhow::Result<Self> {
        let (opener, sessions) = session_channel(queue_capacity);
        let registry = StatusRegistry::default();
        let give_up = CancellationToken::new();
        let (spool, sessions) = match spool {
            None => (None, sessions),
            Some(settings) => {
                let counters = registry.add_spool();
                let started = spool::start(
                    sessions,
                    settings,
                    queue_capacity,
                    counters,
                    give_up.clone(),
                );
                let (spool, sessions) = started?;
                (Some(spool), sessions)
            }
        };
        let uplink = uplink::run(sessions, settings, registry.clone(), give_up.clone());
        let stop = stop.clone();
        // Two tokens: `stop` ends the frontends, while the uplink still sends the packets that they
        // have queued.
        tokio::spawn(async move {
            stop.cancelled().await;
            tokio::time::sleep(stop_timeout).await;
            give_up.cancel();
        });
        Ok(Self {
            opener,
            registry,
            uplink: tokio::spawn(uplink),
            spool,
        })
    }

    /// Makes a forwarder for the traces of a `tldrs` daemon: the sending end for the daemon, and
    /// the future that forwards. The future ends when the sending end has been dropped and the
    /// relay has acknowledged everything, or the sessions have been given up.
    pub fn start_forwarding(
        &self,
        settings: tldrs::ForwardSettings,
    ) -> (TraceSender, impl Future<Output = ()> + Send + use<>) {
        let (forward, traces) = trace_channel();
        let forwarded = tldrs::run(traces, self.opener.clone(), settings);
        (forward, forwarded)
    }

    /// Waits until all sessions have ended. Frontends must have dropped their openers before.
    ///
    /// # Errors
    /// If the uplink or the spool has panicked.
    pub async fn finish(self) -> anyhow::Result<()> {
        // The last opener: the uplink ends when it is dropped and all sessions have ended.
        drop(self.opener);
        self.uplink.await?;
        if let Some(spool) = self.spool {
            spool.finish().await?;
        }
        Ok(())
    }
}

/// Runs the agent with all frontends of the configuration, until `stop`.
///
/// # Errors
/// If the agent cannot start, a frontend fails, or packets were lost.
pub async fn serve(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    config.check()?;
    let agent = Agent::for_config(&config, &stop)?;
    let mut frontends = start_frontends(&config, &agent, &stop)?;
    if frontends.is_empty() && config.spool.is_none() {
        let usage = "nothing to serve: use --ring, --tldrs, --codetracer or --spool, or add [ring], [tldrs], [codetracer] or [spool] to the configuration";
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
    // Not before: `consumer status` shows how the queues drain.
    drop(status);
    let (_, ended) = registry.sessions();
    match failed {
        Some(error) => Err(error),
        None if ended.lost > 0 => Err(anyhow::anyhow!("{} packets were lost", ended.lost)),
        None => Ok(()),
    }
}

/// Starts every frontend of the configuration; this is the only place that knows all of them. Each
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
            // The forwarder ends when the daemon has ended and dropped its sending end.
            tokio::join!(daemon.run(stop), forwarded);
            Ok(())
        });
    }
    if let Some(settings) = config.rings() {
        let (opener, stop) = (agent.opener.clone(), stop.clone());
        frontends.spawn(ring::run(settings, ring::Coverage::Drain, opener, stop));
    }
    if let Some((socket, settings)) = config.recordings() {
        let listening = codetracer::RecordingSocket::listen(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let served = codetracer::serve(listening, settings, agent.opener.clone(), stop.clone());
        frontends.spawn(async {
            served.await;
            Ok(())
        });
    }
    Ok(frontends)
}

/// What `consumer codetracer` is to send.
#[derive(Debug)]
pub struct RecordingJob {
    /// Where the recording comes from.
    pub source: codetracer::RecordingSource,
    /// What to do at the end of an incomplete file.
    pub follow: codetracer::Follow,
    /// The properties of the session.
    pub settings: codetracer::RecordingSettings,
}

/// Sends a recording, and prints a summary on standard error. Returns whether the relay has
/// acknowledged all of it.
///
/// # Errors
/// If the recording cannot be read, or the session was given up.
pub async fn send_recording(
    job: RecordingJob,
    uplink: uplink::UplinkSettings,
    spool: Option<SpoolSettings>,
    stop: CancellationToken,
) -> anyhow::Result<bool> {
    let capacity = QueueCapacity::default();
    let spool = spool.as_ref();
    let agent = Agent::start(uplink, capacity, spool, &stop, DEFAULT_STOP_TIMEOUT)?;
    let begun = Instant::now();
    let RecordingJob {
        source,
        follow,
        settings,
    } = job;
    let read = Arc::new(AtomicU64::new(0));
    let stop_drawing = stop.child_token();
    let total = source.bytes().unwrap_or(0);
    let bar = draw_read_bytes(Arc::clone(&read), total, stop_drawing.clone());
    let bar = tokio::spawn(bar);
    let sent = codetracer::run(source, follow, &settings, &agent.opener, &read, &stop).await;
    stop_drawing.cancel();
    bar.await?;
    agent.finish().await?;
    let mut summary = sent?;
    print_message(recording_line(&summary, begun.elapsed()));
    if let Some(first) = &summary.first_malformed {
        let malformed = summary.malformed;
        print_message(format_args!(
            "consumer: {malformed} elements are no records, and were dropped; the first: {first}"
        ));
    }
    if let Some(failure) = summary.failure.take() {
        return Err(failure.into());
    }
    match summary.outcome.end {
        SessionEnd::Failed(why) | SessionEnd::Spooled(why) => anyhow::bail!("{why}"),
        SessionEnd::Abandoned => anyhow::bail!("the uplink has stopped"),
        SessionEnd::Complete => Ok(!summary.is_partial && summary.outcome.lost == 0),
    }
}

/// Describes a sent recording in one line: records, files, rate and losses.
fn recording_line(summary: &codetracer::RecordingSummary, took: Duration) -> String {
    let (records, files) = (summary.records, summary.files);
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "to be read by people")]
    let rate = records as f64 / seconds.max(1e-6);
    let mut line =
        format!("{records} records, {files} source files in {seconds:.2} s, {rate:.0} records/s");
    if summary.outcome.lost > 0 {
        line.push_str(&format!("; {} packets LOST", summary.outcome.lost));
    }
    if summary.is_partial {
        line.push_str("; stopped before the end");
    }
    line
}

/// Replays traces, and prints a summary on standard error. Returns whether the relay has
/// acknowledged all packets of all files.
///
/// # Errors
/// If there is nothing to send, or the session was given up.
pub async fn replay(
    settings: replay::ReplaySettings,
    uplink: uplink::UplinkSettings,
    spool: Option<SpoolSettings>,
    is_held: bool,
    stop: CancellationToken,
) -> anyhow::Result<bool> {
    let capacity = QueueCapacity::default();
    let agent = Agent::start(
        uplink,
        capacity,
        spool.as_ref(),
        &stop,
        DEFAULT_STOP_TIMEOUT,
    )?;
    let progress = Arc::new(Progress::default());
    let stop_drawing = stop.child_token();
    let bar = tokio::spawn(draw_progress(Arc::clone(&progress), stop_drawing.clone()));
    let begun = Instant::now();
    let to_continue = is_held.then(continue_on_enter);
    if is_held {
        print_message("Press Enter to send the packets, and once more to end the session.");
    }
    let summary = replay::run(settings, agent.opener.clone(), progress, to_continue, stop).await;
    stop_drawing.cancel();
    bar.await?;
    agent.finish().await?;
    let summary = summary?;
    for broken in &summary.broken {
        error!("{:#}", anyhow::Error::from(Arc::clone(broken)));
    }
    print_message(summary_line(&summary, begun.elapsed()));
    let is_whole = !summary.is_partial && summary.broken.is_empty();
    match summary.outcome.end {
        SessionEnd::Failed(why) | SessionEnd::Spooled(why) => anyhow::bail!("{why}"),
        SessionEnd::Abandoned => anyhow::bail!("the uplink has stopped"),
        SessionEnd::Complete => Ok(is_whole && summary.outcome.lost == 0),
    }
}

/// Lets a replay continue with each line of standard input.
fn continue_on_enter() -> ContinueReceiver {
    let (enter, to_continue) = mpsc::unbounded_channel();
    // Not one of the runtime's threads: a read of a terminal cannot be cancelled, and the runtime
    // would wait for it.
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            if line.is_err() || enter.send(()).is_err() {
                return;
            }
        }
    });
    to_continue
}

/// Describes a replay in one line: packets, bytes, rate and losses.
fn summary_line(summary: &ReplaySummary, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "to be read by people")]
    let megabytes = summary.bytes as f64 / 1e6;
    let outcome = &summary.outcome;
    let is_acknowledged = outcome.lost == 0 && outcome.acknowledged == summary.packets;
    let mut line = if is_acknowledged {
        let rate = megabytes / seconds.max(1e-6);
        let packets = outcome.acknowledged;
        format!("{packets} packets, {megabytes:.1} MB in {seconds:.2} s, {rate:.1} MB/s")
    } else {
        // The size of those that the relay has acknowledged is not known.
        let (acknowledged, packets) = (outcome.acknowledged, summary.packets);
        format!("{acknowledged} of {packets} packets acknowledged in {seconds:.2} s")
    };
    if outcome.lost > 0 {
        line.push_str(&format!("; {} packets LOST", outcome.lost));
    }
    if !summary.broken.is_empty() {
        line.push_str(&format!("; {} files broken", summary.broken.len()));
    }
    if summary.is_partial {
        line.push_str("; stopped before the end");
    }
    line
}

/// Draws a progress bar of the bytes of a recording until all that were there at the begin have
/// been read.
async fn draw_read_bytes(read: Arc<AtomicU64>, total: u64, until: CancellationToken) {
    let bar = byte_bar(total);
    while !bar.is_hidden() && !until.is_cancelled() {
        let read = read.load(Ordering::Relaxed);
        if read >= total {
            break;
        }
        bar.set_position(read);
        let pause = tokio::time::sleep(PROGRESS_INTERVAL);
        until.run_until_cancelled(pause).await;
    }
    bar.finish_and_clear();
}

/// Draws a progress bar, if standard error is a terminal.
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
        let pause = tokio::time::sleep(PROGRESS_INTERVAL);
        until.run_until_cancelled(pause).await;
    }
    bar.finish_and_clear();
}
