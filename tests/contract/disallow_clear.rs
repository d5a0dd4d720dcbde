//! `--disallow-clear`: recorded chunks cannot be deleted, which the configuration flags tell
//! producers.

use std::fs;

use relay_proto::chunk::CloseCommand;
use relay_proto::command::GetConfiguration;
use relay_proto::reply::{CLEAR_ALLOWED, Configuration, RESUME, ReturnCode};
use relay_proto::{Command, Minor, Reply};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::producer::{Producer, live_session};
use tests::relay::Relay;
use tests::tree::files;
use tests::{binaries, peers, traced_app};

/// Returns the flags of the GET_CONFIGURATION reply.
fn configuration_flags(relay: &Relay) -> u64 {
    let mut producer = Producer::connect(relay, Minor(15));
    let ask = Command::GetConfiguration(GetConfiguration { query: 0 });
    match producer.request(ask) {
        Reply::Configuration(Configuration { flags, .. }) => flags,
        other => panic!("{other:?}"),
    }
}

#[test]
fn disallow_clear_from_every_source_is_announced_to_producers_as_by_the_reference() {
    let lab = Lab::new();
    let file = lab.path().join("no-clear.conf");
    fs::write(&file, "[relayd]\ndisallow-clear = yes\n").unwrap();
    let config = format!("--config={}", file.display());
    for (arguments, variable, want) in [
        (&[][..], "", CLEAR_ALLOWED),
        (&["-x"], "", 0),
        (&["--disallow-clear"], "0", 0),
        (&[&config], "", 0),
        (&[], "1", 0),
        (&[], "no", CLEAR_ALLOWED),
    ] {
        let mut command = lab.command(binaries::relayd());
        command
            .args(arguments)
            .env("LTTNG_RELAYD_DISALLOW_CLEAR", variable);
        let relay = Relay::start_from_command(&lab, command);
        // The extension is the only other flag; the reference has none.
        assert_eq!(
            configuration_flags(&relay),
            want | RESUME,
            "{arguments:?} {variable:?}"
        );
    }
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command.arg("--resume-timeout=0");
    let relay = Relay::start_from_command(&lab, command);
    assert_eq!(configuration_flags(&relay), CLEAR_ALLOWED);
    // The reference runs as another user, which needs a directory of its own.
    let lab = Lab::new();
    assert_eq!(
        configuration_flags(&Relay::start_reference(&lab)),
        CLEAR_ALLOWED
    );
    assert_eq!(
        configuration_flags(&Relay::start_reference_with(&lab, &["-x"])),
        0
    );
}

#[test]
fn chunk_deletion_is_refused_and_keeps_all_files_with_disallow_clear() {
    for start in [Relay::start_with, Relay::start_reference_with] {
        let lab = Lab::new();
        let relay = start(&lab, &["-x"]);
        let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("kept"));
        producer.record_packet(stream, 0, 1000);
        let refused = producer.close_chunk(0, Some(CloseCommand::Delete));
        assert_eq!(
            refused,
            Reply::ChunkClosed {
                code: ReturnCode::INVALID_PROTOCOL,
                path: None
            }
        );
        assert!(producer.is_disconnected());
        let kept = files(&relay.output, "/chan_0");
        assert!(kept.values().all(|bytes| bytes.len() == 1000) && kept.len() == 1);
    }
}

#[test]
fn lttng_clear_fails_with_disallow_clear() {
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--disallow-clear"]);
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "kept", None);
    daemon.lttng(&["start", "kept"]);
    traced_app::run(&lab, 300, 0, "one");
    let mut clear = lab.traced_command(peers::program("lttng"));
    let ended = Process::start(clear.args(["--no-sessiond", "clear", "kept"])).wait();
    assert!(!ended.status.success(), "{:?}", ended.stdout);
    daemon.lttng(&["destroy", "kept"]);
    let kept: usize = files(&relay.output, "").values().map(Vec::len).sum();
    assert!(kept > 300 * 8);
}
