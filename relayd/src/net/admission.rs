//! Limits the connections of the relay: in all, of a port, and of each peer on a port. If a limit
//! is reached, the oldest connection that has not completed its handshake is evicted.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::{EVICTION_RETRY_INTERVAL, EVICTION_TIMEOUT};

/// Name of the port whose connections have no handshake.
const DATA: &str = "data";

/// The connections of all ports, which share the file descriptors of the process.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    max: usize,
    connections: Mutex<TableConnections>,
    /// Notifies ports that wait that a connection has been closed.
    closed: Notify,
    /// The turn to admit a connection, of one port at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct TableConnections {
    total: usize,
    next_id: u64,
    /// Connections that may be evicted, the oldest first.
    half_open: BTreeMap<u64, HalfOpen>,
    /// Number of control connections with a handshake of each address. The data connections of
    /// these addresses are not evicted: producers open them long before they use them.
    producers: HashMap<IpAddr, usize>,
}

/// A connection that has not completed its handshake.
#[derive(Debug)]
struct HalfOpen {
    port: &'static str,
    address: IpAddr,
    evicted: CancellationToken,
}

/// Counts the connections of a port against its limits.
#[derive(Debug)]
pub(super) struct Admission {
    port: &'static str,
    max: usize,
    max_per_peer: usize,
    connections: Mutex<Connections>,
    table: Arc<ConnectionTable>,
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

/// The limit that keeps a connection from being admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The limit of a peer on a port.
    Peer,
    /// The limit of a port.
    Port,
    /// The limit of the relay, which follows from the file descriptors that it may have.
    Relay,
}

/// A connection that may be evicted until its handshake is complete.
#[derive(Debug)]
pub(super) struct Handshake {
    /// The table that may evict the connection. None: it is never evicted.
    table: Option<Arc<ConnectionTable>>,
    id: u64,
    is_complete: bool,
    is_producer: bool,
    address: IpAddr,
}

impl ConnectionTable {
    /// Admits up to `max` connections of all ports together.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            connections: Mutex::default(),
            closed: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Completes when a connection has been closed since this call.
    pub(super) fn wait_for_close(&self) -> impl Future<Output = ()> {
        self.closed.notified()
    }

    /// Waits until no other port admits a connection. Ports that wait get their turns in order.
    async fn wait_for_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Evicts the oldest half-open connection of any port. Returns false if there is none.
    pub(super) fn evict_oldest(&self) -> bool {
        self.evict(|_| true)
    }

    /// Evicts the oldest candidate. Silent data connections come last: what they belong to is not
    /// known.
    fn evict(&self, is_candidate: impl Fn(&HalfOpen) -> bool) -> bool {
        let mut connections = self.connections.lock();
        let TableConnections {
            half_open,
            producers,
            ..
        } = &mut *connections;
        let is_in_use = |connection: &HalfOpen| {
            connection.port == DATA && producers.contains_key(&connection.address)
        };
        let candidates = |is_data: bool| {
            let mut oldest_first = half_open.iter();
            let found = oldest_first.find(|(_, connection)| {
                (connection.port == DATA) == is_data
                    && is_candidate(connection)
                    && !is_in_use(connection)
            });
            found.map(|(id, _)| *id)
        };
        let oldest = candidates(false).or_else(|| candidates(true));
        let Some(evicted) = oldest.and_then(|id| half_open.remove(&id)) else {
            return false;
        };
        evicted.evicted.cancel();
        true
    }
}

impl Admission {
    /// Admits up to `max` connections on a port, of which one peer may have `max_per_peer`, and as
    /// many as `table` has room for.
    pub(super) fn new(
        port: &'static str,
        max: usize,
        max_per_peer: usize,
        table: Arc<ConnectionTable>,
    ) -> Arc<Self> {
        Arc::new(Self {
            port,
            max,
            max_per_peer,
            connections: Mutex::default(),
            table,
        })
    }

