//! `consumer doctor`: checks whether an agent with these settings would work on this host: whether
//! the relay can be reached, and what the frontends need. It opens no session and changes nothing.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use daemon::checkup::Report;
use daemon::checkup::host::{check_clock, check_directory, check_open_files};
use daemon::error_text::describe_error;
use transport::fault::{Cause, TlsFault};

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
        check_directory(&mut report, "spool", &spool.directory, "--spool", None);
    }
    for frontend in config.frontends() {
        frontend.check_host(&mut report);
    }
    for socket in config.frontends().flat_map(Frontend::sockets) {
        check_socket(&mut report, &socket);
    }
    check_socket(&mut report, &config.agent.status_socket);
    check_open_files(&mut report, UNIT, None);
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

/// Greets a relay. Its ports are tried one by one only if that fails: a relay warns of connections
/// without a handshake.
async fn check_relay(report: &mut Report, target: &RelayTarget, relay: &SelectedRelay) {
    let control = relay.control();
    let (data, address) = relay.data();
    let greeting = match greet(target, relay).await {
        Ok(greeting) => greeting,
        Err(error) => {
            let Some((port, why, kind)) = unreachable_port(&error) else {
                return report.problem(
                    format!("relay {control}: {}", describe_error(&error)),
                    greeting_remedy(&error, &control.endpoint),
                );
            };
            let is_control = *port == control;
            let name = if is_control { "control" } else { "data" };
            let remedy = remedy(kind, &port.endpoint, target.link);
            report.problem(format!("{name} port {port}: {why}"), remedy);
            if is_control && target.link == Link::Tcp && !is_closed_by_relay(kind) {
                check_data_port(report, &data, address).await;
            }
            return;
        }
    };
    if target.link == Link::Tcp {
        for (name, port) in [("control", &control), ("data", &data)] {
            report.ok(format!("{name} port {port}: accepts connections"));
        }
    }
    let resume = match greeting.has_resume {
        true => "it continues sessions after a lost connection",
        false => "it is not relayd: a lost connection ends sessions, and they begin again",
    };
    let (minor, micros) = (greeting.minor, greeting.round_trip.as_micros());
    report.ok(format!(
        "relay {control}: speaks protocol 2.{minor} and answers in {micros} us; {resume}",
    ));
    match greeting.clock {
        Some(clock) => {
            let ahead = clock.ahead_of(HostClock::measure().offset());
            check_clock_of_relay(report, ahead, clock.error, &control.endpoint.host);
        }
        None => report.ok(
            "the clocks of the relay and of this host are not compared: only relayd tells its clock",
        ),
    }
}

/// Returns the port to which there is no connection, and why. None if the greeting failed for
/// another reason.
fn unreachable_port(error: &UplinkError) -> Option<(&EndpointAddress, String, ErrorKind)> {
    match error {
        UplinkError::Connect { to, source } if TlsFault::of(source).is_none() => {
            Some((to, source.to_string(), source.kind()))
        }
        UplinkError::ConnectTimeout { to, within } => {
            let why = format!("no answer within {} s", within.as_secs());
            Some((to, why, ErrorKind::TimedOut))
        }
        _ => None,
    }
}

/// Whether the relay has closed the connection in place of an answer to the handshake of TLS.
fn is_closed_by_relay(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Checks the data port of a relay whose control port cannot be reached.
async fn check_data_port(report: &mut Report, data: &EndpointAddress, address: Option<SocketAddr>) {
    let address = match address {
        Some(address) => Ok(address),
        None => resolve_first(data).await,
    };
    match address {
        Ok(address) => check_port(report, "data", data, address),
        Err(error) => report_unresolved(report, "data", data, &error.to_string()),
    }
}

/// Returns what mends a greeting that fails although the relay can be reached.
fn greeting_remedy(error: &UplinkError, control: &RelayEndpoint) -> String {
    let host = &control.host;
    let fault = match error {
        UplinkError::EncryptedPort => {
            return format!(
                "nets:// or tls:// in the URL, with --tls-ca, and with --tls-cert and --tls-key if {host} requires a certificate"
            );
        }
        UplinkError::TooOld { .. } => return format!("update the relay on {host}"),
        UplinkError::Connect { source, .. } | UplinkError::Lost(source) => TlsFault::of(source),
        _ => None,
    };
    match fault.map(TlsFault::cause) {
        Some(Cause::OwnCertificate) => {
            "--tls-cert and --tls-key with a certificate of a CA that the relay trusts: relayd certs --client NAME --role produce creates one".to_owned()
        }
        Some(Cause::PeerCertificate) => format!(
            "--tls-ca with the CA of the relay's certificate, which must be valid for {host}: relayd certs --host {host} creates one"
        ),
        Some(Cause::OtherPort) => {
            "give the control port of the relay, and after it the data port".to_owned()
        }
        Some(Cause::Other) | None => {
            format!("give its control port, or run relayd doctor on {host}")
        }
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

/// Connects to a port of the relay.
fn check_port(report: &mut Report, name: &str, port: &EndpointAddress, address: SocketAddr) {
    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(_) => report.ok(format!("{name} port {port}: accepts connections")),
        Err(error) => report.problem(
            format!("{name} port {port}: {error}"),
            remedy(error.kind(), &port.endpoint, Link::Tcp),
        ),
    }
}

/// Returns what mends a connection that fails.
fn remedy(kind: ErrorKind, endpoint: &RelayEndpoint, link: Link) -> String {
    let (host, port) = (&endpoint.host, endpoint.port);
    let protocol = match link {
        Link::Tcp => "TCP",
        Link::Quic => "UDP",
    };
    match kind {
        ErrorKind::ConnectionRefused => {
            format!("start relayd on {host}; relayd doctor says what it waits for")
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!(
                "open {protocol} port {port} in the firewall of {host}, and in those on the way"
            )
        }
        kind if endpoint.is_tls && is_closed_by_relay(kind) => {
            format!("net:// or tcp:// in the URL, if port {port} of {host} is not encrypted")
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
