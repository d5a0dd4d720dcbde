//! A port of a relay with the address that is used, as messages show it.

use std::fmt;
use std::net::IpAddr;

use super::target::RelayEndpoint;

/// A port of a relay, and which of the host's addresses is used if that is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointAddress {
    pub(crate) endpoint: RelayEndpoint,
    pub(super) ip: Option<IpAddr>,
}

impl From<RelayEndpoint> for EndpointAddress {
    fn from(endpoint: RelayEndpoint) -> Self {
        Self { endpoint, ip: None }
    }
}

impl fmt::Display for EndpointAddress {
    /// Writes the URL of the port, and the address unless that is what the URL has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)?;
        write_ip(self.ip, &self.endpoint.host, f)
    }
}

/// Writes the address of a host, unless that is the host.
pub(super) fn write_ip(ip: Option<IpAddr>, host: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ip {
        Some(ip) if host.parse() != Ok(ip) => write!(f, " ({ip})"),
        _ => Ok(()),
    }
}