    /// Admits a connection from this address.
    ///
    /// # Errors
    /// The limit that is reached.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, Limit> {
        let peer = peer_of(address);
        let mut connections = self.connections.lock();
        let of_peer = connections.by_peer.get(&peer).copied().unwrap_or_default();
        if of_peer >= self.max_per_peer {
            return Err(Limit::Peer);
        }
        if connections.total >= self.max {
            return Err(Limit::Port);
        }
        // After the table of the port, as when a connection is released.
        let mut all = self.table.connections.lock();
        if all.total >= self.table.max {
            return Err(Limit::Relay);
        }
        all.total += 1;
        connections.total += 1;
        connections.by_peer.insert(peer, of_peer + 1);
        Ok(Admitted {
            admission: Arc::clone(self),
            peer,
        })
    }

    /// Admits a connection from this address, if necessary in place of one without a handshake,
    /// after `evicting` has been called. None if there is no such connection, or it is not closed
    /// in time.
    pub(super) async fn admit_evicting(
        self: &Arc<Self>,
        address: IpAddr,
        mut evicting: impl FnMut(),
    ) -> Option<Admitted> {
        // Otherwise another port would take the place of the connection that is evicted for this
        // one.
        let _turn = self.table.wait_for_turn().await;
        let deadline = Instant::now() + EVICTION_TIMEOUT;
        loop {
            // Before the limit is checked: what is closed after that is noticed.
            let closed = self.table.wait_for_close();
            let limit = match self.admit(address) {
                Ok(admitted) => return Some(admitted),
                Err(limit) => limit,
            };
            if Instant::now() >= deadline || !self.evict(limit, address) {
                return None;
            }
            evicting();
            // Longer if a worker hangs: then the next one is evicted.
            let _ = tokio::time::timeout(EVICTION_RETRY_INTERVAL, closed).await;
        }
    }

    /// Evicts the oldest half-open connection whose end makes room for one from this address, after
    /// `limit` has kept it from being admitted. Returns false if there is none. The connection is
    /// closed a moment later.
    fn evict(&self, limit: Limit, address: IpAddr) -> bool {
        let peer = peer_of(address);
        self.table.evict(|connection| match limit {
            Limit::Peer => connection.port == self.port && peer_of(connection.address) == peer,
            Limit::Port => connection.port == self.port,
            Limit::Relay => true,
        })
    }

    /// Makes an admitted connection one that may be evicted, by cancelling `evicted`, until its
    /// handshake is complete.
    pub(super) fn begin_handshake(&self, address: IpAddr, evicted: CancellationToken) -> Handshake {
        let mut all = self.table.connections.lock();
        let id = all.next_id;
        all.next_id += 1;
        let half_open = HalfOpen {
            port: self.port,
            address: address.to_canonical(),
            evicted,
        };
        all.half_open.insert(id, half_open);
        Handshake {
            table: Some(Arc::clone(&self.table)),
            id,
            is_complete: false,
            is_producer: false,
            address: address.to_canonical(),
        }
    }

    /// Number of connections that are open.
    pub(super) fn count(&self) -> usize {
        self.connections.lock().total
    }

    /// The connections of all ports.
    pub(super) fn table(&self) -> &Arc<ConnectionTable> {
        &self.table
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
        let table = &self.admission.table;
        table.connections.lock().total -= 1;
        table.closed.notify_waiters();
    }
}

impl Handshake {
    /// The handshake of a connection that is never evicted.
    pub(super) fn completed() -> Self {
        Self {
            table: None,
            id: 0,
            is_complete: true,
            is_producer: false,
            address: Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Whether the handshake is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Completes the handshake. Returns whether the connection stays: it is evicted no more. False:
    /// it has been evicted, and its task is about to be dropped.
    pub(super) fn complete(&mut self) -> bool {
        if let Some(table) = &self.table
            && !self.is_complete
        {
            let mut all = table.connections.lock();
            self.is_complete = all.half_open.remove(&self.id).is_some();
        }
        self.is_complete
    }

    /// Completes the handshake of a control connection as [`complete`](Self::complete) does, and
    /// keeps the data connections of its address from being evicted.
    pub(super) fn complete_producer(&mut self) -> bool {
        if self.complete()
            && !self.is_producer
            && let Some(table) = &self.table
        {
            self.is_producer = true;
            let mut all = table.connections.lock();
            *all.producers.entry(self.address).or_default() += 1;
        }
        self.is_complete
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        // A connection that has ended cannot be evicted.
        self.complete();
        let Some(table) = self.table.as_ref().filter(|_| self.is_producer) else {
            return;
        };
        let mut all = table.connections.lock();
        if let Some(count) = all.producers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.producers.remove(&self.address);
            }
        }
    }
}

