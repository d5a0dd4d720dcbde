//! Conversations with the same result as with the reference. The numbers are those of the recorded
//! ones.

use std::io::Write;

use rustix::process::Signal;
use tests::Lab;
use tests::tldrs::Tldrs;

use crate::{array, event, events};

/// The text that one client sends, and the traces and exports that must result.
struct Conversation {
    text: String,
    stored: Vec<(&'static str, String)>,
    exported: Vec<(&'static str, String)>,
}

impl Conversation {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            stored: Vec::new(),
            exported: Vec::new(),
        }
    }

    fn stores(mut self, trace: &'static str, lines: impl Into<String>) -> Self {
        self.stored.push((trace, lines.into()));
        self
    }

    fn exports(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.exported.push((name, text.into()));
        self
    }

    fn check(self) {
        let (_lab, tldrs) = Tldrs::start_in_new_lab();
        tldrs.send(&self.text);
        for (trace, lines) in &self.stored {
            tldrs.wait_for_trace(trace, lines);
        }
        for (name, export) in &self.exported {
            tldrs.wait_for_export(name, export);
        }
        tldrs.stop();
    }
}

#[test]
fn case_01_events_are_stored_unchanged() {
    let lines = events(&["parse", "solve"]);
    Conversation::new(format!("OPEN run-1\n{lines}"))
        .stores("run-1", lines)
        .check();
}

#[test]
fn case_02_white_space_around_a_line_is_trimmed_and_inside_kept() {
    let (a, b, c) = (
        r#"{"ph": "i",  "name":"a b" ,"ts":1}"#,
        event("nbsp", 2),
        event("tab", 3),
    );
    Conversation::new(format!(
        "\r\n   \n\t OPEN    spaced   \r\n  {a}  \r\n\u{a0} {b}\u{a0} \n\t{c}\t\n"
    ))
    .stores("spaced", format!("{a}\n{b}\n{c}\n"))
    .check();
}

#[test]
fn case_03_last_line_needs_no_line_feed() {
    let lines = events(&["a", "b"]);
    Conversation::new(format!("OPEN tail\n{}", lines.trim_end()))
        .stores("tail", lines)
        .check();
}

#[test]
fn case_06_unknown_commands_are_skipped() {
    Conversation::new(
        "HELLO\nopen lower\nOPEN\nOPEN \nOPEN\ttabbed\nOPEN ok\nEMIT_TEF\nDIE now\nCLOSE\n\
         [{\"ph\":\"i\"}]\n42\n\"str\"\n"
            .to_owned()
            + &events(&["kept"]),
    )
    .stores("ok", events(&["kept"]))
    .check();
}

#[test]
fn case_07_second_open_changes_the_trace_and_a_third_changes_back() {
    let [one, two, three] = ["one", "two", "three"].map(|name| event(name, 1) + "\n");
    Conversation::new(format!(
        "OPEN first\n{one}OPEN second\n{two}OPEN first\n{three}"
    ))
    .stores("first", one + &three)
    .stores("second", two)
    .check();
}

#[test]
fn case_08_two_clients_of_one_trace_write_in_order_of_arrival() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut clients = [tldrs.connect(), tldrs.connect()];
    let mut lines = String::new();
    for (turn, name) in ["p1.a", "p2.a", "p1.b", "p2.b"].into_iter().enumerate() {
        let line = event(name, 1) + "\n";
        let open = if turn < 2 { "OPEN shared\n" } else { "" };
        write!(clients[turn % 2], "{open}{line}").unwrap();
        lines += &line;
        tldrs.wait_for_trace("shared", &lines);
    }
}

#[test]
fn case_09_trace_is_appended_to_after_a_restart() {
    let lab = Lab::new();
    for (name, lines) in [("first", &["first"][..]), ("second", &["first", "second"])] {
        let tldrs = Tldrs::start(&lab);
        let line = events(lines).lines().last().unwrap().to_owned();
        assert!(line.contains(name));
        tldrs.send(&format!("OPEN again\n{line}\n"));
        tldrs.wait_for_trace("again", &events(lines));
        tldrs.stop();
    }
}

#[test]
fn case_12_object_not_ending_in_a_brace_is_refused() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    tldrs.send("OPEN u\n{\"ph\":\"i\",\"name\":\"cut\"\n{\"ph\":\"i\",\"name\":\"comma\"},\n{\"ph\":\"i\"}\n");
    tldrs.wait_for_trace("u", "{\"ph\":\"i\"}\n");
}

#[test]
fn case_14_object_over_several_lines_is_refused() {
    Conversation::new(
        "OPEN pp\n{\n  \"ph\": \"i\",\n  \"name\": \"x\"\n}\n".to_owned() + &events(&["ok"]),
    )
    .stores("pp", events(&["ok"]))
    .check();
}

#[test]
fn case_16_export_contains_the_events_before_it() {
    let [a, b, c] = ["a", "b", "c"].map(|name| event(name, 1));
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let mut say = |text: String| {
        client
            .write_all(tldrs.expand_paths(&text).as_bytes())
            .unwrap()
    };
    say(format!("OPEN em\n{a}\nEMIT_TEF @OUT@/one.json\n"));
    tldrs.wait_for_export("one.json", &format!("[{a}]\n"));
    say(format!("{b}\nEMIT_TEF @OUT@/two.json\n{c}\n"));
    tldrs.wait_for_export("two.json", &format!("[{a},\n{b}]\n"));
    say("EMIT_TEF @OUT@/one.json\n".to_owned());
    tldrs.wait_for_export("one.json", &format!("[{a},\n{b},\n{c}]\n"));
    tldrs.wait_for_trace("em", &format!("{a}\n{b}\n{c}\n"));
}

