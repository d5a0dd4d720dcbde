//! The files that a client is configured with: whom it trusts, and who it is.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::config::client_config;
use crate::error::TransportError;
use crate::identity::{Identity, TrustedCas};

/// The files of a client. They are read for each connection, so that renewed certificates are used
/// without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs of servers' certificates (PEM).
    pub trusted: PathBuf,
    /// The client's own certificate and its key (PEM). None: it has none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The options do not name all files that a client needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingFile {
    /// Without a CA any server would be accepted.
    #[error("an encrypted connection needs --tls-ca FILE, with the CA of the relay's certificate")]
    Ca,
    /// A certificate without its key, or a key without its certificate.
    #[error("--tls-cert and --tls-key are given together or not at all")]
    Half,
}

impl ClientFiles {
    /// Makes the files of three options.
    ///
    /// # Errors
    /// If one is missing.
    pub fn from_options(
        trusted: Option<PathBuf>,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Self, MissingFile> {
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(MissingFile::Half),
        };
        let trusted = trusted.ok_or(MissingFile::Ca)?;
        Ok(Self { trusted, identity })
    }

    /// Reads the files, for a connection with one of these application protocols. Makes file calls.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TransportError> {
        let trusted = TrustedCas::load(&self.trusted)?;
        let identity = match &self.identity {
            None => None,
            Some((certificate, key)) => Some(Identity::load(certificate, key)?),
        };
        client_config(&trusted, identity.as_ref(), protocols)
    }
}
