//! Walks of users through `doc/five-minutes.md`: from the packages to the first event, each on a
//! Debian of its own that has nothing else. The time of each step is printed beside the one that
//! the page states. `cargo xtask walk` runs them; they need root.

use std::fs;
use std::time::Instant;

use tests::page::Page;
use tests::{binaries, wait_until};

use crate::built::OLD;
use crate::debian::{Debian, Init};

/// What the page says of times, and the seconds that it means: of the first event of a step, and
/// of the installation.
const STATED: &str = "each step shows its first event within half a second, CodeTracer's within one and a half; installing packages takes ten seconds";
const FIRST_EVENT: f64 = 0.5;
const FIRST_EVENT_OF_CODETRACER: f64 = 1.5;
const INSTALLATION: f64 = 10.0;

/// The events that the viewer of the walk has shown.
const SEEN: &str = "/tmp/seen.json";

struct Walk {
    debian: Debian,
    page: Page,
    name: &'static str,
}

impl Walk {
    /// Installs all packages, and starts relay, agent and viewers as the page says.
    fn start(name: &'static str) -> Self {
        let debian = Debian::start(Init::Systemd).expect("a walk needs root");
        let text = fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../doc/five-minutes.md"
        ))
        .unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(STATED), "the page states times");
        // As the page says for a minimal Debian.
        debian.run("echo 127.0.0.1 localhost > /etc/hosts");
        let mut walk = Self {
            debian,
            page: Page::open("doc/five-minutes.md"),
            name,
        };
        walk.measure("install", INSTALLATION, |walk| {
            walk.debian.install("*", OLD);
        });
        walk.measure("start", FIRST_EVENT, |walk| {
            let start = walk.page.commands("test-live web");
            // As the page says where the package has started the relay.
            let (_, web) = start.split_once('\n').unwrap();
            let agent = walk.page.commands("consumer serve");
            walk.begin("web", web);
            walk.begin("agent", &agent);
            walk.begin("viewer", &format!("test-live --sink json localhost >{SEEN}"));
            wait_until("the agent listens", || {
                walk.debian.try_run("test -S /tmp/tldrs.socket").0
            });
            wait_until("the page is served", || {
                let get = "exec 3<>/dev/tcp/127.0.0.1/5380; printf 'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:5380\\r\\n\\r\\n' >&3; grep -q 200 <&3";
                walk.debian.try_run(&format!("bash -c \"{get}\"")).0
            });
        });
        walk
    }

    /// Starts commands that go on.
    fn begin(&self, name: &str, commands: &str) {
        let script = format!("/tmp/{name}.sh");
        fs::write(self.debian.path(&script), format!("{commands}\nwait\n")).unwrap();
        self.debian.run(&format!(
            "systemd-run --quiet --unit={name} --setenv=HOME=/root bash {script}"
        ));
    }

    /// Runs the commands of the page that contain a text, and waits until an event is shown.
    fn step(&mut self, commands: &str, event: &str) {
        self.step_within(FIRST_EVENT, commands, event);
    }

    fn step_within(&mut self, stated: f64, commands: &str, event: &str) {
        self.measure(commands, stated, |walk| {
            let script = walk.page.commands(commands);
            walk.begin("step", &script);
            wait_until(event, || {
                let seen = fs::read_to_string(walk.debian.path(SEEN));
                seen.is_ok_and(|seen| seen.contains(event))
            });
        });
    }

    /// Prints how long a step takes, beside the time that the page states.
    fn measure(&mut self, what: &str, stated: f64, step: impl FnOnce(&mut Self)) {
        let begun = Instant::now();
        step(self);
        let took = begun.elapsed().as_secs_f64();
        let remark = if took > stated { ", SLOWER" } else { "" };
        let name = self.name;
        println!("walk {name}: {what}: {took:.2} s (the page: {stated} s{remark})");
    }
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn newcomer_sees_events_of_a_script() {
    Walk::start("newcomer").step("perl", r#""name":"work""#);
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn collector_records_as_a_service() {
    let mut walk = Walk::start("collector");
    walk.debian.run("relayd doctor /etc/relayd.conf");
    walk.debian.run("systemctl restart relayd");
    walk.step("perl", r#""name":"work""#);
    walk.debian.run("ls /var/lib/relayd/*/hello-*");
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn lttng_streams_to_the_relay() {
    let mut walk = Walk::start("lttng");
    walk.debian.install_lttng();
    walk.step("lttng create", "lttng_ust_libc:malloc");
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn rust_program_writes_to_shared_memory() {
    let mut walk = Walk::start("rust");
    // What cargo compiles: the root has no compiler.
    let requests = binaries::ring_requests();
    walk.debian.copy(requests, "/usr/local/bin/requests");
    let cargo = walk.debian.path("/usr/local/bin/cargo");
    fs::write(cargo, "#!/bin/sh\nexec requests\n").unwrap();
    walk.debian.run("chmod +x /usr/local/bin/cargo");
    walk.step("cargo run", "requests:request_begin");
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn tef_lines_become_a_trace_for_perfetto() {
    let mut walk = Walk::start("tef");
    walk.step("perl", r#""name":"work""#);
    let export = "test-live --no-follow --sink perfetto -w /tmp/t.pftrace /var/lib/relayd";
    walk.debian
        .run(&format!("{export} && test -s /tmp/t.pftrace"));
}

#[test]
#[ignore = "cargo xtask walk, and --long"]
fn codetracer_recording_is_seen_while_it_is_made() {
    let mut walk = Walk::start("codetracer");
    walk.step_within(FIRST_EVENT_OF_CODETRACER, "consumer codetracer", "greet");
}
