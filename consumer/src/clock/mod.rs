//! Measures the clock of this host against that of the relay, and writes each sample as an event of
//! the stream `clock` in a session of its own, which is opened with the first sample
//! (`doc/consumer.md` describes the fields). `measure` asks relays, `session` writes the events.
//!
//! The events of all sessions of this host have times of the same monotonic clock, and name it by
//! the id of the boot: one session with samples is enough for all of them, also for those of other
//! programs.

mod measure;
mod session;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::measure::measure_clock;
use self::session::ClockSession;
use crate::config::{Config, ConfigError};
use crate::frontend::SessionConfig;
use crate::packetize::HostClock;
use crate::queue::{SessionClosed, SessionOpener};
use crate::uplink::target::RelayTarget;

/// What is measured, and the properties of the session.
#[derive(Debug, Clone)]
pub struct ClockSettings {
    /// The relays: the first that can be reached is asked.
    pub target: RelayTarget,
    /// Properties of the session.
    pub session: SessionConfig,
    /// Time between two samples.
    pub interval: Duration,
    /// Whether the process does nothing else, so that a relay that does not tell its clock is worth
    /// a warning.
    pub is_only_task: bool,
}

impl ClockSettings {
    /// Returns the settings of a configuration.
    ///
    /// # Errors
    /// If no relay is named, or its URL is malformed.
    pub(crate) fn of(config: &Config, is_only_task: bool) -> Result<Self, ConfigError> {
        Ok(Self {
            target: config.relay.target()?,
            session: config.session.clone(),
            interval: Duration::from_millis(config.agent.clock_interval_ms.into()),
            is_only_task,
        })
    }
}

/// Writes samples until `stop` is cancelled, then waits until a relay has them, or the session is
/// given up.
pub async fn run(settings: ClockSettings, opener: SessionOpener, stop: CancellationToken) {
    let (samples, mut measured) = mpsc::channel(1);
    // A task of its own: a relay that does not answer must not hold up the beacons.
    let measuring = tokio::spawn(measure_clock(settings.clone(), samples));
    let clock = HostClock::measure();
    let mut session: Option<ClockSession> = None;
    loop {
        let written = tokio::select! {
            () = stop.cancelled() => break,
            Some(sample) = measured.recv() => {
                if session.is_none() {
                    session = ClockSession::open(&settings, clock, &opener).await.ok();
                }
                match &mut session {
                    Some(session) => session.append(&sample).await,
                    None => Err(SessionClosed),
                }
            }
            () = wait_for_flush(session.as_ref()) => match &mut session {
                Some(session) => session.flush().await,
                None => Ok(()),
            },
        };
        if let Err(SessionClosed) = written {
            break;
        }
    }
    measuring.abort();
    if let Some(session) = session {
        let outcome = session.finish().await;
        debug!(?outcome, "samples of the clock ended");
    }
}

/// Waits until a beacon of the session is due; for ever without a session.
async fn wait_for_flush(session: Option<&ClockSession>) {
    match session {
        Some(session) => session.wait_for_flush().await,
        None => std::future::pending().await,
    }
}
