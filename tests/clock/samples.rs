//! The samples that `consumer` writes, as babeltrace2 shows them.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_for};

/// The name of the traced host.
pub(crate) const HOST: &str = "robot-7";

/// One event `clock:sample`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) ahead: i64,
    pub(crate) error: u64,
    pub(crate) relay: String,
    pub(crate) boot: String,
    pub(crate) realtime: i64,
    pub(crate) relay_boot: String,
    pub(crate) relay_realtime: i64,
}

impl Sample {
    /// Reads a line of babeltrace2.
    fn parse(line: &str) -> Self {
        assert!(line.contains(&format!("{HOST} clock:sample: ")), "{line}");
        let (_, fields) = line.rsplit_once("{ ").unwrap();
        let field = |name: &str| {
            let (_, rest) = fields.split_once(&format!("{name} = ")).unwrap();
            let value = rest.split([',', ' ']).next().unwrap();
            value.trim_matches('"').to_owned()
        };
        Self {
            ahead: field("ahead").parse().unwrap(),
            error: field("error").parse().unwrap(),
            relay: field("relay"),
            boot: field("boot"),
            realtime: field(", realtime").parse().unwrap(),
            relay_boot: field("relay_boot"),
            relay_realtime: field("relay_realtime").parse().unwrap(),
        }
    }
}

/// Returns the samples below a directory, in order of time.
pub(crate) fn read(directory: &Path) -> Vec<Sample> {
    let lines = Babeltrace::Two.read(directory).stdout;
    lines.iter().map(|line| Sample::parse(line)).collect()
}

/// Waits until there are more samples than `before`, and returns all.
pub(crate) fn wait_for_more(directory: &Path, before: usize) -> Vec<Sample> {
    wait_for("there are more samples", || {
        let samples = read(directory);
        (samples.len() > before).then_some(samples)
    })
}

/// Returns the command of `consumer clock`, which samples ten times per second.
pub(crate) fn clock_command(lab: &Lab, url: &str) -> Command {
    let mut command = lab.command(binaries::consumer());
    command.args(["clock", "-v", "--hostname", HOST, "--clock-interval", "100"]);
    command.args(["-U", url]);
    command
}

/// Returns the same command for a host of another name.
pub(crate) fn clock_command_of(lab: &Lab, host: &str, url: &str) -> Command {
    let mut command = lab.command(binaries::consumer());
    command.args(["clock", "--hostname", host, "--clock-interval", "100"]);
    command.args(["-U", url]);
    command
}

/// Starts `consumer clock` for a relay.
pub(crate) fn start(lab: &Lab, relay: &Relay) -> Process {
    Process::start(&mut clock_command(lab, &relay.producer_url()))
}

/// Stops a program by SIGTERM; the relay has everything.
pub(crate) fn stop(program: Process) {
    program.signal(Signal::TERM);
    let ended = program.wait();
    assert!(ended.status.success(), "{:#?}", ended.stderr);
}
