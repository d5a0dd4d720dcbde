//! Archives that are read while a relay writes them.

use std::io::Write;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::replay::HOST;

use crate::agent::{self, TRACE, assert_all, event, numbers, start_consumer};
use crate::system::{ArchiveDirectory, read, start_relay};

/// Events that are sent at once.
const STEP: u64 = 300;

#[test]
fn a_session_is_read_while_its_commit_objects_become_parts() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let options = [
        "--durability=archive",
        "--archive-interval=10ms",
        "--archive-part-age=100ms",
    ];
    let relay = start_relay(&lab, &archive, &options);
    let mut consumer = start_consumer(&lab, relay.addresses());
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let mut client = UnixStream::connect(agent::socket(&lab)).unwrap();
    writeln!(client, "OPEN {TRACE}").unwrap();
    let target = archive.session_url(HOST, TRACE);
    let mut shown = 0;
    for round in 0..20 {
        let lines: String = (round * STEP..(round + 1) * STEP).map(event).collect();
        client.write_all(lines.as_bytes()).unwrap();
        let ended = read(&lab, &["--session-not-found=end"], &target);
        assert!(ended.status.success(), "{:?}", ended.stderr);
        let count = numbers(&ended.stdout).len() as u64;
        assert_all(&ended.stdout, count);
        assert!(shown <= count, "{shown} {count}");
        shown = count;
    }
    assert!(shown > 0);
    drop(client);
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    relay.stop().expect_success();
    assert_all(&read(&lab, &[], &target).expect_success(), 20 * STEP);
    assert!(archive.parts() > 1);
}
