//! Relay daemons as processes: `relayd` of this project, and `lttng-relayd` as the reference.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use crate::lab::Lab;
use crate::process::{CompletedProcess, Process};
use crate::{binaries, peers, wait_until};
use rustix::process::Signal;

/// Loopback addresses whose ports the system chooses.
const ANY_PORT: [SocketAddr; 3] = [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0); 3];

/// A running relay and its output directory.
#[derive(Debug)]
pub struct Relay {
    process: Process,
    /// The address of the control port, where producers send commands.
    pub control: SocketAddr,
    /// The address of the data port, where producers send packets.
    pub data: SocketAddr,
    /// The address of the live port, where viewers connect.
    pub live: SocketAddr,
    /// The output directory of the relay.
    pub output: PathBuf,
}

impl Relay {
    /// Starts `relayd` on ports that the system chooses.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        Self::start_with(lab, &[])
    }

    /// Starts `relayd` in a directory of its own, which is returned as well and must outlive the
    /// relay.
    #[must_use]
    pub fn start_in_new_lab() -> (Lab, Self) {
        let lab = Lab::new();
        let relay = Self::start(&lab);
        (lab, relay)
    }

    /// Starts `relayd` with more arguments. When it has exited, another can be
    /// [started](Self::start_at) at its addresses: no connection is given one of these ports
    /// meanwhile.
    #[must_use]
    pub fn start_with(lab: &Lab, arguments: &[&str]) -> Self {
        let mut command = lab.command(binaries::relayd());
        command.args(arguments);
        Self::start_command(lab, command, free_addresses())
    }

    /// Starts `relayd` on given control, data and live addresses, as those of a relay that has
    /// exited.
    #[must_use]
    pub fn start_at(lab: &Lab, addresses: [SocketAddr; 3]) -> Self {
        Self::start_command(lab, lab.command(binaries::relayd()), addresses)
    }

    /// Starts `relayd` with a limit on its file descriptors.
    #[must_use]
    pub fn start_with_fd_limit(lab: &Lab, descriptors: usize) -> Self {
        let mut command = lab.command(peers::program("prlimit"));
        command
            .arg(format!("--nofile={descriptors}:{descriptors}"))
            .arg(binaries::relayd());
        Self::start_command(lab, command, free_addresses())
    }

    /// Starts `relayd` with an environment variable.
    #[must_use]
    pub fn start_with_env(lab: &Lab, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut command = lab.command(binaries::relayd());
        command.env(name, value);
        Self::start_command(lab, command, free_addresses())
    }

    /// Starts `relayd` by a command, which may change its environment or wrap the program.
    #[must_use]
    pub fn start_from_command(lab: &Lab, command: Command) -> Self {
        Self::start_command(lab, command, free_addresses())
    }

    /// Starts a relay by a command as [`Self::start_from_command`] does, on given addresses.
    #[must_use]
    pub fn start_from_command_at(lab: &Lab, command: Command, addresses: [SocketAddr; 3]) -> Self {
        Self::start_command(lab, command, addresses)
    }

    /// Starts `relayd` on ports that the system chooses, with these schemes in the URLs of control,
    /// data and live port.
    #[must_use]
    pub fn start_with_schemes(lab: &Lab, schemes: [&str; 3], arguments: &[String]) -> Self {
        let mut command = lab.command(binaries::relayd());
        command.args(arguments);
        Self::start_with_urls(lab, command, ANY_PORT, schemes)
    }

    fn start_command(lab: &Lab, command: Command, addresses: [SocketAddr; 3]) -> Self {
        Self::start_with_urls(lab, command, addresses, ["tcp"; 3])
    }

    fn start_with_urls(
        lab: &Lab,
        mut command: Command,
        addresses: [SocketAddr; 3],
        schemes: [&str; 3],
    ) -> Self {
        let output = lab.directory("output");
        command.arg("-v").arg("-o").arg(&output);
        let ports = ["control", "data", "live"].iter().zip(addresses);
        for ((port, address), scheme) in ports.zip(schemes) {
            command.arg(format!("--{port}-port={scheme}://{address}"));
        }
        let mut process = Process::start(&mut command);
        let [control, data, live] =
            process.wait_for_stderr("the relay listens", parse_listening_addresses);
        Self {
            process,
            control,
            data,
            live,
            output,
        }
    }

    /// Returns the URL under which `consumer` reaches the relay.
    #[must_use]
    pub fn producer_url(&self) -> String {
        producer_url(self.control, self.data)
    }

    /// Starts `lttng-relayd`.
    ///
    /// # Panics
    /// If `lttng-relayd` is not installed or does not start.
    #[must_use]
    pub fn start_reference(lab: &Lab) -> Self {
        Self::start_reference_with(lab, &[])
    }

    /// Starts `lttng-relayd` with more arguments.
    ///
    /// # Panics
    /// If `lttng-relayd` is not installed or does not start.
    #[must_use]
    pub fn start_reference_with(lab: &Lab, arguments: &[&str]) -> Self {
        Self::start_reference_process(lab, free_addresses(), arguments)
    }

    /// Starts `lttng-relayd` on given control, data and live addresses.
    ///
    /// # Panics
    /// If `lttng-relayd` is not installed or does not start.
    #[must_use]
    pub fn start_reference_at(lab: &Lab, addresses: [SocketAddr; 3]) -> Self {
        Self::start_reference_process(lab, addresses, &[])
    }

    fn start_reference_process(lab: &Lab, addresses: [SocketAddr; 3], arguments: &[&str]) -> Self {
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

    /// Returns the control, data and live addresses, for a relay that is to replace this one.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [self.control, self.data, self.live]
    }

    /// Kills the relay by SIGKILL and waits until it has exited.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Stops the relay by SIGTERM and waits until it has exited.
    pub fn terminate(&mut self) {
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        self.process.signal(signal);
        wait_until("the relay is dead", || !self.process.is_running());
    }

    /// Returns the log lines so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// Whether a log line contains all `parts`.
    #[must_use]
    pub fn has_logged(&self, parts: &[&str]) -> bool {
        self.log()
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Waits for a log line that contains all `parts`. The log is read through a pipe, so that a
    /// line may arrive after later actions of the relay have taken effect.
    ///
    /// # Panics
    /// If no such line is logged within `TEST_TIMEOUT`.
    pub fn wait_for_log(&self, parts: &[&str]) {
        wait_until(&format!("{parts:?} is logged"), || self.has_logged(parts));
    }

    /// Returns the id of the relay's process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the process, to send it signals.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Stops the relay by SIGTERM and waits until it has exited.
    #[must_use]
    pub fn stop(self) -> CompletedProcess {
        self.process.signal(Signal::TERM);
        self.process.wait()
    }

    /// Returns the resident memory (`VmRSS`), in bytes.
    ///
    /// # Panics
    /// If the relay does not run.
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

    /// Checks that the resident memory is below a number of bytes.
    ///
    /// # Panics
    /// If it is not, or if the relay does not run.
    pub fn assert_memory_below(&self, limit: u64) {
        let memory = self.memory();
        assert!(memory < limit, "{memory} bytes, limit {limit}");
    }

    /// Returns the number of open file descriptors.
    ///
    /// # Panics
    /// If the relay does not run.
    #[must_use]
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id()))
            .unwrap()
            .count()
    }
}

