//! One data connection: moves bytes from a socket to the streams that they are for.

use std::net::SocketAddr;
use std::sync::Arc;

use relay_proto::DataDecoder;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::receive::Received;
use crate::config::Patience;
use crate::ingest::DataConnection;
use crate::ingest::error::At;
use crate::limits::{MOST_RECEIVED_BYTES, SPACE_PAUSE};
use crate::registry::Registry;

pub(super) async fn serve(
    mut socket: TcpStream,
    peer: SocketAddr,
    registry: Arc<Registry>,
    patience: Patience,
    stop: CancellationToken,
) {
    let mut connection = DataConnection::new(registry);
    let mut decoder = DataDecoder::default();
    let mut received = Received::new(MOST_RECEIVED_BYTES);
    loop {
        let is_inside = decoder.in_packet() || !received.bytes().is_empty();
        match received
            .more(&mut socket, is_inside.then_some(patience.producer), &stop)
            .await
        {
            Ok(true) => {}
            Ok(false) => {
                debug!(%peer, "data connection ended");
                return connection.end();
            }
            Err(error) => {
                warn!(%peer, %error, "data connection closed");
                return connection.end();
            }
        }
        let mut input = received.bytes();
        while let Some(event) = decoder.next(&mut input) {
            if let Err(error) = connection.take(event) {
                warn!(%peer, "data connection failed");
                return connection.fail(&error);
            }
            match wait_for_space(&mut connection, &stop).await {
                Ok(true) => {}
                Ok(false) => return connection.end(),
                Err(error) => return connection.fail(&error),
            }
        }
        let left = input.len();
        received.keep(left);
    }
}

/// While there is no space on the disk nothing more is taken: the producer notices, and waits too.
/// Gives whether there is some, rather than that the relay stops.
async fn wait_for_space(
    connection: &mut DataConnection,
    stop: &CancellationToken,
) -> Result<bool, At> {
    while !connection.resume()? {
        tokio::select! {
            () = tokio::time::sleep(SPACE_PAUSE) => {}
            () = stop.cancelled() => return Ok(false),
        }
    }
    Ok(true)
}
