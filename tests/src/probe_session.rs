//! A producer and a viewer that keep to the protocol, beside whatever else happens to the relay.

use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::StreamId;

use crate::lab::Lab;
use crate::producer::{Producer, live_session};
use crate::relay::Relay;
use crate::viewer::{Viewer, by_channel};
use crate::wait_until;

/// A session and a viewer of it, to whom nothing may happen.
#[derive(Debug)]
pub struct ProbeSession {
    producer: Producer,
    stream: StreamId,
    viewer: Viewer,
    sent: u64,
}

/// Bytes of each packet that it sends.
const PACKET: usize = 4096;

/// A relay with a probe.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn start_relay_with_probe() -> (Lab, Relay, ProbeSession) {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let probe = ProbeSession::of(&relay);
    (lab, relay, probe)
}

impl ProbeSession {
    /// One that has sent a packet and read it.
    ///
    /// # Panics
    /// If the relay does not let it.
    #[must_use]
    pub fn of(relay: &Relay) -> Self {
        Self::named(relay, "probe")
    }

    /// One more, whose session has this name.
    ///
    /// # Panics
    /// If the relay does not let it.
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

    /// Sends some packets and reads them.
    ///
    /// # Panics
    /// If anything is not as it should be.
    pub fn assert_served(&mut self) {
        for _ in 0..3 {
            self.producer.send_packet(self.stream, self.sent, PACKET);
            let mut index = None;
            wait_until("the probe's packet has come", || {
                let next = self.viewer.next_index(self.stream);
                index = (next.status == IndexStatus::Ready).then_some(next);
                index.is_some()
            });
            let offset = index.unwrap().offset.0;
            assert_eq!(offset, self.sent * PACKET as u64);
            let (_, bytes) = self.viewer.packet(self.stream, offset, PACKET as u32);
            let fill = u8::try_from(self.sent % 251).unwrap();
            assert!(bytes.len() == PACKET && bytes.iter().all(|&byte| byte == fill));
            self.sent += 1;
        }
    }
}