/// Returns the URL of a relay for `consumer`.
#[must_use]
pub fn producer_url(control: SocketAddr, data: SocketAddr) -> String {
    format!("net://{}:{}:{}", control.ip(), control.port(), data.port())
}

/// Returns the control, data and live addresses in the log line of a relay that listens.
pub fn parse_listening_addresses(line: &str) -> Option<[SocketAddr; 3]> {
    let (_, fields) = line.split_once(" listening ")?;
    let field = |name: &str| {
        let value = fields
            .split_whitespace()
            .find_map(|field| field.strip_prefix(name))?;
        value.parse().ok()
    };
    Some([field("control=")?, field("data=")?, field("live=")?])
}

/// Returns three loopback addresses on which no process listens, and which no other test is given,
/// nor one of another process.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_addresses() -> [SocketAddr; 3] {
    static CLAIMED: Mutex<ClaimedPorts> = Mutex::new(ClaimedPorts {
        guards: Vec::new(),
        left: 0..0,
    });
    let mut claimed = CLAIMED.lock().unwrap();
    [(); 3].map(|()| claimed.next_free())
}

/// Returns the options of `relayd` for control, data and live address.
#[must_use]
pub fn port_options(addresses: [SocketAddr; 3]) -> [String; 3] {
    let [control, data, live] = addresses;
    [("control", control), ("data", data), ("live", live)]
        .map(|(port, address)| format!("--{port}-port=tcp://{address}"))
}

/// Ports below the ephemeral range of Linux. A free port of that range may be taken by an outgoing
/// connection a moment later.
const PORTS: Range<u16> = 12_000..32_000;
/// Number of ports that a process claims together.
const BLOCK: u16 = 100;

/// The ports that this process may give to its tests. A relay listens some time after its ports
/// were found free, and another test process could find the same ones meanwhile. So a process
/// claims blocks of ports, by listening on the first port of each until it ends.
struct ClaimedPorts {
    guards: Vec<TcpListener>,
    /// The ports of the last block that have not been given away.
    left: Range<u16>,
}

impl ClaimedPorts {
    fn next_free(&mut self) -> SocketAddr {
        loop {
            // A port may belong to a program that is no test.
            let free = self.left.find_map(|port| listen(port).ok());
            if let Some(listener) = free {
                return listener.local_addr().unwrap();
            }
            self.claim_block();
        }
    }

    fn claim_block(&mut self) {
        let blocks = PORTS.len() / usize::from(BLOCK);
        // Test processes that run at the same time begin with different blocks.
        let first = std::process::id() as usize % blocks;
        let block = (first..first + blocks).find_map(|block| {
            let start = PORTS.start + BLOCK * u16::try_from(block % blocks).ok()?;
            Some((listen(start).ok()?, start))
        });
        let (guard, start) = block.expect("there are free ports");
        self.guards.push(guard);
        self.left = start + 1..start + BLOCK;
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}