#[test]
fn case_19_failed_export_affects_neither_daemon_nor_trace() {
    Conversation::new(format!(
        "OPEN bp\n{}\nEMIT_TEF @OUT@/missing/t.json\n{}\n",
        event("a", 1),
        event("b", 2)
    ))
    .stores("bp", events(&["a", "b"]))
    .check();
}

#[test]
fn case_22_export_at_exit_is_made_when_the_last_client_disconnects() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let [parent, child, later] = ["parent", "child", "child2"].map(|name| event(name, 1) + "\n");
    let mut first = tldrs.connect();
    let request = tldrs.expand_paths("OPEN tr-1\nEMIT_TEF_AT_EXIT @OUT@/trace.json\n");
    write!(first, "{request}{parent}").unwrap();
    tldrs.wait_for_trace("tr-1", &parent);
    let mut second = tldrs.connect();
    write!(second, "OPEN tr-1\n{child}").unwrap();
    tldrs.wait_for_trace("tr-1", &format!("{parent}{child}"));
    drop(first);
    write!(second, "{later}").unwrap();
    let lines = format!("{parent}{child}{later}");
    tldrs.wait_for_trace("tr-1", &lines);
    assert!(
        !tldrs.out.join("trace.json").exists(),
        "one client is still connected"
    );
    drop(second);
    let array = format!("[{}]\n", lines.trim_end().replace('\n', ",\n"));
    tldrs.wait_for_export("trace.json", &array);
}

#[test]
fn case_28_into_file_stores_all_traces_in_one_file() {
    let lab = Lab::new();
    let file = lab.directory("out").join("all.jsonl");
    let tldrs = Tldrs::start_with(&lab, &["--into-file", file.to_str().unwrap()]);
    let mut one = tldrs.connect();
    writeln!(one, "{}", event("a", 1)).unwrap();
    tldrs.wait_for_file(&file, &events(&["a"]));
    tldrs.send(&(event("b", 2) + "\n"));
    tldrs.wait_for_file(&file, &events(&["a", "b"]));
    write!(one, "{}", tldrs.expand_paths("EMIT_TEF @OUT@/all.json\n")).unwrap();
    tldrs.wait_for_export("all.json", &array(&["a", "b"]));
}

#[test]
fn case_29_one_file_has_one_writer_whatever_trace_is_opened() {
    const LINES: usize = 20_000;
    let lab = Lab::new();
    let file = lab.directory("out").join("all.jsonl");
    let tldrs = Tldrs::start_with(&lab, &["--into-file", file.to_str().unwrap()]);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let tldrs = &tldrs;
            scope.spawn(move || {
                let open = if client % 2 == 0 { "OPEN mine\n" } else { "" };
                let line = event(&format!("client-{client}"), 1) + "\n";
                tldrs.send(&(open.to_owned() + &line.repeat(LINES)));
            });
        }
    });
    let size = 4 * LINES * (event("client-0", 1).len() + 1);
    tests::wait_until("all lines are stored", || {
        file.metadata().is_ok_and(|file| file.len() == size as u64)
    });
    let text = std::fs::read_to_string(file).unwrap();
    for client in 0..4 {
        let line = event(&format!("client-{client}"), 1);
        assert_eq!(text.lines().filter(|found| *found == line).count(), LINES);
    }
}

#[test]
fn case_30_event_is_in_the_file_at_once() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    write!(client, "OPEN fl\n{}", events(&["a"])).unwrap();
    tldrs.wait_for_trace("fl", &events(&["a"]));
    writeln!(client, "{}", event("b", 2)).unwrap();
    tldrs.wait_for_trace("fl", &events(&["a", "b"]));
}

#[test]
fn case_34_events_of_all_phases_stay_as_they_are() {
    let phases = "MBEXiIRCbneSTpFstfNODPVvc()";
    let lines: String = phases
        .chars()
        .map(|ph| {
            format!(
                "{{\"ph\":\"{ph}\",\"name\":\"n\",\"cat\":\"a,b\",\"ts\":1.50,\"pid\":7,\"tid\":8,\
                 \"id\":\"0xfeed\",\"args\":{{\"nest\":{{\"x\":[1,2.5,null,true,\"s\"]}}}}}}\n"
            )
        })
        .collect();
    let array = format!("[{}]\n", lines.trim_end().replace('\n', ",\n"));
    Conversation::new(format!("OPEN phases\n{lines}EMIT_TEF @OUT@/phases.json\n"))
        .stores("phases", lines)
        .exports("phases.json", array)
        .check();
}

#[test]
fn lines_sent_before_a_stop_are_stored() {
    let lab = Lab::new();
    for round in 0..5 {
        let tldrs = Tldrs::start(&lab);
        let mut client = tldrs.connect();
        let lines = event("a", round) + "\n";
        let lines = lines.repeat(1000);
        write!(client, "OPEN stop-{round}\n{lines}").unwrap();
        tldrs.signal(Signal::TERM);
        let data = tldrs.data.clone();
        assert!(tldrs.wait_for_exit().status.success());
        let stored = std::fs::read_to_string(data.join(format!("stop-{round}.jsonl"))).unwrap();
        assert_eq!(stored, lines);
    }
}
