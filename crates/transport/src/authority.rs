//! A certificate authority (CA) in a directory, for a first set-up: `ca.pem` and `ca.key`, and
//! certificates for servers and clients beside them. Sites with a CA of their own need none of
//! this.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::{CertificateDer, DnsName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::crypto::provider;
use crate::error::TransportError;
use crate::identity::read_certificates;
use crate::pem_file::{CERTIFICATE_MODE, KEY_MODE, read_pem, write_pem};
use crate::role::Roles;

/// What the subject of a CA begins with that is created here. A part of its key's identifier
/// follows, so that no two have the same: certificates name their issuer by it.
const CA_NAME: &str = "relayd CA";

/// Names of the files of a CA without their suffix.
const CA_FILES: &str = "ca";

/// How long before their creation certificates are valid already: clocks of hosts differ.
const BACKDATING: Duration = Duration::from_secs(3600);

/// Longest name that a certificate may have: that of a host name.
const MAX_NAME_BYTES: usize = 253;

/// A CA that can issue certificates.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A relay, which clients reach under these host names and IP addresses.
    Server(Vec<String>),
    /// A producer or viewer, with its roles.
    Client(Roles),
}

/// The files of a new certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedFiles {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of its private key.
    pub key: PathBuf,
}

/// The time in which a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub struct Validity {
    /// When it is created. It is valid from an hour before.
    pub now: SystemTime,
    /// How long it is valid from then on.
    pub lifetime: Duration,
}

