//! A full disk with `--on-disk-full=close`: the producer of a resumable session loses its
//! connections, not its session.

use tests::babeltrace::{Babeltrace, numbers};
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::producer::live_session;
use tests::relay::Relay;
use tests::resumable::{ResumableProducer, printable};

use super::session_directory;

#[test]
fn session_continues_in_the_same_files_when_the_disk_has_space_again() {
    let lab = Lab::new();
    let Some(disk) = SmallDisk::mount(&lab.directory("output"), 2048) else {
        return;
    };
    let relay = Relay::start_with(&lab, &["--on-disk-full=close"]);
    let addresses = relay.addresses();
    let mut producer = ResumableProducer::new(printable(live_session("full"), 3, 40, (0, 0)));
    disk.fill(100);
    for _ in 0..5 {
        assert!(producer.try_send(addresses, usize::MAX).is_err());
    }
    assert_eq!(producer.resumed, 4, "the relay has kept the session");
    disk.free_space();
    producer.send(addresses);
    assert_eq!(producer.resumed, 5);
    let printed = Babeltrace::Two.read(&session_directory(&relay.output, "full"));
    assert!(printed.stderr.is_empty(), "{:#?}", printed.stderr);
    let printed = printed.expect_success();
    assert_eq!(numbers(&printed), (0..120).collect::<Vec<_>>());
}
