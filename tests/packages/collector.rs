//! The service of the collector while real LTTng records through its installation, upgrade and
//! removal.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};

use tests::process::Process;
use tests::{Lab, test_live, traced_app, wait_until};

use crate::built::{NEW, OLD};
use crate::debian::{Debian, Init};

const COLLECTOR: &str = "lttng-live-collector";

/// Events before and after the upgrade.
const EVENTS: usize = 50;

/// A program in a system, whose events LTTng records.
struct Tracee {
    process: Process,
    stdin: ChildStdin,
    emitted: usize,
}

impl Tracee {
    fn start(debian: &Debian) -> Self {
        debian.copy(traced_app::program(), "/usr/local/bin/tracee");
        let mut command = debian.command("tracee");
        command.args(["-", "0", "packages"]).stdin(Stdio::piped());
        // It waits until the session daemon has registered it, and blocks rather than lose an
        // event.
        command
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .env("LTTNG_UST_ALLOW_BLOCKING", "1");
        let mut process = Process::start(&mut command);
        let stdin = process.stdin().unwrap();
        Self {
            process,
            stdin,
            emitted: 0,
        }
    }

    fn emit(&mut self) {
        self.stdin
            .write_all("\n".repeat(EVENTS).as_bytes())
            .unwrap();
        self.emitted += EVENTS;
        wait_until("the events are emitted", || {
            self.process.stdout_line_count() == self.emitted
        });
    }
}

/// Creates a live session of all events of the traced program, at the relay of the same system.
fn record(debian: &Debian, session: &str) {
    // systemd calls the session daemon started before it serves. A client that finds none starts a
    // second one.
    wait_until("the session daemon serves", || {
        debian.try_run("lttng list").0
    });
    debian.run(&format!(
        "lttng create {session} --live --set-url=net://127.0.0.1; \
         lttng enable-event --userspace 'tracee:*'; lttng start"
    ));
}

fn main_process(debian: &Debian) -> String {
    debian
        .run("systemctl show --property=MainPID --value relayd")
        .trim()
        .to_owned()
}

#[test]
fn recording_continues_through_an_upgrade_and_ends_with_a_removal_that_says_so() {
    let Some(debian) = Debian::start(Init::Systemd) else {
        return;
    };
    debian.install_lttng();
    let printed = debian.install(COLLECTOR, OLD);
    assert!(!printed.contains("records"), "{printed}");
    debian.run("systemctl is-enabled relayd; systemctl is-active relayd");
    let process = main_process(&debian);
    let owner = debian.run(&format!("stat -c %U:%G /proc/{process} /var/lib/relayd"));
    assert_eq!(owner, "_relayd:_relayd\n_relayd:_relayd\n");
    // The package needs no other for it.
    assert!(!debian.path("/bin/kill").exists());
    debian.run("systemctl reload relayd");
    assert_eq!(main_process(&debian), process);
    expect_doctor_of_stopped_service(&debian);
    let process = main_process(&debian);

    record(&debian, "upgrade");
    let mut tracee = Tracee::start(&debian);
    tracee.emit();
    let printed = debian.install(COLLECTOR, NEW);
    let heading = format!("relayd {process} records 1 session:\n  /var/lib/relayd/");
    assert!(printed.contains(&heading), "{printed}");
    assert!(printed.contains("systemctl restart relayd"), "{printed}");
    assert_eq!(main_process(&debian), process);
    let version = debian.run("dpkg-query --show --showformat='${Version}' lttng-live-collector");
    assert!(version.ends_with(NEW), "{version}");
    tracee.emit();
    debian.run("lttng destroy upgrade");
    expect_events(&debian, "upgrade", 2 * EVENTS);

    debian.run("systemctl restart relayd");
    assert_ne!(main_process(&debian), process);
    record(&debian, "removal");
    tracee.emit();
    debian.run("lttng stop");
    let printed = debian.run(&format!("dpkg --remove {COLLECTOR}"));
    assert!(
        printed.contains("Stopping relayd.service. This ends what it records"),
        "{printed}"
    );
    assert!(
        printed.contains("records 1 session:\n  /var/lib/relayd/"),
        "{printed}"
    );
    expect_stopped_and_kept(&debian);
}

