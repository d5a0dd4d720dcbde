//! Between two connections of a session: which relay is tried when, and what the log says.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tracing::{info, warn};
use wire::Text;

use super::{SessionTask, StopReason, UplinkContext, stop_reason};
use crate::limits::CONNECT_TIMEOUT;
use crate::status::ConnectionState;
use crate::uplink::backoff::{Backoff, random_u32};
use crate::uplink::error::UplinkError;
use crate::uplink::handshake::Opened;
use crate::uplink::relay_selector::SelectedRelay;

/// The attempts of a session to connect.
pub(super) struct Attempts {
    pub(super) backoff: Backoff,
    /// When the session was connected last, or began.
    pub(super) last_good: Instant,
    /// Whether each relay since the last pause has refused the session for good.
    pub(super) is_refused_by_all: bool,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            last_good: Instant::now(),
            is_refused_by_all: true,
        }
    }
}

impl SessionTask {
    /// Selects the relay that is tried after a failure: at once, or after a pause if all have been
    /// tried. The result is an error if the relay's name cannot be looked up.
    pub(super) async fn next_relay(
        &mut self,
        mut failure: Option<UplinkError>,
        attempts: &mut Attempts,
    ) -> Result<Result<SelectedRelay, UplinkError>, StopReason> {
        if let Some(error) = &failure {
            let why = error.to_string();
            self.counters
                .set_connection_state(ConnectionState::Waiting { why });
        }
        let context = Arc::clone(&self.context);
        let mut is_reported = failure.is_none();
        let mut has_paused = false;
        loop {
            let selecting = self.selector.select_next(&context.target);
            let selected = self.give_up.run_until_cancelled(selecting).await;
            let selected = selected.ok_or_else(|| stop_reason(failure.as_ref()))?;
            if selected.is_none()
                && attempts.is_refused_by_all
                && let Some(error) = failure.take()
            {
                return Err(StopReason::Failed(error));
            }
            // Even without a timeout each relay of the list is tried once.
            let grace = selected
                .as_ref()
                .map_or(Duration::ZERO, |_| CONNECT_TIMEOUT);
            let left = context.reconnect_timeout.map(|timeout| {
                let waited = attempts.last_good.elapsed();
                timeout.max(grace).saturating_sub(waited)
            });
            // A pause ends with the timeout at the latest, and one more attempt follows it.
            if let (Some(Duration::ZERO), Some(error), false) = (left, &failure, has_paused) {
                return Err(StopReason::GivenUp(given_up_text(&context, error)));
            }
            let pause = match &selected {
                Some(_) => Duration::ZERO,
                None => {
                    let delay = attempts.backoff.next_delay(random_u32());
                    left.map_or(delay, |left| delay.min(left))
                }
            };
            if let Some(error) = failure.as_ref().filter(|_| !is_reported) {
                is_reported = true;
                self.report_failure(error, pause);
            }
            if let Some(selected) = selected {
                return Ok(selected);
            }
            attempts.is_refused_by_all = true;
            let slept = self.give_up.run_until_cancelled(sleep(pause)).await;
            slept.ok_or_else(|| stop_reason(failure.as_ref()))?;
            has_paused = true;
        }
    }

    /// Logs a failure: a warning when it is new since the last connection, else at the level of
    /// single attempts.
    fn report_failure(&mut self, error: &UplinkError, pause: Duration) {
        let relay = match &self.relay {
            Some(relay) => relay.to_string(),
            None => self.context.target.to_string(),
        };
        let session = &self.description.name;
        let millis = pause.as_millis();
        if !self.reported.add(&relay, error) {
            return info!(%session, %relay, "{error}; next attempt in {millis} ms");
        }
        let next = match (pause, self.context.reconnect_timeout) {
            (Duration::ZERO, _) => "trying the next relay".to_owned(),
            (_, Some(timeout)) => format!("reconnecting for up to {} s", timeout.as_secs()),
            (_, None) => "reconnecting until it succeeds".to_owned(),
        };
        warn!(
            %session,
            %relay,
            unacknowledged = self.counters.queued_packets.get(),
            "{error}; {next}, nothing is lost so far"
        );
    }

    pub(super) fn report_connected(
        &mut self,
        relay: &SelectedRelay,
        path: &Text,
        how: Opened,
        has_moved: bool,
    ) {
        let is_missed = self.context.is_missed.swap(false, Ordering::Relaxed);
        let is_missed = !std::mem::take(&mut self.reported).is_empty() || is_missed;
        let session = &self.description.name;
        let unconfirmed = self.state.unconfirmed();
        // Warnings, like the failures before them: a log at the default level shows both.
        if self.connections == 0 && how != Opened::Resumed {
            match is_missed {
                true => warn!(%session, %relay, %path, "connected"),
                false => info!(%session, %relay, %path, "connected"),
            }
            return;
        }
        self.counters.reconnects.add(1);
        match how {
            Opened::Resumed if has_moved => warn!(
                %session, %relay, %path,
                "connected to another relay, where the session continues"
            ),
            Opened::Resumed => warn!(
                %session, %relay, %path,
                "reconnected; the session continues in the same files"
            ),
            Opened::New { .. } if has_moved => warn!(
                %session, %relay, %path,
                "connected to another relay, which does not have the session: a new one is opened there, and {unconfirmed} packets are sent again"
            ),
            Opened::New { has_resume: true } => warn!(
                %session, %relay, %path,
                "reconnected; the relay does not have the session any more: a new one is opened in another directory, and {unconfirmed} packets are sent again"
            ),
            Opened::New { has_resume: false } => warn!(
                %session, %relay, %path,
                "reconnected; the relay cannot resume sessions: a new one is opened in another directory, and {unconfirmed} packets are sent again"
            ),
        }
    }
}

/// Returns why a session is given up whose reconnect timeout has expired.
fn given_up_text(context: &UplinkContext, error: &UplinkError) -> String {
    match context.reconnect_timeout {
        None | Some(Duration::ZERO) => error.to_string(),
        Some(timeout) => format!("no connection for {} s: {error}", timeout.as_secs_f32()),
    }
}
