//! Certificates and keys from files: what a program shows its peers, and what it trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use webpki::EndEntityCert;

use crate::crypto::provider;
use crate::error::TransportError;
use crate::pem_file::read_pem;

/// A certificate chain and its private key.
#[derive(Debug, Clone)]
pub struct Identity(pub(crate) Arc<CertifiedKey>);

/// The CAs whose certificates a program accepts from its peers.
#[derive(Debug, Clone)]
pub struct TrustedCas(pub(crate) Arc<RootCertStore>);

impl Identity {
    /// Reads a certificate, with the intermediate ones after it, and its key.
    ///
    /// # Errors
    /// If a file cannot be read, is too long or has no such content, or the key is another
    /// certificate's.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TransportError> {
        let chain = read_certificates(certificate)?;
        let certified = CertifiedKey::from_der(chain, read_key(key)?, &provider());
        let failed = |source| TransportError::Identity {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        };
        Ok(Self(Arc::new(certified.map_err(failed)?)))
    }

    /// Returns the names of hosts that the certificate is for, such as `collector.example.org` and
    /// `*.example.org`.
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        let certificate = self.0.end_entity_cert().ok();
        let parsed = certificate.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
        let names = parsed
            .iter()
            .flat_map(|certificate| certificate.valid_dns_names());
        names.map(str::to_owned).collect()
    }
}

impl TrustedCas {
    /// Reads the certificates of one or more CAs.
    ///
    /// # Errors
    /// If the file cannot be read, is too long or has no certificate, or one of them cannot be a
    /// CA's.
    pub fn load(path: &Path) -> Result<Self, TransportError> {
        let mut trusted = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            trusted
                .add(certificate)
                .map_err(|source| TransportError::Ca {
                    path: path.to_owned(),
                    source,
                })?;
        }
        Ok(Self(Arc::new(trusted)))
    }
}

/// Reads the private key of a file.
pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TransportError> {
    let key = PrivateKeyDer::from_pem_slice(&read_pem(path)?);
    let path = path.to_owned();
    key.map_err(|source| match source {
        pem::Error::NoItemsFound => TransportError::NoKey { path },
        source => TransportError::Pem { path, source },
    })
}

/// Reads all certificates of a file, and at least one.
pub(crate) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let bytes = read_pem(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let path = path.to_owned();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(TransportError::NoCertificate { path }),
        Ok(certificates) => Ok(certificates),
        // A broken section is no end of the file: a chain without its last certificates would be
        // refused by peers, with a message that does not name the cause.
        Err(source) => Err(TransportError::Pem { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::authority::{Authority, Purpose, Validity};

    #[test]
    fn a_file_without_its_content_and_a_key_of_another_certificate_are_refused_with_their_own_errors()
     {
        let directory = tempfile::tempdir().unwrap();
        let validity = Validity {
            now: SystemTime::now(),
            lifetime: Duration::from_secs(60),
        };
        let authority = Authority::create(directory.path(), validity).unwrap();
        let server = Purpose::Server(vec!["localhost".to_owned()]);
        let issue = |name| authority.issue(name, &server, validity, false).unwrap();
        let (one, other) = (issue("one"), issue("other"));
        let loaded = Identity::load(&one.certificate, &one.key).unwrap();
        assert_eq!(loaded.dns_names(), ["localhost"]);
        let empty = directory.path().join("empty");
        fs::write(&empty, "no PEM").unwrap();
        let broken = directory.path().join("broken");
        fs::write(
            &broken,
            "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        let load = |certificate: &Path, key: &Path| Identity::load(certificate, key).unwrap_err();
        use TransportError as E;
        assert!(matches!(
            load(&one.certificate, &other.key),
            E::Identity { .. }
        ));
        assert!(matches!(load(&one.certificate, &empty), E::NoKey { .. }));
        assert!(matches!(load(&empty, &one.key), E::NoCertificate { .. }));
        assert!(matches!(load(&broken, &one.key), E::Pem { .. }));
        let missing = directory.path().join("missing");
        assert!(matches!(load(&missing, &one.key), E::Read { .. }));
        let no_ca = TrustedCas::load(&empty).unwrap_err();
        assert!(matches!(no_ca, E::NoCertificate { .. }));
    }
}
