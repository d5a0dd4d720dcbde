//! How many connections a port has, in all and from each peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Room for connections.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// The place of one connection. Dropping it makes room.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    peer: IpAddr,
}

impl Places {
    /// Room for `most` connections, of which one peer may have `most_of_one`.
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection of a peer with this address, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let peer = peer(address);
        let mut taken = self.taken.lock();
        let of_one = taken.by.get(&peer).copied().unwrap_or_default();
        if taken.all >= self.most || of_one >= self.most_of_one {
            return None;
        }
        taken.all += 1;
        taken.by.insert(peer, of_one + 1);
        Some(Place {
            places: Arc::clone(self),
            peer,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        if let Some(of_one) = taken.by.get_mut(&self.peer) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.by.remove(&self.peer);
            }
        }
    }
}

/// Whom an address stands for. Of IPv6 a host has as many as it likes in its network: those count as
/// one.
fn peer(address: IpAddr) -> IpAddr {
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
    fn one_peer_cannot_take_every_place() {
        let places = Places::new(4, 2);
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let held = [one, one].map(|peer| places.take(peer).unwrap());
        assert!(places.take(one).is_none());
        let [_others, last] = [other, other].map(|peer| places.take(peer).unwrap());
        assert!(places.take(address("10.0.0.3")).is_none(), "it is full");
        drop(last);
        assert!(places.take(one).is_none(), "it has what it may have");
        drop(held);
        assert!(places.take(one).is_some());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let places = Places::new(9, 1);
        let _held = places.take(address("2001:db8::1")).unwrap();
        assert!(places.take(address("2001:db8::ffff:2")).is_none());
        assert!(places.take(address("2001:db8:0:1::1")).is_some());
        let _held = places.take(address("10.0.0.1")).unwrap();
        assert!(places.take(address("::ffff:10.0.0.1")).is_none());
    }

    #[test]
    fn nothing_is_remembered_of_who_has_gone() {
        let places = Places::new(1, 1);
        for number in 0..100u32 {
            drop(places.take(IpAddr::from(number.to_be_bytes())).unwrap());
        }
        assert!(places.taken.lock().by.is_empty());
    }
}
