//! A probe: a session whose producer and viewer keep to the protocol. The probe tells whether a
//! relay still serves others while a peer misbehaves.

use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::StreamId;

use crate::lab::Lab;
use crate::producer::{Producer, live_session};
use crate::relay::Relay;
use crate::viewer::{Viewer, by_channel};

/// A live session and a viewer of it, which the relay must serve at any time.
#[derive(Debug)]
pub struct ProbeSession {
    producer: Producer,
    stream: StreamId,
    viewer: Viewer,
    /// Packets sent so far, which is the number of the next one.
    sent: u64,
}

/// The size of each packet, in bytes.
const PACKET: usize = 4096;

/// Starts a relay with a probe session, in a directory of its own.
///
/// # Panics
/// If the relay does not start.
#[must_use]
pub fn start_relay_with_probe() -> (Lab, Relay, ProbeSession) {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let probe = ProbeSession::of(&relay);
    (lab, relay, probe)
}

impl ProbeSession {
    /// Opens a session `probe` and sends packets through it.
    ///
    /// # Panics
    /// If the relay does not serve the session.
    #[must_use]
    pub fn of(relay: &Relay) -> Self {
        Self::named(relay, "probe")
    }

    /// Opens a session as [`Self::of`] does, with this name.
    ///
    /// # Panics
    /// If the relay does not serve the session.
    #[must_use]
    pub fn named(relay: &Relay, session: &str) -> Self {
        let mut producer = Producer::open(relay, live_session(session));
        let stream = producer.add_trace("ust/probe", &["chan_0"])[0];
        let (viewer, _, streams) = Viewer::attached(relay.live, session, Seek::Beginning);
        assert_eq!(by_channel(&streams)["chan_0"], stream);
        let mut probe = Self {
            producer,
            stream,
            viewer,
            sent: 0,
        };
        probe.assert_served();
        probe
    }

    /// Sends three packets and reads them back as a viewer.
    ///
    /// # Panics
    /// If a packet does not arrive in time, or differs.
    pub fn assert_served(&mut self) {
        for _ in 0..3 {
            self.producer.send_packet(self.stream, self.sent, PACKET);
            let index = self.viewer.wait_for_index(self.stream);
            assert_eq!(index.status, IndexStatus::Ready);
            let offset = index.offset.0;
            assert_eq!(offset, self.sent * PACKET as u64);
            let (_, bytes) = self.viewer.packet(self.stream, offset, PACKET as u32);
            let fill = u8::try_from(self.sent % 251).unwrap();
            assert!(bytes.len() == PACKET && bytes.iter().all(|&byte| byte == fill));
            self.sent += 1;
        }
    }
}
