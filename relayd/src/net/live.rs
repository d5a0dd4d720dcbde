//! One viewer connection: moves bytes between a socket and `viewer-proto`'s state machine, and
//! decides nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport::fault::is_handshake;
use transport::socket::Socket;
use viewer_proto::server::{Connection, Progress};
use wire::ViewerId;

use super::ViewerContext;
use super::admission::Handshake;
use super::error::ConnectionError;
use super::packet_sender::{acquire_file_calls, borrow_buffer, return_buffer, send_packet};
use super::packet_wait::PacketWait;
use super::push::PushConnection;
use super::receive::Received;
use super::send::{send, send_last};
use super::timeouts::CommandTimeouts;
use super::viewer_throttle::ConnectionThrottle;
use crate::config::Timeouts;
use crate::limits::{MAX_COPIED_PACKET, REPLY_BYTES};
use crate::live::View;

/// Maximum number of bytes of commands that are read at once. Commands are short.
const MAX_COMMAND_READ: usize = 4 << 10;

/// Serves a viewer connection until it ends. Returns whether its handshake was completed.
pub(super) async fn serve(
    mut socket: Socket,
    peer: SocketAddr,
    context: ViewerContext,
    mut handshake: Handshake,
) -> bool {
    let mut push = PushConnection::new(Arc::clone(&context.tasks));
    match serve_commands(
        &mut socket,
        &View::new(context.registry, context.fleet, peer),
        &mut push,
        &mut ConnectionThrottle::new(context.throttle),
        context.timeouts,
        &mut handshake,
    )
    .await
    {
        Ok(Ended::ByPeer) => debug!(%peer, "viewer connection ended"),
        Ok(Ended::AsPushConnection(viewer)) => {
            drop(push);
            debug!(%peer, "push connection accepted");
            if !context.tasks.hand_over(socket, viewer).await {
                info!(%peer, "push connection closed: no viewer with its id is connected");
            }
        }
        Err(error) if error.is_handshake_timeout() => {
            debug!(%peer, %error, "viewer connection closed");
        }
        Err(error) => info!(%peer, %error, "viewer connection closed"),
    }
    handshake.is_complete()
}

/// The ways in which a viewer connection ends without an error.
enum Ended {
    /// The peer has ended the connection, or it is evicted.
    ByPeer,
    /// The connection is the push connection of this viewer.
    AsPushConnection(ViewerId),
}

async fn serve_commands(
    socket: &mut Socket,
    view: &View,
    push: &mut PushConnection,
    throttle: &mut ConnectionThrottle,
    timeouts: Timeouts,
    handshake: &mut Handshake,
) -> Result<Ended, ConnectionError> {
    let mut command_timeouts = CommandTimeouts::new(timeouts.viewer_read);
    let mut connection = Connection::default();
    let mut received = Received::new(MAX_COMMAND_READ);
    let mut packet_wait = PacketWait::default();
    // Viewers are not waited for when the relay stops.
    let never = CancellationToken::new();
    loop {
        check(&connection, &received, view)?;
        let mut input = received.bytes();
        let (mut needs_more, mut is_arriving, mut awaited) = (false, false, None);
        let mut handled = Ok(None);
        let mut replies = borrow_buffer();
        let permits = acquire_file_calls(view).await?;
        while matches!(handled, Ok(None))
            && !(needs_more || is_arriving || awaited.is_some())
            && replies.len() < REPLY_BYTES
        {
            let before = replies.len();
            match connection.advance(&mut input, view, &mut replies) {
                Ok(Progress::Advanced) => command_timeouts.restart_read_timeout(),
                Ok(Progress::Packet(mut packet)) => {
                    command_timeouts.restart_read_timeout();
                    if packet.left() > MAX_COPIED_PACKET {
                        handled = Ok(Some(packet));
                    } else if let Err(error) = packet.read(&mut replies) {
                        // Without the head of this packet, the replies to earlier commands stay
                        // valid.
                        replies.truncate(before);
                        handled = Err(ConnectionError::ReadPacket(error));
                    }
                }
                Ok(Progress::Push(viewer)) => return Ok(Ended::AsPushConnection(viewer)),
                Ok(Progress::NeedsMore) => needs_more = true,
                Ok(Progress::PacketArriving) => is_arriving = true,
                Ok(Progress::Awaits(what)) => awaited = Some(what),
                Err(error) => handled = Err(error.into()),
            }
        }
        let left = input.len();
        received.consume_all_but(left);
        if connection.is_greeted() && !handshake.complete() {
            return Ok(Ended::ByPeer);
        }
        push.set_viewer(connection.viewer());
        // The file calls of these replies have been made.
        drop(permits);
        match handled {
            Ok(None) => {}
            Ok(Some(mut packet)) => {
                let write = timeouts.write;
                send_packet(socket, &mut packet, &mut replies, view, throttle, write).await?;
            }
            Err(error) => {
                return Err(send_last(socket, &mut replies, timeouts.write, error).await);
            }
        }
        let bytes = replies.len();
        send(socket, &mut replies, timeouts.write).await?;
        return_buffer(replies);
        throttle.throttle(bytes).await;
        match awaited {
            Some(awaited) => view.prepare(awaited).await,
            None if is_arriving => packet_wait.wait(view.changes()).await,
            None => {}
        }
        if !needs_more {
            continue;
        }
        let deadline = command_timeouts.next_deadline(
            connection.is_greeted(),
            connection.in_command(received.bytes()),
        );
        let has_more = tokio::select! {
            biased;
            never = push.serve(&mut connection, view) => match never {},
            has_more = received.read_more(socket, deadline, &never) => has_more?,
        };
        if !has_more {
            return Ok(Ended::ByPeer);
        }
    }
}

/// Whether the connection can go on with what was received.
fn check(
    connection: &Connection<View>,
    received: &Received,
    view: &View,
) -> Result<(), ConnectionError> {
    if !connection.is_greeted() && is_handshake(received.bytes()) {
        return Err(ConnectionError::EncryptedPeer);
    }
    if view.has_partial_session() {
        return Err(ConnectionError::PartialSession);
    }
    Ok(())
}
