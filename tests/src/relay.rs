//! Relays: ours as it is installed, and the one of LTTng beside it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lab::Lab;
use crate::process::{CompletedProcess, Process};
use crate::{binaries, peers, wait_until};
use rustix::process::Signal;

/// On this host, wherever it is free.
const ANY_PORT: [SocketAddr; 3] = [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0); 3];

/// A running relay and what it writes.
#[derive(Debug)]
pub struct Relay {
    process: Process,
    /// Where producers connect for commands.
    pub control: SocketAddr,
    /// Where producers connect for packets.
    pub data: SocketAddr,
    /// Where viewers connect.
    pub live: SocketAddr,
    /// Where it writes.
    pub output: PathBuf,
}

impl Relay {
    /// Ours.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        Self::start_with(lab, &[])
    }

    /// Ours, with more arguments.
    #[must_use]
    pub fn start_with(lab: &Lab, arguments: &[&str]) -> Self {
        let mut command = lab.command(binaries::relayd());
        command.args(arguments);
        Self::start_command(lab, command, ANY_PORT)
    }

    /// Ours, where another one was.
    #[must_use]
    pub fn start_at(lab: &Lab, addresses: [SocketAddr; 3]) -> Self {
        Self::start_command(lab, lab.command(binaries::relayd()), addresses)
    }

    /// Ours, with so many file descriptors.
    #[must_use]
    pub fn start_with_fd_limit(lab: &Lab, descriptors: usize) -> Self {
        let mut command = lab.command(peers::program("prlimit"));
        command
            .arg(format!("--nofile={descriptors}:{descriptors}"))
            .arg(binaries::relayd());
        Self::start_command(lab, command, ANY_PORT)
    }

    /// Ours, started by this command.
    #[must_use]
    pub fn start_from_command(lab: &Lab, command: Command) -> Self {
        Self::start_command(lab, command, ANY_PORT)
    }

    fn start_command(lab: &Lab, mut command: Command, addresses: [SocketAddr; 3]) -> Self {
        let output = lab.directory("output");
        command.arg("-v").arg("-o").arg(&output);
        for (port, address) in ["control", "data", "live"].iter().zip(addresses) {
            command.arg(format!("--{port}-port=tcp://{address}"));
        }
        let mut process = Process::start(&mut command);
        let [control, data, live] = process.wait_for_stderr("the relay listens", listening);
        Self {
            process,
            control,
            data,
            live,
            output,
        }
    }

    /// The reference.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_reference(lab: &Lab) -> Self {
        Self::start_reference_with(lab, &[])
    }

    /// The reference, with more arguments.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_reference_with(lab: &Lab, arguments: &[&str]) -> Self {
        Self::reference(lab, free_addresses(), arguments)
    }

    /// The reference, where another one was.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_reference_at(lab: &Lab, addresses: [SocketAddr; 3]) -> Self {
        Self::reference(lab, addresses, &[])
    }

    fn reference(lab: &Lab, addresses: [SocketAddr; 3], arguments: &[&str]) -> Self {
        let output = lab.directory("reference");
        let [control, data, live] = addresses;
        let url = |address: SocketAddr| format!("tcp://{address}");
        let process = Process::start(
            lab.traced_command(peers::program("lttng-relayd"))
                .arg("-o")
                .arg(&output)
                .args(["-C", &url(control), "-D", &url(data), "-L", &url(live)])
                .args(arguments),
        );
        wait_until("the reference listens", || {
            [control, data, live]
                .iter()
                .all(|address| TcpStream::connect(address).is_ok())
        });
        Self {
            process,
            control,
            data,
            live,
            output,
        }
    }

    /// Where it listens, for another one to take its place.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [self.control, self.data, self.live]
    }

    /// Kills it, as `kill -9` does, and waits until it is dead.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        wait_until("the relay is dead", || !self.process.is_running());
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// Whether a line of its log has all of these in it.
    #[must_use]
    pub fn has_logged(&self, parts: &[&str]) -> bool {
        self.log()
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Waits for such a line: what is logged comes by a pipe, and may be read later than what was done
    /// after it is seen.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn wait_for_log(&self, parts: &[&str]) {
        wait_until(&format!("{parts:?} is logged"), || self.has_logged(parts));
    }

    /// Its number as a process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Tells it to stop and waits until it has.
    #[must_use]
    pub fn stop(self) -> CompletedProcess {
        self.process.signal(Signal::TERM);
        self.process.wait()
    }

    /// Its memory, in bytes.
    ///
    /// # Panics
    /// If the system does not tell.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Its open files.
    ///
    /// # Panics
    /// If the system does not tell.
    #[must_use]
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id()))
            .unwrap()
            .count()
    }
}

/// The addresses in the log line that says where the relay listens.
fn listening(line: &str) -> Option<[SocketAddr; 3]> {
    let (_, fields) = line.split_once(" listening ")?;
    let field = |name: &str| {
        let value = fields
            .split_whitespace()
            .find_map(|field| field.strip_prefix(name))?;
        value.parse().ok()
    };
    Some([field("control=")?, field("data=")?, field("live=")?])
}

/// Ports that the system gives to nobody who does not ask for them: of those that it does give, one
/// that is free now may be some connection's a moment later.
const PORTS: Range<u32> = 12_000..32_000;

/// Where nobody listens, and nobody else in this process is told to.
///
/// # Panics
/// If there are no ports left.
#[must_use]
pub fn free_addresses() -> [SocketAddr; 3] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Tests that run beside these begin elsewhere.
    let first = std::process::id().wrapping_mul(1009);
    let ports = PORTS.len() as u32;
    [(); 3].map(|()| {
        let free = (0..ports).find_map(|_| {
            let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = u16::try_from(PORTS.start + number % ports).ok()?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
            listener.local_addr().ok()
        });
        free.expect("there are free ports")
    })
}
