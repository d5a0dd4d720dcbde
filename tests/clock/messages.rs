//! `test-live info`: messages between hosts that are received before they are sent, by the clocks.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, test_live, wait_until};

use crate::align::{HOSTS, start_relay};
use crate::samples::stop;
use crate::shifted_clock::ShiftedClock;

/// Starts an agent with a `tldrs` socket on a host with a shift. Returns a client of it, too.
fn start_agent(lab: &Lab, relay: &Relay, (host, shift): (&str, i64)) -> (Process, UnixStream) {
    let clock = ShiftedClock::new(lab, host, shift);
    let socket = lab.path().join(format!("{host}.socket"));
    let mut command = lab.command(binaries::consumer());
    clock.apply_to(&mut command);
    command
        .args(["serve", "-v", "--clock-interval=100", "--hostname", host])
        .args(["-U", &relay.producer_url()])
        .arg(format!("--tldrs={}", socket.display()))
        .arg(format!("--tldrs-dir={}", lab.directory(host).display()))
        .arg(format!(
            "--socket={}.status",
            lab.path().join(host).display()
        ));
    let mut process = Process::start(&mut command);
    process.wait_for_stderr_text("consumer::agent: ready");
    let mut client = UnixStream::connect(socket).unwrap();
    writeln!(client, "OPEN {host}").unwrap();
    (process, client)
}

#[test]
fn messages_that_are_received_before_they_are_sent_are_counted_until_clocks_are_aligned() {
    let lab = Lab::new();
    let relay = start_relay(&lab, 0, &[]);
    let [(ahead, mut sender), (behind, mut receiver)] =
        HOSTS.map(|host| start_agent(&lab, &relay, host));
    for id in 0..20 {
        let event = |phase| {
            format!(r#"{{"ph":"{phase}","id":{id},"name":"m","cat":"net","pid":1,"tid":1,"ts":1}}"#)
        };
        writeln!(sender, "{}", event("s")).unwrap();
        sleep(Duration::from_millis(20));
        writeln!(receiver, "{}", event("f")).unwrap();
    }
    drop((sender, receiver));
    let info = |options: &[&str]| {
        let words = [&["info"], options, &[relay.output.to_str().unwrap()]].concat();
        let lines = Process::start(&mut test_live::command(&lab, &words))
            .wait()
            .stdout
            .clone();
        let line = lines
            .iter()
            .find_map(|line| line.strip_prefix("messages   "));
        line.map(str::to_owned)
    };
    wait_until("all messages are recorded", || {
        info(&[]).is_some_and(|line| line.starts_with("20 "))
    });
    stop(ahead);
    stop(behind);
    let line = info(&[]).unwrap();
    // The times of day differ by 5.25 s, and each message takes some 20 ms.
    let reversed = "20 between hosts, 20 received before they were sent, by up to 5.2";
    assert!(line.starts_with(reversed), "{line}");
    let aligned = info(&["--align"]).unwrap();
    assert_eq!(
        aligned,
        "20 between hosts, all received after they were sent"
    );
}
