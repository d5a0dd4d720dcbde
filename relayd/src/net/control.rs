//! One control connection: moves bytes between a socket and `relay-proto`'s machine.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use relay_proto::command::CommandCode;
use relay_proto::error::ControlError;
use relay_proto::server::{Connection, Progress};
use rustix::net::sockopt::set_tcp_quickack;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use wire::{Field, SessionId};

use super::receive::{Deadline, ReceiveError, Received};
use super::send::send;
use super::session_affinity::SessionAffinity;
use super::worker_pool::WorkerId;
use crate::config::Timeouts;
use crate::limits::{HANDSHAKE_TIMEOUT, MAX_REFUSALS, REPLY_BYTES, SPACE_RETRY_INTERVAL};
use crate::producer::Producer;
use crate::registry::Registry;

/// Room for reads: commands are short, and metadata is passed on in pieces.
const RECEIVED_BYTES: usize = 64 << 10;

/// Why a control connection was closed by this end.
#[derive(Debug, Error)]
enum Closed {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("{MAX_REFUSALS} commands were refused")]
    Refused,
    #[error("replies not sent: {0}")]
    Send(#[from] std::io::Error),
}

pub(super) async fn serve(
    mut socket: TcpStream,
    peer: SocketAddr,
    worker_id: WorkerId,
    registry: Arc<Registry>,
    session_affinity: Arc<SessionAffinity>,
    timeouts: Timeouts,
    stop: CancellationToken,
) {
    // Also cancelled when another session takes the place of this producer's.
    let stop = stop.child_token();
    let mut producer = Producer::new(registry, peer.ip().to_canonical(), stop.clone());
    let set_worker = |session| session_affinity.add(session, worker_id);
    let served = converse(
        &mut socket,
        peer,
        &mut producer,
        set_worker,
        timeouts,
        &stop,
    )
    .await;
    if let Some(session) = producer.session() {
        session_affinity.remove(session);
    }
    let session = producer.session_name();
    match &served {
        Ok(()) => debug!(%peer, session, "control connection ended"),
        Err(error) => warn!(%peer, session, %error, "control connection closed"),
    }
    producer.end(served.is_err(), std::time::Instant::now());
}

async fn converse(
    socket: &mut TcpStream,
    peer: SocketAddr,
    producer: &mut Producer,
    set_worker: impl Fn(SessionId),
    timeouts: Timeouts,
    stop: &CancellationToken,
) -> Result<(), Closed> {
    let connected = Instant::now();
    // When the command began that is under way.
    let mut begun = None;
    let mut refusals = 0;
    let mut connection = Connection::default();
    let mut received = Received::new(RECEIVED_BYTES);
    let mut replies = BytesMut::new();
    let mut is_open = false;
    loop {
        let mut input = received.bytes();
        let mut needs_more = false;
        let mut failed = Ok(());
        while failed.is_ok() && !needs_more && replies.len() < REPLY_BYTES {
            match connection.advance(&mut input, producer, &mut replies) {
                Ok(Progress::Advanced) => begun = None,
                Ok(Progress::Refused(command, refusal)) => {
                    warn!(%peer, ?command, %refusal, "command refused");
                    begun = None;
                    refusals += 1;
                    if refusals > MAX_REFUSALS {
                        return Err(Closed::Refused);
                    }
                }
                Ok(Progress::NeedsMore) => needs_more = true,
                Err(error) => failed = Err(error),
            }
        }
        let left = input.len();
        received.keep(left);
        if let Err(refusal) = producer.settle() {
            // Some of these say that all is well.
            replies.clear();
            refusal.code.write(&mut replies);
            let command = CommandCode::SendIndex;
            failed = Err(ControlError::Refused { command, refusal });
        }
        // What is answered has been written.
        while !producer.resume() {
            begun = None;
            tokio::select! {
                () = tokio::time::sleep(SPACE_RETRY_INTERVAL) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
        let is_answered = !replies.is_empty();
        if !is_open && let Some(session) = producer.session() {
            is_open = true;
            set_worker(session);
        }
        send(socket, &mut replies, timeouts.write).await?;
        failed?;
        if !needs_more {
            continue;
        }
        // For all of it: who sends a byte now and then does not get more.
        let deadline = if !connection.is_greeted() {
            Some(Deadline::after(connected, HANDSHAKE_TIMEOUT))
        } else if connection.in_command(received.bytes()) {
            let begun = *begun.get_or_insert_with(Instant::now);
            Some(Deadline::after(begun, timeouts.producer_read))
        } else {
            None
        };
        if !is_answered {
            // Producers of LTTng leave Nagle's algorithm on: the rest of a command may wait for this
            // acknowledgement. With an answer it leaves anyway.
            let _ = set_tcp_quickack(&*socket, true);
        }
        if !received.more(socket, deadline, stop).await? {
            return Ok(());
        }
    }
}
