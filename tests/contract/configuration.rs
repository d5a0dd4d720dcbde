//! Configuration files: `--config` overrides the user's file, and the command line overrides both.

use std::fs;

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_until;

#[test]
fn command_line_overrides_the_named_file_which_overrides_the_users_file() {
    let lab = Lab::new();
    fs::write(
        lab.path().join(".lttng/lttng.conf"),
        "[sessiond]\nverbose=3\n[relayd]\ngroup-output-by-session=on\nfd-pool-size=200\noutput=/user\n",
    )
    .unwrap();
    let named = lab.path().join("named.conf");
    fs::write(
        &named,
        "# Of this site.\n[relayd]\nfd-pool-size = 300 ; enough\nnonsense=1\noutput=/named\n",
    )
    .unwrap();
    let config = format!("--config={}", named.display());
    // `start_with` sets the output and the ports on the command line.
    let relay = Relay::start_with(&lab, &[&config]);
    relay.wait_for_log(&["listening", "by=session", "pool=300"]);
    relay.wait_for_log(&["WARN", "named.conf:4", "nonsense"]);
    assert!(relay.output.starts_with(lab.path()));
    drop(relay);
    let relay = Relay::start_with(&lab, &["--group-output-by-host"]);
    relay.wait_for_log(&["listening", "by=host", "pool=200"]);
}

#[test]
fn every_option_can_be_set_in_a_configuration_file() {
    let lab = Lab::new();
    let (output, pid) = (lab.path().join("traces"), lab.path().join("pid"));
    fs::write(
        lab.path().join(".lttng/lttng.conf"),
        format!(
            "[relayd]\ncontrol-port=tcp://127.0.0.1:0\ndata-port=tcp://127.0.0.1:0\n\
             live-port=tcp://127.0.0.1:0\noutput={}\npid-file={}\nverbose=1\n",
            output.display(),
            pid.display()
        ),
    )
    .unwrap();
    let relay = Process::start(&mut lab.command(binaries::relayd()));
    wait_until("the pid file is written", || {
        fs::read_to_string(&pid).is_ok_and(|text| text == format!("{}\n", relay.id()))
    });
    assert!(output.is_dir());
}

#[test]
fn an_invalid_value_in_a_configuration_file_exits_with_status_1_and_names_the_option() {
    let lab = Lab::new();
    let named = lab.path().join("wrong.conf");
    for wrong in ["control-port=nowhere", "fd-pool-size=7", "output=relative"] {
        fs::write(&named, format!("[relayd]\n{wrong}\n")).unwrap();
        let mut command = lab.command(binaries::relayd());
        let ended = Process::start(command.arg("-f").arg(&named)).wait();
        assert_eq!(ended.status.code(), Some(1), "{wrong}");
        let (option, _) = wrong.split_once('=').unwrap();
        assert!(ended.stderr.concat().contains(option), "{:?}", ended.stderr);
    }
}
