//! Conversations whose result differs from the reference's on purpose. The numbers are those of the
//! recorded ones.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

use tests::tldrs::{Tldrs, run_tldrs};
use tests::wait_until;

use crate::{array, event, events};

/// Whether the daemon has closed the connection.
fn is_closed(client: &UnixStream) -> bool {
    client.set_nonblocking(true).unwrap();
    matches!(std::io::Read::read(&mut &*client, &mut [0]), Ok(0))
}

#[test]
fn case_04_events_before_any_open_are_stored_and_the_connection_stays() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    write!(client, "{}", events(&["early"])).unwrap();
    let unnamed = format!("unnamed-{}", std::process::id());
    tldrs.wait_for_trace(&unnamed, &events(&["early"]));
    write!(client, "OPEN late\n{}", events(&["late"])).unwrap();
    tldrs.wait_for_trace("late", &events(&["late"]));
    assert!(!is_closed(&client));
}

#[test]
fn case_05_export_before_any_open_is_refused_and_the_connection_stays() {
    let (_lab, mut tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    write!(client, "{}", tldrs.expand_paths("EMIT_TEF @OUT@/t.json\n")).unwrap();
    tldrs.wait_for_log("no trace is open");
    write!(client, "OPEN t\n{}", events(&["a"])).unwrap();
    tldrs.wait_for_trace("t", &events(&["a"]));
    assert!(!tldrs.out.join("t.json").exists());
}

#[test]
fn case_10_trace_file_is_never_hidden() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let ids = ["my long  run", "café-漢", ".hidden", "a.jsonl"];
    let text: String = ids
        .iter()
        .map(|id| format!("OPEN {id}\n{}", events(&[id])))
        .collect();
    tldrs.send(&text);
    for (id, name) in ids
        .iter()
        .zip(["my long  run", "café-漢", "%2Ehidden", "a.jsonl"])
    {
        tldrs.wait_for_trace(name, &events(&[id]));
    }
}

#[test]
fn case_11_trace_file_is_never_outside_the_directory() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let absolute = tldrs.expand_paths("@OUT@/absolute");
    let name = absolute.replace('/', "%2F");
    for (id, name) in [
        ("../out/escaped", "%2E.%2Fout%2Fescaped"),
        (&absolute, &name),
        ("nosuchdir/x", "nosuchdir%2Fx"),
        ("nul\0nul", "nul%00nul"),
    ] {
        tldrs.send(&format!("OPEN {id}\n{}", events(&["a"])));
        tldrs.wait_for_trace(name, &events(&["a"]));
    }
    assert_eq!(fs::read_dir(&tldrs.out).unwrap().count(), 0);
}

#[test]
fn case_13_valid_events_are_stored_and_other_lines_go_to_the_rejected_file() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let ok = event("ok", 1);
    tldrs.send(&format!(
        "OPEN bad\n{{not json}}\n{{\"a\":1}}{{\"b\":2}}\n{{\"v\":nan}}\n{{\"v\":\"raw\x01ctl\0nul\"}}\n{ok}\n"
    ));
    tldrs.wait_for_trace("bad", &format!("{{\"v\":\"nan\"}}\n{ok}\n"));
    let rejected = tldrs.data.join("bad.rejected.jsonl");
    wait_until("three lines are kept as rejected", || {
        fs::read_to_string(&rejected).is_ok_and(|text| text.lines().count() == 3)
    });
    let rejected = fs::read_to_string(rejected).unwrap();
    for (line, sent) in rejected.lines().zip(["{not json}", "{\"a\":1}{\"b\":2}"]) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["line"], sent);
        assert!(line["reason"].as_str().unwrap().contains("at byte"));
    }
}

#[test]
fn case_15_bytes_that_are_not_utf8_are_replaced_and_the_connection_stays() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    client
        .write_all(b"OPEN utf\n{\"a\":1}\n{\"name\":\"\xff\xfe\"}\n{\"b\":2}\n")
        .unwrap();
    tldrs.wait_for_trace(
        "utf",
        "{\"a\":1}\n{\"name\":\"\u{fffd}\u{fffd}\"}\n{\"b\":2}\n",
    );
    assert!(!is_closed(&client));
}

