//! `relayd certs` from a new directory to a recorded session, with the commands that it prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::{binaries, traces};

use super::{directory_of, events, replay_command};

fn certs(lab: &Lab, arguments: &[&str]) -> CompletedProcess {
    let mut command = lab.command(binaries::relayd());
    Process::start(command.arg("certs").args(arguments)).wait()
}

#[test]
fn files_of_relayd_certs_serve_a_first_set_up() {
    let lab = Lab::new();
    let printed = certs(&lab, &["--host", "127.0.0.1"]).expect_success();
    let options = |command: &str| -> Vec<String> {
        let begin = printed.iter().position(|line| line.contains(command));
        let words = printed[begin.unwrap()..][..2].join(" ");
        let words = words.split_whitespace();
        let words: Vec<_> = words
            .skip_while(|word| !word.starts_with("--tls"))
            .collect();
        let in_directory = |word: &&str| match word.ends_with(".pem") || word.ends_with(".key") {
            true if !word.contains('/') => format!("relayd-certs/{word}"),
            _ => (*word).to_owned(),
        };
        words.iter().map(in_directory).collect()
    };
    let relay = Relay::start_with_schemes(&lab, ["tls"; 3], &options("relayd -C tls://"));
    let directory = traces::with_every_field_type(&lab);
    let producer = options("consumer replay");
    let mut replay = replay_command(&lab, &relay, "first", &directory, &producer);
    Process::start(&mut replay).wait().expect_success();
    assert!(events(&directory_of(&relay, "first")) == events(&directory));
    let url = format!("nets://{}", relay.live);
    let mut list = tests::test_live::command(&lab, &["--list", &url]);
    list.args(options("test-live nets://"));
    Process::start(&mut list).wait().expect_success();
}

#[test]
fn keys_are_private_and_nothing_is_replaced_without_force() {
    let lab = Lab::new();
    certs(&lab, &["--dir=c"]).expect_success();
    let read = |name: &str| fs::read(lab.path().join("c").join(name)).unwrap();
    let before = (read("ca.key"), read("viewer.pem"));
    for key in ["ca.key", "server.key", "producer.key", "viewer.key"] {
        let mode = fs::metadata(lab.path().join("c").join(key))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{key}");
    }
    let viewer = ["--dir=c", "--client=viewer", "--role=view"];
    let refused = certs(&lab, &viewer);
    assert_eq!(refused.status.code(), Some(1));
    let printed = refused.stderr.join("\n");
    assert!(printed.contains("viewer.key: it exists"), "{printed}");
    assert_eq!((read("ca.key"), read("viewer.pem")), before);
    certs(&lab, &[&viewer[..], &["--force"]].concat()).expect_success();
    assert_eq!(read("ca.key"), before.0);
    assert_ne!(read("viewer.pem"), before.1);
}
