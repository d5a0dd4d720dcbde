//! The JSON log (`--log-format=json`).

use serde_json::Value;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;

#[test]
fn each_line_of_a_json_log_is_an_object() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command
        .args(["-v", "--log-format=json", "-o"])
        .arg(lab.directory("output"));
    for port in ["control", "data", "live"] {
        command.arg(format!("--{port}-port=tcp://127.0.0.1:0"));
    }
    let mut process = Process::start(&mut command);
    let line: Value = process.wait_for_stderr("the relay listens", |line| {
        line.contains("listening")
            .then(|| serde_json::from_str(line).unwrap())
    });
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["fields"]["message"], "listening");
    assert!(
        line["fields"]["control"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    process.signal(rustix::process::Signal::TERM);
    for line in process.wait().stderr {
        serde_json::from_str::<Value>(&line).unwrap();
    }
}
