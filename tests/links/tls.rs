//! Traces and viewers over TLS see what they see over plain TCP.

use std::io::Write;
use std::path::Path;

use rustix::process::Signal;
use tests::certificates::Certificates;
use tests::consumer::HeldReplay;
use tests::lab::Lab;
use tests::process::Process;
use tests::producer::{Producer, index, live_session, packet_of};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::viewer::Viewer;
use tests::{consumer, test_live, traces, wait_until};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

use super::proxy::start_proxy;
use super::{assert_viewers_show, directory_of, events, replay_command, start_relay};

#[test]
fn a_replay_over_tls_records_what_a_plain_one_records() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let encrypted = start_relay(&lab, &certificates);
    let plain_lab = Lab::new();
    let plain = Relay::start(&plain_lab);
    let options = certificates.of_client(Some("producer"));
    for (session, directory) in [
        ("types", traces::with_every_field_type(&lab)),
        (
            "many",
            traces::with_numbered_events(&lab, "many", 20_000, 1000),
        ),
        (
            "recorded",
            traces::recorded_by_lttng(&lab, "--buffers-uid", 300),
        ),
    ] {
        let mut command = replay_command(&lab, &encrypted, session, &directory, &options);
        Process::start(&mut command).wait().expect_success();
        let mut command = consumer::replay_command(&lab, &plain, session, &directory);
        Process::start(&mut command).wait().expect_success();
        let want = events(&directory);
        assert!(want.len() > 3, "{session}");
        assert!(
            events(&directory_of(&encrypted, session)) == want,
            "{session}"
        );
        assert!(events(&directory_of(&plain, session)) == want, "{session}");
    }
}

#[test]
fn control_may_be_encrypted_while_data_is_not() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let schemes = ["tls", "tcp", "tcp"];
    let relay = Relay::start_with_schemes(&lab, schemes, &certificates.of_server(false));
    let directory = traces::with_every_field_type(&lab);
    let mut command = lab.command(tests::binaries::consumer());
    command
        .args(["replay", "--hostname", HOST, "--session", "mixed"])
        .arg(format!("--ctrl-url=tls://{}", relay.control))
        .arg(format!("--data-url=tcp://{}", relay.data))
        .args(certificates.of_client(None))
        .arg(&directory);
    Process::start(&mut command).wait().expect_success();
    assert!(events(&directory_of(&relay, "mixed")) == events(&directory));
}

#[test]
fn viewers_over_tls_show_a_live_session_with_and_without_push() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let mut options = certificates.of_server(true);
    options.push("-vv".to_owned());
    let relay = Relay::start_with_schemes(&lab, ["tls"; 3], &options);
    let directory = traces::with_numbered_events(&lab, "live", 2000, 1000);
    let want = events(&directory);
    let options = certificates.of_client(Some("producer"));
    let command = replay_command(&lab, &relay, "live", &directory, &options);
    let held = HeldReplay::open(command);
    let (_proxy, address) = start_proxy(&lab, &relay, &certificates.of_client(Some("viewer")));
    // A viewer that does not retry needs the session when it starts.
    Viewer::connect(address).wait_for_listed("live", |_| true);
    let url = format!("nets://{}/host/{HOST}/live", relay.live);
    let viewers = [&["--no-retry"][..], &["--poll"]].map(|how| {
        let mut command = test_live::command(&lab, &["--clock-cycles", "--no-delta"]);
        command.args(certificates.of_client(Some("viewer")));
        Process::start(command.args(how).arg(&url))
    });
    Viewer::connect(address).wait_for_listed("live", |listed| listed.viewers == 2);
    let pushes = || {
        let lines = relay.log();
        let accepted = |line: &&String| line.contains("push connection accepted");
        lines.iter().filter(accepted).count()
    };
    wait_until("the relay pushes to a viewer", || pushes() > 0);
    assert_viewers_show(&want, held, viewers);
    assert_eq!(pushes(), 1, "to the viewer that does not poll");
}

