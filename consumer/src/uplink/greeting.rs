//! Asks a relay for its version and extensions, and opens no session.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use relay_proto::command::GetConfiguration;
use relay_proto::producer::Producer;
use relay_proto::{Command, Minor, Reply, Version};

use super::connection::Connection;
use super::error::UplinkError;
use super::exchange::send_and_wait;
use super::relay_selector::SelectedRelay;
use super::target::RelayTarget;

/// The oldest supported minor version of the protocol: the first with trace chunks.
const MIN_MINOR: u32 = 11;

/// Number of times that a relay is asked for its clock. The answer that took the shortest time
/// counts.
const CLOCK_ROUNDS: u32 = 5;

/// What a relay answers to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Minor version of the protocol that both speak; the major one is 2.
    pub(crate) minor: u32,
    /// Whether it can continue sessions whose connection was lost.
    pub(crate) has_resume: bool,
    /// Time from the first command to the last reply.
    pub(crate) round_trip: Duration,
    /// The relay's clock. None: it does not tell.
    pub(crate) clock: Option<ClockDifference>,
}

/// The clock of a relay beside that of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockDifference {
    /// Nanoseconds by which the relay's clock is ahead of this host's; negative if it is behind.
    pub(crate) ahead: i64,
    /// By how much that may be wrong, in nanoseconds: half of the time between question and answer.
    pub(crate) uncertainty: i64,
}

/// Connects to a relay of the target, with TLS or QUIC if that says so, and asks it for its version
/// and extensions.
///
/// # Errors
/// If it cannot be reached, its certificate is not trusted, it is no relay, or it is too old.
pub(crate) async fn greet(
    target: &RelayTarget,
    relay: &SelectedRelay,
) -> Result<Greeting, UplinkError> {
    let mut pair = Connection::connect(target, relay).await?;
    let mut machine = Producer::default();
    let asked = Instant::now();
    let minor = exchange_versions(&mut pair, &mut machine).await?;
    let round_trip = asked.elapsed();
    let mut clock: Option<ClockDifference> = None;
    if machine.has_resume() {
        for _ in 0..CLOCK_ROUNDS {
            // Both clocks: the time of day may be set while the relay replies, and the round trip
            // would be wrong by that.
            let (asked, began) = (unix_time(), Instant::now());
            let reply = send_and_wait(&mut pair, &mut machine, &Command::GetClock).await?;
            let Reply::Clock(relay) = reply else { break };
            let found = ClockDifference::new(asked, relay.time, began.elapsed());
            clock = Some(match clock {
                Some(best) if best.uncertainty <= found.uncertainty => best,
                _ => found,
            });
        }
    }
    Ok(Greeting {
        minor: minor.0,
        has_resume: machine.has_resume(),
        round_trip,
        clock,
    })
}

impl ClockDifference {
    /// The difference that follows from what the relay's clock showed at some time within
    /// `round_trip` after `asked`, by the clock of this host. Both times are in nanoseconds since
    /// 1970.
    fn new(asked: i64, relay: u64, round_trip: Duration) -> Self {
        let uncertainty = i64::try_from(round_trip.as_nanos() / 2).unwrap_or(i64::MAX);
        let relay = i64::try_from(relay).unwrap_or(i64::MAX);
        Self {
            ahead: relay.saturating_sub(asked.saturating_add(uncertainty)),
            uncertainty,
        }
    }
}

/// Returns the clock of this host, in nanoseconds since 1970.
fn unix_time() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// Begins the conversation on a new connection: the version that both speak, and the extensions of
/// the relay.
///
/// # Errors
/// If the relay refuses, or is too old.
pub(super) async fn exchange_versions(
    pair: &mut Connection,
    machine: &mut Producer,
) -> Result<Minor, UplinkError> {
    send_and_wait(pair, machine, &Command::Version(Version::OURS)).await?;
    let minor = machine.minor().unwrap_or(Minor(0));
    if minor.0 < MIN_MINOR {
        return Err(UplinkError::TooOld { minor: minor.0 });
    }
    // The reply has the extensions of the relay, which `machine` remembers.
    if minor.has_configuration() {
        let ask_all_pending = GetConfiguration { query: 0 };
        let command = Command::GetConfiguration(ask_all_pending);
        send_and_wait(pair, machine, &command).await?;
    }
    Ok(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_the_relay_is_compared_with_the_middle_of_question_and_answer() {
        let of = |asked, relay, round_trip| {
            let found = ClockDifference::new(asked, relay, Duration::from_nanos(round_trip));
            (found.ahead, found.uncertainty)
        };
        assert_eq!(of(1000, 1500, 200), (400, 100));
        assert_eq!(of(1000, 100, 2), (-901, 1));
        assert_eq!(of(0, u64::MAX, 0), (i64::MAX, 0));
    }
}
