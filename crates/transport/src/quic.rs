//! QUIC, for both ends of a link: its configurations, and what a connection is closed with.
//!
//! The TLS configurations are those of `config`. Nothing is sent before the handshake is complete
//! (no 0-RTT), since data that could be replayed by others must not become part of a trace.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use quinn::ClientConfig;
use quinn::congestion::BbrConfig;
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;
use rustls_pki_types::CertificateDer;

use crate::error::TransportError;
use crate::identity::read_key;
use crate::role::Roles;

/// Silence after which a connection is over. Both ends keep theirs alive, see [`KEEP_ALIVE`].
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Silence after which an end of a connection sends a packet, so that NATs on the way keep their
/// state. Those of home routers may forget UDP after 30 seconds.
pub const KEEP_ALIVE: Duration = Duration::from_secs(8);

/// A connection is closed for no other reason than that it has ended.
pub const CLOSED: VarInt = VarInt::from_u32(0);

/// A connection is closed because the peer has broken the protocol.
pub const PROTOCOL_ERROR: VarInt = VarInt::from_u32(1);

/// A connection is closed because the peer's certificate lacks the role.
pub const ROLE_MISSING: VarInt = VarInt::from_u32(2);

/// A packet's stream is reset because the packet was not delivered in time.
pub const TOO_LATE: VarInt = VarInt::from_u32(3);

/// Returns the settings that all connections have in common.
#[must_use]
pub fn transport_config() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        // Streams are used for packets of a trace: the oldest one first, not all at the same time.
        .send_fairness(false)
        // Loss-based congestion control (CUBIC) takes every lost datagram for congestion: at 10 %
        // loss it sends two datagrams a round trip. BBR measures the bandwidth.
        .congestion_controller_factory(Arc::new(BbrConfig::default()))
        // Packets need streams, which repeat what is lost. Datagrams are not used.
        .datagram_receive_buffer_size(None);
    config
}

/// Returns the configuration of a server.
///
/// # Errors
/// If the TLS configuration lacks what QUIC needs.
pub fn server_config(
    tls: Arc<rustls::ServerConfig>,
    transport: TransportConfig,
) -> Result<quinn::ServerConfig, TransportError> {
    let crypto = QuicServerConfig::try_from(tls);
    let crypto = crypto.map_err(|error| TransportError::Config(error.to_string()))?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Returns the endpoint configuration of a server with this private key (PEM). Its secrets are
/// derived from the key, so that a server that was restarted can reset the connections of the one
/// before it (RFC 9000, section 10.3): their clients reconnect at once, and not when their idle
/// timeout ends.
///
/// # Errors
/// If the file cannot be read, or has no key.
pub fn endpoint_config(key: &Path) -> Result<EndpointConfig, TransportError> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, read_key(key)?.secret_der());
    let reset = hmac::sign(&key, b"QUIC stateless reset");
    let mut config =
        EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref())));
    // Connection ids are no secret: their hash lets the server ignore what is not QUIC.
    let ids = hmac::sign(&key, b"QUIC connection ids");
    let ids = ids
        .as_ref()
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes));
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
    Ok(config)
}

/// Returns the configuration of a client.
///
/// # Errors
/// If the TLS configuration lacks what QUIC needs.
pub fn client_config(
    tls: Arc<rustls::ClientConfig>,
    transport: TransportConfig,
) -> Result<ClientConfig, TransportError> {
    let crypto = QuicClientConfig::try_from(tls);
    let crypto = crypto.map_err(|error| TransportError::Config(error.to_string()))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Connects to a server of this host name or address, from any port.
///
/// # Errors
/// If there is no socket, the server does not answer, or the certificate of one end is refused.
pub async fn connect(
    address: SocketAddr,
    host: &str,
    client: ClientConfig,
) -> io::Result<(Endpoint, Connection)> {
    let any = match address {
        // A socket of IPv4 cannot send to addresses of IPv6.
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let endpoint = Endpoint::client(any)?;
    let connecting = endpoint
        .connect_with(client, address, host)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let connection = connecting.await?;
    Ok((endpoint, connection))
}

/// Returns the application protocol (ALPN) of a connection whose handshake is done.
#[must_use]
pub fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?;
    data.downcast::<HandshakeData>().ok()?.protocol
}

/// Returns the roles of the peer's certificate. None if it has sent no certificate.
#[must_use]
pub fn peer_roles(connection: &Connection) -> Option<Roles> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Some(chain.first().map(Roles::of).unwrap_or_default())
}
