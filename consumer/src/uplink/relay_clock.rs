//! Compares the clock of a relay with that of this host.

use daemon::host_clock::monotonic;
use relay_proto::producer::Producer;
use relay_proto::reply::RelayClock;
use relay_proto::{Command, Reply};

use super::connection::Connection;
use super::error::UplinkError;
use super::exchange::exchange_versions;
use super::exchange::send_and_wait;
use super::relay_selector::SelectedRelay;
use super::target::RelayTarget;

/// Number of times that a relay is asked for its clock. The answer that took the shortest time
/// counts.
const CLOCK_ROUNDS: u32 = 8;

/// What the clocks of a relay have shown at a time of this host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockMeasurement {
    /// The monotonic clock of this host in the middle between question and answer, in nanoseconds.
    pub(crate) monotonic: u64,
    /// By how much that may be wrong, in nanoseconds: half of the time between them.
    pub(crate) error: u64,
    /// The relay's answer.
    pub(crate) relay: RelayClock,
}

/// A connection on which a relay is asked for nothing but its clock. On a connection of a session
/// the question would wait behind commands and packets, and the error be that long.
#[derive(Debug)]
pub(crate) struct ClockConnection {
    connection: Connection,
    machine: Producer,
    relay: SelectedRelay,
}

impl ClockConnection {
    /// Connects to a relay of the target. None if the relay does not tell its clock.
    ///
    /// # Errors
    /// If it cannot be reached, its certificate is not trusted, it is no relay, or it is too old.
    pub(crate) async fn open(
        target: &RelayTarget,
        relay: SelectedRelay,
    ) -> Result<Option<Self>, UplinkError> {
        let mut connection = Connection::connect(target, &relay).await?;
        let mut machine = Producer::default();
        exchange_versions(&mut connection, &mut machine).await?;
        Ok(machine.has_resume().then_some(Self {
            connection,
            machine,
            relay,
        }))
    }

    /// Returns the relay.
    pub(crate) fn relay(&self) -> &SelectedRelay {
        &self.relay
    }

    /// Compares the clocks.
    ///
    /// # Errors
    /// If the connection is lost, or the relay does not answer in time.
    pub(crate) async fn measure(&mut self) -> Result<ClockMeasurement, UplinkError> {
        measure_clock(&mut self.connection, &mut self.machine).await
    }
}

/// Compares the clocks, on a connection whose relay has told that it can.
pub(super) async fn measure_clock(
    connection: &mut Connection,
    machine: &mut Producer,
) -> Result<ClockMeasurement, UplinkError> {
    let mut best = ask_clock(connection, machine).await?;
    for _ in 1..CLOCK_ROUNDS {
        let found = ask_clock(connection, machine).await?;
        if found.error < best.error {
            best = found;
        }
    }
    Ok(best)
}

async fn ask_clock(
    connection: &mut Connection,
    machine: &mut Producer,
) -> Result<ClockMeasurement, UplinkError> {
    let before = monotonic();
    let reply = send_and_wait(connection, machine, &Command::GetClock).await?;
    let after = monotonic();
    match reply {
        Reply::Clock(relay) => Ok(ClockMeasurement::new(before, after, relay)),
        reply => Err(UplinkError::refused(Command::GetClock.code(), &reply)),
    }
}

impl ClockMeasurement {
    /// What follows from an answer that the relay gave at some time from `before` to `after`, by
    /// the monotonic clock of this host.
    fn new(before: u64, after: u64, relay: RelayClock) -> Self {
        Self {
            monotonic: before.midpoint(after),
            // Rounded up: the middle is rounded down.
            error: after.saturating_sub(before).div_ceil(2),
            relay,
        }
    }

    /// Returns the nanoseconds by which the relay's time of day is ahead of a clock that is
    /// `offset` nanoseconds ahead of the monotonic clock of this host; negative if it is behind.
    pub(crate) fn ahead_of(&self, offset: u64) -> i64 {
        difference(self.relay.time, self.monotonic.saturating_add(offset))
    }

    /// Returns the nanoseconds by which the relay's time of day is ahead of its monotonic clock.
    /// They change when the former is set, and while the relay's host is suspended.
    pub(crate) fn relay_realtime(&self) -> i64 {
        difference(self.relay.time, self.relay.monotonic)
    }
}

/// Returns by how much a time is ahead of another one; negative if it is behind.
pub(crate) fn difference(time: u64, other: u64) -> i64 {
    let difference = i128::from(time) - i128::from(other);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use relay_proto::ReturnCode;

    use super::*;

    #[test]
    fn clock_of_the_relay_is_compared_with_the_middle_of_question_and_answer() {
        let of = |before, after, time| {
            let relay = RelayClock {
                code: ReturnCode::OK,
                time,
                monotonic: 40,
                boot: [0; 16],
            };
            let found = ClockMeasurement::new(before, after, relay);
            (found.ahead_of(1000), found.error, found.relay_realtime())
        };
        assert_eq!(of(0, 200, 1500), (400, 100, 1460));
        assert_eq!(of(0, 2, 100), (-901, 1, 60));
        // Both ends of the interval are within the error.
        assert_eq!(of(10, 15, 1012), (0, 3, 972));
        assert_eq!(of(0, 0, u64::MAX), (i64::MAX, 0, i64::MAX));
    }
}
