//! `relayd doctor`: checks whether a relay with these settings would work on this host, or why the
//! one that runs does not. It changes nothing, and opens its ports only for a moment.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use daemon::checkup::Report;
use daemon::checkup::host::{check_clock, check_directory, check_open_files};
use daemon::checkup::listener::{Listener, find_listener};
use daemon::endpoint::Endpoint;
use daemon::error_text::describe_error;

use crate::config::Config;
use crate::net::Server;

/// Names of the programs that a relay may be, as the kernel shows them.
const OWN_NAME: &str = "relayd";
const REFERENCE_NAME: &str = "lttng-relayd";

/// The unit of the service.
const UNIT: &str = "relayd";

/// A TCP port of the relay, and the option that names another.
struct Port<'a> {
    name: &'static str,
    option: &'static str,
    endpoint: &'a Endpoint,
}

/// Checks the host for a relay with this configuration.
#[must_use]
pub fn check(config: &Config) -> Report {
    let mut report = Report::default();
    match Server::check(config) {
        Ok(()) => report.ok("the configuration is valid: see relayd check-config"),
        Err(error) => report.problem(
            describe_error(&error),
            "relayd check-config names the setting",
        ),
    }
    for warning in &config.network.warnings {
        report.warning(warning, "unset the variable");
    }
    check_directory(&mut report, "output", &config.output, "--output");
    let http = config
        .http
        .as_ref()
        .map(|endpoint| ("http", "--http [HOST:]PORT", endpoint));
    let ports = [
        ("control", "-C tcp://0.0.0.0:PORT", &config.control),
        ("data", "-D tcp://0.0.0.0:PORT", &config.data),
        ("viewers", "-L tcp://0.0.0.0:PORT", &config.live),
    ];
    for (name, option, endpoint) in ports.into_iter().chain(http) {
        check_port(
            &mut report,
            &Port {
                name,
                option,
                endpoint,
            },
        );
    }
    check_open_files(&mut report, UNIT);
    check_clock(&mut report);
    report
}

fn check_port(report: &mut Report, port: &Port<'_>) {
    let (name, option, endpoint) = (port.name, port.option, port.endpoint);
    // Reported with the configuration.
    let Ok(address) = endpoint.resolve() else {
        return;
    };
    match TcpListener::bind(address) {
        Ok(_) => report.ok(format!("{name} port {endpoint}: free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            check_listener(report, port, find_listener(address.port()).as_ref());
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => report.problem(
            format!("{name} port {endpoint}: this user may not listen on ports below 1024"),
            format!("{option} with a port from 1024 on, or start the relay by its systemd unit"),
        ),
        Err(error) => report.problem(
            format!("{name} port {endpoint}: {error}"),
            format!("{option} with an address of this host"),
        ),
    }
    check_reach(report, port, address);
}

/// Reports who has a port that is in use.
fn check_listener(report: &mut Report, port: &Port<'_>, listener: Option<&Listener>) {
    let (name, option, endpoint) = (port.name, port.option, port.endpoint);
    match listener {
        Some(Listener { name: program, pid }) if program == OWN_NAME => {
            report.ok(format!(
                "{name} port {endpoint}: {program} listens (process {pid})"
            ));
        }
        Some(Listener { name: program, pid }) if program == REFERENCE_NAME => report.warning(
            format!("{name} port {endpoint}: {program} listens (process {pid})"),
            format!("systemctl stop {program}, or kill {pid}, before relayd takes its place"),
        ),
        Some(Listener { name: program, pid }) => report.problem(
            format!("{name} port {endpoint}: in use by {program} (process {pid})"),
            format!("kill {pid}, or {option}"),
        ),
        None => report.problem(
            format!("{name} port {endpoint}: in use by a process of another user"),
            format!("sudo relayd doctor names the process; or {option}"),
        ),
    }
}

/// Reports from where a port can be reached.
fn check_reach(report: &mut Report, port: &Port<'_>, address: SocketAddr) {
    let (name, option, endpoint) = (port.name, port.option, port.endpoint);
    let is_local = address.ip().is_loopback();
    match name {
        "viewers" if is_local => report.warning(
            format!("{name} port {endpoint}: viewers on other hosts cannot connect"),
            "-L tcp://0.0.0.0, or better -L tls://0.0.0.0 with certificates of `relayd certs`",
        ),
        "control" | "data" if is_local => report.warning(
            format!("{name} port {endpoint}: traced hosts cannot connect, only this one"),
            option,
        ),
        "viewers" | "http" if !is_local && !endpoint.is_tls() => report.warning(
            format!("{name} port {endpoint}: everyone who reaches this host can read all traces"),
            "limit it by a firewall, or use TLS: relayd certs",
        ),
        _ => {}
    }
}
