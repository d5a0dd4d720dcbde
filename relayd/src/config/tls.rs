//! Files of the certificates for encrypted ports.

use std::path::PathBuf;

/// Files of the certificates for ports with TLS, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The relay's certificate, with the intermediate ones after it (PEM).
    pub certificate: PathBuf,
    /// The certificate's private key (PEM).
    pub key: PathBuf,
    /// The CAs that peers' certificates may be of (PEM). None: peers need no certificate.
    pub client_ca: Option<PathBuf>,
}
