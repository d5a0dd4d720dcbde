//! Asks a relay for its clock at an interval, and the next one of the list when it is lost.

use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::ClockSettings;
use crate::packetize::HostClock;
use crate::uplink::{
    ClockConnection, ClockMeasurement, RelaySelector, SelectedRelay, UplinkError, difference,
};

/// The clocks of a relay and of this host at one time.
#[derive(Debug, Clone)]
pub(super) struct ClockSample {
    /// The relay, as log and status name it.
    pub(super) relay: String,
    pub(super) measurement: ClockMeasurement,
    /// The time of day of this host beside its monotonic clock, at about that time.
    pub(super) host: HostClock,
}

impl ClockSample {
    /// Returns the nanoseconds by which the time of day of this host is ahead of `clock`, which was
    /// measured before. They change when it is set, and while the host is suspended.
    pub(super) fn realtime_ahead_of(&self, clock: HostClock) -> i64 {
        difference(self.host.offset(), clock.offset())
    }
}

/// Measures until nobody receives the samples any more.
pub(super) async fn measure_clock(settings: ClockSettings, samples: mpsc::Sender<ClockSample>) {
    let mut measuring = Measuring {
        selector: RelaySelector::new(&settings.target),
        settings,
        connection: None,
        has_reported: false,
    };
    loop {
        if let Some(sample) = measuring.next_sample().await
            && samples.send(sample).await.is_err()
        {
            return;
        }
        sleep(measuring.settings.interval).await;
    }
}

struct Measuring {
    settings: ClockSettings,
    selector: RelaySelector,
    /// The connection that the last sample was measured on.
    connection: Option<ClockConnection>,
    /// Whether it is logged that a relay does not tell its clock.
    has_reported: bool,
}

impl Measuring {
    /// Returns a sample of the present relay, or of the first other one that tells its clock. None
    /// if there is none now. Failures are hardly logged: the sessions of the agent have the same.
    async fn next_sample(&mut self) -> Option<ClockSample> {
        if let Some(connection) = self.connection.take() {
            match self.measure_on(connection).await {
                Ok(sample) => return Some(sample),
                Err(error) => debug!("clock not measured: {error}"),
            }
            self.selector.restart();
        }
        while let Some(selected) = self.selector.select_next(&self.settings.target).await {
            match self.measure_at(selected).await {
                Ok(Some(sample)) => return Some(sample),
                Ok(None) => self.report_silent_relay(),
                Err(error) => debug!("clock not measured: {error}"),
            }
        }
        None
    }

    fn report_silent_relay(&mut self) {
        if std::mem::replace(&mut self.has_reported, true) {
            return;
        }
        let text = "no samples of the clock: only relayd tells its clock";
        if self.settings.is_only_task {
            warn!("{text}");
        } else {
            info!("{text}");
        }
    }

    async fn measure_at(
        &mut self,
        selected: Result<SelectedRelay, UplinkError>,
    ) -> Result<Option<ClockSample>, UplinkError> {
        match ClockConnection::open(&self.settings.target, selected?).await? {
            Some(connection) => self.measure_on(connection).await.map(Some),
            None => Ok(None),
        }
    }

    /// Measures on a connection, and keeps it for the next sample.
    async fn measure_on(
        &mut self,
        mut connection: ClockConnection,
    ) -> Result<ClockSample, UplinkError> {
        let measurement = connection.measure().await?;
        let host = HostClock::measure();
        let relay = connection.relay().to_string();
        self.connection = Some(connection);
        Ok(ClockSample {
            relay,
            measurement,
            host,
        })
    }
}
