//! Selects the relay, and of its addresses the one, that a session connects to next.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use transport::relay_list::{NextStep, RelayAddress, RelayRotation};

use super::endpoint_address::{EndpointAddress, write_ip};
use super::error::UplinkError;
use super::target::{AddressFamily, Link, RelayEndpoint, RelayPorts, RelayTarget};
use crate::limits::{CONNECT_TIMEOUT, CONNECT_TIMEOUT_WITH_OTHERS};

/// The turns of the relays of a target, for one session.
#[derive(Debug)]
pub(crate) struct RelaySelector(RelayRotation);

/// A relay at one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedRelay {
    pub(super) link: Link,
    pub(crate) ports: RelayPorts,
    /// Address of the control port.
    pub(crate) address: SocketAddr,
    /// How long connecting to each port may take.
    pub(super) connect_timeout: Duration,
}

impl RelaySelector {
    /// Begins with the first relay of the target.
    pub(crate) fn new(target: &RelayTarget) -> Self {
        Self(RelayRotation::new(target.relays.len()))
    }

    /// Selects the next address, in the order of [`RelayRotation`]. None if all have been tried
    /// since the last pause, so that another pause is due.
    ///
    /// # Errors
    /// If a host name cannot be looked up. The host counts as tried.
    pub(crate) async fn select_next(
        &mut self,
        target: &RelayTarget,
    ) -> Option<Result<SelectedRelay, UplinkError>> {
        loop {
            match self.0.next_step() {
                NextStep::Pause => return None,
                NextStep::Connect(RelayAddress { relay, address }) => {
                    // The places are those of the target's list.
                    let ports = target.relays.get(relay)?.clone();
                    return Some(Ok(SelectedRelay {
                        link: target.link,
                        ports,
                        address,
                        connect_timeout: self.connect_timeout(),
                    }));
                }
                NextStep::Resolve(relay) => {
                    let to = &target.relays.get(relay)?.control;
                    match self.resolve(to).await {
                        Ok(addresses) => self.0.add_addresses(relay, addresses),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }

    /// Begins with the relay after the present one, because the connection to this one was of use
    /// and is lost.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    async fn resolve(&self, to: &RelayEndpoint) -> Result<Vec<SocketAddr>, UplinkError> {
        let to = || EndpointAddress::from(to.clone());
        let within = self.connect_timeout();
        match timeout(within, resolve(&to().endpoint)).await {
            Ok(addresses) => addresses.map_err(|source| UplinkError::Connect { to: to(), source }),
            Err(_) => Err(UplinkError::ConnectTimeout { to: to(), within }),
        }
    }

    fn connect_timeout(&self) -> Duration {
        match self.0.has_untried() {
            true => CONNECT_TIMEOUT_WITH_OTHERS,
            false => CONNECT_TIMEOUT,
        }
    }
}

impl SelectedRelay {
    /// Returns the control port and its address.
    pub(crate) fn control(&self) -> EndpointAddress {
        EndpointAddress {
            endpoint: self.ports.control.clone(),
            ip: Some(self.address.ip()),
        }
    }

    /// Returns the data port, and its address: that of the control port, because another address of
    /// the same name may be another relay. Absent if the ports are of different hosts.
    pub(crate) fn data(&self) -> (EndpointAddress, Option<SocketAddr>) {
        let port = self.ports.data.port;
        let address = self.ports.is_one_host().then(|| {
            let mut address = self.address;
            address.set_port(port);
            address
        });
        let endpoint = self.ports.data.clone();
        let ip = address.map(|address| address.ip());
        (EndpointAddress { endpoint, ip }, address)
    }
}

impl fmt::Display for SelectedRelay {
    /// Writes the relay's URL, and the address unless that is what the URL has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ports.write_url(self.link, f)?;
        write_ip(Some(self.address.ip()), &self.ports.control.host, f)
    }
}

/// Looks up the host's addresses of the family; at least one.
pub(crate) async fn resolve(to: &RelayEndpoint) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((to.host.as_str(), to.port))
        .await?
        .filter(|address| address.is_ipv6() == (to.family == AddressFamily::V6))
        .collect();
    if addresses.is_empty() {
        let family = match to.family {
            AddressFamily::V4 => "IPv4",
            AddressFamily::V6 => "IPv6",
        };
        let message = format!("the host has no {family} address");
        return Err(io::Error::new(ErrorKind::AddrNotAvailable, message));
    }
    Ok(addresses)
}
