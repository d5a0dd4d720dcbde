//! A proxy between a viewer and a relay that cuts connections at random places, the same ones for
//! the same seed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;

/// Bytes that are read of a socket at once.
const BUFFER_BYTES: usize = 16 << 10;

/// The size of the relay's reply to `CONNECT`.
const CONNECT_REPLY_BYTES: usize = 24;

/// When the first connection is cut, even if the relay has sent too little: long after its
/// handshake.
const FIRST_CUT_TIMEOUT: Duration = Duration::from_secs(2);

/// A listening proxy. It ends with the process.
#[derive(Debug)]
pub struct CutProxy {
    /// The address to connect to instead of the relay's.
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    relay: SocketAddr,
    is_cutting: AtomicBool,
    cuts: AtomicUsize,
    /// The number of open connections that will be cut.
    to_be_cut: AtomicUsize,
    /// The bytes that the relay has sent on connections that are not cut.
    uncut_bytes: AtomicUsize,
    random: Mutex<Rng>,
}

/// When a connection is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Behind so many bytes of the relay.
    bytes: usize,
    /// After so much time, whatever was sent.
    after: Duration,
    /// Whether the viewer gets a reset instead of the end of the connection.
    is_reset: bool,
}

impl CutProxy {
    /// Starts a proxy to a relay's live port. It does not cut anything until [`Self::set_cutting`].
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start(relay: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            relay,
            is_cutting: AtomicBool::new(false),
            cuts: AtomicUsize::new(0),
            to_be_cut: AtomicUsize::new(0),
            uncut_bytes: AtomicUsize::new(0),
            random: Mutex::new(Rng::with_seed(seed)),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for viewer in listener.incoming() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || state.forward(viewer.unwrap()));
            }
        });
        Self { address, state }
    }

    /// Begins or ends to cut connections: those that are made from now on.
    pub fn set_cutting(&self, is_cutting: bool) {
        self.state.is_cutting.store(is_cutting, Ordering::SeqCst);
    }

    /// Whether no open connection will be cut, and the relay has sent so many bytes on connections
    /// that are not: it has answered the viewer on one that stays.
    #[must_use]
    pub fn is_restored(&self, bytes: usize) -> bool {
        let to_be_cut = self.state.to_be_cut.load(Ordering::SeqCst);
        to_be_cut == 0 && self.state.uncut_bytes.load(Ordering::SeqCst) >= bytes
    }

    /// Returns the number of connections that have been cut.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

impl State {
    fn forward(&self, viewer: TcpStream) {
        // The relay may not run now.
        let Ok(relay) = TcpStream::connect(self.relay) else {
            return;
        };
        viewer.set_nodelay(true).unwrap();
        relay.set_nodelay(true).unwrap();
        let (mut from_viewer, mut to_relay) =
            (viewer.try_clone().unwrap(), relay.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_viewer, &mut to_relay);
            let _ = to_relay.shutdown(Shutdown::Both);
        });
        let is_cutting = self.is_cutting.load(Ordering::SeqCst);
        let cut = is_cutting.then(|| self.next_cut());
        self.to_be_cut
            .fetch_add(usize::from(is_cutting), Ordering::SeqCst);
        let is_cut = self.forward_replies(&relay, &viewer, cut);
        self.to_be_cut
            .fetch_sub(usize::from(is_cutting), Ordering::SeqCst);
        let is_reset = is_cut && cut.is_some_and(|cut| cut.is_reset);
        if is_reset {
            let _ = rustix::net::sockopt::set_socket_linger(&viewer, Some(Duration::ZERO));
        }
        self.cuts.fetch_add(usize::from(is_cut), Ordering::SeqCst);
        let _ = relay.shutdown(Shutdown::Both);
        // The other thread has the socket too: it is reset when both have closed it.
        let how = if is_reset {
            Shutdown::Read
        } else {
            Shutdown::Both
        };
        let _ = viewer.shutdown(how);
    }

    fn next_cut(&self) -> Cut {
        let mut random = self.random.lock().unwrap();
        // Within the handshake, the list of streams or metadata, or after many packets.
        let max = [40, 30_000, 60_000, 200_000, 400_000][random.usize(0..5)];
        // Mostly by bytes: how far a viewer comes in a short time depends on the load of the
        // machine.
        let max_time = [60, 1_500, 1_500, 1_500][random.usize(0..4)];
        let mut cut = Cut {
            bytes: random.usize(0..max),
            after: Duration::from_millis(random.u64(max_time / 2..max_time)),
            is_reset: random.bool(),
        };
        if self.cuts.load(Ordering::SeqCst) == 0 {
            // A relay that was never reached is not waited for.
            cut.bytes += CONNECT_REPLY_BYTES;
            cut.after = FIRST_CUT_TIMEOUT;
        }
        cut
    }

    /// Forwards what the relay sends until it ends or the connection is to be cut. Returns whether
    /// it is cut.
    fn forward_replies(
        &self,
        mut relay: &TcpStream,
        mut viewer: &TcpStream,
        cut: Option<Cut>,
    ) -> bool {
        let deadline = cut.map(|cut| std::time::Instant::now() + cut.after);
        let mut left = cut.map_or(usize::MAX, |cut| cut.bytes);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let wait = deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            if left == 0 || wait.is_some_and(|wait| wait.is_zero()) {
                return true;
            }
            relay.set_read_timeout(wait).unwrap();
            match relay.read(&mut buffer) {
                Ok(read @ 1..) => {
                    let sent = read.min(left);
                    if viewer.write_all(&buffer[..sent]).is_err() {
                        return false;
                    }
                    left -= sent;
                    if cut.is_none() {
                        self.uncut_bytes.fetch_add(sent, Ordering::SeqCst);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                Ok(0) | Err(_) => return false,
            }
        }
    }
}
