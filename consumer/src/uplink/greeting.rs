//! Asks a relay for its version and extensions, and opens no session.

use std::time::{Duration, Instant};

use relay_proto::command::GetConfiguration;
use relay_proto::producer::Producer;
use relay_proto::{Command, Minor, Version};

use super::connection::Connection;
use super::error::UplinkError;
use super::handshake::{MIN_MINOR, send_and_wait};
use super::target::RelayTarget;

/// What a relay answers to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Minor version of the protocol that both speak; the major one is 2.
    pub(crate) minor: u32,
    /// Whether it can continue sessions whose connection was lost.
    pub(crate) has_resume: bool,
    /// Time from the command to its reply.
    pub(crate) round_trip: Duration,
}

/// Connects to a relay, with TLS or QUIC if the target says so, and asks it for its version and extensions.
///
/// # Errors
/// If it cannot be reached, its certificate is not trusted, it is no relay, or it is too old.
pub(crate) async fn greet(target: &RelayTarget) -> Result<Greeting, UplinkError> {
    let mut pair = Connection::connect(target).await?;
    let mut machine = Producer::default();
    let asked = Instant::now();
    send_and_wait(&mut pair, &mut machine, &Command::Version(Version::OURS)).await?;
    let round_trip = asked.elapsed();
    let minor = machine.minor().unwrap_or(Minor(0));
    if minor.0 < MIN_MINOR {
        return Err(UplinkError::TooOld { minor: minor.0 });
    }
    if minor.has_configuration() {
        let ask = Command::GetConfiguration(GetConfiguration { query: 0 });
        send_and_wait(&mut pair, &mut machine, &ask).await?;
    }
    Ok(Greeting {
        minor: minor.0,
        has_resume: machine.has_resume(),
        round_trip,
    })
}
