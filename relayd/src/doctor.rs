//! `relayd doctor`: checks whether a relay with these settings would work on this host, or why the
//! one that runs does not. It changes nothing, opens its ports only for a moment, and deletes the
//! objects by which it probes an archive.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::SystemTime;

use archive::name::{LOG, parse_commit};
use archive::store::ProbeReport;
use daemon::checkup::Report;
use daemon::checkup::host::{check_clock, check_directory, check_open_files};
use daemon::checkup::listener::{Listener, Protocol, find_listener};
use daemon::endpoint::Endpoint;
use daemon::error_text::describe_error;

use crate::archive_commands::describe_clock;
use crate::config::{ArchiveConfig, Config};
use crate::drain::readiness;
use crate::limits::ARCHIVE_PROBE_TIMEOUT;
use crate::net::Server;
use crate::running_relay::{self, OWN_NAME, RunningRelay};
use crate::stopped_service::UNIT;

/// Name of the program that a relay replaces, as the kernel shows it.
const REFERENCE_NAME: &str = "lttng-relayd";

/// Maximum number of objects in the logs of all relays that are listed.
const MAX_LOG_OBJECTS: usize = 200_000;

/// A port of the relay, and the option that names another.
struct Port<'a> {
    name: &'static str,
    protocol: Protocol,
    option: &'static str,
    endpoint: &'a Endpoint,
}

/// Checks the host for a relay with this configuration: that of the process in whose place this one
/// runs, or one that is to be started. `ignored` says which lines of configuration files have no
/// effect.
#[must_use]
pub fn check(config: &Config, ignored: &[String], process: Option<u32>) -> Report {
    let mut report = Report::default();
    report_relay(&mut report, process);
    match Server::check(config) {
        Ok(()) => report.ok("the configuration is valid: see relayd check-config"),
        Err(error) => report.problem(
            describe_error(&error),
            "relayd check-config names the setting",
        ),
    }
    for line in ignored {
        report.warning(line, "correct or remove the line");
    }
    for warning in &config.network.warnings {
        report.warning(warning, "unset the variable");
    }
    check_directory(&mut report, "output", &config.output, "--output", process);
    for port in ports(config) {
        check_port(&mut report, &port);
    }
    check_readiness(&mut report, config);
    if let Some(archive) = &config.archive {
        check_archive(&mut report, archive);
    }
    check_open_files(&mut report, UNIT, process);
    check_clock(&mut report);
    report
}

/// Reports which relay is examined.
fn report_relay(report: &mut Report, process: Option<u32>) {
    if let Some(pid) = process {
        let relay = RunningRelay::read(pid);
        let options = relay.as_ref().map_or(&[][..], RunningRelay::arguments);
        let options: Vec<_> = options
            .iter()
            .map(|option| option.display().to_string())
            .collect();
        return report.ok(format!(
            "examined in the place of process {pid}, which runs: relayd {}",
            options.join(" ")
        ));
    }
    let (own, foreign) = running_relay::find();
    if own.is_empty() && foreign.is_empty() {
        report.ok("no relay runs on this host: what follows is for one with these settings");
    }
    for pid in foreign {
        report.warning(
            format!("a relay of another user runs (process {pid}), and may have other settings"),
            "sudo relayd doctor examines that one",
        );
    }
}

/// Returns the ports of a relay with this configuration.
fn ports(config: &Config) -> impl Iterator<Item = Port<'_>> {
    let port = |name, protocol, option, endpoint| Port {
        name,
        protocol,
        option,
        endpoint,
    };
    let tcp = |name, option, endpoint| port(name, Protocol::Tcp, option, endpoint);
    let http = config.http.as_ref();
    let quic = config.quic.as_ref();
    [
        tcp("control", "-C tcp://0.0.0.0:PORT", &config.control),
        tcp("data", "-D tcp://0.0.0.0:PORT", &config.data),
        tcp("viewers", "-L tcp://0.0.0.0:PORT", &config.live),
    ]
    .into_iter()
    .chain(http.map(|http| tcp("http", "--http [HOST:]PORT", http)))
    .chain(quic.map(|quic| port("quic", Protocol::Udp, "--quic [HOST:]PORT", quic)))
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
    if address.port() == 0 {
        report.ok(format!(
            "{name} port {endpoint}: the system chooses a free one"
        ));
        return check_reach(report, port, address);
    }
    let listener = find_listener(port.protocol, address);
    let bound = match port.protocol {
        Protocol::Tcp => TcpListener::bind(address).map(drop),
        Protocol::Udp => UdpSocket::bind(address).map(drop),
    };
    match bound {
        Ok(()) => report.ok(format!("{name} port {endpoint}: free")),
        // A service may listen on a port on which this user may not.
        Err(error)
            if error.kind() == ErrorKind::AddrInUse
                || error.kind() == ErrorKind::PermissionDenied && listener.is_some() =>
        {
            check_listener(report, port, listener.as_ref());
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

/// Reports what the status endpoint of a relay says that is not ready, such as on a full disk.
fn check_readiness(report: &mut Report, config: &Config) {
    let address = config.http.as_ref().and_then(|http| http.resolve().ok());
    let Some(address) = address.filter(|address| is_relay_at(*address)) else {
        return;
    };
    match readiness(address) {
        Ok(text) if text.starts_with("not ready") || text.starts_with("unhealthy") => {
            report.problem(
                format!("the relay is {text}"),
                "its log says which file or thread",
            );
        }
        Ok(text) => report.ok(format!("the relay answers /readyz: {text}")),
        Err(error) => report.problem(
            format!("the relay does not answer /readyz: {error}"),
            "its log says which thread does not respond",
        ),
    }
}

fn is_relay_at(address: SocketAddr) -> bool {
    let listener = find_listener(Protocol::Tcp, address);
    listener.is_some_and(|listener| listener.name == OWN_NAME)
}

/// Returns the relay of another user that has a port of this configuration, if this process may
/// take its place: root finds no fault that is one for that user.
#[must_use]
pub fn find_relay_of_lesser_user(config: &Config) -> Option<RunningRelay> {
    let listeners = ports(config).filter_map(|port| {
        let address = port.endpoint.resolve().ok()?;
        find_listener(port.protocol, address)
    });
    let relays = listeners.filter(|listener| listener.name == OWN_NAME);
    let mut relays = relays.filter_map(|relay| RunningRelay::read(relay.pid).ok());
    relays.find(RunningRelay::is_of_lesser_user)
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
            format!("{name} port {endpoint}: in use by another process"),
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
