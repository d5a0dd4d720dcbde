//! The health socket.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tests::lab::Lab;
use tests::relay::Relay;
use tests::{binaries, wait_until};

fn ask(path: &Path, question: &[u8]) -> Vec<u8> {
    let mut asking = UnixStream::connect(path).unwrap();
    asking.write_all(question).unwrap();
    asking.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = asking.read_to_end(&mut answer);
    answer
}

#[test]
fn both_answer_that_all_is_well() {
    for start in [Relay::start, Relay::start_reference] {
        let lab = Lab::new();
        let relay = start(&lab);
        let name = format!(".lttng/relayd/health-{}", relay.id());
        let path = lab.path().join(name);
        wait_until("it can be asked", || path.exists());
        assert_eq!(ask(&path, &[0; 4]), [0; 8]);
        assert!(relay.stop().status.success());
        assert!(!path.exists());
    }
}

#[test]
fn nonsense_is_not_answered_and_does_no_harm() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let path = lab
        .path()
        .join(format!(".lttng/relayd/health-{}", relay.id()));
    for nonsense in [&[0, 0][..], &[1, 0, 0, 0], &[0xff; 64]] {
        assert!(ask(&path, nonsense).is_empty());
    }
    assert_eq!(ask(&path, &[0; 4]), [0; 8]);
}

#[test]
fn it_is_where_the_environment_says_and_for_owner_and_group() {
    let lab = Lab::new();
    let path = lab.path().join("how-are-you");
    let mut command = lab.command(binaries::relayd());
    command.env("LTTNG_RELAYD_HEALTH", &path);
    let relay = Relay::start_as(&lab, command);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(ask(&path, &[0; 4]), [0; 8]);
    assert!(relay.stop().status.success());
    assert!(!path.exists());
}

#[test]
fn the_members_of_the_group_that_is_named_may_ask_a_relay_of_root() {
    /// Every Debian has it.
    const NOGROUP: u32 = 65_534;
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--group=nogroup"]);
    let path = lab
        .path()
        .join(format!(".lttng/relayd/health-{}", relay.id()));
    let group = std::fs::metadata(path).unwrap().gid();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(group == NOGROUP, is_root);
}
