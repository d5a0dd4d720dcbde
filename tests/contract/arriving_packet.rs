//! Viewers that request the index of a packet of which only a part has arrived: the reply waits a
//! moment for the rest, but not for a producer that does not send it.

use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::producer::{OK, Producer, index, live_session};
use tests::relay::Relay;
use tests::tree::files;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::StreamId;

/// Size of a packet in bytes.
const SIZE: usize = 100;
/// The shortest time for which a reply waits for a packet that does not come.
const WAIT: Duration = Duration::from_millis(1);

/// A producer of one stream.
struct Sending {
    lab: Lab,
    producer: Producer,
    stream: StreamId,
    /// Number of packets that were sent.
    packets: u64,
}

impl Sending {
    /// Sends one part of the next packet, and the other after `between`.
    fn send(&mut self, is_data_first: bool, between: impl FnOnce()) {
        let index = index(self.packets, SIZE as u64);
        if is_data_first {
            self.producer.send_data(self.stream, self.packets, SIZE);
            let written = (self.packets as usize + 1) * SIZE;
            wait_until("the packet has arrived", || {
                let files = files(&self.lab.path().join("output"), "chan_0");
                files.values().any(|file| file.len() == written)
            });
        } else {
            let reply = self.producer.send_index(self.stream, self.packets, index);
            assert_eq!(reply, OK);
        }
        between();
        if is_data_first {
            let reply = self.producer.send_index(self.stream, self.packets, index);
            assert_eq!(reply, OK);
        } else {
            self.producer.send_data(self.stream, self.packets, SIZE);
        }
        self.packets += 1;
    }
}

#[test]
fn reply_waits_once_for_the_rest_of_a_packet_and_says_retry_without_it() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (producer, stream) = Producer::open_with_trace(&relay, live_session("arriving"));
    let mut sending = Sending {
        lab,
        producer,
        stream,
        packets: 0,
    };
    for is_data_first in [true, false] {
        // A new viewer, because one that has waited for a late packet is answered at once for some
        // time.
        let (mut viewer, _, streams) = Viewer::attached(relay.live, "arriving", Seek::Last);
        let viewed = by_channel(&streams)["chan_0"];
        assert_eq!(viewer.next_index(viewed).status, IndexStatus::Retry);
        sending.send(is_data_first, || {
            let begun = Instant::now();
            assert_eq!(viewer.next_index(viewed).status, IndexStatus::Retry);
            assert!(begun.elapsed() >= WAIT, "data first: {is_data_first}");
            for _ in 0..3 {
                assert_eq!(viewer.next_index(viewed).status, IndexStatus::Retry);
            }
        });
        assert_eq!(viewer.wait_for_index(viewed).status, IndexStatus::Ready);
    }
    let last = Some(sending.packets - 1);
    sending.producer.close_session(stream, last);
}
