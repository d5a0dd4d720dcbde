//! A push connection on `viewer-proto`, to a viewer's command connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::push::{Hello, Notification, PushClient, VERSION};
use wire::ViewerId;

use crate::TEST_TIMEOUT;

/// What a relay pushes to one viewer.
#[derive(Debug)]
pub struct Push {
    socket: TcpStream,
    listener: PushClient,
    heard: VecDeque<Notification>,
}

impl Push {
    /// Asks to be pushed what this viewer follows.
    ///
    /// # Panics
    /// If it cannot connect.
    #[must_use]
    pub fn ask(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut socket = TcpStream::connect(live).unwrap();
        let mut hello = Vec::new();
        PushClient::connect_command(viewer).encode(&mut hello);
        socket.write_all(&hello).unwrap();
        Self {
            socket,
            listener: PushClient::default(),
            heard: VecDeque::new(),
        }
    }

    /// The same, of a relay that does push, past its greeting.
    ///
    /// # Panics
    /// If the relay does not.
    #[must_use]
    pub fn open(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut push = Self::ask(live, viewer);
        let hello = Hello { version: VERSION };
        assert_eq!(push.hear(), Some(Notification::Hello(hello)));
        assert_eq!(push.hear(), Some(Notification::Sessions));
        push
    }

    /// Says whether beacons are wanted.
    ///
    /// # Panics
    /// If the relay has hung up.
    pub fn say(&mut self, beacon_interest: BeaconInterest) {
        let mut bytes = Vec::new();
        beacon_interest.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// What is pushed next. None: the relay has hung up.
    ///
    /// # Panics
    /// If nothing comes.
    pub fn hear(&mut self) -> Option<Notification> {
        self.hear_within(TEST_TIMEOUT)
            .expect("something should be pushed")
    }

    /// What is pushed next, if anything is in this time. An inner none: the relay has hung up.
    ///
    /// # Panics
    /// If the relay does not keep to the protocol.
    pub fn hear_within(&mut self, time: Duration) -> Option<Option<Notification>> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(notification) = self.heard.pop_front() {
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
                    let heard = self.listener.extend(&buffer[..read]);
                    self.heard.extend(heard.map(Result::unwrap));
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
                .hear()
                .unwrap_or_else(|| panic!("hung up instead of {awaited:?}; before: {before:?}"));
            if next == awaited {
                return before;
            }
            before.push(next);
        }
    }

    /// Whether the relay has answered, and whether it does push.
    #[must_use]
    pub fn listener(&self) -> &PushClient {
        &self.listener
    }

    /// The socket, to do to it what no viewer should.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}
