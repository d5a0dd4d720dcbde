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
fn health_socket_reports_healthy_as_that_of_the_reference() {
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
fn health_socket_ignores_malformed_requests() {
    let (lab, relay) = Relay::start_in_new_lab();
    let path = lab
        .path()
        .join(format!(".lttng/relayd/health-{}", relay.id()));
    for nonsense in [&[0, 0][..], &[1, 0, 0, 0], &[0xff; 64]] {
        assert!(ask(&path, nonsense).is_empty());
    }
    assert_eq!(ask(&path, &[0; 4]), [0; 8]);
}

#[test]
fn health_socket_path_is_set_by_the_environment_and_its_mode_is_0660() {
    let lab = Lab::new();
    let path = lab.path().join("how-are-you");
    let mut command = lab.command(binaries::relayd());
    command.env("LTTNG_RELAYD_HEALTH", &path);
    let relay = Relay::start_from_command(&lab, command);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(ask(&path, &[0; 4]), [0; 8]);
    assert!(relay.stop().status.success());
    assert!(!path.exists());
}

#[test]
fn health_socket_of_a_root_relay_belongs_to_the_configured_group() {
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