#[test]
fn case_17_export_of_an_empty_trace_is_valid() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send("OPEN none\nEMIT_TEF @OUT@/none.json\n");
    tldrs.wait_for_export("none.json", "[]\n");
    let trace = tldrs.data.join("none.jsonl");
    let trace = trace.to_str().unwrap();
    let get =
        |more: &[&str]| run_tldrs(&lab, &[&["get-tef", trace], more].concat()).expect_success();
    assert_eq!(get(&["--for", "any"]), ["[]"]);
    let object: serde_json::Value = serde_json::from_str(&get(&[]).concat()).unwrap();
    assert_eq!(object["traceEvents"], serde_json::json!([]));
}

#[test]
fn case_18_relative_path_is_resolved_in_the_clients_working_directory() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send(&format!(
        "OPEN rel\n{}EMIT_TEF tldrs-relative-path-test.json\n",
        events(&["a"])
    ));
    let here = std::env::current_dir()
        .unwrap()
        .join("tldrs-relative-path-test.json");
    tldrs.wait_for_file(&here, &array(&["a"]));
    fs::remove_file(here).unwrap();
    assert!(
        !lab.path()
            .join("cwd/tldrs-relative-path-test.json")
            .exists()
    );
}

#[test]
fn case_20_export_replaces_only_exports() {
    let (_lab, mut tldrs) = Tldrs::start_in_new_lab();
    let (precious, link) = (tldrs.out.join("precious.txt"), tldrs.out.join("link.json"));
    fs::write(&precious, "do not lose me\n").unwrap();
    symlink(tldrs.out.join("elsewhere"), &link).unwrap();
    tldrs.send(&format!(
        "OPEN ow\n{}EMIT_TEF @OUT@/precious.txt\nEMIT_TEF @OUT@/link.json\nEMIT_TEF @OUT@/last.json\n",
        events(&["a"])
    ));
    tldrs.wait_for_export("last.json", &array(&["a"]));
    tldrs.wait_for_log("does not look like a trace");
    tldrs.wait_for_log("no regular file");
    assert_eq!(fs::read(&precious).unwrap(), b"do not lose me\n");
    assert_eq!(fs::read_dir(&tldrs.out).unwrap().count(), 3);
}

#[test]
fn case_21_emit_tef_at_exit_is_accepted() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send(&format!(
        "OPEN tr-1\nEMIT_TEF_AT_EXIT @OUT@/t.json\n{}",
        events(&["a"])
    ));
    tldrs.wait_for_export("t.json", &array(&["a"]));
}

#[test]
fn case_23_export_at_exit_before_the_open_applies_to_the_trace_opened_next() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send(&format!(
        "EMIT_TEF_AT_EXIT @OUT@/t.json\nOPEN tr-2\n{}",
        events(&["a"])
    ));
    tldrs.wait_for_export("t.json", &array(&["a"]));
}

#[test]
fn case_24_export_at_exit_is_made_though_the_client_opens_another_trace() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send(&format!(
        "OPEN x1\nEMIT_TEF_AT_EXIT @OUT@/x1.json\n{}OPEN x2\n{}",
        events(&["a"]),
        events(&["b"])
    ));
    tldrs.wait_for_export("x1.json", &array(&["a"]));
    tldrs.wait_for_trace("x2", &events(&["b"]));
}

#[test]
fn case_35_what_the_client_library_sends_becomes_a_valid_export() {
    const SENT: &str = r#"{"pid":2,"name":"process_name","ph":"M","args": {"name":"main"}}
{"pid":2,"cat":"","tid": 3,"ts": 2.00,"name":"hello 1 2","ph":"I"}
{"pid":2,"tid":3,"ts":6.00,"name":"c","ph":"C","args": {"big":1e+06}}
{"pid":2,"tid":3,"ts":6.50,"name":"c","ph":"C","args": {"bad":inf}}
{"pid":2,"cat":"","tid": 3,"dur": 3.00,"ts": 1.00,"name":"inner.loop","ph":"X","args": {"__FILE__":"a.ml","n":null,"b":true}}
{"pid":2,"cat":"trace","id":-5432109876543210987,"tid": 3,"ts": 7.00,"name":"async","ph":"b","args": {"function":"f"}}
"#;
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let id = "tr-1739313372-00112233445566778899aabbccddeeff";
    tldrs.send(&format!("OPEN {id}\nEMIT_TEF_AT_EXIT @OUT@/t.json\n{SENT}"));
    let stored = SENT.replace(":inf}", ":\"inf\"}");
    tldrs.wait_for_trace(id, &stored);
    let array = format!("[{}]\n", stored.trim_end().replace('\n', ",\n"));
    tldrs.wait_for_export("t.json", &array);
    let parsed: Vec<serde_json::Value> = serde_json::from_str(&array).unwrap();
    assert_eq!(parsed.len(), 6);
}
