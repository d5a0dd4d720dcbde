//! Sessions with as many streams as a large host has. The cost of a command must not grow with
//! their number, since one worker serves many sessions.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::stream::{BeginDataPending, EndDataPending};
use tests::TEST_TIMEOUT;
use tests::producer::{Producer, stream};

use super::{OK, session, start_relay_with_probe};

#[test]
fn sixteen_thousand_streams_of_a_session_are_polled_and_closed_within_the_test_timeout() {
    const TRACES: usize = 250;
    const DATA: usize = 16_000;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("many streams"));
    let path = "ust/uid/0/64-bit";
    // A closed metadata stream stays as long as a data stream of its trace is open: those are added
    // last.
    let traces: Vec<_> = (0..TRACES)
        .map(|number| producer.add_stream(stream("metadata", &format!("ust/pid/{number}"))))
        .collect();
    let data: Vec<_> = (0..DATA)
        .map(|number| {
            // One stream for each STREAMS_SENT, as for processes that start one after the other.
            let added = producer.add_stream(stream(&format!("chan_{number}"), path));
            assert_eq!(producer.request(Command::StreamsSent), OK);
            added
        })
        .collect();
    for number in 0..TRACES {
        producer.add_stream(stream("chan_0", &format!("ust/pid/{number}")));
    }
    // All files have been created: only the relay's own work is timed.
    let began = Instant::now();
    for _ in 0..1000 {
        let session = producer.session;
        producer.request(Command::BeginDataPending(BeginDataPending { session }));
        producer.request(Command::EndDataPending(EndDataPending { session }));
    }
    for id in traces.into_iter().chain(data) {
        assert_eq!(producer.close_stream(id, None), OK);
        assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", began.elapsed());
    }
    probe.assert_served();
}
