//! One viewer: moves bytes between a socket and `viewer-proto`'s machine.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use viewer_proto::error::ViewerError;
use viewer_proto::server::{Connection, Progress};
use wire::ViewerId;

use super::push::{Push, Viewers};
use super::receive::{Deadline, ReceiveError, Received};
use super::send::send;
use crate::config::Timeouts;
use crate::limits::{
    FILE_CALL_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_FILE_CALLS, MAX_FILE_CALLS_OF_SESSION, REPLY_BYTES,
    SENT_BYTES,
};
use crate::live::{Packet, Turn, View};
use crate::registry::Registry;

/// Room for reads: commands are short.
const RECEIVED_BYTES: usize = 4 << 10;

/// Why a viewer's connection was closed by this end.
#[derive(Debug, Error)]
enum Closed {
    #[error(transparent)]
    Viewer(#[from] ViewerError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("packet not sent: {0}")]
    Packet(std::io::Error),
    #[error("{MAX_FILE_CALLS_OF_SESSION} file calls for viewers of its session, or {MAX_FILE_CALLS} in all, hang for {} seconds", FILE_CALL_TIMEOUT.as_secs())]
    FilesHang,
    #[error("replies not sent: {0}")]
    Send(#[from] std::io::Error),
}

pub(super) async fn serve(
    mut socket: TcpStream,
    peer: SocketAddr,
    registry: Arc<Registry>,
    viewers: Arc<Viewers>,
    timeouts: Timeouts,
) {
    let mut push = Push::new(Arc::clone(&viewers));
    match converse(&mut socket, &View::new(registry), &mut push, timeouts).await {
        Ok(End::HungUp) => debug!(%peer, "viewer's connection ended"),
        Ok(End::Push(viewer)) => {
            drop(push);
            debug!(%peer, "push connection");
            if !viewers.hand_over(socket, viewer).await {
                info!(%peer, "push connection closed: there is no such viewer");
            }
        }
        Err(error) => info!(%peer, %error, "viewer's connection closed"),
    }
}

/// How a connection ends that nothing is wrong with.
enum End {
    HungUp,
    /// It is the push connection of this viewer.
    Push(ViewerId),
}

async fn converse(
    socket: &mut TcpStream,
    view: &View,
    push: &mut Push,
    timeouts: Timeouts,
) -> Result<End, Closed> {
    let connected = Instant::now();
    // When the command began that is under way.
    let mut begun = None;
    let mut connection = Connection::default();
    let mut received = Received::new(RECEIVED_BYTES);
    let mut replies = BytesMut::new();
    let never = CancellationToken::new();
    loop {
        let mut input = received.bytes();
        let mut needs_more = false;
        let mut outcome = Ok(None);
        let turn = turn(view).await?;
        while matches!(outcome, Ok(None)) && !needs_more && replies.len() < REPLY_BYTES {
            let before = replies.len();
            match connection.advance(&mut input, view, &mut replies) {
                Ok(Progress::Advanced) => begun = None,
                Ok(Progress::Packet(mut packet)) => {
                    begun = None;
                    if replies.len() + packet.left() > SENT_BYTES {
                        outcome = Ok(Some(packet));
                    } else if let Err(error) = packet.read(SENT_BYTES, &mut replies) {
                        // What was asked before is answered.
                        replies.truncate(before);
                        outcome = Err(Closed::Packet(error));
                    }
                }
                Ok(Progress::Push(viewer)) => return Ok(End::Push(viewer)),
                Ok(Progress::NeedsMore) => needs_more = true,
                Err(error) => outcome = Err(error.into()),
            }
        }
        let left = input.len();
        received.keep(left);
        push.set_viewer(connection.viewer());
        if let Ok(Some(packet)) = &mut outcome {
            drop(turn);
            send_packet(socket, packet, &mut replies, view, timeouts).await?;
        } else {
            drop(turn);
        }
        send(socket, &mut replies, timeouts.write).await?;
        outcome?;
        if !needs_more {
            continue;
        }
        // For all of it: who sends a byte now and then does not get more.
        let deadline = if !connection.is_greeted() {
            Some(Deadline::after(connected, HANDSHAKE_TIMEOUT))
        } else if connection.in_command(received.bytes()) {
            let begun = *begun.get_or_insert_with(Instant::now);
            Some(Deadline::after(begun, timeouts.viewer_read))
        } else {
            None
        };
        let has_more = tokio::select! {
            biased;
            never = push.serve(&mut connection, view) => match never {},
            has_more = received.more(socket, deadline, &never) => has_more?,
        };
        if !has_more {
            return Ok(End::HungUp);
        }
    }
}

/// Waits until the viewer may make file calls: it is to be kept until they have been made.
async fn turn(view: &View) -> Result<Turn, Closed> {
    let turn = tokio::time::timeout(FILE_CALL_TIMEOUT, view.capacity().wait());
    turn.await.map_err(|_| Closed::FilesHang)
}

/// Puts the packet behind its head, so that both leave together, and sends all but the last piece.
async fn send_packet(
    socket: &mut TcpStream,
    packet: &mut Packet,
    replies: &mut BytesMut,
    view: &View,
    timeouts: Timeouts,
) -> Result<(), Closed> {
    while packet.left() > 0 {
        if replies.len() >= SENT_BYTES {
            send(socket, replies, timeouts.write).await?;
        }
        let _turn = turn(view).await?;
        packet.read(SENT_BYTES, replies).map_err(Closed::Packet)?;
    }
    Ok(())
}
