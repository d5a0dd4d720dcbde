//! What the daemons print if they cannot start: the fault once, with its place.

use std::fs;

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;

/// Runs a program that cannot start, and returns its exit status and what it prints.
fn fail(lab: &Lab, program: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = lab.command(program);
    let ended = Process::start(command.args(arguments)).wait();
    (ended.status.code(), ended.stderr.join("\n"))
}

#[test]
fn fault_of_a_configuration_is_printed_once_with_its_line() {
    let lab = Lab::new();
    let file = |name: &str, text: &str| {
        let path = lab.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let missing = lab.path().join("missing").display().to_string();
    let (status, text) = fail(&lab, binaries::relayd(), &["--config", &missing]);
    let want = format!(
        "relayd: cannot read configuration file {missing}: No such file or directory (os error 2)"
    );
    assert_eq!((status, text), (Some(1), want));
    let value = file(
        "relayd.conf",
        "[relayd]\noutput=/traces\nreorder-packets=0\n",
    );
    let (status, text) = fail(&lab, binaries::relayd(), &["--config", &value]);
    let want = format!(
        "relayd: {value}:3: invalid value '0' for '--reorder-packets <N>': 0 is not in 1..=65536"
    );
    assert_eq!((status, text), (Some(1), want));
    let arguments = ["check-config", missing.as_str()];
    let (status, text) = fail(&lab, binaries::consumer(), &arguments);
    let want = format!("consumer: cannot read {missing}: No such file or directory (os error 2)");
    assert_eq!((status, text), (Some(2), want));
    let toml = file("consumer.toml", "[relay]\nurl = 7\n");
    let (status, text) = fail(&lab, binaries::consumer(), &["check-config", &toml]);
    assert_eq!(status, Some(2));
    assert_eq!(text.matches("line 2").count(), 1, "{text}");
}
