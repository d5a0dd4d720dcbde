//! `relayd doctor`: checks whether a relay with these settings would work on this host, or why the
//! one that runs does not. It changes nothing, opens its ports only for a moment, and deletes the
//! objects by which it probes an archive.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::SystemTime;

use archive::name::{LOG, parse_commit};
use archive::store::ProbeReport;
use daemon::checkup::Report;
use daemon::checkup::host::{check_clock, check_directory, check_open_files};
use daemon::checkup::listener::{Listener, find_listener};
use daemon::endpoint::Endpoint;
use daemon::error_text::describe_error;

use crate::archive_commands::describe_clock;
use crate::config::{ArchiveConfig, Config};
use crate::limits::ARCHIVE_PROBE_TIMEOUT;
use crate::net::Server;

/// Names of the programs that a relay may be, as the kernel shows them.
const OWN_NAME: &str = "relayd";
const REFERENCE_NAME: &str = "lttng-relayd";

/// Maximum number of objects in the logs of all relays that are listed.
const MAX_LOG_OBJECTS: usize = 200_000;

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
    if let Some(archive) = &config.archive {
        check_archive(&mut report, archive);
    }
    check_open_files(&mut report, UNIT);
    check_clock(&mut report);
    report
}

/// What is found out about an archive.
struct ExaminedArchive {
    probe: ProbeReport,
    /// Relays that have a log in the archive.
    relays: usize,
    /// When the newest object of the logs was created, by the clock of the store.
    newest: Option<SystemTime>,
}

/// Checks the store of the archive, and what relays that share it rely on.
fn check_archive(report: &mut Report, config: &ArchiveConfig) {
    let url = &config.url;
    let examined = match examine_archive(config) {
        Ok(examined) => examined,
        Err(error) => {
            let remedy = format!("relayd archive check {url} says more");
            return report.problem(format!("archive {url}: {error}"), remedy);
        }
    };
    report.ok(format!("archive {url}: can be used"));
    match describe_clock(&examined.probe) {
        Some(difference) => report.warning(
            format!("archive {url}: {difference}, by the clock of this host"),
            "enable NTP on this host and on that of the store: logs are moved to parts by their age",
        ),
        None => report.ok(format!("archive {url}: its clock agrees with that of this host")),
    }
    let Some(newest) = examined.newest else {
        return report.ok(format!("archive {url}: no relay has a log there"));
    };
    let relays = examined.relays;
    let age = SystemTime::now().duration_since(newest);
    let seconds = age.unwrap_or_default().as_secs();
    report.ok(format!(
        "archive {url}: logs of {relays} runs of relays; the newest object is {seconds} s old"
    ));
    if relays > 1 && !config.is_guaranteed {
        report.warning(
            format!("archive {url}: packets are acknowledged before they are there"),
            "--durability=archive, if other relays are to continue the sessions of this one",
        );
    }
}

fn examine_archive(config: &ArchiveConfig) -> Result<ExaminedArchive, String> {
    let text = |error: &(dyn std::error::Error + 'static)| describe_error(error);
    let store = archive::store::open(&config.url, config.endpoint.as_deref());
    let store = store.map_err(|error| text(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| text(&error))?;
    let examine = async {
        let probe = archive::store::probe(&*store).await;
        let probe = probe.map_err(|error| text(&error))?;
        let objects = store.list(LOG, None, MAX_LOG_OBJECTS).await;
        let objects = objects.map_err(|error| text(&error))?;
        let ours = objects.iter().filter_map(|object| {
            let (boot, _) = parse_commit(&object.name).ok()?;
            Some((boot, object.modified))
        });
        let (boots, times): (BTreeSet<_>, Vec<_>) = ours.unzip();
        Ok(ExaminedArchive {
            probe,
            relays: boots.len(),
            newest: times.into_iter().max(),
        })
    };
    let examined =
        runtime.block_on(async { tokio::time::timeout(ARCHIVE_PROBE_TIMEOUT, examine).await });
    examined.map_err(|_| "no answer".to_owned())?
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
