//! Many clients at a time, clients that write in small pieces, and clients that are killed.

use std::fs;
use std::io::Write;

use tests::disk::SmallDisk;
use tests::tldrs::Tldrs;
use tests::{Lab, wait_until};

use crate::{event, events};

/// Waits until a trace has `count` lines and returns them.
fn lines(tldrs: &Tldrs, trace: &str, count: usize) -> Vec<String> {
    let path = tldrs.data.join(format!("{trace}.jsonl"));
    let read = || fs::read_to_string(&path).unwrap_or_default();
    wait_until("all lines are stored", || {
        read().matches('\n').count() >= count
    });
    read().lines().map(str::to_owned).collect()
}

#[test]
fn lines_of_64_clients_stay_whole_and_in_order_of_each_client() {
    const CLIENTS: usize = 64;
    const EVENTS: usize = 500;
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let tldrs = &tldrs;
            scope.spawn(move || {
                let mut client = tldrs.connect();
                // Half of the clients cut lines anywhere, the others send one event at a time.
                let piece = if number % 2 == 0 {
                    37 + number
                } else {
                    usize::MAX
                };
                let mut text = "OPEN shared\n".to_owned();
                for ts in 0..EVENTS {
                    text += &format!("{{\"client\":{number},\"ts\":{ts}}}\n");
                    if piece == usize::MAX {
                        client
                            .write_all(std::mem::take(&mut text).as_bytes())
                            .unwrap();
                    }
                }
                for part in text.as_bytes().chunks(piece) {
                    client.write_all(part).unwrap();
                }
            });
        }
    });
    let mut next = [0; CLIENTS];
    for line in lines(&tldrs, "shared", CLIENTS * EVENTS) {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let number = usize::try_from(line["client"].as_u64().unwrap()).unwrap();
        assert_eq!(line["ts"], next[number], "client {number}");
        next[number] += 1;
    }
    assert_eq!(next, [EVENTS; CLIENTS]);
    tldrs.stop();
}

#[test]
fn client_that_pauses_between_bursts_loses_no_events() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    writeln!(client, "OPEN t").unwrap();
    let mut stored = String::new();
    for burst in 0..20 {
        for number in 0..30 {
            let line = event(&format!("{burst}-{number}"), number) + "\n";
            client.write_all(line.as_bytes()).unwrap();
            stored += &line;
        }
        tldrs.wait_for_trace("t", &stored);
    }
}

#[test]
fn client_killed_in_the_middle_of_a_line_affects_no_other_client() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut other = tldrs.connect();
    write!(other, "OPEN t\n{}", events(&["a"])).unwrap();
    tldrs.wait_for_trace("t", &events(&["a"]));
    let mut dying = tldrs.connect();
    write!(dying, "OPEN t\n{}{{\"name\":\"ha", events(&["b"])).unwrap();
    // The kernel closes the sockets of a killed process in the same way.
    drop(dying);
    let rejected = tldrs.data.join("t.rejected.jsonl");
    wait_until("the partial line is kept as rejected", || {
        fs::read_to_string(&rejected).is_ok_and(|text| text.contains("{\\\"name\\\":\\\"ha"))
    });
    writeln!(other, "{}", event("c", 3)).unwrap();
    let b = events(&["b"]);
    tldrs.wait_for_trace("t", &format!("{}{b}{}\n", events(&["a"]), event("c", 3)));
}

#[test]
fn lines_of_a_client_that_disconnected_before_accept_are_stored() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.signal(rustix::process::Signal::STOP);
    for number in 0..50 {
        tldrs.send(&format!("OPEN t\n{}\n", event("a", number)));
    }
    tldrs.signal(rustix::process::Signal::CONT);
    assert_eq!(lines(&tldrs, "t", 50).len(), 50);
}

#[test]
fn clients_and_traces_above_the_limits_are_refused_and_logged() {
    let lab = Lab::new();
    let mut tldrs = Tldrs::start_with(&lab, &["--max-clients", "2", "--max-traces", "1"]);
    let mut one = tldrs.connect();
    write!(one, "OPEN a\n{}OPEN b\n{}", events(&["a"]), events(&["b"])).unwrap();
    tldrs.wait_for_log("1 traces are open already");
    write!(one, "OPEN a\n{}\n", event("c", 2)).unwrap();
    tldrs.wait_for_trace("a", &format!("{}{}\n", events(&["a"]), event("c", 2)));
    let _two = tldrs.connect();
    let _three = tldrs.connect();
    tldrs.wait_for_log("too many clients");
    assert!(!tldrs.data.join("b.jsonl").exists());
}

#[test]
fn full_disk_blocks_clients_and_leaves_no_partial_lines() {
    let lab = Lab::new();
    let data = lab.directory("data");
    let Some(disk) = SmallDisk::mount(&data, 64) else {
        return;
    };
    let mut tldrs = Tldrs::start(&lab);
    disk.fill(32);
    let all: String = (0..500).map(|ts| event("full", ts) + "\n").collect();
    tldrs.send(&format!("OPEN t\n{all}"));
    tldrs.wait_for_log("cannot append");
    let stored = fs::read_to_string(data.join("t.jsonl")).unwrap();
    assert!(
        all.starts_with(&stored) && stored.ends_with("}\n"),
        "a prefix of whole lines"
    );
    disk.free_space();
    tldrs.wait_for_trace("t", &all);
    tldrs.stop();
}
