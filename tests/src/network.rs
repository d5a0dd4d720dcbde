//! Two hosts, each a network namespace, and the cable between them, which tests can cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lab::Lab;
use crate::peers;

/// The address of [`Host::Collector`].
const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

/// The address of [`Host::Traced`].
const TRACED: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

/// The name of the interface at either end of the cable.
const INTERFACE: &str = "cable";

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The host of the relay.
    Collector,
    /// The host of the producer.
    Traced,
}

/// The namespaces, which are removed when the value is dropped.
#[derive(Debug)]
pub struct Network {
    namespaces: [String; 2],
}

impl Network {
    /// Creates the namespaces and the cable. Only root may: otherwise prints that and returns
    /// `None`.
    ///
    /// # Panics
    /// If the namespaces can be created, but not the cable.
    #[must_use]
    pub fn create() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |host: Host| format!("tests-{}-{number}-{host:?}", std::process::id());
        let network = Self {
            namespaces: [name(Host::Collector), name(Host::Traced)],
        };
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !network.namespaces.iter().all(|name| add_namespace(name)) {
            eprintln!("cannot create network namespaces: test skipped");
            return None;
        }
        network.connect();
        Some(network)
    }

    fn connect(&self) {
        let [collector, traced] = &self.namespaces;
        ip(&format!(
            "-n {collector} link add {INTERFACE} type veth peer name {INTERFACE} netns {traced}"
        ));
        for (name, address) in self.namespaces.iter().zip([COLLECTOR, TRACED]) {
            ip(&format!(
                "-n {name} address add {address}/24 dev {INTERFACE}"
            ));
            ip(&format!("-n {name} link set {INTERFACE} up"));
            ip(&format!("-n {name} link set lo up"));
        }
    }

    /// Returns a command for a program of this project that runs on a host.
    #[must_use]
    pub fn command(&self, lab: &Lab, host: Host, program: &Path) -> Command {
        let mut command = lab.command(peers::program("nsenter"));
        let name = &self.namespaces[host as usize];
        command
            .arg(format!("--net=/run/netns/{name}"))
            .arg("--")
            .arg(program);
        command
    }

    /// Returns an address of the collector.
    #[must_use]
    pub fn collector(port: u16) -> SocketAddr {
        (COLLECTOR, port).into()
    }

    /// Cuts the cable: what either host sends is lost from now on, without an error for the sender.
    pub fn cut(&self) {
        self.tc(&format!("qdisc replace dev {INTERFACE} root blackhole"));
    }

    /// Connects the cable again.
    pub fn reconnect(&self) {
        self.tc(&format!("qdisc delete dev {INTERFACE} root"));
    }

    fn tc(&self, words: &str) {
        for name in &self.namespaces {
            run("tc", &format!("-n {name} {words}"));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = Command::new(peers::program("ip"))
                .args(["netns", "delete", name])
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn add_namespace(name: &str) -> bool {
    Command::new(peers::program("ip"))
        .args(["netns", "add", name])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn ip(words: &str) {
    run("ip", words);
}

fn run(program: &str, words: &str) {
    let status = Command::new(peers::program(program))
        .args(words.split(' '))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{program} {words}"
    );
}
