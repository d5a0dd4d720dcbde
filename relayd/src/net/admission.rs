//! How many connections a port has, in all and from each peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Who is let in.
#[derive(Debug)]
pub(super) struct Admission {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// One connection that was let in. Dropping it makes room.
#[derive(Debug)]
pub(super) struct Admitted {
    admission: Arc<Admission>,
    peer: IpAddr,
}

impl Admission {
    /// Room for `most` connections, of which one peer may have `most_of_one`.
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            taken: Mutex::default(),
        })
    }

    /// Lets a connection of a peer with this address in, if there is room.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let peer = peer(address);
        let mut taken = self.taken.lock();
        let of_one = taken.by.get(&peer).copied().unwrap_or_default();
        if taken.all >= self.most || of_one >= self.most_of_one {
            return None;
        }
        taken.all += 1;
        taken.by.insert(peer, of_one + 1);
        Some(Admitted {
            admission: Arc::clone(self),
            peer,
        })
    }

    /// How many are in.
    pub(super) fn count(&self) -> usize {
        self.taken.lock().all
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut taken = self.admission.taken.lock();
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
        let admission = Admission::new(4, 2);
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let held = [one, one].map(|peer| admission.admit(peer).unwrap());
        assert!(admission.admit(one).is_none());
        let [_others, last] = [other, other].map(|peer| admission.admit(peer).unwrap());
        assert!(admission.admit(address("10.0.0.3")).is_none(), "it is full");
        drop(last);
        assert!(admission.admit(one).is_none(), "it has what it may have");
        drop(held);
        assert!(admission.admit(one).is_some());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let admission = Admission::new(9, 1);
        let _held = admission.admit(address("2001:db8::1")).unwrap();
        assert!(admission.admit(address("2001:db8::ffff:2")).is_none());
        assert!(admission.admit(address("2001:db8:0:1::1")).is_some());
        let _held = admission.admit(address("10.0.0.1")).unwrap();
        assert!(admission.admit(address("::ffff:10.0.0.1")).is_none());
    }

    #[test]
    fn nothing_is_remembered_of_who_has_gone() {
        let admission = Admission::new(1, 1);
        for number in 0..100u32 {
            drop(admission.admit(IpAddr::from(number.to_be_bytes())).unwrap());
        }
        assert!(admission.taken.lock().by.is_empty());
    }
}
