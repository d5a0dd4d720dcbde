//! Lists of relays, as users name them: `HOST[:PORT],HOST[:PORT]`. A program uses one relay at a
//! time, and goes on at the next when it loses that one. Makes no lookup and no connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use thiserror::Error;

/// Maximum number of relays in a list. Further ones share a name, which may have
/// [`MAX_ADDRESSES`].
pub const MAX_RELAYS: usize = 16;

/// Maximum number of addresses of one name that are tried: more than the relays of a fleet.
pub const MAX_ADDRESSES: usize = 64;

/// A fault of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ListFault {
    /// Nothing is between two commas, or before the first, or after the last.
    #[error("relay {0} of the list is empty: expected HOST,HOST without further commas")]
    Empty(usize),
    /// The list is longer than [`MAX_RELAYS`].
    #[error("{0} relays are too many: a list has at most {MAX_RELAYS}")]
    TooMany(usize),
}

/// Splits a list into its relays, of which there is at least one. Text without a comma is one,
/// even if it is empty.
///
/// # Errors
/// If a list has an empty relay, or too many.
pub fn split_relays(list: &str) -> Result<Vec<&str>, ListFault> {
    let relays = list.split(',').count();
    if relays > MAX_RELAYS {
        return Err(ListFault::TooMany(relays));
    }
    let split: Vec<&str> = list.split(',').collect();
    match split.iter().position(|relay| relay.is_empty()) {
        Some(place) if relays > 1 => Err(ListFault::Empty(place + 1)),
        _ => Ok(split),
    }
}

/// An address of a relay in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayAddress {
    /// The relay's place in the list, from 0.
    pub relay: usize,
    /// One of the addresses of the relay's host.
    pub address: SocketAddr,
}

/// What to do to reach a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Look up the addresses of the relay at this place in the list, and
    /// [add them](RelayRotation::add_addresses). If that fails, the relay counts as tried.
    Resolve(usize),
    /// Connect to this address.
    Connect(RelayAddress),
    /// All addresses have been tried once: pause. The next step begins another pass.
    Pause,
}

/// The order in which the addresses of a list of relays are tried: round-robin, in passes.
///
/// Within a pass, each address is tried at once after the one before has failed. After the
/// [loss](Self::restart) of a connection, the next pass has all addresses but the lost one, which
/// is the first of the pass after that. So a single relay is tried again after a pause.
#[derive(Debug)]
pub struct RelayRotation {
    /// Number of relays in the list.
    relays: usize,
    /// The relay whose addresses are looked up next.
    next_relay: usize,
    /// Number of relays that have not been looked up in this pass.
    unresolved: usize,
    /// The addresses of the relay before `next_relay` that have not been tried in this pass.
    untried: VecDeque<RelayAddress>,
    /// The address that was handed out last.
    current: Option<RelayAddress>,
    /// The address of the lost connection, which this pass leaves out.
    lost: Option<RelayAddress>,
}

impl RelayRotation {
    /// Begins the first pass over a list of this many relays.
    #[must_use]
    pub fn new(relays: usize) -> Self {
        Self {
            relays,
            next_relay: 0,
            unresolved: relays,
            untried: VecDeque::new(),
            current: None,
            lost: None,
        }
    }

    /// Returns the next step of this pass.
    pub fn next_step(&mut self) -> NextStep {
        if let Some(next) = self.untried.pop_front() {
            self.current = Some(next);
            return NextStep::Connect(next);
        }
        if self.unresolved == 0 {
            self.unresolved = self.relays;
            self.lost = None;
            return NextStep::Pause;
        }
        self.unresolved -= 1;
        let relay = self.next_relay;
        self.next_relay = (relay + 1) % self.relays.max(1);
        NextStep::Resolve(relay)
    }

    /// Adds the addresses of a relay, at most [`MAX_ADDRESSES`] of them.
    pub fn add_addresses(&mut self, relay: usize, addresses: impl IntoIterator<Item = SocketAddr>) {
        let addresses = addresses.into_iter().take(MAX_ADDRESSES);
        self.untried = addresses
            .map(|address| RelayAddress { relay, address })
            .collect();
        // The name has the order of its resolver; the turn is that of the address after the lost
        // one.
        if let Some(lost) = self.untried.iter().position(|own| Some(*own) == self.lost) {
            self.untried.rotate_left(lost);
            self.untried.pop_front();
        }
    }