/// The peer that an address counts for. An IPv6 host may use any address of its /64 network: all of
/// those count as one peer.
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

    fn port(name: &'static str, max: usize, max_per_peer: usize, all: usize) -> Arc<Admission> {
        Admission::new(name, max, max_per_peer, ConnectionTable::new(all))
    }

    /// Admits a connection and begins its handshake.
    fn open(admission: &Arc<Admission>, from: &str) -> (Admitted, Handshake, CancellationToken) {
        let evicted = CancellationToken::new();
        let admitted = admission.admit(address(from)).unwrap();
        let handshake = admission.begin_handshake(address(from), evicted.clone());
        (admitted, handshake, evicted)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn admission_limits_the_connections_of_one_peer_and_of_all() {
        let admission = port("live", 4, 2, 9);
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let held = [one, one].map(|peer| admission.admit(peer).unwrap());
        assert!(admission.admit(one).is_err());
        let [_others, last] = [other, other].map(|peer| admission.admit(peer).unwrap());
        assert!(
            admission.admit(address("10.0.0.3")).is_err(),
            "the port is full"
        );
        drop(last);
        assert!(admission.admit(one).is_err(), "the peer has its maximum");
        drop(held);
        assert!(admission.admit(one).is_ok());
    }

    #[test]
    fn ipv6_addresses_of_one_64_bit_network_count_as_one_peer() {
        let admission = port("live", 9, 1, 9);
        let _held = admission.admit(address("2001:db8::1")).unwrap();
        assert!(admission.admit(address("2001:db8::ffff:2")).is_err());
        assert!(admission.admit(address("2001:db8:0:1::1")).is_ok());
        let _held = admission.admit(address("10.0.0.1")).unwrap();
        assert!(admission.admit(address("::ffff:10.0.0.1")).is_err());
    }

    #[test]
    fn peers_without_connections_are_forgotten() {
        let admission = port("live", 1, 1, 9);
        for number in 0..100u32 {
            drop(admission.admit(IpAddr::from(number.to_be_bytes())).unwrap());
        }
        assert!(admission.connections.lock().by_peer.is_empty());
    }

    #[test]
    fn oldest_half_open_connection_is_evicted_and_a_complete_one_never() {
        let table = ConnectionTable::new(3);
        let control = Admission::new("control", 3, 3, Arc::clone(&table));
        let live = Admission::new("live", 3, 2, Arc::clone(&table));
        let (_first, mut complete, of_complete) = open(&control, "10.0.0.1");
        assert!(complete.complete_producer());
        let (place, mut oldest, of_oldest) = open(&control, "10.0.0.2");
        let (_third, _newest, of_newest) = open(&live, "10.0.0.3");
        let more = address("10.0.0.4");
        assert_eq!(live.admit(more).unwrap_err(), Limit::Relay);
        assert!(live.evict(Limit::Relay, more));
        assert!(of_oldest.is_cancelled() && !of_newest.is_cancelled());
        assert!(!oldest.complete(), "too late");
        assert_eq!(
            live.admit(more).unwrap_err(),
            Limit::Relay,
            "not closed yet"
        );
        drop((oldest, place));
        let _more = live.admit(more).unwrap();
        assert!(
            !control.evict(Limit::Port, more),
            "all have their handshake"
        );
        assert!(!live.evict(Limit::Peer, more), "that of another peer");
        assert!(live.evict(Limit::Port, more) && of_newest.is_cancelled());
        assert!(!of_complete.is_cancelled());
    }

    #[test]
    fn silent_data_connection_is_evicted_last_and_only_if_its_address_has_no_control_connection() {
        let table = ConnectionTable::new(9);
        let control = Admission::new("control", 9, 9, Arc::clone(&table));
        let data = Admission::new("data", 9, 9, Arc::clone(&table));
        let (_control, mut producer, _) = open(&control, "10.0.0.1");
        assert!(producer.complete_producer());
        let (_of_producer, silent, of_silent) = open(&data, "::ffff:10.0.0.1");
        let (_of_stranger, strange, of_strange) = open(&data, "10.0.0.2");
        let (_half_open, half_open, of_half_open) = open(&control, "10.0.0.2");
        assert!(table.evict_oldest() && of_half_open.is_cancelled());
        assert!(table.evict_oldest() && of_strange.is_cancelled());
        assert!(!table.evict_oldest() && !of_silent.is_cancelled());
        drop(producer);
        assert!(table.evict_oldest() && of_silent.is_cancelled());
        drop((silent, strange, half_open));
        let all = table.connections.lock();
        assert!(all.half_open.is_empty() && all.producers.is_empty());
    }
}
