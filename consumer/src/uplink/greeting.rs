//! Asks a relay for its version and extensions, and opens no session.

use std::time::{Duration, Instant};

use relay_proto::command::GetConfiguration;
use relay_proto::producer::Producer;
use relay_proto::{Command, Minor, Version};

use super::connection::Connection;
use super::error::UplinkError;
use super::exchange::send_and_wait;
use super::target::RelayTarget;

/// The oldest supported minor version of the protocol: the first with trace chunks.
const MIN_MINOR: u32 = 11;

/// What a relay answers to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Minor version of the protocol that both speak; the major one is 2.
    pub(crate) minor: u32,
    /// Whether it can continue sessions whose connection was lost.
    pub(crate) has_resume: bool,
    /// Time from the first command to the last reply.
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
    let minor = exchange_versions(&mut pair, &mut machine).await?;
    Ok(Greeting {
        minor: minor.0,
        has_resume: machine.has_resume(),
        round_trip: asked.elapsed(),
    })
}

/// Begins the conversation on a new connection: the version that both speak, and the extensions of the relay.
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
    if minor.has_configuration() {
        let ask_all_pending = GetConfiguration { query: 0 };
        let command = Command::GetConfiguration(ask_all_pending);
        send_and_wait(pair, machine, &command).await?;
    }
    Ok(minor)
}
