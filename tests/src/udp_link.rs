//! An emulated network link for UDP: a proxy that loses, delays and reorders datagrams, may be cut,
//! and can give its clients new addresses, as a NAT does after a restart. The kernels that the
//! tests run on may lack `netem`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How often threads that wait for datagrams look whether the link still exists.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What a link does to datagrams, in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkConditions {
    /// The part of the datagrams that is lost, from 0 to 1.
    pub loss: f64,
    /// The minimum time that a datagram takes.
    pub delay: Duration,
    /// The maximum of the random time that a datagram takes in addition: datagrams overtake each
    /// other.
    pub jitter: Duration,
}

impl LinkConditions {
    /// Loses and delays nothing.
    pub const PERFECT: Self = Self {
        loss: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
    };
}

/// A link between clients and one server.
#[derive(Debug)]
pub struct UdpLink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the link has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCounters {
    /// Datagrams that were delivered.
    pub delivered: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Datagrams that were delivered after one that was sent later in the same direction.
    pub overtaken: u64,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    clients: UdpSocket,
    conditions: Mutex<LinkConditions>,
    random: Mutex<fastrand::Rng>,
    /// By the client's address, the socket from which its datagrams are sent to the server.
    flows: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>,
    is_cut: AtomicBool,
    /// Number of datagrams that were received, by direction.
    received: [AtomicU64; 2],
    delivered: AtomicU64,
    lost: AtomicU64,
    overtaken: AtomicU64,
    in_transit: Sender<Datagram>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// A datagram on its way. The one that is due first is the greatest.
#[derive(Debug)]
struct Datagram {
    due: Instant,
    direction: Direction,
    /// Number of the datagram among those of its direction.
    number: u64,
    client: SocketAddr,
    bytes: Vec<u8>,
}

impl UdpLink {
    /// Opens a link to `server`. What happens to the n-th datagram depends on `seed`.
    ///
    /// # Panics
    /// If the link has no socket.
    #[must_use]
    pub fn open(server: SocketAddr, conditions: LinkConditions, seed: u64) -> Self {
        let clients = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        clients.set_read_timeout(Some(CHECK_INTERVAL)).unwrap();
        let address = clients.local_addr().unwrap();
        let (in_transit, arriving) = channel();
        let shared = Arc::new(Shared {
            server,
            clients,
            conditions: Mutex::new(conditions),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            flows: Mutex::default(),
            is_cut: AtomicBool::new(false),
            received: [AtomicU64::new(0), AtomicU64::new(0)],
            delivered: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            in_transit,
        });
        let of_clients = Arc::downgrade(&shared);
        thread::spawn(move || receive_from_clients(&of_clients));
        let of_delivery = Arc::downgrade(&shared);
        thread::spawn(move || deliver(&of_delivery, &arriving));
        Self { address, shared }
    }

    /// Returns the address that clients use in place of the server's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to the datagrams that are sent from now on.
    pub fn set_conditions(&self, conditions: LinkConditions) {
        *lock(&self.shared.conditions) = conditions;
    }

    /// Cuts the link, or repairs it. A cut link loses every datagram.
    pub fn set_cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Gives each client another port towards the server. Datagrams to the old port are lost a
    /// moment later.
    pub fn rebind(&self) {
        lock(&self.shared.flows).clear();
    }

    /// Returns what the link has done so far.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkCounters {
            delivered: read(&self.shared.delivered),
            lost: read(&self.shared.lost),
            overtaken: read(&self.shared.overtaken),
        }
    }
}

