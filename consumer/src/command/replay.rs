//! `consumer replay`: sends recorded traces, and prints a summary.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::output::print_message;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::agent::Agent;
use crate::frontend::replay::{self, ContinueReceiver, Progress, ReplaySummary};
use crate::limits::{DEFAULT_STOP_TIMEOUT, PROGRESS_INTERVAL};
use crate::queue::{QueueCapacity, SessionEnd};
use crate::spool::SpoolSettings;
use crate::uplink;

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
    let summary = replay::run(settings, agent.opener(), progress, to_continue, stop).await;
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