/// Stops the service and starts it again. Its user could write to a directory outside of those of
/// the service, but the service cannot.
fn expect_doctor_of_stopped_service(debian: &Debian) {
    debian.run(
        "systemctl stop relayd; mkdir /srv/traces; chown _relayd /srv/traces; cp /etc/relayd.conf /root; \
         printf 'output=/srv/traces\\nno-such-option=1\\n' >>/etc/relayd.conf",
    );
    let (is_faultless, printed) = debian.try_run("relayd doctor");
    assert!(!is_faultless, "{printed}");
    for found in [
        "warning  the service relayd.service does not run (inactive)",
        "ok       examined in its place: relayd --config=/etc/relayd.conf",
        "output /srv/traces: no file can be created: Read-only file system",
        "ok       viewers port tcp://127.0.0.1:5344: free",
        "warning  /etc/relayd.conf:",
    ] {
        assert!(printed.contains(found), "{found}: {printed}");
    }
    debian.run("echo live-port=nonsense >>/etc/relayd.conf");
    debian.try_run("systemctl start relayd");
    let (is_faultless, printed) = debian.try_run("relayd doctor");
    assert!(!is_faultless, "{printed}");
    for found in [
        "problem  the service relayd.service does not run (",
        "problem  relayd.service cannot be examined: relayd: ",
        "nonsense",
    ] {
        assert!(printed.contains(found), "{found}: {printed}");
    }
    debian.run("cp /root/relayd.conf /etc; systemctl reset-failed relayd; systemctl start relayd; relayd doctor");
}

fn expect_stopped_and_kept(debian: &Debian) {
    let (is_active, state) = debian.try_run("systemctl is-active relayd");
    assert!(!is_active, "{state}");
    expect_events(debian, "removal", EVENTS);
    let printed = debian.run(&format!("dpkg --purge {COLLECTOR}"));
    assert!(
        printed.contains("of traces. They are kept, with their user _relayd"),
        "{printed}"
    );
    assert!(!debian.path("/etc/relayd.conf").exists());
    debian.run("getent passwd _relayd; test -d /var/lib/relayd");
}

/// Reads the trace of a session as the host sees it.
fn expect_events(debian: &Debian, session: &str, events: usize) {
    let lab = Lab::new();
    let host = debian.run("hostname");
    let directory = debian.path("/var/lib/relayd").join(host.trim());
    let mut entries = std::fs::read_dir(&directory).unwrap();
    let trace = entries.find_map(|entry| {
        let entry = entry.unwrap();
        entry
            .file_name()
            .to_str()?
            .starts_with(session)
            .then(|| entry.path())
    });
    // A path into another namespace cannot be resolved further.
    let copy = lab.path().join("trace");
    let mut cp = Command::new("cp");
    cp.arg("--recursive")
        .arg(trace.expect("the session has a directory"));
    assert!(cp.arg(&copy).status().unwrap().success());
    let read = test_live::read(&lab, &[], &copy);
    assert_eq!(read.stdout.len(), events, "{:?}", read.stderr);
}

#[test]
fn relay_of_lttng_tools_that_runs_keeps_its_ports_when_the_collector_is_installed() {
    let Some(debian) = Debian::start(Init::Systemd) else {
        return;
    };
    debian.install_lttng();
    debian.run("lttng-relayd --daemonize");
    record(&debian, "reference");
    let mut tracee = Tracee::start(&debian);
    tracee.emit();
    let printed = debian.install(COLLECTOR, OLD);
    assert!(printed.contains("lttng-relayd"), "{printed}");
    assert!(
        printed.contains("records 1 session:\n  /root/lttng-traces/"),
        "{printed}"
    );
    assert!(
        printed.contains("relayd.service was not started, because a relay runs"),
        "{printed}"
    );
    debian.run("lttng destroy reference");
}

#[test]
fn relay_without_a_service_manager_goes_on_through_upgrade_and_removal() {
    let Some(debian) = Debian::start(Init::None) else {
        return;
    };
    debian.install(COLLECTOR, OLD);
    let mut command = debian.command("setpriv");
    command
        .args(["--reuid=_relayd", "--regid=_relayd", "--clear-groups"])
        .args(["relayd", "-v", "--config=/etc/relayd.conf"])
        .env("HOME", "/var/lib/relayd");
    let mut relay = Process::start(&mut command);
    relay.wait_for_stderr("the relay listens", |line| {
        line.contains("listening").then_some(())
    });
    let printed = debian.install(COLLECTOR, NEW);
    assert!(printed.contains("records no session"), "{printed}");
    let printed = debian.run(&format!("dpkg --remove {COLLECTOR}"));
    assert!(printed.contains("goes on until it is stopped"), "{printed}");
    assert!(relay.is_running());
}