#[test]
fn large_packets_of_a_tracefile_in_memory_are_read_over_tls() {
    const SIZE: usize = 1 << 20;
    // To viewers without encryption the relay sends such packets without copying them.
    let memory = Path::new("/dev/shm");
    let lab = match memory.is_dir() {
        true => Lab::new_in(memory),
        false => Lab::new(),
    };
    let certificates = Certificates::create(&lab, "certs");
    let schemes = ["tcp", "tcp", "tls"];
    let relay = Relay::start_with_schemes(&lab, schemes, &certificates.of_server(true));
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("large"));
    let payload: Vec<u8> = (0..SIZE / 4)
        .flat_map(|number| u32::try_from(number).unwrap().to_be_bytes())
        .collect();
    let bytes = packet_of(stream, 0, &payload, 0);
    producer.data.write_all(&bytes).unwrap();
    producer.send_index(stream, 0, index(0, SIZE as u64));
    let (_proxy, address) = start_proxy(&lab, &relay, &certificates.of_client(Some("viewer")));
    let (mut viewer, ..) = Viewer::attached(address, "large", Seek::Beginning);
    assert_eq!(viewer.wait_for_index(stream).status, IndexStatus::Ready);
    for len in [20_000, SIZE] {
        let (_, packet) = viewer.packet(stream, 0, u32::try_from(len).unwrap());
        assert!(packet == payload[..len], "{len}");
    }
}

#[test]
fn sessions_are_listed_over_tls() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let directory = traces::with_every_field_type(&lab);
    let options = certificates.of_client(Some("producer"));
    let held = HeldReplay::open(replay_command(&lab, &relay, "listed", &directory, &options));
    let url = format!("nets://{}", relay.live);
    let mut list = test_live::command(&lab, &["--list", &url]);
    list.args(certificates.of_client(Some("viewer")));
    let printed = Process::start(&mut list).wait().expect_success();
    assert!(
        printed.iter().any(|line| line.contains("listed")),
        "{printed:?}"
    );
    drop(held);
}

#[test]
fn sighup_reads_certificates_again_and_a_broken_file_changes_nothing() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    certificates.issue_server(&["other.example"]);
    let mut relay = start_relay(&lab, &certificates);
    let url = format!("nets://{}", relay.live);
    let list = || {
        let mut list = test_live::command(&lab, &["--list", &url]);
        list.args(certificates.of_client(Some("viewer")));
        Process::start(&mut list).wait()
    };
    let refused = list();
    let why = refused.stderr.join("\n");
    assert!(why.contains("for other host names"), "{why}");
    assert_eq!(refused.status.code(), Some(1));
    certificates.issue_server(&["127.0.0.1"]);
    relay.process().signal(Signal::HUP);
    let has_logged = |relay: &Relay, text: &str, times| {
        let lines = relay.log();
        lines.iter().filter(|line| line.contains(text)).count() == times
    };
    wait_until("all ports have read their certificates", || {
        has_logged(&relay, "certificates read again", 3)
    });
    list().expect_success();
    std::fs::write(certificates.file("server.pem"), "nothing").unwrap();
    relay.process().signal(Signal::HUP);
    wait_until("all ports keep their certificates", || {
        has_logged(&relay, "certificates not read again", 3)
    });
    list().expect_success();
}

#[test]
fn a_live_port_open_to_other_hosts_without_tls_is_warned_of() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let warning = "live port open to other hosts without TLS";
    for (live, is_warned) in [
        ("tcp://0.0.0.0:0", true),
        ("tcp6://[::]:0", true),
        ("tcp://127.0.0.1:0", false),
        ("tls://0.0.0.0:0", false),
    ] {
        let mut command = lab.command(tests::binaries::relayd());
        command.arg("-v").arg("-o").arg(lab.directory("output"));
        command.args(["-C", "tcp://127.0.0.1:0", "-D", "tcp://127.0.0.1:0"]);
        if live.starts_with("tls") {
            command.args(certificates.of_server(false));
        }
        let mut relay = Process::start(command.args(["-L", live]));
        relay.wait_for_stderr_text(" listening ");
        let has_warned = relay.stderr().iter().any(|line| line.contains(warning));
        assert_eq!(has_warned, is_warned, "{live}");
    }
}
