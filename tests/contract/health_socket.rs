//! The health socket, which `lttng-relayd` offers to monitoring programs: a request of 4 bytes, a
//! reply of 8.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tests::lab::Lab;
use tests::relay::Relay;
use tests::wait_until;

/// Sends a request and returns the reply; empty if the relay closes the connection without one.
fn request_health(path: &Path, request: &[u8]) -> Vec<u8> {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(request).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    let _ = socket.read_to_end(&mut reply);
    reply
}

#[test]
fn health_socket_reports_healthy_as_that_of_the_reference() {
    for start in [Relay::start, Relay::start_reference] {
        let lab = Lab::new();
        let relay = start(&lab);
        let name = format!(".lttng/relayd/health-{}", relay.id());
        let path = lab.path().join(name);
        wait_until("the health socket exists", || path.exists());
        assert_eq!(request_health(&path, &[0; 4]), [0; 8]);
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
    for malformed in [&[0, 0][..], &[1, 0, 0, 0], &[0xff; 64]] {
        assert!(request_health(&path, malformed).is_empty());
    }
    assert_eq!(request_health(&path, &[0; 4]), [0; 8]);
}

#[test]
fn health_socket_path_is_set_by_the_environment_and_its_mode_is_0660() {
    let lab = Lab::new();
    let path = lab.path().join("health");
    let relay = Relay::start_with_env(&lab, "LTTNG_RELAYD_HEALTH", &path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(request_health(&path, &[0; 4]), [0; 8]);
    assert!(relay.stop().status.success());
    assert!(!path.exists());
}

#[test]
fn health_socket_of_a_root_relay_belongs_to_the_configured_group() {
    /// The group `nogroup`, which every Debian system has.
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
