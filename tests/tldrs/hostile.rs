//! Malformed, oversized and excessive input of clients.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use tests::tldrs::Tldrs;
use tests::{Lab, wait_until};

use crate::{event, events};

/// The maximum of resident memory (`VmHWM`) in KiB, whatever clients send.
const MAX_MEMORY_KIB: u64 = 64 << 10;

/// Writes the same bytes `times` times.
fn write_repeatedly(client: &mut UnixStream, bytes: &[u8], times: usize) {
    for _ in 0..times {
        client.write_all(bytes).unwrap();
    }
}

#[test]
fn line_of_a_gigabyte_is_skipped_and_the_next_line_is_stored() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    write!(client, "OPEN t\n{}", events(&["a"])).unwrap();
    write_repeatedly(&mut client, &vec![b'x'; 1 << 20], 1 << 10);
    write!(client, "\n{}\n", event("b", 2)).unwrap();
    tldrs.wait_for_trace("t", &events(&["a", "b"]));
    // The rejected line is written after the events that arrived with it.
    let rejected = tldrs.data.join("t.rejected.jsonl");
    wait_until("the line is kept as rejected", || {
        fs::read(&rejected).is_ok_and(|lines| lines.ends_with(b"\n"))
    });
    let rejected = fs::read_to_string(rejected).unwrap();
    assert_eq!(rejected.lines().count(), 1);
    assert!(rejected.contains("too long") && rejected.len() < 8192);
    assert!(tldrs.proc_status("VmHWM") < MAX_MEMORY_KIB);
}

#[test]
fn line_of_the_maximum_length_is_stored_and_a_longer_one_refused() {
    let lab = Lab::new();
    let tldrs = Tldrs::start_with(&lab, &["--max-line", "1M"]);
    let line = |length: usize| format!("{{\"a\":\"{}\"}}\n", "x".repeat(length - 8));
    let (longest, too_long) = (line(1 << 20), line((1 << 20) + 1));
    tldrs.send(&format!(
        "OPEN t\n{too_long}{longest}{too_long}{}\n",
        event("b", 2)
    ));
    tldrs.wait_for_trace("t", &format!("{longest}{}\n", event("b", 2)));
}

#[test]
fn thousand_clients_take_little_memory() {
    const CLIENTS: usize = 1000;
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(4096),
            maximum: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
        },
    )
    .unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| tldrs.connect()).collect();
    let chunk = events(&["a"]).repeat(700);
    for (number, client) in clients.iter_mut().enumerate() {
        // The daemon buffers half a line for each client.
        write!(client, "OPEN t-{}\n{chunk}{{\"half\":", number % 10).unwrap();
    }
    let size = || (0..10).map(|trace| tldrs.data.join(format!("t-{trace}.jsonl")));
    let size = || {
        size()
            .map(|path| path.metadata().map_or(0, |file| file.len()))
            .sum::<u64>()
    };
    wait_until("all lines are stored", || {
        size() == (CLIENTS * chunk.len()) as u64
    });
    assert!(
        tldrs.proc_status("VmHWM") < MAX_MEMORY_KIB,
        "{} KiB",
        tldrs.proc_status("VmHWM")
    );
    assert!(tldrs.proc_status("Threads") < 32);
    drop(clients);
    tldrs.stop();
}

#[test]
fn daemon_survives_malformed_input_of_all_kinds() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut random = 1_u64;
    for _ in 0..20 {
        let mut client = tldrs.connect();
        let bytes: Vec<u8> = (0..100_000)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                random.to_be_bytes()[0]
            })
            .collect();
        client.write_all(b"OPEN random\n").unwrap();
        // A line DIE is too unlikely in so few random bytes.
        let _ = client.write_all(&bytes);
    }
    let deep = "[".repeat(100_000);
    tldrs.send(&format!(
        "OPEN ../../../etc/passwd\0\n{{\"a\":{deep}\n{{\"a\":{deep}}}\n"
    ));
    tldrs.send(&format!("OPEN {}\n{}", "x/".repeat(5000), events(&["a"])));
    tldrs.send(&format!("OPEN t\n{}", events(&["a"])));
    tldrs.wait_for_trace("t", &events(&["a"]));
    assert!(tldrs.proc_status("VmHWM") < MAX_MEMORY_KIB);
    tldrs.stop();
}

#[test]
fn many_refused_lines_are_counted_and_not_all_kept_or_logged() {
    const LINES: usize = 1_000_000;
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    writeln!(client, "OPEN t").unwrap();
    write_repeatedly(&mut client, "no\n".repeat(1000).as_bytes(), LINES / 1000);
    drop(client);
    let record = tldrs.data.join(".t.state.json");
    let count = |record: &serde_json::Value| record["refused"].as_u64();
    wait_until("all lines are counted", || {
        let record = serde_json::from_slice(&fs::read(&record).unwrap_or_default());
        record.is_ok_and(|record| count(&record) == Some(LINES as u64))
    });
    assert!(tldrs.log().len() < 100);
    let kept = tldrs
        .data
        .join("t.rejected.jsonl")
        .metadata()
        .unwrap()
        .len();
    assert!(kept < 17 << 20, "{kept}");
}
