//! System calls that a signal interrupts, as network file systems and FUSE allow.

use relay_proto::stream::AddStream;
use tests::lab::Lab;
use tests::producer::{Producer, index, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::{binaries, peers};
use wire::Bytes;

use std::io::Write;

const PACKETS: u64 = 30;

#[test]
fn interrupted_file_calls_abort_no_session() {
    let lab = Lab::new();
    let mut command = lab.command(peers::program("strace"));
    // Every third of these calls of each thread fails with EINTR.
    command
        .args(["-D", "-f", "-qq", "-o", "/dev/null"])
        .args(["-e", "trace=pwrite64,pwritev,ftruncate,flock"])
        .args([
            "-e",
            "inject=pwrite64,pwritev,ftruncate,flock:error=EINTR:when=1+3",
        ])
        .arg(binaries::relayd());
    let relay = Relay::start_from_command(&lab, command);
    let mut producer = Producer::open(&relay, live_session("interrupted"));
    let path = "ust/uid/0/64-bit";
    // Three packets in each tracefile, with padding: files are created and closed, and payload and
    // padding are written by one call.
    let written = producer.add_stream(AddStream {
        tracefile_size: Bytes(3000),
        ..stream("chan_0", path)
    });
    let metadata = producer.add_stream(stream("metadata", path));
    producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 4082);
    for number in 0..PACKETS {
        let bytes = [u8::try_from(number).unwrap(); 900];
        let sent = packet_of(written, number, &bytes, 100);
        producer.data.write_all(&sent).unwrap();
        producer.send_index(written, number, index(number, 1000));
        producer.wait_while_pending(written, number);
    }
    let output = relay.output.clone();
    let ended = relay.stop();
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    let data: usize = files(&output, "")
        .iter()
        .filter(|(path, _)| path.contains("/chan_0_") && !path.ends_with(".idx"))
        .map(|(_, data)| data.len())
        .sum();
    assert_eq!(data, 1000 * usize::try_from(PACKETS).unwrap());
    let entries: usize = files(&output, ".idx")
        .values()
        .map(|index| (index.len() - INDEX_HEADER) / INDEX_ENTRY)
        .sum();
    assert_eq!(entries as u64, PACKETS);
}
