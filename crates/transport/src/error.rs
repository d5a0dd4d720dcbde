//! Failures of certificates, keys and configurations.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A certificate or key that cannot be used or created.
#[derive(Debug, Error)]
pub enum TransportError {
    /// The file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// Path of the file, as the user has given it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is longer than any chain of certificates.
    #[error("cannot read {path}: it has more than {max} bytes", path = path.display())]
    TooLong {
        /// Path of the file, as the user has given it.
        path: PathBuf,
        /// The limit in bytes.
        max: usize,
    },
    /// The file has a broken PEM section.
    #[error("cannot read {path}", path = path.display())]
    Pem {
        /// Path of the file, as the user has given it.
        path: PathBuf,
        /// The error of the parser.
        source: rustls_pki_types::pem::Error,
    },
    /// The file has no certificate.
    #[error("cannot read {path}: it has no certificate (PEM)", path = path.display())]
    NoCertificate {
        /// Path of the file, as the user has given it.
        path: PathBuf,
    },
    /// The file has no private key.
    #[error("cannot read {path}: it has no private key (PEM)", path = path.display())]
    NoKey {
        /// Path of the file, as the user has given it.
        path: PathBuf,
    },
    /// A certificate and a key cannot be used, or not together.
    #[error("cannot use {certificate} with {key}", certificate = certificate.display(), key = key.display())]
    Identity {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The certificate of a CA cannot be used.
    #[error("cannot use {path} as a CA", path = path.display())]
    Ca {
        /// File of the certificate.
        path: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The CA was created by another program, or its key is another one's.
    #[error("cannot issue certificates with {path}: it is not a CA that `relayd certs` has created, or its key is another one's", path = path.display())]
    ForeignCa {
        /// File of the certificate.
        path: PathBuf,
    },
    /// rustls refuses the configuration.
    #[error("cannot configure TLS: {0}")]
    Config(String),
    /// A name cannot stand in a certificate.
    #[error(
        "{0:?} cannot stand in a certificate: expected a host name, an IP address, or letters, digits, `-`, `_` and `.`"
    )]
    Name(String),
    /// The certificate cannot be created.
    #[error("cannot create certificate: {0}")]
    Create(#[from] rcgen::Error),
    /// A file with this name exists.
    #[error("cannot create {path}: it exists", path = path.display())]
    Exists {
        /// Path of the file that exists.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot create {path}", path = path.display())]
    Write {
        /// Path of the file that was to be written.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}
