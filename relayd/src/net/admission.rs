//! Limits the connections of a port, in all and of each peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts the connections of a port against its limits.
#[derive(Debug)]
pub(super) struct Admission {
    max: usize,
    max_per_peer: usize,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// One connection that was admitted. Dropping the value releases its place.
#[derive(Debug)]
pub(super) struct Admitted {
    admission: Arc<Admission>,
    peer: IpAddr,
}

impl Admission {
    /// Admits up to `max` connections, of which one peer may have `max_per_peer`.
    pub(super) fn new(max: usize, max_per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            max_per_peer,
            connections: Mutex::default(),
        })
    }

    /// Admits a connection from this address. None if a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let peer = peer_of(address);
        let mut connections = self.connections.lock();
        let of_peer = connections.by_peer.get(&peer).copied().unwrap_or_default();
        if connections.total >= self.max || of_peer >= self.max_per_peer {
            return None;
        }
        connections.total += 1;
        connections.by_peer.insert(peer, of_peer + 1);
        Some(Admitted {
            admission: Arc::clone(self),
            peer,
        })
    }

    /// Number of connections that are open.
    pub(super) fn count(&self) -> usize {
        self.connections.lock().total
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut connections = self.admission.connections.lock();
        connections.total -= 1;
        if let Some(of_peer) = connections.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                connections.by_peer.remove(&self.peer);
            }
        }
    }
}

/// The peer that an address counts for. An IPv6 host may use any address of its /64 network: all of those count as
/// one peer.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn admission_limits_the_connections_of_one_peer_and_of_all() {
        let admission = Admission::new(4, 2);
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let held = [one, one].map(|peer| admission.admit(peer).unwrap());
        assert!(admission.admit(one).is_none());
        let [_others, last] = [other, other].map(|peer| admission.admit(peer).unwrap());
        assert!(
            admission.admit(address("10.0.0.3")).is_none(),
            "the port is full"
        );
        drop(last);
        assert!(admission.admit(one).is_none(), "the peer has its maximum");
        drop(held);
        assert!(admission.admit(one).is_some());
    }

    #[test]
    fn ipv6_addresses_of_one_64_bit_network_count_as_one_peer() {
        let admission = Admission::new(9, 1);
        let _held = admission.admit(address("2001:db8::1")).unwrap();
        assert!(admission.admit(address("2001:db8::ffff:2")).is_none());
        assert!(admission.admit(address("2001:db8:0:1::1")).is_some());
        let _held = admission.admit(address("10.0.0.1")).unwrap();
        assert!(admission.admit(address("::ffff:10.0.0.1")).is_none());
    }

    #[test]
    fn peers_without_connections_are_forgotten() {
        let admission = Admission::new(1, 1);
        for number in 0..100u32 {
            drop(admission.admit(IpAddr::from(number.to_be_bytes())).unwrap());
        }
        assert!(admission.connections.lock().by_peer.is_empty());
    }
}
