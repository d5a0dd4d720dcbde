//! What the programs of LTTng and users' scripts rely on from a relay daemon, besides its protocols: a
//! site that calls our program `lttng-relayd` does not notice. Where the reference is installed it is
//! asked the same.

mod background;
mod command_line;
mod configuration;
mod disallow_clear;
mod environment;
mod fd_pool;
mod grouping;
mod health_socket;
mod readiness;
mod tracefile_locks;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use tests::lab::Lab;
use tests::{binaries, peers};

/// Our program by the name that scripts know.
fn as_lttng_relayd(lab: &Lab) -> PathBuf {
    let path = lab.path().join("lttng-relayd");
    if !path.exists() {
        symlink(binaries::relayd(), &path).unwrap();
    }
    path
}

/// Our program by both names, and the reference.
fn all(lab: &Lab) -> [Command; 3] {
    [
        lab.command(binaries::relayd()),
        lab.command(as_lttng_relayd(lab)),
        lab.traced_command(peers::program("lttng-relayd")),
    ]
}

/// Arguments by which a relay listens at these addresses.
fn at(addresses: [SocketAddr; 3]) -> Vec<String> {
    let ports = ["control", "data", "live"].iter().zip(addresses);
    ports
        .map(|(port, address)| format!("--{port}-port=tcp://{address}"))
        .collect()
}

fn all_accept(addresses: [SocketAddr; 3]) -> bool {
    addresses
        .iter()
        .all(|address| TcpStream::connect(address).is_ok())
}
