//! Asks a relay for its version and extensions, and opens no session.

use std::time::{Duration, Instant};

use relay_proto::producer::Producer;

use super::connection::Connection;
use super::error::UplinkError;
use super::exchange::exchange_versions;
use super::relay_clock::{ClockMeasurement, measure_clock};
use super::relay_selector::SelectedRelay;
use super::target::RelayTarget;

/// What a relay answers to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Minor version of the protocol that both speak; the major one is 2.
    pub(crate) minor: u32,
    /// Whether it can continue sessions whose connection was lost.
    pub(crate) has_resume: bool,
    /// Time from the first command to the last reply.
    pub(crate) round_trip: Duration,
    /// The relay's clock beside that of this host. None: it does not tell.
    pub(crate) clock: Option<ClockMeasurement>,
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
    let clock = match machine.has_resume() {
        true => Some(measure_clock(&mut pair, &mut machine).await?),
        false => None,
    };
    Ok(Greeting {
        minor: minor.0,
        has_resume: machine.has_resume(),
        round_trip,
        clock,
    })
}
