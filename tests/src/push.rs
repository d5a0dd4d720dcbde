//! A push connection on `viewer-proto`, to a viewer's command connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::push::{Hello, Listener, Notification, VERSION};
use wire::ViewerId;

use crate::TEST_TIMEOUT;

/// What a relay pushes to one viewer.
#[derive(Debug)]
pub struct PushConnection {
    socket: TcpStream,
    listener: Listener,
    received: VecDeque<Notification>,
}

impl PushConnection {
    /// Asks to be pushed what this viewer follows.
    ///
    /// # Panics
    /// If it cannot connect.
    #[must_use]
    pub fn connect(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut socket = TcpStream::connect(live).unwrap();
        let mut hello = Vec::new();
        Listener::hello(viewer).encode(&mut hello);
        socket.write_all(&hello).unwrap();
        Self {
            socket,
            listener: Listener::default(),
            received: VecDeque::new(),
        }
    }

    /// The same, of a relay that does push, past its greeting.
    ///
    /// # Panics
    /// If the relay does not.
    #[must_use]
    pub fn open(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut push = Self::connect(live, viewer);
        let hello = Hello { version: VERSION };
        assert_eq!(push.receive(), Some(Notification::Hello(hello)));
        assert_eq!(push.receive(), Some(Notification::Sessions));
        push
    }

    /// Says whether beacons are wanted.
    ///
    /// # Panics
    /// If the relay has hung up.
    pub fn send_beacon_interest(&mut self, beacon_interest: BeaconInterest) {
        let mut bytes = Vec::new();
        beacon_interest.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// What is pushed next. None: the relay has hung up.
    ///
    /// # Panics
    /// If nothing comes.
    pub fn receive(&mut self) -> Option<Notification> {
        self.receive_within(TEST_TIMEOUT)
            .expect("something should be pushed")
    }

    /// What is pushed next, if anything is in this time. An inner none: the relay has hung up.
    ///
    /// # Panics
    /// If the relay does not keep to the protocol.
    pub fn receive_within(&mut self, time: Duration) -> Option<Option<Notification>> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(notification) = self.received.pop_front() {
                return Some(Some(notification));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Some(None),
                Ok(read) => {
                    let received = self.listener.extend(&buffer[..read]);
                    self.received.extend(received.map(Result::unwrap));
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Some(None),
            }
        }
    }

    /// Waits until this is pushed, and gives what came before it.
    ///
    /// # Panics
    /// If it does not come.
    pub fn wait_for(&mut self, awaited: Notification) -> Vec<Notification> {
        let mut before = Vec::new();
        loop {
            let next = self
                .receive()
                .unwrap_or_else(|| panic!("hung up instead of {awaited:?}; before: {before:?}"));
            if next == awaited {
                return before;
            }
            before.push(next);
        }
    }

    /// Whether the relay has answered, and whether it does push.
    #[must_use]
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The socket, to do to it what no viewer should.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}
