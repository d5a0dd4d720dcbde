//! An index that arrives together with the last bytes of its packet: it is answered before these
//! are written, so that the producer makes the next packet meanwhile.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use rustix::process::Signal;
use tests::producer::{OK, Producer, data_header, index, live_session, send_index};
use tests::relay::Relay;
use tests::socket_queues::unacknowledged;
use tests::tree::files;
use tests::{TEST_TIMEOUT, wait_for, wait_until};

/// Size of a packet in bytes.
const SIZE: usize = 64 << 10;
/// Bytes of a packet that arrive before its index. The rest fits into the socket of a relay that
/// does not read.
const BEFORE: usize = 16 << 10;
/// Packets whose index has to be answered first. A single one may be, because the relay stops at
/// any point.
const ANSWERED_FIRST: u64 = 10;
/// Maximum number of packets. Whether the test looks before the relay has written the rest depends
/// on the scheduler.
const MAX_PACKETS: u64 = 200;

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    })
}

/// Polls until there is something to read: to be woken up takes as long as the relay takes to write
/// the rest of a packet.
fn wait_for_reply(control: &TcpStream) {
    control.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    while control.peek(&mut [0]).is_err() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "no reply");
    }
    control.set_nonblocking(false).unwrap();
}

#[test]
fn an_index_is_answered_before_the_rest_of_its_packet_is_written() {
    let (lab, mut relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("reply-first"));
    let output = lab.path().join("output");
    let file = wait_for("the tracefile exists", || {
        files(&output, "chan_0").into_keys().next()
    });
    let written = || fs::metadata(output.join(&file)).unwrap().len();
    let payload = vec![1; SIZE];
    let (before, rest) = payload.split_at(BEFORE);
    let (mut packets, mut answered_first) = (0, 0);
    while answered_first < ANSWERED_FIRST && packets < MAX_PACKETS {
        let header = data_header(stream, packets, SIZE as u32, 0);
        producer
            .data
            .write_all(&[&header, before].concat())
            .unwrap();
        let begin = packets * SIZE as u64;
        wait_until("the first bytes have been written", || {
            written() == begin + BEFORE as u64
        });
        relay.process().signal(Signal::STOP);
        let pid = relay.process().id();
        wait_until("the relay is stopped", || is_stopped(pid));
        producer.data.write_all(rest).unwrap();
        wait_until("the rest has arrived", || {
            unacknowledged(&producer.data) == 0
        });
        let mut command = Vec::new();
        let send = send_index(stream, packets, index(packets, SIZE as u64));
        producer.encode_command(&send, &mut command);
        producer.control().write_all(&command).unwrap();
        relay.process().signal(Signal::CONT);
        wait_for_reply(producer.control());
        answered_first += u64::from(written() < begin + SIZE as u64);
        assert_eq!(producer.receive_reply(), OK);
        packets += 1;
    }
    assert!(
        answered_first >= ANSWERED_FIRST,
        "only {answered_first} of {packets}"
    );
    producer.close_session(stream, packets.checked_sub(1));
}
