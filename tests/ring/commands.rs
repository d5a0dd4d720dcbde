//! The commands of `consumer rings`, without a relay and mostly without an agent.

use std::time::Duration;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_until;

use crate::system::{Agent, Shown, Writer, Writing, rings, rings_command, session_directory};

fn run(lab: &Lab, arguments: &[&str]) -> Vec<String> {
    Process::start(&mut rings_command(lab, arguments))
        .wait()
        .expect_success()
}

const SLOW: Writing<'_> = Writing {
    threads: 1,
    events: 0,
    pause: Duration::from_millis(1),
    environment: &[],
};

#[test]
fn list_shows_live_and_dead_processes_with_their_losses() {
    let lab = Lab::new();
    assert_eq!(run(&lab, &["--list"]).len(), 1);
    let live = Writer::start(&lab, "live", SLOW);
    live.wait_for_events(1);
    let writing = Writing {
        events: 5000,
        environment: &[("TRACE_RING_SIZE", "64K")],
        ..Writing::default()
    };
    let dead = Writer::start(&lab, "dead", writing).end();
    let table = run(&lab, &["--list"]);
    let row = |pid: u32| {
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect();
        let mut rows = table.iter().map(words);
        rows.find(|row: &Vec<String>| row[0] == pid.to_string())
            .unwrap()
    };
    assert_eq!(row(live.pid())[1], "live");
    assert_eq!(row(live.pid()).last().unwrap(), "ring-writer");
    let dead_row = row(dead.pid);
    assert_eq!(dead_row[1], "dead");
    // Full, and the other events are lost.
    assert_eq!(dead_row[9], "100%");
    let lost: u64 = dead_row[10].parse().unwrap();
    assert!((1..5000).contains(&lost), "{table:#?}");
    let selected = run(&lab, &["--list", "--pid", &dead.pid.to_string()]);
    assert_eq!(selected.len(), 2);
}

#[test]
fn print_shows_events_as_they_are_written_until_it_is_interrupted() {
    let lab = Lab::new();
    let _ = rings(&lab);
    let print = Process::start(&mut rings_command(&lab, &["--print"]));
    let writing = Writing {
        events: 30_000,
        ..Writing::default()
    };
    // More than the ring holds, at a rate that needs somebody who frees it.
    let pause = Duration::from_micros(20);
    let written = Writer::start(&lab, "printed", Writing { pause, ..writing }).end();
    wait_until("the last event is shown", || {
        let lines = print.stdout();
        lines
            .last()
            .is_some_and(|line| line.ends_with("number=29999"))
    });
    print.signal(Signal::INT);
    let lines = print.wait().expect_success();
    assert_eq!(lines.len(), 30_000);
    for (number, line) in lines.iter().enumerate() {
        let message = format!(": a tick thread=0 number={number}");
        assert!(line.ends_with(&message), "{line}");
        assert!(
            line.contains(&format!("ring-writer[{}:", written.pid)),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'), "no colours in a pipe");
    }
}

#[test]
fn print_takes_no_event_from_a_running_agent() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay, &[]);
    let print = Process::start(&mut rings_command(&lab, &["--print"]));
    let writer = Writer::start(&lab, "both", SLOW);
    wait_until("events are shown", || print.stdout_line_count() > 50);
    let written = writer.kill();
    agent.stop(&lab);
    print.signal(Signal::INT);
    print.wait().expect_success();
    let directory = session_directory(&relay.output, written.pid);
    Shown::read(&directory).assert_without_loss(&written);
}

#[test]
fn recording_is_a_trace_with_every_event() {
    let lab = Lab::new();
    let output = lab.path().join("recorded");
    let path = output.to_str().unwrap();
    let mut record = rings_command(&lab, &["-v", "--record", path]);
    let mut record = Process::start(&mut record);
    record.wait_for_stderr_text("consumer::frontend::ring: rings");
    let written = Writer::start(&lab, "recorded", SLOW);
    written.wait_for_events(100);
    let written = written.kill();
    record.signal(Signal::INT);
    record.wait().expect_success();
    assert!(crate::system::directories(&lab).is_empty());
    let directory = session_directory(&output, written.pid);
    Shown::read(&directory).assert_without_loss(&written);
}

