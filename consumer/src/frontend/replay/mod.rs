//! Replays recorded traces, as the tracer that wrote them would have sent them: packets are sent
//! unchanged, merged over all streams in the order of their begin times.
//!
//! A thread of its own reads the files, so that a slow disk does not block the uplink. Only the
//! header of a packet is decoded. Read in this order: [`run`], `source` (packets in order),
//! `replay_clock` (when each is sent), `idle_beacons`, `names`.

mod error;
mod idle_beacons;
mod names;
mod replay_clock;
mod source;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ctf::directory::DirectoryError;
use relay_proto::session::TraceFormat;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::error::ReplayError;
use self::idle_beacons::IdleBeacons;
pub(super) use self::names::sanitize_session_name;
use self::replay_clock::ReplayClock;
pub use self::replay_clock::{Rate, RateError};
use self::source::{PacketSource, SourcePacket};
use crate::queue::{
    SessionClosed, SessionDescription, SessionOpener, SessionOutcome, SessionSender, Step,
    StreamKey,
};

/// The settings of a replay.
#[derive(Debug, Clone)]
pub struct ReplaySettings {
    /// Directories; all traces at or below them are sent.
    pub directories: Vec<PathBuf>,
    /// The speed, relative to that of the recording.
    pub rate: Rate,
    /// Interval of beacons for idle streams in a live session. If absent, the session is not live.
    pub live_timer: Option<Duration>,
    /// Name of the session. If absent, that of the first directory.
    pub name: Option<String>,
    /// Name of the traced host.
    pub host: String,
    /// Tracefiles of a stream on the relay: maximum size in bytes, and number; 0: no limit.
    pub tracefiles: (u64, u64),
}

/// Lets a paused replay continue. A replay pauses twice: when its streams have been announced,
/// before the first packet; and when all packets have been sent, before the end of the session.
/// When the sending end is dropped, it does not pause any more.
pub type ContinueReceiver = mpsc::UnboundedReceiver<()>;

/// The progress of a replay, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of packets in all traces; 0 until it is known.
    pub packets: AtomicU64,
    /// Number of packets that have been queued.
    pub sent: AtomicU64,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplaySummary {
    /// Number of packets that were queued.
    pub packets: u64,
    /// Size of the packets that were queued, in bytes, padding included.
    pub bytes: u64,
    /// Faults of files. The packets before a fault were sent.
    pub broken: Vec<Arc<DirectoryError>>,
    /// Whether the replay was stopped before its end.
    pub is_partial: bool,
    /// The outcome of the session, as the uplink reports it.
    pub outcome: SessionOutcome,
}

/// Replays the traces, and waits until the relay has acknowledged all packets or the session is
/// given up. When `stop` is cancelled, the session ends with the packets that have been queued by
/// then.
///
/// # Errors
/// If the directories have no trace, or none can be read.
pub async fn run(
    settings: ReplaySettings,
    opener: SessionOpener,
    progress: Arc<Progress>,
    to_continue: Option<ContinueReceiver>,
    stop: CancellationToken,
) -> Result<ReplaySummary, ReplayError> {
    let handle = Handle::current();
    let reading = move || {
        let replay = ReplayTask::open(&settings, &opener, to_continue, handle, stop)?;
        Ok::<_, ReplayError>(replay.run(&progress))
    };
    let read = tokio::task::spawn_blocking(reading).await;
    let (mut summary, session) = read.map_err(|_| ReplayError::Reader)??;
    summary.outcome = session.finish().await;
    Ok(summary)
}

/// The work of the thread that reads packets and queues them.
struct ReplayTask {
    source: PacketSource,
    announcement: Vec<Step>,
    clock: ReplayClock,
    idle_beacons: Option<IdleBeacons>,
    to_continue: Option<ContinueReceiver>,
    session: SessionSender,
    handle: Handle,
    stop: CancellationToken,
}

/// The session has been given up, or the replay is to stop.
struct Stopped;

