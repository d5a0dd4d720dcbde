//! The contract of `lttng-relayd` with the programs of LTTng and with users' scripts, besides its
//! protocols: command line, exit status, files, signals and health. Most tests run the same
//! commands on the reference as well.

mod arriving_packet;
mod attached_in_rotation;
mod background;
mod command_line;
mod configuration;
mod disallow_clear;
mod environment;
mod fd_pool;
mod grouping;
mod health_socket;
mod periodic_work;
mod readiness;
mod tracefile_locks;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use tests::lab::Lab;
use tests::{binaries, peers};

/// Returns a symbolic link `lttng-relayd` to `relayd`, the name that scripts call.
fn link_as_lttng_relayd(lab: &Lab) -> PathBuf {
    let path = lab.path().join("lttng-relayd");
    if !path.exists() {
        symlink(binaries::relayd(), &path).unwrap();
    }
    path
}

/// Commands for `relayd`, for `relayd` by the name `lttng-relayd`, and for the reference.
fn all_relays(lab: &Lab) -> [Command; 3] {
    [
        lab.command(binaries::relayd()),
        lab.command(link_as_lttng_relayd(lab)),
        lab.traced_command(peers::program("lttng-relayd")),
    ]
}

/// Whether all addresses accept connections.
fn all_accept(addresses: [SocketAddr; 3]) -> bool {
    addresses
        .iter()
        .all(|address| TcpStream::connect(address).is_ok())
}
