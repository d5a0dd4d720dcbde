//! The client end of a push connection: the notifications that a relay sends to one viewer.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::push::{Hello, Notification, PushClient, VERSION};
use wire::ViewerId;

use crate::TEST_TIMEOUT;

/// A push connection of one viewer.
#[derive(Debug)]
pub struct PushConnection {
    socket: TcpStream,
    listener: PushClient,
    received: VecDeque<Notification>,
}

impl PushConnection {
    /// Connects and sends CONNECT as the push connection of `viewer`, without waiting for a reply.
    ///
    /// # Panics
    /// If the relay does not listen.
    #[must_use]
    pub fn connect(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut socket = TcpStream::connect(live).unwrap();
        let mut hello = Vec::new();
        PushClient::connect_command(viewer).encode(&mut hello);
        socket.write_all(&hello).unwrap();
        Self {
            socket,
            listener: PushClient::default(),
            received: VecDeque::new(),
        }
    }

    /// Connects to a relay that pushes, and reads the two notifications that each connection begins
    /// with.
    ///
    /// # Panics
    /// If the relay sends anything else.
    #[must_use]
    pub fn open(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut push = Self::connect(live, viewer);
        let hello = Hello { version: VERSION };
        assert_eq!(push.receive(), Some(Notification::Hello(hello)));
        assert_eq!(push.receive(), Some(Notification::Sessions));
        push
    }

    /// Subscribes to beacons, or unsubscribes.
    ///
    /// # Panics
    /// If the relay has closed the connection.
    pub fn send_beacon_interest(&mut self, beacon_interest: BeaconInterest) {
        let mut bytes = Vec::new();
        beacon_interest.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// Waits for the next notification; `None` if the relay has closed the connection.
    ///
    /// # Panics
    /// If no notification arrives within [`TEST_TIMEOUT`].
    pub fn receive(&mut self) -> Option<Notification> {
        self.receive_within(TEST_TIMEOUT)
            .expect("a notification arrives in time")
    }

    /// Waits for the next notification for at most `timeout`. The outer `None` is a timeout, the
    /// inner one a connection that the relay has closed.
    ///
    /// # Panics
    /// If a notification breaks the protocol.
    pub fn receive_within(&mut self, timeout: Duration) -> Option<Option<Notification>> {
        let deadline = Instant::now() + timeout;
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

    /// Waits for a notification and returns those that arrived before it.
    ///
    /// # Panics
    /// If it does not arrive.
    pub fn wait_for(&mut self, awaited: Notification) -> Vec<Notification> {
        let mut before = Vec::new();
        loop {
            let next = self
                .receive()
                .unwrap_or_else(|| panic!("closed before {awaited:?}; received: {before:?}"));
            if next == awaited {
                return before;
            }
            before.push(next);
        }
    }

    /// Returns the protocol state, which tells whether the relay has accepted the connection and
    /// offers to push.
    #[must_use]
    pub fn listener(&self) -> &PushClient {
        &self.listener
    }

    /// Returns the socket, for bytes that no viewer should send.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}
