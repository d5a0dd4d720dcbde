//! Sends traces of a directory, as the tracer that wrote them would have: their packets as they are, in
//! order of time over all streams.
//!
//! Reads in a thread of its own, so that a slow disk does not keep the uplink waiting. Knows of a packet
//! only what its header says.

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
use self::replay_clock::ReplayClock;
pub use self::replay_clock::{Rate, RateError};
use self::source::{PacketSource, SourcePacket, stream_key};
use crate::queue::{SessionDescription, SessionOpener, SessionOutcome, SessionSender, Step};

/// What is sent, and how.
#[derive(Debug, Clone)]
pub struct ReplaySettings {
    /// Traces, or trees of them.
    pub directories: Vec<PathBuf>,
    /// How fast.
    pub rate: Rate,
    /// How often there is news of each stream, if viewers are to attach.
    pub live_timer: Option<Duration>,
    /// What the session is called; else as the first directory.
    pub name: Option<String>,
    /// The host that it is said to be of.
    pub host: String,
    /// Tracefiles on the relay: size in bytes, and how many; 0: no limit.
    pub tracefiles: (u64, u64),
}

/// Lets a replay go on where it is held: with its streams announced and before the first packet, and
/// with all packets sent and before the end. When the other end is dropped, it is held no more.
pub type ContinueReceiver = mpsc::UnboundedReceiver<()>;

/// How far it has come, for those who want to show it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Packets that there are; 0: not known yet.
    pub packets: AtomicU64,
    /// Packets that have been queued.
    pub sent: AtomicU64,
}

/// What has come of it.
#[derive(Debug)]
pub struct ReplaySummary {
    /// Packets that were queued.
    pub packets: u64,
    /// Their bytes, padding included.
    pub bytes: u64,
    /// What was wrong with files. Their good packets were sent.
    pub broken: Vec<Arc<DirectoryError>>,
    /// It was stopped before its end.
    pub is_partial: bool,
    /// What the uplink says.
    pub outcome: SessionOutcome,
}

/// Sends all of it, and waits until it is with the relay. `stop` ends the session with what has been
/// sent by then.
///
/// # Errors
/// If there is nothing to send.
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

/// There is nothing more to do: the uplink has given the session up, or all is to stop.
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
        let mut summary = ReplaySummary {
            packets: 0,
            bytes: 0,
            broken: Vec::new(),
            is_partial: false,
            outcome: SessionOutcome::default(),
        };
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
                stream: stream_key(packet.stream),
                bytes: packet.bytes,
                index: packet.index,
            })?;
            summary.packets += 1;
            progress.sent.store(summary.packets, Ordering::Relaxed);
        }
        let last = self
            .idle_beacons
            .as_ref()
            .map(|idle_beacons| idle_beacons.make_last_beacons(&self.source));
        for step in last.into_iter().flatten() {
            self.send_step(step)?;
        }
        self.wait_to_continue("before the end of the session")
    }

    /// Waits for a word, if it is to be held.
    fn wait_to_continue(&mut self, point: &str) -> Result<(), Stopped> {
        let Some(to_continue) = &mut self.to_continue else {
            return Ok(());
        };
        info!("waiting for Enter {point}");
        let goes_on = self.handle.block_on(async {
            tokio::select! {
                _ = to_continue.recv() => true,
                () = self.stop.cancelled() => false,
            }
        });
        if goes_on { Ok(()) } else { Err(Stopped) }
    }

    /// Waits until a packet is due. Meanwhile, says which streams are idle.
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
            let is_stopped = self.handle.block_on(async {
                tokio::select! {
                    () = sleep => false,
                    () = self.stop.cancelled() => true,
                }
            });
            if is_stopped {
                return Err(Stopped);
            }
        }
    }

    fn send_step(&self, step: Step) -> Result<(), Stopped> {
        let sent = self.handle.block_on(async {
            tokio::select! {
                sent = self.session.send(step) => sent.is_ok(),
                () = self.stop.cancelled() => false,
            }
        });
        if sent { Ok(()) } else { Err(Stopped) }
    }
}
