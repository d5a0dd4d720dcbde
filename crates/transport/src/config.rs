//! The configurations of rustls for both ends of a link. QUIC needs the same: TLS 1.3 and an
//! application protocol.

use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    SupportedProtocolVersion, version,
};
use rustls_pki_types::CertificateDer;

use crate::crypto::provider;
use crate::error::TransportError;
use crate::identity::{Identity, TrustedCas};
use crate::role::{Role, Roles};

/// Application protocol of producers' control connections (ALPN, RFC 7301).
pub const ALPN_CONTROL: &[u8] = b"lttng-relay-control";

/// Application protocol of producers' data connections.
pub const ALPN_DATA: &[u8] = b"lttng-relay-data";

/// Application protocol of browsers: HTTP/1.1.
pub const ALPN_HTTP: &[u8] = b"http/1.1";

/// Application protocol of viewers' connections.
pub const ALPN_LIVE: &[u8] = b"lttng-live";

const VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// What a server asks of its clients.
#[derive(Debug, Clone)]
pub struct ClientPolicy {
    /// The CAs that may have issued the clients' certificates.
    pub trusted: TrustedCas,
    /// The role that the certificate must have. None: any certificate will do, and the program
    /// itself asks for its [`Roles`].
    pub role: Option<Role>,
}

/// Returns the configuration of a server. Without a policy it takes clients without a certificate.
///
/// Sessions are never resumed: connections last for long, and each client proves anew who it is.
///
/// # Errors
/// If rustls refuses it.
pub fn server_config(
    identity: &Identity,
    clients: Option<&ClientPolicy>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TransportError> {
    let builder = ServerConfig::builder_with_provider(provider_arc())
        .with_protocol_versions(VERSIONS)
        .map_err(refused)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(policy) => builder.with_client_cert_verifier(verifier(policy)?),
    };
    let certificate = SingleCertAndKey::from(Arc::clone(&identity.0));
    let mut config = builder.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = protocols.iter().map(|id| id.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // Clients would store tickets that no server takes.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of a client that accepts servers with a certificate of these CAs. With
/// an identity it answers servers that ask for a certificate.
///
/// # Errors
/// If rustls refuses it.
pub fn client_config(
    trusted: &TrustedCas,
    identity: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TransportError> {
    let builder = ClientConfig::builder_with_provider(provider_arc())
        .with_protocol_versions(VERSIONS)
        .map_err(refused)?
        .with_root_certificates(Arc::clone(&trusted.0));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let certificate = SingleCertAndKey::from(Arc::clone(&identity.0));
            builder.with_client_cert_resolver(Arc::new(certificate))
        }
    };
    config.alpn_protocols = protocols.iter().map(|id| id.to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn provider_arc() -> Arc<CryptoProvider> {
    Arc::new(provider())
}

fn refused(error: Error) -> TransportError {
    TransportError::Config(error.to_string())
}

fn verifier(policy: &ClientPolicy) -> Result<Arc<dyn ClientCertVerifier>, TransportError> {
    let trusted = Arc::clone(&policy.trusted.0);
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider_arc())
        .build()
        .map_err(|error| TransportError::Config(error.to_string()))?;
    Ok(match policy.role {
        None => verifier,
        Some(role) => Arc::new(RoleVerifier { verifier, role }),
    })
}

/// Verifies certificates, and that they have a role. A client without it gets the alert "access
/// denied", so that it can tell its user why.
#[derive(Debug)]
struct RoleVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    role: Role,
}

impl ClientCertVerifier for RoleVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // The chain first: before that, anybody may have written the roles.
        let verified = self
            .verifier
            .verify_client_cert(certificate, intermediates, now)?;
        if Roles::of(certificate).has(self.role) {
            Ok(verified)
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