    /// Whether the present pass may have further addresses.
    #[must_use]
    pub fn has_untried(&self) -> bool {
        self.unresolved > 0 || !self.untried.is_empty()
    }

    /// Begins a new pass because a connection that was of use has been lost.
    pub fn restart(&mut self) {
        let Some(current) = self.current else { return };
        self.untried.clear();
        self.unresolved = self.relays;
        self.next_relay = current.relay;
        self.lost = Some(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_split_at_commas() {
        let max = ["h"; MAX_RELAYS].join(",");
        let long = ["h"; MAX_RELAYS + 1].join(",");
        for (text, want) in [
            ("", Ok(vec![""])),
            ("one", Ok(vec!["one"])),
            ("one:1:2,[::1]:3", Ok(vec!["one:1:2", "[::1]:3"])),
            (&max, Ok(vec!["h"; MAX_RELAYS])),
            (&long, Err(ListFault::TooMany(MAX_RELAYS + 1))),
            (",", Err(ListFault::Empty(1))),
            (",one", Err(ListFault::Empty(1))),
            ("one,", Err(ListFault::Empty(2))),
            ("one,,two", Err(ListFault::Empty(2))),
        ] {
            assert_eq!(split_relays(text), want, "{text}");
        }
    }

    fn address(relay: usize, number: usize) -> SocketAddr {
        let port = u16::try_from(100 * relay + number).unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// The ports of the addresses that are tried until the end of the pass, if each relay has this
    /// many.
    fn pass(rotation: &mut RelayRotation, addresses: &[usize]) -> Vec<u16> {
        let mut tried = Vec::new();
        while let Some(port) = next(rotation, addresses) {
            tried.push(port);
        }
        tried
    }

    fn next(rotation: &mut RelayRotation, addresses: &[usize]) -> Option<u16> {
        loop {
            match rotation.next_step() {
                NextStep::Pause => return None,
                NextStep::Connect(to) => return Some(to.address.port()),
                NextStep::Resolve(relay) => {
                    let own = (0..addresses[relay]).map(|number| address(relay, number));
                    rotation.add_addresses(relay, own);
                }
            }
        }
    }

    #[test]
    fn all_addresses_of_all_relays_are_tried_in_each_pass() {
        let addresses = [1, 2, 0, 1];
        let mut rotation = RelayRotation::new(addresses.len());
        for _ in 0..3 {
            assert_eq!(pass(&mut rotation, &addresses), [0, 100, 101, 300]);
        }
    }

    #[test]
    fn after_a_loss_the_next_address_is_tried_first_and_the_lost_one_after_a_pause() {
        let addresses = [1, 3, 1];
        let mut rotation = RelayRotation::new(addresses.len());
        assert_eq!(next(&mut rotation, &addresses), Some(0));
        rotation.restart();
        assert_eq!(next(&mut rotation, &addresses), Some(100));
        assert_eq!(next(&mut rotation, &addresses), Some(101));
        rotation.restart();
        assert_eq!(pass(&mut rotation, &addresses), [102, 100, 200, 0]);
        assert_eq!(pass(&mut rotation, &addresses), [100, 101, 102, 200, 0]);
        // A connection that was of no use does not begin another pass.
        assert_eq!(next(&mut rotation, &addresses), Some(100));
        assert_eq!(pass(&mut rotation, &addresses), [101, 102, 200, 0]);
    }

    #[test]
    fn single_relay_is_tried_again_after_a_pause() {
        let mut rotation = RelayRotation::new(1);
        assert_eq!(next(&mut rotation, &[1]), Some(0));
        rotation.restart();
        assert_eq!(next(&mut rotation, &[1]), None);
        assert_eq!(next(&mut rotation, &[1]), Some(0));
        assert_eq!(next(&mut rotation, &[1]), None);
    }

    #[test]
    fn addresses_of_a_name_are_limited() {
        let mut rotation = RelayRotation::new(1);
        assert_eq!(pass(&mut rotation, &[1000]).len(), MAX_ADDRESSES);
    }
}
