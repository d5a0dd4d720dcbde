//! The QUIC connection of a producer: its first bidirectional stream is its control connection, its
//! unidirectional streams are packets. Both are served by one task, on a worker for producers.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::VarInt;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::quic::{CLOSED, PROTOCOL_ERROR};
use transport::quic_stream::QuicStream;
use transport::socket::Socket;
use wire::SeqNum;

use super::packet_streams::{PacketStreams, PollOutcome};
use super::window::Window;
use crate::http::QuicCounters;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::net::admission::Handshake;
use crate::net::error::ConnectionError;
use crate::net::worker::WorkerId;
use crate::net::{ProducerContext, control};
use crate::producer::data_connection::DataConnection;

/// The connection of a producer.
#[derive(Debug)]
pub(super) struct ProducerLink {
    pub(super) connection: quinn::Connection,
    /// The window of what the producer may have in flight.
    pub(super) window: Window,
    pub(super) counters: Arc<QuicCounters>,
    /// Evicts the connection until its first command has been handled.
    pub(super) handshake: Handshake,
}

/// Serves the connection of a producer until it ends.
pub(super) async fn serve(link: ProducerLink, worker_id: WorkerId, mut context: ProducerContext) {
    let ProducerLink {
        connection,
        window,
        counters,
        handshake,
    } = link;
    let peer = connection.remote_address();
    connection.set_receive_window(VarInt::from_u32(window.bytes()));
    let opened = tokio::time::timeout(HANDSHAKE_TIMEOUT, connection.accept_bi()).await;
    let Ok(Ok(ends)) = opened else {
        debug!(%peer, "QUIC connection closed: it has no control stream");
        return connection.close(PROTOCOL_ERROR, b"no control stream");
    };
    let registry = Arc::clone(&context.registry);
    let data = DataConnection::new(registry, peer.ip().to_canonical());
    // Packets overtake each other from the first one on.
    let session = Arc::new(OnceLock::new());
    context.session = Some(Arc::clone(&session));
    let data = data
        .with_first_packet(SeqNum(0))
        .with_control_session(session);
    let packets = PacketStreams::new(connection.clone(), data, counters);
    let packets = Arc::new(Mutex::new(packets));
    let mut stream = QuicStream::new(connection.clone(), ends);
    stream.prefer();
    // A command may refer to packets whose arrival was acknowledged before it was sent.
    let arrived = Arc::clone(&packets);
    stream.before_read(Box::new(move |context| arrived.lock().drain(context)));
    let socket = Socket::Quic(Box::new(stream));
    let ended = CancellationToken::new();
    let timeout = context.timeouts.producer_read;
    let commands = async {
        let _ended = ended.clone().drop_guard();
        control::serve_socket(socket, peer, worker_id, context, handshake).await;
    };
    let received = async {
        receive_packets(&packets, timeout, &ended).await;
        // Not after the peer has closed it: the control connection is to see that it has ended.
        if connection.close_reason().is_none() {
            connection.close(CLOSED, b"");
        }
    };
    tokio::join!(commands, received);
    // Kept until here: its memory is in use as long as packets may arrive.
    drop(window);
}

/// Receives packets until the connection is lost or fails, or until the control connection has
/// ended.
async fn receive_packets(
    packets: &Mutex<PacketStreams>,
    timeout: Duration,
    control_ended: &CancellationToken,
) {
    loop {
        let handled = poll_fn(|context| match packets.lock().poll(context) {
            PollOutcome::Drained => Poll::Pending,
            outcome => Poll::Ready(outcome),
        });
        let deadline = packets.lock().read_deadline(timeout);
        let outcome = tokio::select! {
            biased;
            outcome = handled => outcome,
            () = control_ended.cancelled() => break,
            () = until(deadline) => {
                // Some of the bytes may have arrived since the deadline was set.
                let deadline = packets.lock().read_deadline(timeout);
                if deadline.is_some_and(|deadline| deadline <= std::time::Instant::now()) {
                    let name = "read";
                    packets.lock().end(Err(ConnectionError::ReadTimeout { name, timeout }));
                    return;
                }
                continue;
            }
        };
        match outcome {
            PollOutcome::Ended => break,
            PollOutcome::Paused => {
                let interval = packets.lock().next_attempt(timeout);
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = control_ended.cancelled() => break,
                }
                packets.lock().resume();
            }
            PollOutcome::HasMore | PollOutcome::Drained => tokio::task::yield_now().await,
        }
    }
    // What has arrived is written, even if the connection is lost.
    poll_fn(|context| {
        packets.lock().drain(context);
        Poll::Ready(())
    })
    .await;
    packets.lock().end(Ok(()));
}

async fn until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
