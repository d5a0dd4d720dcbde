//! The example alert rules and the dashboard of `relayd/monitoring`, the metrics that they use, and
//! `check-config`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::producer::{Producer, live_session};
use tests::status_endpoint::StatusEndpoint;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::Seek;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../relayd/monitoring")
        .join(name)
}

/// Returns the names of metrics of a relay in an expression.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_name(letter));
    words
        .filter(|word| word.starts_with("relayd_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// Runs promtool, and expects that it finds no fault.
fn promtool(arguments: &[&str], input: &str) {
    let mut child = Command::new(peers::program("promtool"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{arguments:?}: {printed}");
}

#[test]
fn metrics_of_the_alert_rules_and_the_dashboard_exist() {
    let lab = Lab::new();
    let options = [
        "--retain-age=30d".to_owned(),
        "--retain-size=100G".to_owned(),
        format!("--archive=file://{}/archive", lab.path().display()),
    ];
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (_relay, status) = StatusEndpoint::start_relay(&lab, &options);
    let (_, text) = status.get("/metrics");
    let names: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let alerts = fs::read_to_string(example("alerts.yml")).unwrap();
    let expressions = alerts.lines().filter(|line| line.contains("expr:"));
    let mut used: BTreeSet<_> = expressions.flat_map(metrics_in).collect();
    assert!(used.len() > 8, "{used:?}");
    let dashboard = fs::read(example("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            used.extend(metrics_in(target["expr"].as_str().unwrap()));
        }
    }
    for name in &used {
        assert!(names.contains(name.as_str()), "{name} is no metric");
    }
    promtool(
        &["check", "rules", example("alerts.yml").to_str().unwrap()],
        "",
    );
    promtool(&["check", "metrics"], &text);
}

#[test]
fn metrics_describe_process_build_and_disk() {
    let (_relay, status) = StatusEndpoint::start_relay(&Lab::new(), &[]);
    let (_, text) = status.get("/metrics");
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {text}"))
            .trim()
            .parse()
            .unwrap()
    };
    let build = format!(
        "relayd_build_info{{version=\"{}\",lttng=\"2.15.0\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(value(&build), 1.0);
    assert!(value("process_start_time_seconds ") > 1.7e9);
    assert!(value("process_cpu_seconds_total ") >= 0.0);
    assert!(value("process_resident_memory_bytes ") > 1e6);
    assert!(value("process_max_fds ") >= value("process_open_fds "));
    let (free, size) = (
        value("relayd_output_free_bytes "),
        value("relayd_output_size_bytes "),
    );
    assert!(free > 0.0 && free <= size);
    assert!(!text.contains("relayd_retention"), "retention is off");
}

#[test]
fn log_names_the_addresses_of_producers_and_viewers() {
    let lab = Lab::new();
    let (relay, _status) = StatusEndpoint::start_relay(&lab, &[]);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("watched"));
    relay.wait_for_log(&["session opened", "peer=127.0.0.1"]);
    producer.send_packet(stream, 0, 100);
    producer.wait_while_pending(stream, 0);
    let (viewer, _, _) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let address = viewer.socket().local_addr().unwrap();
    let peer = format!("peer={address}");
    relay.wait_for_log(&["viewer attached", &peer]);
    drop(viewer);
    relay.wait_for_log(&["viewer detached", &peer]);
}

#[test]
fn check_config_prints_the_settings_and_fails_on_faults_and_ignored_lines() {
    let lab = Lab::new();
    let file = lab.path().join("relayd.conf");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = lab.command(binaries::relayd());
        command
            .args(["check-config", "--output=/traces"])
            .arg(&file);
        Process::start(&mut command).wait()
    };
    let text = "[relayd]\nretain-age=30d\nlive-port=tcp://0.0.0.0\n";
    let printed = check(text).expect_success();
    for line in [
        "[relayd]",
        "output=/traces",
        "retain-age=2592000s",
        "live-port=tcp://0.0.0.0:5344",
    ] {
        assert!(
            printed.iter().any(|own| own == line),
            "{line}: {printed:#?}"
        );
    }
    // What it prints is a configuration file of the same settings.
    assert_eq!(check(&printed.join("\n")).expect_success(), printed);
    for (text, part) in [
        (
            "[relayd]\nretain-age=30\n",
            "relayd.conf:2: invalid value '30' for '--retain-age",
        ),
        (
            "[relayd]\nretian-age=30d\n",
            "relayd.conf:2: unknown option \"retian-age\"",
        ),
        (
            "retain-age=30d\n",
            "relayd.conf:1: not in the section [relayd]; line ignored",
        ),
        ("[relayd]\nlive-port=tls://0.0.0.0\n", "needs --tls-cert"),
        (
            "[relayd]\nhttp=no.such.host.invalid:1\n",
            "cannot listen for http",
        ),
    ] {
        let ended = check(text);
        assert_eq!(ended.status.code(), Some(1), "{text}");
        assert!(ended.stderr.join("\n").contains(part), "{:?}", ended.stderr);
    }
    wait_until("nothing was created", || !Path::new("/traces").exists());
}
