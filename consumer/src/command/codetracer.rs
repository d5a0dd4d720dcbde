//! `consumer codetracer`: sends one recording, and prints a summary.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use daemon::output::print_message;
use daemon::progress::byte_bar;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::frontend::codetracer;
use crate::limits::{DEFAULT_STOP_TIMEOUT, PROGRESS_INTERVAL};
use crate::queue::{QueueCapacity, SessionEnd};
use crate::spool::SpoolSettings;
use crate::uplink;

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
    let sent = codetracer::run(source, follow, &settings, &agent.opener(), &read, &stop).await;
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
