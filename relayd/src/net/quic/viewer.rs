//! The QUIC connection of a viewer: each bidirectional stream is one connection of the live
//! protocol.

use quinn::ConnectionError;
use tokio::task::JoinSet;
use tracing::debug;
use transport::quic::{CLOSED, PROTOCOL_ERROR};
use transport::quic_stream::QuicStream;
use transport::socket::Socket;

use crate::limits::HANDSHAKE_TIMEOUT;
use crate::net::admission::Handshake;
use crate::net::{ViewerContext, live};

/// Serves the connection of a viewer until it ends. It is closed if its first stream ends without a
/// handshake, and when it has no stream for [`HANDSHAKE_TIMEOUT`].
pub(super) async fn serve(
    connection: quinn::Connection,
    context: ViewerContext,
    handshake: Handshake,
) {
    let peer = connection.remote_address();
    let mut handshake = Some(handshake);
    let mut streams = JoinSet::new();
    let reason = loop {
        let accepted = tokio::select! {
            accepted = accept(&connection, streams.is_empty()) => accepted,
            Some(ended) = streams.join_next() => match ended {
                Ok(true) => continue,
                _ => break PROTOCOL_ERROR,
            },
        };
        let ends = match accepted {
            Some(Ok(ends)) => ends,
            // The connection is lost, and with it all streams.
            Some(Err(_)) => break CLOSED,
            None => {
                debug!(%peer, "QUIC connection closed: it has no stream");
                break PROTOCOL_ERROR;
            }
        };
        let socket = Socket::Quic(Box::new(QuicStream::new(connection.clone(), ends)));
        // The first stream shows that the peer is a viewer.
        let handshake = handshake.take().unwrap_or_else(Handshake::completed);
        streams.spawn(live::serve(socket, peer, context.clone(), handshake));
    };
    connection.close(reason, b"");
    streams.join_all().await;
}

type Ends = (quinn::SendStream, quinn::RecvStream);

/// Waits for the next stream. None: there is none in time, if `is_limited`.
async fn accept(
    connection: &quinn::Connection,
    is_limited: bool,
) -> Option<Result<Ends, ConnectionError>> {
    let accepting = connection.accept_bi();
    if is_limited {
        tokio::time::timeout(HANDSHAKE_TIMEOUT, accepting)
            .await
            .ok()
    } else {
        Some(accepting.await)
    }
}
