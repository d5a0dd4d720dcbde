//! Hosts, each a network namespace, whose cables end in one switch: a bridge of the test's own
//! namespace. A cable that is pulled takes nothing from its host but the carrier.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::lab::Lab;
use tests::peers;

/// The last number of the switch's address.
const SWITCH: u8 = 254;

/// The namespaces and the switch, which are removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Cables {
    switch: String,
    hosts: usize,
}

impl Cables {
    /// Creates the hosts and plugs their cables in. Only root may: otherwise prints that and
    /// returns `None`.
    pub(super) fn create(hosts: usize) -> Option<Self> {
        let cables = Self {
            switch: format!("sw{}", std::process::id()),
            hosts,
        };
        let words = format!("link add {} type bridge", cables.switch);
        if !rustix::process::geteuid().is_root() || !try_ip(&words) {
            eprintln!("cannot create network namespaces: test skipped");
            return None;
        }
        let switch = &cables.switch;
        ip(&format!(
            "address add {}/24 dev {switch}",
            cables.switch_address()
        ));
        ip(&format!("link set {switch} up"));
        for host in 0..hosts {
            let (name, port) = (cables.name(host), cables.port(host));
            ip(&format!("netns add {name}"));
            ip(&format!(
                "link add {port} type veth peer name cable netns {name}"
            ));
            ip(&format!("link set {port} master {switch} up"));
            let address = cables.address(host);
            ip(&format!("-n {name} address add {address}/24 dev cable"));
            ip(&format!("-n {name} link set cable up"));
            ip(&format!("-n {name} link set lo up"));
        }
        Some(cables)
    }

    /// The address of this test, and so of its producers and its store.
    pub(super) fn switch_address(&self) -> Ipv4Addr {
        self.in_network(SWITCH)
    }

    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        self.in_network(u8::try_from(host).unwrap() + 1)
    }

    /// A command for a program of this project that runs on a host.
    pub(super) fn command(&self, lab: &Lab, host: usize, program: &Path) -> Command {
        let mut command = lab.command(peers::program("nsenter"));
        command
            .arg(format!("--net=/run/netns/{}", self.name(host)))
            .arg("--")
            .arg(program);
        command
    }

    pub(super) fn pull(&self, host: usize) {
        ip(&format!("link set {} down", self.port(host)));
    }

    pub(super) fn plug(&self, host: usize) {
        ip(&format!("link set {} up", self.port(host)));
    }

    /// Tests that run at the same time have networks of their own.
    fn in_network(&self, host: u8) -> Ipv4Addr {
        let [.., network] = std::process::id().to_be_bytes();
        Ipv4Addr::new(10, 214, network, host)
    }

    fn name(&self, host: usize) -> String {
        format!("tests-{}-{host}", self.switch)
    }

    fn port(&self, host: usize) -> String {
        format!("{}.{host}", self.switch)
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        // With a namespace its cable goes, both ends.
        for host in 0..self.hosts {
            try_ip(&format!("netns delete {}", self.name(host)));
        }
        try_ip(&format!("link delete {}", self.switch));
    }
}

fn ip(words: &str) {
    assert!(try_ip(words), "ip {words}");
}

fn try_ip(words: &str) -> bool {
    Command::new(peers::program("ip"))
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