impl Shared {
    /// Decides when a datagram arrives, if at all.
    fn send(&self, direction: Direction, client: SocketAddr, bytes: &[u8]) {
        let conditions = *lock(&self.conditions);
        let mut random = lock(&self.random);
        let (chance, jitter) = (random.f64(), random.f64());
        drop(random);
        if self.is_cut.load(Ordering::Relaxed) || chance < conditions.loss {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = self.received[direction as usize].fetch_add(1, Ordering::Relaxed);
        let due = Instant::now() + conditions.delay + conditions.jitter.mul_f64(jitter);
        let bytes = bytes.to_vec();
        // Fails only while the link is being closed.
        let _ = self.in_transit.send(Datagram {
            due,
            direction,
            number,
            client,
            bytes,
        });
    }

    /// Returns the socket from which the datagrams of a client are sent to the server.
    fn flow(self: &Arc<Self>, client: SocketAddr) -> io::Result<Arc<UdpSocket>> {
        let mut flows = lock(&self.flows);
        if let Some(socket) = flows.get(&client) {
            return Ok(Arc::clone(socket));
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.server)?;
        socket.set_read_timeout(Some(CHECK_INTERVAL))?;
        let socket = Arc::new(socket);
        flows.insert(client, Arc::clone(&socket));
        let (link, from_server) = (Arc::downgrade(self), Arc::downgrade(&socket));
        thread::spawn(move || receive_from_server(&link, &from_server, client));
        Ok(socket)
    }

    fn deliver(self: &Arc<Self>, datagram: &Datagram, last: &mut [u64; 2]) {
        let Datagram { client, bytes, .. } = datagram;
        let sent = match datagram.direction {
            // The server may be away: then the datagram is lost, as any other.
            Direction::ToServer => self.flow(*client).and_then(|flow| flow.send(bytes)),
            Direction::ToClient => self.clients.send_to(bytes, client),
        };
        if sent.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.delivered.fetch_add(1, Ordering::Relaxed);
        let last = &mut last[datagram.direction as usize];
        if datagram.number < *last {
            self.overtaken.fetch_add(1, Ordering::Relaxed);
        }
        *last = datagram.number.max(*last);
    }
}

fn receive_from_clients(link: &Weak<Shared>) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while let Some(shared) = link.upgrade() {
        if let Ok((len, client)) = shared.clients.recv_from(&mut buffer) {
            shared.send(Direction::ToServer, client, &buffer[..len]);
        }
    }
}

/// Ends when the flow has got another socket.
fn receive_from_server(link: &Weak<Shared>, from_server: &Weak<UdpSocket>, client: SocketAddr) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while let (Some(shared), Some(socket)) = (link.upgrade(), from_server.upgrade()) {
        // An error other than the timeout: the server does not listen now.
        if let Ok(len) = socket.recv(&mut buffer) {
            shared.send(Direction::ToClient, client, &buffer[..len]);
        }
    }
}

fn deliver(link: &Weak<Shared>, arriving: &Receiver<Datagram>) {
    let mut in_transit = BinaryHeap::new();
    let mut last = [0; 2];
    loop {
        let wait =
            in_transit
                .peek()
                .map_or(CHECK_INTERVAL, |Reverse(first): &Reverse<Datagram>| {
                    first.due.saturating_duration_since(Instant::now())
                });
        match arriving.recv_timeout(wait.min(CHECK_INTERVAL)) {
            Ok(datagram) => in_transit.push(Reverse(datagram)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(shared) = link.upgrade() else { return };
        while let Some(Reverse(first)) = in_transit.peek()
            && first.due <= Instant::now()
            && let Some(Reverse(datagram)) = in_transit.pop()
        {
            shared.deliver(&datagram, &mut last);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl PartialEq for Datagram {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Datagram {}

impl PartialOrd for Datagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;

    /// Returns a server that counts datagrams and remembers the addresses that they came from, and
    /// a client.
    fn ends() -> (UdpSocket, UdpSocket) {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        (bind(), bind())
    }

    #[test]
    fn udp_link_loses_a_part_and_lets_datagrams_overtake_each_other() {
        let (server, client) = ends();
        let conditions = LinkConditions {
            loss: 0.2,
            delay: Duration::from_millis(1),
            jitter: Duration::from_millis(20),
        };
        let link = UdpLink::open(server.local_addr().unwrap(), conditions, 7);
        let arrived = || link.counters().delivered + link.counters().lost;
        for number in 1..=500u32 {
            client
                .send_to(&number.to_be_bytes(), link.address())
                .unwrap();
            // The receive buffer of a socket has room for some hundred datagrams; the kernel drops
            // the others.
            if number % 50 == 0 {
                wait_until("the datagrams are lost or delivered", || {
                    arrived() == u64::from(number)
                });
            }
        }
        let counters = link.counters();
        assert!((50..150).contains(&counters.lost), "{counters:?}");
        assert!(counters.overtaken > 50, "{counters:?}");
    }

    #[test]
    fn udp_link_carries_replies_and_changes_the_address_that_the_server_sees() {
        let (server, client) = ends();
        let link = UdpLink::open(server.local_addr().unwrap(), LinkConditions::PERFECT, 1);
        let mut seen = Vec::new();
        for _ in 0..2 {
            client.send_to(b"ping", link.address()).unwrap();
            let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
            seen.push(from);
            server.send_to(b"pong", from).unwrap();
            let (len, from) = client.recv_from(&mut [0; 8]).unwrap();
            assert_eq!((len, from), (4, link.address()));
            link.rebind();
        }
        assert_ne!(seen[0], seen[1]);
        link.set_cut(true);
        client.send_to(b"ping", link.address()).unwrap();
        wait_until("the datagram is lost", || link.counters().lost == 1);
    }
}