#[test]
fn recording_stays_within_its_quota_and_keeps_the_newest_events() {
    const QUOTA: u64 = 1 << 20;
    let lab = Lab::new();
    let output = lab.path().join("recorded");
    let path = output.to_str().unwrap();
    let arguments = ["-v", "--record", path, "--quota", "1M"];
    let mut record = Process::start(&mut rings_command(&lab, &arguments));
    record.wait_for_stderr_text("consumer::frontend::ring: rings");
    let writing = Writing {
        events: 40_000,
        pause: Duration::from_micros(10),
        ..Writing::default()
    };
    let written = Writer::start(&lab, "quota", writing).end();
    record.signal(Signal::INT);
    record.wait().expect_success();
    let directory = session_directory(&output, written.pid);
    let files = std::fs::read_dir(directory.join("ring")).unwrap();
    let sizes = files.map(|file| file.unwrap().metadata().unwrap());
    let bytes: u64 = sizes
        .filter(|data| data.is_file())
        .map(|data| data.len())
        .sum();
    assert!(bytes < QUOTA + (64 << 10), "{bytes}");
    let shown = Shown::read(&directory);
    assert!((1..40_000).contains(&shown.count()));
    assert_eq!(shown.threads[&0].last(), Some(&39_999));
}

#[test]
fn snapshot_has_what_a_flight_recorder_holds_while_its_program_runs() {
    let lab = Lab::new();
    let writing = Writing {
        environment: &[("TRACE_RING", "overwrite"), ("TRACE_RING_SIZE", "64K")],
        pause: Duration::from_micros(1),
        ..Writing::default()
    };
    let writer = Writer::start(&lab, "recorder", writing);
    let other = Writer::start(&lab, "other", SLOW);
    writer.wait_for_events(10_000);
    other.wait_for_events(1);
    let before = writer.progress()[0];
    let output = lab.path().join("snapshot");
    run(&lab, &["--snapshot", output.to_str().unwrap()]);
    let shown = Shown::read(&session_directory(&output, writer.pid()));
    let numbers = &shown.threads[&0];
    assert!(numbers.len() > 500, "{}", numbers.len());
    assert!(numbers.is_sorted());
    // A program that goes round the ring while it is read overwrites events: they are reported.
    let missing = numbers.windows(2).map(|pair| pair[1] - pair[0] - 1);
    assert_eq!(missing.sum::<u64>(), shown.discarded);
    assert!(numbers.last() >= Some(&(before - 1)));
    // Only flight recorders, and they go on.
    assert!(crate::system::session_directories(&output, other.pid()).is_empty());
    writer.wait_for_events(before + 10_000);
}

#[test]
fn filter_of_a_running_program_is_changed() {
    let lab = Lab::new();
    let writer = Writer::start(&lab, "filtered", SLOW);
    writer.wait_for_events(10);
    let pid = writer.pid().to_string();
    let changed = run(&lab, &["--enable", "off", "--pid", &pid]);
    assert_eq!(changed, [format!("{pid} off")]);
    let changed = run(&lab, &["--enable", "ring_writer=debug", "--pid", &pid]);
    assert_eq!(changed, [format!("{pid} off,ring_writer=debug")]);
    for wrong in [
        &["--enable", "=", "--pid", &pid][..],
        &["--enable", "off", "--pid", "1"],
    ] {
        let refused = Process::start(&mut rings_command(&lab, wrong)).wait();
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}");
    }
    // Off: no event is written after the change, although the program goes on.
    run(&lab, &["--enable", "ring_writer=off", "--pid", &pid]);
    let off_at = writer.progress()[0];
    writer.wait_for_events(off_at + 50);
    let written = writer.kill();
    let output = lab.path().join("recorded");
    let arguments = ["-v", "--record", output.to_str().unwrap()];
    let mut record = Process::start(&mut rings_command(&lab, &arguments));
    record.wait_for_stderr_text("consumer::frontend::ring: rings");
    record.signal(Signal::INT);
    record.wait().expect_success();
    let shown = Shown::read(&session_directory(&output, written.pid));
    assert!(shown.threads[&0].last() <= Some(&off_at));
}
