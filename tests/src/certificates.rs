//! Certificates for encrypted links: a CA, a relay's certificate and clients' certificates in a
//! test's directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use transport::authority::{Authority, Purpose, Validity};
use transport::role::Role;

use crate::lab::Lab;

const DAY: Duration = Duration::from_secs(86_400);

/// Returns a certificate that is valid from now on.
#[must_use]
pub fn valid() -> Validity {
    Validity {
        now: SystemTime::now(),
        lifetime: DAY,
    }
}

/// Returns a certificate that is not valid any more.
#[must_use]
pub fn expired() -> Validity {
    Validity {
        now: SystemTime::now() - 3 * DAY,
        lifetime: DAY,
    }
}

/// A CA and the certificates that it has issued.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
    authority: Authority,
}

impl Certificates {
    /// Creates a CA, a relay's certificate for 127.0.0.1 and localhost, and the clients `producer`
    /// and `viewer`.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn create(lab: &Lab, name: &str) -> Self {
        let directory = lab.directory(name);
        let authority = Authority::create(&directory, valid()).unwrap();
        let certificates = Self {
            directory,
            authority,
        };
        certificates.issue_server(&["127.0.0.1", "localhost"]);
        certificates.issue_client("producer", &[Role::Produce], valid());
        certificates.issue_client("viewer", &[Role::View], valid());
        certificates
    }

    /// Creates or replaces the relay's certificate, for these names.
    ///
    /// # Panics
    /// If a file cannot be written.
    pub fn issue_server(&self, hosts: &[&str]) {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let server = Purpose::Server(hosts);
        self.authority
            .issue("server", &server, valid(), true)
            .unwrap();
    }

    /// Creates a client's certificate.
    ///
    /// # Panics
    /// If a file exists or cannot be written.
    pub fn issue_client(&self, name: &str, roles: &[Role], validity: Validity) {
        let client = Purpose::Client(roles.iter().copied().collect());
        self.authority
            .issue(name, &client, validity, false)
            .unwrap();
    }

    /// Returns a file in the directory of the certificates.
    ///
    /// # Panics
    /// If the path is not UTF-8.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// Returns the directory of the certificates.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the options of a relay; it asks for clients' certificates if `is_mutual`.
    #[must_use]
    pub fn of_server(&self, is_mutual: bool) -> Vec<String> {
        let mut options = vec![
            format!("--tls-cert={}", self.file("server.pem")),
            format!("--tls-key={}", self.file("server.key")),
        ];
        if is_mutual {
            options.push(format!("--tls-client-ca={}", self.file("ca.pem")));
        }
        options
    }

    /// Returns the options of a client that trusts the CA and has a certificate, or none.
    #[must_use]
    pub fn of_client(&self, name: Option<&str>) -> Vec<String> {
        let mut options = vec![format!("--tls-ca={}", self.file("ca.pem"))];
        if let Some(name) = name {
            options.push(format!("--tls-cert={}", self.file(&format!("{name}.pem"))));
            options.push(format!("--tls-key={}", self.file(&format!("{name}.key"))));
        }
        options
    }
}
