//! `consumer doctor`: checks whether an agent with these settings would work on this host: whether
//! the relay can be reached, and what the frontends need. It opens no session and changes nothing.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use daemon::checkup::Report;
use daemon::checkup::host::{check_clock, check_directory, check_open_files};
use daemon::error_text::describe_error;

use crate::config::Config;
use crate::frontend::Frontend;
use crate::packetize::HostClock;
use crate::uplink::target::{Link, RelayEndpoint, RelayTarget};
use crate::uplink::{EndpointAddress, RelaySelector, SelectedRelay, UplinkError, greet, resolve};

/// Time for a connection to a port of the relay.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Difference of two clocks that is not normal: synchronised ones differ by some milliseconds.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_millis(100);

/// The unit of the service.
const UNIT: &str = "consumer";

/// Checks the host and the relay for an agent with this configuration. Blocks the thread while it
/// connects.
pub async fn check(config: &Config) -> Report {
    let mut report = Report::default();
    match config.relay.target() {
        Ok(target) => check_relays(&mut report, &target).await,
        Err(error) => report.problem(describe_error(&error), "-U net://COLLECTOR"),
    }
    if let Some(spool) = &config.spool {
        check_directory(&mut report, "spool", &spool.directory, "--spool");
    }
    for frontend in config.frontends() {
        frontend.check_host(&mut report);
    }
    for socket in config.frontends().flat_map(Frontend::sockets) {
        check_socket(&mut report, &socket);
    }
    check_socket(&mut report, &config.agent.status_socket);
    check_open_files(&mut report, UNIT);
    check_clock(&mut report);
    report
}

/// Checks every address of every relay of the target.
async fn check_relays(report: &mut Report, target: &RelayTarget) {
    let mut selector = RelaySelector::new(target);
    while let Some(selected) = selector.select_next(target).await {
        match selected {
            Ok(relay) => check_relay(report, target, &relay).await,
            Err(UplinkError::Connect { to, source }) => {
                report_unresolved(report, "control", &to, &source.to_string());
            }
            Err(error) => report.problem(error.to_string(), "-U with an address"),
        }
    }
}

async fn check_relay(report: &mut Report, target: &RelayTarget, relay: &SelectedRelay) {
    let control = relay.control();
    let can_connect = match target.link {
        // One UDP port: there is no connection without a handshake.
        Link::Quic => true,
        Link::Tcp => {
            let can_control = check_port(report, "control", &control, relay.address);
            let (data, address) = relay.data();
            let address = match address {
                Some(address) => Ok(address),
                None => resolve_first(&data).await,
            };
            let can_send = match address {
                Ok(address) => check_port(report, "data", &data, address),
                Err(error) => {
                    report_unresolved(report, "data", &data, &error.to_string());
                    false
                }
            };
            can_control && can_send
        }
    };
    // A greeting would report the same fault again, after another timeout.
    if !can_connect {
        return;
    }
    match greet(target, relay).await {
        Ok(greeting) => {
            let resume = match greeting.has_resume {
                true => "it continues sessions after a lost connection",
                false => "it is not relayd: a lost connection ends sessions, and they begin again",
            };
            let (minor, micros) = (greeting.minor, greeting.round_trip.as_micros());
            report.ok(format!(
                "relay {control}: speaks protocol 2.{minor} and answers in {micros} us; {resume}",
            ));
            let host = &control.endpoint.host;
            match greeting.clock {
                Some(clock) => {
                    let ahead = clock.ahead_of(HostClock::measure().offset());
                    check_clock_of_relay(report, ahead, clock.error, host);
                }
                None => report.ok("the clocks of the relay and of this host are not compared: only relayd tells its clock"),
            }
        }
        Err(error) => report.problem(
            format!("relay {control}: {}", describe_error(&error)),
            "give its control port, or run relayd doctor on its host",
        ),
    }
}

fn report_unresolved(report: &mut Report, name: &str, port: &EndpointAddress, why: &str) {
    report.problem(
        format!("{name} port {port}: {why}"),
        format!("getent hosts {}, or -U with an address", port.endpoint.host),
    );
}

async fn resolve_first(port: &EndpointAddress) -> std::io::Result<SocketAddr> {
    let addresses = resolve(&port.endpoint).await?;
    let first = addresses.first().copied();
    first.ok_or_else(|| ErrorKind::AddrNotAvailable.into())
}

/// Whether events of this host and of others are in the right order.
fn check_clock_of_relay(report: &mut Report, ahead: i64, error: u64, host: &str) {
    let millis = |nanos: u64| format!("{:.1} ms", Duration::from_nanos(nanos).as_secs_f64() * 1e3);
    let direction = if ahead < 0 { "behind" } else { "ahead of" };
    let difference = millis(ahead.unsigned_abs());
    let uncertainty = millis(error);
    let found = format!(
        "the clock of the relay is {difference} {direction} that of this host, give or take {uncertainty}"
    );
    // Only what is certain counts: a slow network makes the measured difference large.
    let least = ahead.unsigned_abs().saturating_sub(error);
    if u128::from(least) > MAX_CLOCK_DIFFERENCE.as_nanos() {
        report.problem(
            format!("{found}: events of several hosts are in the wrong order"),
            format!("timedatectl set-ntp true, here and on {host}"),
        );
    } else {
        report.ok(found);
    }
}

/// Connects to a port of the relay. Returns whether that was possible.
fn check_port(
    report: &mut Report,
    name: &str,
    port: &EndpointAddress,
    address: SocketAddr,
) -> bool {
    let connected = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    match &connected {
        Ok(_) => report.ok(format!("{name} port {port}: accepts connections")),
        Err(error) => report.problem(
            format!("{name} port {port}: {error}"),
            remedy(error, &port.endpoint),
        ),
    }
    connected.is_ok()
}

/// Returns what mends a connection that fails.
fn remedy(error: &std::io::Error, endpoint: &RelayEndpoint) -> String {
    let (host, port) = (&endpoint.host, endpoint.port);
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("start relayd on {host}; relayd doctor says what it waits for")
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!("open TCP port {port} in the firewall of {host}, and in those on the way")
        }
        _ => format!("check the route: ping {host}"),
    }
}

/// Checks the directory of a Unix socket that the agent listens on.
fn check_socket(report: &mut Report, socket: &Path) {
    let directory = socket
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let shown = socket.display();
    if directory.is_dir() {
        return report.ok(format!("socket {shown}: its directory exists"));
    }
    report.problem(
        format!(
            "socket {shown}: the directory {} does not exist",
            directory.display()
        ),
        format!("mkdir -p {}", directory.display()),
    );
}

#[cfg(test)]
mod tests {
    use daemon::checkup::State;

    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_is_certain_are_a_problem() {
        let check = |ahead, error| {
            let mut report = Report::default();
            check_clock_of_relay(&mut report, ahead, error, "collector");
            report.findings().to_vec()
        };
        let normal = check(-2_500_000, 100_000);
        assert_eq!(normal[0].state, State::Ok);
        let text = "the clock of the relay is 2.5 ms behind that of this host, give or take 0.1 ms";
        assert_eq!(normal[0].text, text);
        assert_eq!(check(150_000_000, 60_000_000)[0].state, State::Ok);
        let wrong = check(3_000_000_000, 60_000_000);
        assert_eq!(wrong[0].state, State::Problem);
        assert!(
            wrong[0].text.contains("3000.0 ms ahead"),
            "{}",
            wrong[0].text
        );
    }
}
