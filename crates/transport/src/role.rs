//! Roles: what the owner of a client certificate may do at a relay.
//!
//! A role is a URI among the subject alternative names of the certificate (RFC 5280, 4.2.1.6):
//! `urn:relayd:role:produce` or `urn:relayd:role:view`. A certificate may have both. One without
//! any may do nothing at a relay that asks for certificates: a CA that also issues certificates for
//! other purposes opens no relay by that. Any tool can create them, for example
//! `openssl req -addext subjectAltName=URI:urn:relayd:role:view ...`.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

/// What all URIs of roles begin with.
const PREFIX: &str = "urn:relayd:role:";

/// Something that a relay lets its peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Send traces: the control and data ports.
    Produce,
    /// Read traces: the live port.
    View,
}

/// The roles of one certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles {
    produce: bool,
    view: bool,
}

impl Role {
    /// All roles, in the order in which messages list them.
    pub const ALL: [Self; 2] = [Self::Produce, Self::View];

    /// Returns the name of the role, as options and messages have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::View => "view",
        }
    }

    /// Returns the URI that stands for the role in a certificate.
    #[must_use]
    pub fn uri(self) -> String {
        format!("{PREFIX}{self}")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| format!("{text:?} is no role: expected produce or view"))
    }
}

impl Roles {
    /// Returns the roles of a peer's certificate, which has been verified. A certificate that
    /// cannot be parsed has none.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else {
            return Self::default();
        };
        let names = certificate.valid_uri_names();
        // A role that only a later version knows gives no right here, and is no fault.
        let roles = names.filter_map(|uri| uri.strip_prefix(PREFIX)?.parse().ok());
        roles.collect()
    }

    /// Whether the role is among them.
    #[must_use]
    pub fn has(self, role: Role) -> bool {
        match role {
            Role::Produce => self.produce,
            Role::View => self.view,
        }
    }

    /// Returns the roles one by one.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<T: IntoIterator<Item = Role>>(roles: T) -> Self {
        let mut set = Self::default();
        for role in roles {
            match role {
                Role::Produce => set.produce = true,
                Role::View => set.view = true,
            }
        }
        set
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.produce, self.view) {
            (true, true) => "produce and view",
            (true, false) => "produce",
            (false, true) => "view",
            (false, false) => "none",
        })
    }
}
