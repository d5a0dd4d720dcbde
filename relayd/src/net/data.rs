//! One data connection: moves bytes from a socket to the streams that they are for.

use std::net::SocketAddr;
use std::sync::Arc;

use relay_proto::DataDecoder;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::receive::{Deadline, Received};
use crate::config::Patience;
use crate::ingest::DataConnection;
use crate::limits::MOST_RECEIVED_BYTES;
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
        // For the next bytes of it: a packet may be long, and the network slow.
        let deadline = is_inside.then(|| Deadline::after(Instant::now(), patience.producer));
        match received.more(&mut socket, deadline, &stop).await {
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
        }
        let left = input.len();
        received.keep(left);
    }
}
