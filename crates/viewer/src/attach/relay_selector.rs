//! Selects the relay, and of its addresses the one, that is connected to next.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;
use transport::relay_list::{NextStep, RelayAddress, RelayRotation};

use super::error::AttachError;
use super::target::{Family, RelayHost, RelayTarget};

/// Timeout of connecting while there are other addresses to be tried: two lost datagrams of TCP's
/// handshake.
const CONNECT_TIMEOUT_WITH_OTHERS: Duration = Duration::from_secs(4);

/// The turns of the relays of a target.
#[derive(Debug)]
pub struct RelaySelector {
    rotation: RelayRotation,
    /// Whether the target has more than one address.
    has_several: bool,
}

/// A relay at one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRelay {
    /// Host and port, as the target has them.
    pub host: RelayHost,
    /// The address of the host.
    pub address: SocketAddr,
    /// Whether the target has other addresses.
    pub(super) is_one_of_several: bool,
    /// Whether other addresses are to be tried if this one does not answer.
    has_others: bool,
}

impl RelaySelector {
    /// Begins with the first relay of the target.
    #[must_use]
    pub fn new(target: &RelayTarget) -> Self {
        Self {
            rotation: RelayRotation::new(target.relays.len()),
            has_several: target.relays.len() > 1,
        }
    }

    /// Selects the next address, in the order of [`RelayRotation`]. None if all have been tried
    /// since the last pause, so that another pause is due. A lookup may take `limit`, too.
    ///
    /// # Errors
    /// If a host name cannot be looked up. The host counts as tried.
    pub async fn select_next(
        &mut self,
        target: &RelayTarget,
        limit: Duration,
    ) -> Option<Result<SelectedRelay, AttachError>> {
        loop {
            match self.rotation.next_step() {
                NextStep::Pause => return None,
                NextStep::Connect(RelayAddress { relay, address }) => {
                    // The places are those of the target's list.
                    let host = target.relays.get(relay)?.clone();
                    return Some(Ok(SelectedRelay {
                        host,
                        address,
                        is_one_of_several: self.has_several,
                        has_others: self.rotation.has_untried(),
                    }));
                }
                NextStep::Resolve(relay) => {
                    let host = target.relays.get(relay)?;
                    let resolved = timeout(limit, resolve(host, target.family)).await;
                    match resolved.unwrap_or_else(|_| Err(timed_out(host))) {
                        Ok(addresses) => {
                            self.has_several |= addresses.len() > 1;
                            self.rotation.add_addresses(relay, addresses);
                        }
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }

    /// Begins with the relay after the present one, because the connection to this one was of use
    /// and is lost.
    pub(super) fn restart(&mut self) {
        self.rotation.restart();
    }
}

impl SelectedRelay {
    /// How long connecting may take if the options allow `limit`.
    pub(super) fn connect_timeout(&self, limit: Duration) -> Duration {
        match self.has_others {
            true => limit.min(CONNECT_TIMEOUT_WITH_OTHERS),
            false => limit,
        }
    }

    pub(super) fn connect_error(&self, source: io::Error) -> AttachError {
        let relay = self.to_string();
        AttachError::Connect { relay, source }
    }
}

impl fmt::Display for SelectedRelay {
    /// Writes host and port, and the address unless that is the host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = self.address.ip();
        if self.host.host.parse() == Ok(ip) {
            return self.address.fmt(f);
        }
        write!(f, "{} ({ip})", self.host)
    }
}

fn timed_out(host: &RelayHost) -> AttachError {
    AttachError::Connect {
        relay: host.to_string(),
        source: io::ErrorKind::TimedOut.into(),
    }
}

/// Looks up the addresses of a relay of the family; at least one.
async fn resolve(relay: &RelayHost, family: Family) -> Result<Vec<SocketAddr>, AttachError> {
    let host = || relay.host.clone();
    let addresses = lookup_host((relay.host.as_str(), relay.port)).await;
    let addresses = addresses.map_err(|source| AttachError::Resolve {
        host: host(),
        source,
    })?;
    let (family, fits): (_, fn(&SocketAddr) -> bool) = match family {
        // A host without any address fails in the lookup: this number is not shown.
        Family::Any => (4, |_| true),
        Family::V4 => (4, SocketAddr::is_ipv4),
        Family::V6 => (6, SocketAddr::is_ipv6),
    };
    let addresses: Vec<SocketAddr> = addresses.filter(fits).collect();
    if addresses.is_empty() {
        let host = host();
        return Err(AttachError::NoAddress { host, family });
    }
    Ok(addresses)
}