impl Authority {
    /// Whether the directory has a CA.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        certificate_file(directory, CA_FILES).exists()
    }

    /// Creates a CA in a directory, which is created if it is missing.
    ///
    /// # Errors
    /// If the directory has a CA, or a file cannot be created.
    pub fn create(directory: &Path, validity: Validity) -> Result<Self, TransportError> {
        let failed = |source| TransportError::Write {
            path: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let key = KeyPair::generate()?;
        let mut params = ca_params(&key);
        validity.apply(&mut params);
        let certificate = params.self_signed(&key)?;
        // The key first: if that fails, there is no certificate without one.
        let files = IssuedFiles::in_directory(directory, CA_FILES);
        files.write(&certificate.pem(), &key.serialize_pem(), false)?;
        Ok(Self {
            directory: directory.to_owned(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Opens the CA that [`create`](Self::create) has created in the directory.
    ///
    /// # Errors
    /// If a file cannot be read, or the CA was created by another program.
    pub fn open(directory: &Path) -> Result<Self, TransportError> {
        let IssuedFiles { certificate, key } = IssuedFiles::in_directory(directory, CA_FILES);
        let pem = read_pem(&key)?;
        let is_foreign = || TransportError::ForeignCa {
            path: certificate.clone(),
        };
        let pem = std::str::from_utf8(&pem).map_err(|_| is_foreign())?;
        let key = KeyPair::from_pem(pem).map_err(|_| is_foreign())?;
        let der = read_certificates(&certificate)?.into_iter().next();
        Ok(Self {
            directory: directory.to_owned(),
            certificate: der.ok_or_else(is_foreign)?,
            // The subject of a CA that was created here follows from its key.
            issuer: Issuer::new(ca_params(&key), key),
        })
    }

    /// Returns the file of the CA's certificate, which all programs trust.
    #[must_use]
    pub fn certificate_file(&self) -> PathBuf {
        certificate_file(&self.directory, CA_FILES)
    }

    /// Creates a certificate and its key in the files `NAME.pem` and `NAME.key` of the CA's
    /// directory. Files that exist are replaced only if `overwrite`.
    ///
    /// # Errors
    /// If a name cannot stand in a certificate, a file exists or cannot be written, or the CA was
    /// created by another program.
    pub fn issue(
        &self,
        name: &str,
        purpose: &Purpose,
        validity: Validity,
        overwrite: bool,
    ) -> Result<IssuedFiles, TransportError> {
        // The certificate of a client with that name would replace the CA's.
        if !is_file_name(name) || name == CA_FILES {
            return Err(TransportError::Name(name.to_owned()));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = alternative_names(purpose)?;
        // TLS 1.3 uses the key of a certificate for nothing else.
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match purpose {
            Purpose::Server(_) => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client(_) => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        validity.apply(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // Before anything is written: a certificate that no peer accepts must not replace one that
        // works.
        self.verify(certificate.der(), purpose, validity.now)?;
        let files = IssuedFiles::in_directory(&self.directory, name);
        files.write(&certificate.pem(), &key.serialize_pem(), overwrite)?;
        Ok(files)
    }

    /// Checks that programs which trust the CA will accept the certificate: the files may be of
    /// different CAs.
    fn verify(
        &self,
        issued: &CertificateDer<'_>,
        purpose: &Purpose,
        now: SystemTime,
    ) -> Result<(), TransportError> {
        let usage = match purpose {
            Purpose::Server(_) => KeyUsage::server_auth(),
            Purpose::Client(_) => KeyUsage::client_auth(),
        };
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let verified = anchor_from_trusted_cert(&self.certificate).and_then(|anchor| {
            EndEntityCert::try_from(issued)?
                .verify_for_usage(
                    provider().signature_verification_algorithms.all,
                    &[anchor],
                    &[],
                    UnixTime::since_unix_epoch(now),
                    usage,
                    None,
                    None,
                )
                .map(drop)
        });
        verified.map_err(|_| TransportError::ForeignCa {
            path: self.certificate_file(),
        })
    }
}

impl Validity {
    fn apply(self, params: &mut CertificateParams) {
        params.not_before = (self.now - BACKDATING).into();
        params.not_after = (self.now + self.lifetime).into();
    }
}

impl IssuedFiles {
    fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            certificate: certificate_file(directory, name),
            key: directory.join(format!("{name}.key")),
        }
    }

    fn write(&self, certificate: &str, key: &str, overwrite: bool) -> Result<(), TransportError> {
        write_pem(self.key.clone(), key, KEY_MODE, overwrite)?;
        let path = self.certificate.clone();
        write_pem(path, certificate, CERTIFICATE_MODE, overwrite)
    }
}

fn certificate_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pem"))
}

/// Returns what makes a certificate that of a CA with this key.
fn ca_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let identifier = params.key_identifier(key);
    let identifier = identifier.iter().take(4).map(|byte| format!("{byte:02x}"));
    let name = format!("{CA_NAME} {}", identifier.collect::<String>());
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // It issues certificates for servers and clients, but none for further CAs.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn alternative_names(purpose: &Purpose) -> Result<Vec<SanType>, TransportError> {
    match purpose {
        Purpose::Server(hosts) => hosts.iter().map(|host| host_name(host)).collect(),
        Purpose::Client(roles) => roles
            .iter()
            .map(|role| Ok(SanType::URI(role.uri().as_str().try_into()?)))
            .collect(),
    }
}

fn host_name(host: &str) -> Result<SanType, TransportError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    DnsName::try_from(host).map_err(|_| TransportError::Name(host.to_owned()))?;
    Ok(SanType::DnsName(host.try_into()?))
}

/// Whether a name may be that of a file, without leading dots or directories.
fn is_file_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::identity::{Identity, TrustedCas};
    use crate::role::Role;

    const DAY: Duration = Duration::from_secs(86_400);

    fn today() -> Validity {
        Validity {
            now: SystemTime::now(),
            lifetime: DAY,
        }
    }

    #[test]
    fn files_of_a_new_ca_can_be_loaded_and_keys_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("certs");
        assert!(!Authority::exists(&path));
        Authority::create(&path, today()).unwrap();
        assert!(Authority::exists(&path));
        let authority = Authority::open(&path).unwrap();
        let server = Purpose::Server(vec!["localhost".to_owned(), "::1".to_owned()]);
        let files = authority.issue("server", &server, today(), false).unwrap();
        Identity::load(&files.certificate, &files.key).unwrap();
        TrustedCas::load(&authority.certificate_file()).unwrap();
        for key in [files.key, path.join("ca.key")] {
            let mode = fs::metadata(key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn existing_certificates_and_cas_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path(), today()).unwrap();
        let client = Purpose::Client([Role::View].into_iter().collect());
        let issue = |overwrite| authority.issue("ann", &client, today(), overwrite);
        issue(false).unwrap();
        assert!(matches!(issue(false), Err(TransportError::Exists { .. })));
        issue(true).unwrap();
        let again = Authority::create(directory.path(), today());
        assert!(matches!(again, Err(TransportError::Exists { .. })));
    }

    #[test]
    fn a_certificate_has_exactly_the_roles_that_it_was_issued_with() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path(), today()).unwrap();
        for (name, roles) in [
            ("none", &[][..]),
            ("one", &[Role::Produce]),
            ("other", &[Role::View]),
            ("both", &[Role::View, Role::Produce]),
        ] {
            let roles: Roles = roles.iter().copied().collect();
            let files = authority.issue(name, &Purpose::Client(roles), today(), false);
            let certificate = read_certificates(&files.unwrap().certificate).unwrap();
            assert_eq!(Roles::of(&certificate[0]), roles, "{name}");
        }
    }

    #[test]
    fn names_that_are_paths_or_no_host_names_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path(), today()).unwrap();
        let none = Purpose::Client(Roles::default());
        for name in ["", "../x", "a/b", ".hidden", "-x", "a b", "ca", "\u{e9}"] {
            let refused = authority.issue(name, &none, today(), false);
            assert!(matches!(refused, Err(TransportError::Name(_))), "{name:?}");
        }
        for host in ["", "a b", "tcp://h", "h:1", "[::1]"] {
            let server = Purpose::Server(vec![host.to_owned()]);
            let refused = authority.issue("server", &server, today(), false);
            assert!(matches!(refused, Err(TransportError::Name(_))), "{host:?}");
        }
    }

    #[test]
    fn a_key_of_another_ca_issues_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        Authority::create(&one, today()).unwrap();
        Authority::create(&other, today()).unwrap();
        fs::copy(other.join("ca.key"), one.join("ca.key")).unwrap();
        let none = Purpose::Client(Roles::default());
        let refused = Authority::open(&one)
            .unwrap()
            .issue("ann", &none, today(), false);
        assert!(matches!(refused, Err(TransportError::ForeignCa { .. })));
        assert!(!one.join("ann.pem").exists());
    }
}
