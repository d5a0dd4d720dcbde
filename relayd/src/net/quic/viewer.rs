//! The QUIC connection of a viewer: each bidirectional stream is one connection of the live protocol.

use tokio::task::JoinSet;
use transport::quic::CLOSED;
use transport::quic_stream::QuicStream;
use transport::socket::Socket;

use crate::net::admission::Handshake;
use crate::net::{ViewerContext, live};

/// Serves the connection of a viewer until it ends.
pub(super) async fn serve(connection: quinn::Connection, context: ViewerContext) {
    let peer = connection.remote_address();
    let mut streams = JoinSet::new();
    // An error: the connection is lost, and with it all streams.
    while let Ok(ends) = connection.accept_bi().await {
        let socket = Socket::Quic(Box::new(QuicStream::new(connection.clone(), ends)));
        streams.spawn(live::serve(
            socket,
            peer,
            context.clone(),
            Handshake::completed(),
        ));
        // The results of those that have ended.
        while streams.try_join_next().is_some() {}
    }
    streams.join_all().await;
    connection.close(CLOSED, b"");
}