impl ReplayTask {
    fn open(
        settings: &ReplaySettings,
        opener: &SessionOpener,
        to_continue: Option<ContinueReceiver>,
        handle: Handle,
        stop: CancellationToken,
    ) -> Result<Self, ReplayError> {
        let source = PacketSource::open(&settings.directories)?;
        let announcement = source.announcement(&settings.directories);
        let name = settings.name.clone().unwrap_or_else(|| {
            let roots = settings.directories.iter();
            let roots: Vec<_> = roots.filter_map(|root| root.canonicalize().ok()).collect();
            names::session_name(&roots)
        });
        let (tracefile_size, tracefile_count) = settings.tracefiles;
        let session = opener.open_session(SessionDescription {
            name,
            host: settings.host.clone(),
            base_path: String::new(),
            live_timer: settings.live_timer,
            trace_format: if source.is_ctf_2() {
                TraceFormat::Ctf2
            } else {
                TraceFormat::Ctf1
            },
            tracefile_size,
            tracefile_count,
        })?;
        Ok(Self {
            clock: ReplayClock::new(settings.rate),
            idle_beacons: settings
                .live_timer
                .map(|period| IdleBeacons::new(period, &source)),
            source,
            announcement,
            to_continue,
            session,
            handle,
            stop,
        })
    }

    fn run(mut self, progress: &Progress) -> (ReplaySummary, SessionSender) {
        let mut summary = ReplaySummary::default();
        let packets = self.source.packets();
        progress.packets.store(packets, Ordering::Relaxed);
        summary.is_partial = self.send_all(&mut summary, progress).is_err();
        summary.broken = std::mem::take(&mut self.source.broken);
        (summary, self.session)
    }

    fn send_all(
        &mut self,
        summary: &mut ReplaySummary,
        progress: &Progress,
    ) -> Result<(), Stopped> {
        for step in std::mem::take(&mut self.announcement) {
            self.send_step(step)?;
        }
        self.wait_to_continue("before the first packet")?;
        while let Some(packet) = self.source.next_packet() {
            self.wait_until_due(&packet)?;
            let trace = self.source.streams.get(packet.stream);
            let trace = trace.map_or(0, |stream| stream.trace);
            if let Some(idle_beacons) = &mut self.idle_beacons {
                idle_beacons.record_packet(&packet, trace);
            }
            summary.bytes += packet.index.packet_size.to_bytes().unwrap_or_default().0;
            self.send_step(Step::Packet {
                stream: StreamKey::from_index(packet.stream),
                bytes: packet.bytes,
                index: packet.index,
            })?;
            summary.packets += 1;
            progress.sent.store(summary.packets, Ordering::Relaxed);
        }
        if let Some(idle_beacons) = &self.idle_beacons {
            for step in idle_beacons.make_last_beacons(&self.source) {
                self.send_step(step)?;
            }
        }
        self.wait_to_continue("before the end of the session")
    }

    /// Waits until the replay may continue, if it pauses.
    fn wait_to_continue(&mut self, point: &str) -> Result<(), Stopped> {
        if let Some(to_continue) = &mut self.to_continue {
            info!("waiting for Enter {point}");
            let enter = self.stop.run_until_cancelled(to_continue.recv());
            self.handle.block_on(enter).ok_or(Stopped)?;
        }
        Ok(())
    }

    /// Waits until a packet is to be sent, and sends beacons for idle streams meanwhile.
    fn wait_until_due(&mut self, packet: &SourcePacket) -> Result<(), Stopped> {
        loop {
            let now = Instant::now();
            let due = packet
                .times
                .begin
                .map_or(now, |begin| self.clock.send_time(begin, now));
            let mut until = due;
            if let Some(idle_beacons) = &mut self.idle_beacons {
                let quiet_due = idle_beacons.next_due(now);
                if quiet_due <= now {
                    let time = self.clock.trace_time(now);
                    for step in idle_beacons.make_due_beacons(&self.source, packet, time, now) {
                        self.send_step(step)?;
                    }
                    continue;
                }
                until = until.min(quiet_due);
            }
            if due <= now {
                return Ok(());
            }
            let sleep = tokio::time::sleep_until(until.into());
            let slept = self.stop.run_until_cancelled(sleep);
            self.handle.block_on(slept).ok_or(Stopped)?;
        }
    }

    fn send_step(&self, step: Step) -> Result<(), Stopped> {
        // The queue may be full for as long as no relay is there, and a stop must not wait for
        // that.
        let send = self.stop.run_until_cancelled(self.session.send(step));
        let sent = self.handle.block_on(send).ok_or(Stopped)?;
        sent.map_err(|SessionClosed| Stopped)
    }
}
