//! Options, exit status and messages.

use std::process::Output;

use tests::lab::Lab;
use tests::relay::{Relay, free_addresses, port_options};

use super::all_relays;

/// Runs all relays with these arguments and this environment variable, until they exit.
fn run_all(arguments: &[&str], variable: Option<(&str, &str)>) -> [Output; 3] {
    let lab = Lab::new();
    let addresses = port_options(free_addresses());
    all_relays(&lab).map(|mut program| {
        program.args(&addresses).args(arguments);
        program.envs(variable);
        program.output().unwrap()
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn invalid_options_exit_with_status_1_and_an_error_message() {
    for arguments in [
        &["--no-such-option"][..],
        &["-C", "localhost"],
        &["-L", "nonsense://localhost"],
        &["-o", "relative/path"],
        &["-p", "-s"],
        &["--group-output"],
        &["--fd-pool-size=99"],
        &["--fd-pool-size=1999999999"],
        &["--fd-pool-size=many"],
        &["--config=/no/such/file"],
        &["-b", "-w", "/no/such/directory"],
    ] {
        for output in run_all(arguments, None) {
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {printed}");
            assert!(!printed.is_empty(), "{arguments:?}");
        }
    }
    let perhaps = ("LTTNG_RELAYD_DISALLOW_CLEAR", "perhaps");
    for output in run_all(&[], Some(perhaps)) {
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(perhaps.0));
    }
}

#[test]
fn a_missing_working_directory_is_reported_in_the_words_of_the_reference() {
    for output in run_all(&["-b", "-w", "/no/such/directory"], None) {
        let printed = text(&output.stderr);
        assert!(
            printed.contains("Failed to change working directory to"),
            "{printed}"
        );
    }
}

#[test]
fn version_option_prints_only_a_version_number() {
    for option in ["-V", "--version", "--vers"] {
        for output in run_all(&[option], None) {
            let printed = text(&output.stdout);
            assert!(output.status.success());
            let number = printed.strip_suffix('\n').unwrap();
            assert!(
                number.starts_with("2.")
                    && number.split('.').all(|part| part.parse::<u32>().is_ok()),
                "{printed:?}"
            );
            assert!(output.stderr.is_empty());
        }
    }
}

#[test]
fn abbreviated_and_repeated_options_and_operands_are_accepted_as_by_getopt() {
    let lab = Lab::new();
    let directory = lab.directory("work").display().to_string();
    let relay = Relay::start_with(
        &lab,
        &[
            "operand",
            "--working-dir",
            &directory,
            "--group-output-by-s",
            "-o",
            "/first/of/two",
            "--disallow",
            "--dynamic",
            "another",
        ],
    );
    relay.wait_for_log(&["listening", "by=session"]);
    let link = format!("/proc/{}/cwd", relay.id());
    assert_eq!(
        std::fs::read_link(link).unwrap(),
        std::fs::canonicalize(directory).unwrap()
    );
}
