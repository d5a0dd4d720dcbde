//! An agent with a spool, and the numbered events that it is sent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::replay::HOST;

/// The trace, and so the session, of the events.
pub(crate) const TRACE: &str = "load";

/// The socket on which the agent accepts events.
pub(crate) fn socket(lab: &Lab) -> PathBuf {
    lab.path().join("tldrs.socket")
}

/// The socket for `consumer status`.
pub(crate) fn status_socket(lab: &Lab) -> PathBuf {
    lab.path().join("consumer.socket")
}

/// Starts an agent that keeps events in a spool until the relay has acknowledged them.
pub(crate) fn start_consumer(lab: &Lab, addresses: [SocketAddr; 3]) -> Process {
    start_consumer_of(lab, &[addresses])
}

/// Starts such an agent, which may use any of several relays.
pub(crate) fn start_consumer_of(lab: &Lab, relays: &[[SocketAddr; 3]]) -> Process {
    let relays = relays
        .iter()
        .map(|[control, data, _]| format!("{}:{}:{}", control.ip(), control.port(), data.port()));
    let relays: Vec<_> = relays.collect();
    Process::start(&mut command(
        lab,
        &format!("net://{}", relays.join(",")),
        HOST,
    ))
}

/// The command of such an agent, on a host of this name.
pub(crate) fn command(lab: &Lab, relays: &str, host: &str) -> Command {
    let mut command = lab.command(binaries::consumer());
    command.args(["serve", "-v", "--live=20000", "--hostname", host]);
    command.arg("--clock-interval=0");
    command.arg(format!("--set-url={relays}"));
    let path = |name: &str| lab.path().join(name).display().to_string();
    command.arg(format!("--tldrs={}", socket(lab).display()));
    command.arg(format!("--tldrs-dir={}", path("tldrs")));
    command.arg(format!("--spool={}", path("spool")));
    command.arg(format!("--socket={}", status_socket(lab).display()));
    command
}

/// The line of an event for the agent.
pub(crate) fn event(number: u64) -> String {
    format!(r#"{{"ph":"i","name":"ev","ts":{number},"pid":1,"tid":1,"args":{{"n":{number}}}}}"#)
        + "\n"
}

/// The number of an event that `test-live` has printed. None: it is one that the agent has added.
fn number(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(r#"{\"n\":"#)?;
    rest.split('}').next()?.parse().ok()
}

/// The numbers of the events that `test-live` has printed.
pub(crate) fn numbers(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|line| number(line)).collect()
}

/// Expects every event whose number is below `end` once and in order.
pub(crate) fn assert_all(lines: &[String], end: u64) {
    let shown = numbers(lines);
    let wrong = (0..end)
        .zip(&shown)
        .position(|(want, shown)| want != *shown);
    let near = |at: usize| &shown[at.saturating_sub(3)..shown.len().min(at + 3)];
    assert!(wrong.is_none(), "{wrong:?}: {:?}", wrong.map(near));
    assert_eq!(shown.len() as u64, end, "the last is {:?}", shown.last());
}
