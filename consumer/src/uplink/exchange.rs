//! The begin of a conversation: the exchange of versions, and single commands on a new connection.

use relay_proto::command::{CommandCode, GetConfiguration};
use relay_proto::producer::Producer;
use relay_proto::{Command, Minor, Reply, Version};
use tokio::time::timeout;

use super::connection::Connection;
use super::error::UplinkError;
use super::send_queue::SendQueue;
use crate::limits::{REPLY_TIMEOUT, VERSION_TIMEOUT};

/// The oldest supported minor version of the protocol: the first with trace chunks.
const MIN_MINOR: u32 = 11;

/// Begins the conversation on a new connection: the version that both speak, and the extensions of
/// the relay.
///
/// # Errors
/// If the relay refuses, or is too old.
pub(super) async fn exchange_versions(
    pair: &mut Connection,
    machine: &mut Producer,
) -> Result<Minor, UplinkError> {
    let version = Command::Version(Version::OURS);
    let answered = send_and_wait(pair, machine, &version).await;
    answered.map_err(|error| match error {
        UplinkError::ConnectionClosed { .. } => UplinkError::NotControlPort,
        error => error,
    })?;
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

/// Sends a command and waits for its reply, which must report success.
pub(super) async fn send_and_wait(
    pair: &mut Connection,
    machine: &mut Producer,
    command: &Command,
) -> Result<Reply, UplinkError> {
    let reply = send_and_receive(pair, machine, command).await?;
    if reply.is_ok() {
        Ok(reply)
    } else {
        Err(UplinkError::refused(command.code(), &reply))
    }
}

/// Sends a command and waits for its reply, whatever it says.
pub(super) async fn send_and_receive(
    pair: &mut Connection,
    machine: &mut Producer,
    command: &Command,
) -> Result<Reply, UplinkError> {
    let mut out = SendQueue::default();
    machine.send(command, &mut out.control)?;
    let command = command.code();
    let replied = async {
        loop {
            pair.write(&mut out)?;
            pair.read()?;
            if let Some((_, reply)) = pair.parse_replies(|input| machine.receive(input))? {
                return Ok::<_, UplinkError>(reply);
            }
            pair.wait_ready(&mut out).await?;
        }
    };
    let within = match command {
        CommandCode::Version => VERSION_TIMEOUT,
        _ => REPLY_TIMEOUT,
    };
    let silent = |_| UplinkError::ReplyTimeout { command, within };
    timeout(within, replied).await.map_err(silent)?
}
