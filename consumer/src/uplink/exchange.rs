//! One command on a new connection, and its reply.

use relay_proto::command::CommandCode;
use relay_proto::producer::Producer;
use relay_proto::{Command, Reply};
use tokio::time::timeout;

use super::connection::Connection;
use super::error::UplinkError;
use super::send_queue::SendQueue;
use crate::limits::{REPLY_TIMEOUT, VERSION_TIMEOUT};

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
