//! Events that are visited field by field or as they were sent, and the lines that they become.

use ::tef::Record;
use ctf::decode::Visitor;
use ctf::model::Scope;
use viewer::test_support::TestOrigin;
use viewer::time::Nanoseconds;

use super::fields::tests::{number, scope, text};
use super::*;

type TestSink<'o> = Log<&'o mut Vec<u8>>;

/// The lines that are written of some events, with times in UTC.
fn lines(has_colors: bool, events: impl FnOnce(&mut TestSink<'_>)) -> Vec<String> {
    let mut out = Vec::new();
    let clock = ClockFormat {
        gmt: true,
        ..ClockFormat::default()
    };
    let mut log = Log::new(&mut out, LogOptions { clock, has_colors });
    events(&mut log);
    log.finish(true).unwrap();
    drop(log);
    let text = String::from_utf8(out).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn plain_lines(events: impl FnOnce(&mut TestSink<'_>)) -> Vec<String> {
    lines(false, events)
}

fn head(name: &str, time: i64) -> Head<'_> {
    let trace = TraceKey(7);
    Head {
        name,
        log_level: None,
        time: Some(ShownTime::near(time)),
        environment: Environment {
            host: Some("web1"),
            ..Environment::default()
        },
        trace,
        host: Host::Named(0),
        has_cpus: true,
        locations: None,
    }
}

/// Shows an event of this thread.
fn show(
    log: &mut TestSink<'_>,
    head: Head<'_>,
    thread: Option<u64>,
    payload: impl FnOnce(&mut LogFields),
) {
    let others = ["a_begin", "a_end", "b_begin", "b_end"];
    let kind = RecordKind::of(head.name, |other| others.contains(&other));
    let visit = |to: &mut LogFields| {
        scope(to, Scope::PacketContext, |to| number(to, "cpu_id", 3));
        scope(to, Scope::CommonContext, |to| {
            if let Some(thread) = thread {
                number(to, "vpid", 100);
                number(to, "vtid", thread);
            }
            text(to, "procname", "app");
        });
        scope(to, Scope::Payload, payload);
        Ok(())
    };
    log.write_declared(head, &kind, true, visit).unwrap();
}

/// Shows an event that was sent as this line.
fn show_sent(log: &mut TestSink<'_>, time: i64, line: &str) {
    let Record::Event(sent) = Record::parse(line).unwrap() else {
        panic!("no event: {line}");
    };
    log.write_sent_event(&sent, head("tef:x", time));
}

#[test]
fn a_log_line_has_time_host_thread_severity_name_and_fields() {
    let lines = plain_lines(|log| {
        let mut event = head("p:opened", 1_500_000_000);
        event.log_level = Some(4);
        show(log, event, Some(101), |to| {
            number(to, "fd", 3);
            text(to, "path", "/a b");
            number(to, "_path_length", 4);
            to.member("empty");
            to.begin_structure();
            to.end_structure();
        });
        event.log_level = None;
        event.environment.host = None;
        show(log, event, None, |to| text(to, "message", "it works"));
    });
    assert_eq!(
        lines,
        [
            r#"00:00:01.500000000 web1 app[100:101] WARN  p:opened fd=3 path="/a b" cpu_id=3"#,
            "00:00:01.500000000 app p:opened: it works cpu_id=3",
        ]
    );
}

#[test]
fn the_lowest_level_of_lttng_is_debug_and_that_of_our_own_tracers_trace() {
    assert_eq!((severity(14, true), severity(14, false)), (13, 14));
    assert_eq!((severity(6, true), severity(6, false)), (6, 6));
}

#[test]
fn colors_are_used_only_if_they_are_asked_for() {
    let event = |log: &mut TestSink<'_>| {
        let mut event = head("p:failed", 0);
        event.log_level = Some(3);
        show(log, event, Some(1), |_| ());
    };
    let [coloured] = lines(true, event).try_into().unwrap();
    assert!(
        coloured.contains("\u{1b}[1;31mERROR\u{1b}[0m"),
        "{coloured:?}"
    );
    assert!(coloured.contains("\u{1b}[36mweb1\u{1b}[0m"), "{coloured:?}");
    let [plain] = plain_lines(event).try_into().unwrap();
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
}

#[test]
fn sent_events_have_phase_name_duration_and_arguments() {
    let lines = plain_lines(|log| {
        for line in [
            r#"{"ph":"M","name":"process_name","pid":5,"tid":6,"args":{"name":"main prog"}}"#,
            r#"{"ph":"B","name":"load","cat":"io","ts":1000,"pid":5,"tid":6,"args":{"n":3,"path":"a b"}}"#,
            r#"{"ph":"B","name":"parse","ts":1100.5,"pid":5,"tid":6}"#,
            r#"{"ph":"i","name":"other thread","ts":1,"pid":5,"tid":7,"args":{"o":{"l":[1,2]},"e":{}}}"#,
            r#"{"ph":"C","name":"depth","pid":5,"tid":6,"args":{"value":2.5}}"#,
            r#"{"ph":"E","ts":1101.75,"pid":5,"tid":6}"#,
            r#"{"ph":"E","name":"load","ts":2234.567,"pid":5,"tid":6,"args":{"ok":true}}"#,
            r#"{"ph":"E","name":"load","ts":2300,"pid":5,"tid":6}"#,
            r#"{"ph":"X","name":"whole","ts":2,"dur":1500000,"pid":5}"#,
            r#"{"ph":"b","name":"async","id":"0x1","cname":"good"}"#,
        ] {
            show_sent(log, 0, line);
        }
    });
    let main = "00:00:00.000000000 web1 main prog[5:6] ";
    let expected = [
        format!("{main}M process_name name=\"main prog\""),
        format!("{main}B load n=3 path=\"a b\" cat=io"),
        format!("{main}    B parse"),
        "00:00:00.000000000 web1 main prog[5:7] i other thread o={l=[1,2]}".to_owned(),
        format!("{main}        C depth value=2.5"),
        format!("{main}    E parse (1.25 us)"),
        format!("{main}E load (1.23 ms) ok=true"),
        format!("{main}E load"),
        "00:00:00.000000000 web1 main prog[5] X whole (1.50 s)".to_owned(),
        "00:00:00.000000000 web1 b async cname=good id=0x1".to_owned(),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn sent_ends_belong_to_begins_of_threads_with_wide_ids_zero_and_names() {
    let shown = |one: &str, other: &str| {
        let lines = plain_lines(|log| {
            for (phase, name, ts, tid) in [
                ("B", "load", 1000, one),
                ("B", "render", 1100, other),
                ("B", "parse", 1200, one),
                ("E", "", 1500, other),
                ("E", "", 1600, one),
                ("E", "", 2000, one),
            ] {
                let line = format!(
                    r#"{{"ph":"{phase}","name":"{name}","ts":{ts},"pid":{tid},"tid":{tid}}}"#
                );
                show_sent(log, 0, &line);
            }
        });
        let ends = lines.iter().filter_map(|line| line.split_once("] "));
        let ends = ends.filter(|(_, what)| what.trim_start().starts_with("E "));
        ends.map(|(head, what)| (head.to_owned(), what.trim_start().to_owned()))
            .collect::<Vec<_>>()
    };
    for (one, other) in [
        ("11", "12"),
        ("0", "12"),
        ("140589156634432", "140588800255680"),
        (r#""main""#, r#""render""#),
    ] {
        let head = |id: &str| {
            let id = id.trim_matches('"');
            format!("00:00:00.000000000 web1 [{id}:{id}")
        };
        let end = |id, what: &str| (head(id), what.to_owned());
        let want = [
            end(other, "E render (400.00 us)"),
            end(one, "E parse (400.00 us)"),
            end(one, "E load (1.00 ms)"),
        ];
        assert_eq!(shown(one, other), want);
    }
}

#[test]
fn sent_ends_have_no_duration_without_the_time_of_the_begin() {
    let lines = plain_lines(|log| {
        show_sent(log, 5, r#"{"ph":"B","name":"a","pid":1}"#);
        show_sent(log, 6, r#"{"ph":"E","name":"a","ts":9,"pid":1}"#);
    });
    assert!(lines[1].ends_with("web1 [1] E a"), "{lines:?}");
}

#[test]
fn malformed_arguments_are_shown_as_text_that_controls_nothing() {
    let lines = plain_lines(|log| {
        let mut sent = ::tef::Event::new("\u{1b}");
        sent.name = Some("a\u{1b}]0;x\u{7}\nb".into());
        sent.args = Some("{\"a\":\u{9b}");
        sent.cat = Some("\u{202e}".into());
        log.write_sent_event(&sent, head("tef:other", 0));
    });
    assert_eq!(
        lines,
        [
            r#"00:00:00.000000000 web1 \u{1b} a\u{1b}]0;x\u{7}\nb args="{\"a\":\u{9b}" cat="\u{202e}""#
        ]
    );
}

#[test]
fn begins_and_ends_of_event_classes_are_indented_on_their_thread() {
    let lines = plain_lines(|log| {
        for (name, time, thread) in [
            ("a_begin", 1_000, Some(1)),
            ("b_begin", 1_001, Some(1)),
            ("p:e", 1_002, Some(1)),
            ("p:e", 1_003, Some(2)),
            ("b_end", 1_004, Some(1)),
            ("a_end", 3_500, Some(1)),
            ("a_begin", 4_000, None),
            ("a_end", 4_001, None),
        ] {
            show(log, head(name, time), thread, |_| ());
        }
    });
    let shown: Vec<_> = lines
        .iter()
        .map(|line| line.split_once("app").unwrap().1)
        .map(|line| line.strip_suffix(" cpu_id=3").unwrap())
        .collect();
    assert_eq!(
        shown,
        [
            "[100:1] a_begin",
            "[100:1]     b_begin",
            "[100:1]         p:e",
            "[100:2] p:e",
            "[100:1]     b_end (3 ns)",
            "[100:1] a_end (2.50 us)",
            // Without a thread it is not known which belong together.
            " a_begin",
            " a_end",
        ]
    );
}

/// Shows an event of a span of `tracing`.
fn show_span(
    log: &mut TestSink<'_>,
    (event, time): (&str, i64),
    thread: Option<u64>,
    (id, name): (u64, &str),
    fields: impl FnOnce(&mut LogFields),
) {
    let class = format!("app::db:span:{event}");
    let mut head = head(&class, time);
    head.log_level = Some(6);
    head.has_cpus = false;
    show(log, head, thread, |to| {
        number(to, "span", id);
        text(to, "name", name);
        if event == "new" {
            number(to, "parent", 0);
        }
        fields(to);
    });
}

fn after_severity(lines: &[String]) -> Vec<&str> {
    let lines = lines.iter();
    lines
        .map(|line| line.split_once("INFO  ").unwrap().1)
        .collect()
}

#[test]
fn spans_of_tracing_that_end_in_another_order_have_their_own_durations() {
    let lines = plain_lines(|log| {
        let names = ["", "outer", "inner", "last"];
        for (event, span, time) in [
            ("enter", 1, 0),
            ("enter", 2, 1_000),
            ("enter", 3, 2_000),
            ("exit", 2, 3_000),
            ("exit", 1, 5_000),
            ("enter", 2, 6_000),
            ("exit", 3, 9_000),
            ("exit", 2, 9_500),
        ] {
            let name = names[usize::try_from(span).unwrap()];
            show_span(log, (event, time), Some(1), (span, name), |_| ());
        }
    });
    assert_eq!(
        after_severity(&lines),
        [
            "app::db: -> outer",
            "    app::db: -> inner",
            "        app::db: -> last",
            "    app::db: <- inner (2.00 us)",
            "app::db: <- outer (5.00 us)",
            "    app::db: -> inner",
            "app::db: <- last (7.00 us)",
            "app::db: <- inner (3.50 us)",
        ]
    );
}

#[test]
fn a_span_of_tracing_is_two_lines_with_its_fields_and_without_ids() {
    let id = (u64::MAX, "query");
    let lines = plain_lines(|log| {
        show_span(log, ("new", 0), Some(1), id, |to| {
            text(to, "sql", "select 1");
            number(to, "_hidden", 1);
            to.member("empty");
            to.begin_structure();
            to.end_structure();
            number(to, "n", 4);
        });
        show_span(log, ("enter", 10), Some(1), id, |_| ());
        let mut event = head("app", 20);
        event.log_level = Some(6);
        event.has_cpus = false;
        show(log, event, Some(1), |to| {
            text(to, "message", "no\trows");
            // Of the program itself.
            number(to, "span", 5);
        });
        show_span(log, ("record", 30), Some(1), id, |to| number(to, "rows", 0));
        show_span(log, ("exit", 40), Some(1), id, |_| ());
        show_span(log, ("close", 1_000_010), Some(1), id, |_| ());
    });
    assert_eq!(
        after_severity(&lines),
        [
            r#"app::db: -> query{sql="select 1" n=4}"#,
            r"    app: no\trows span=5",
            r#"app::db: <- query{sql="select 1" n=4 rows=0} (1.00 ms)"#,
        ]
    );
}

#[test]
fn events_of_spans_whose_thread_is_not_known_are_shown_as_any_other() {
    let lines = plain_lines(|log| {
        for event in ["new", "enter"] {
            show_span(log, (event, 0), None, (9, "query"), |_| ());
        }
    });
    assert_eq!(
        after_severity(&lines),
        [
            "app::db:span:new name=query span=9",
            "app::db:span:enter name=query span=9",
        ]
    );
}

#[test]
fn an_end_of_a_span_without_a_name_has_that_of_its_begin() {
    let lines = plain_lines(|log| {
        for (name, time) in [("span:enter", 0), ("span:exit", 5)] {
            show(log, head(name, time), Some(1), |to| {
                if name == "span:enter" {
                    text(to, "name", "request");
                }
            });
        }
    });
    assert!(
        lines[1].ends_with("] <- request (5 ns) cpu_id=3"),
        "{lines:?}"
    );
}

#[test]
fn a_recording_says_what_the_program_did_without_numbers_of_records() {
    let lines = plain_lines(|log| {
        let mut of_recording = head("ct:call", 0);
        of_recording.environment = of_recording.environment.of_program(Some("prog.rb"));
        log.write_call_begin(of_recording, "sum", br#""xs":[5],"n":null"#);
        let int = r#"{"kind":"Int","i":5,"type_id":1}"#;
        let list = format!(r#"{{"kind":"Tuple","elements":[{int}],"type_id":1}}"#);
        let cell = format!(r#"{{"place":1,"value":{int}}}"#);
        for (class, captured, members, content) in [
            ("ct:step", "value", ["file", "a b.rb"], ""),
            ("ct:value", "value", ["variable", "xs"], &*list),
            ("ct:value", "value", ["variable", "bad"], "{\u{1b}"),
            ("ct:log", "content", ["metadata", ""], "a\nb\u{1b}\n"),
            ("ct:log", "content", ["metadata", "m"], ""),
            ("ct:other", "json", ["kind", "CellValue"], &cell),
            ("ct:other", "json", ["kind", "Asm"], r#"["push 1"]"#),
            ("ct:drop_last_step", "value", ["", ""], ""),
        ] {
            log.fields.begin_event(Omitted::ShownAndInternal {
                captured,
                has_cpus: false,
                has_span_ids: false,
            });
            scope(&mut log.fields, Scope::PacketContext, |to| {
                number(to, "first_record", 3);
            });
            scope(&mut log.fields, Scope::Payload, |to| {
                number(to, "path_id", 0);
                match class {
                    "ct:step" => number(to, "line", 7),
                    "ct:log" => number(to, "kind", 11),
                    _ => {}
                }
                text(to, members[0], members[1]);
                text(to, captured, content);
            });
            log.write_moment(Head {
                name: class,
                ..of_recording
            });
        }
        of_recording.time = Some(ShownTime::near(20));
        log.write_call_end(of_recording, "sum", br#""return":6"#);
    });
    let time = "00:00:00.000000000 web1 prog.rb ";
    let within = |text: &str| format!("{time}    {text}");
    assert_eq!(
        lines,
        [
            format!("{time}-> sum xs=[5] n=null"),
            within(r#"step "a b.rb":7"#),
            within("value xs=[5]"),
            within(r#"value bad="{\u{1b}""#),
            within(r"error: a\nb\u{1b}"),
            within("error:  metadata=m"),
            within("CellValue {place=1,value=5}"),
            within(r#"Asm ["push 1"]"#),
            within("drop last step"),
            "00:00:00.000000020 web1 prog.rb <- sum (20 ns) return=6".to_owned(),
        ]
    );
}

#[test]
fn losses_are_lines_in_red() {
    let place = TestOrigin::new("t", "chan\u{1b}_0");
    let loss = |what, begin| Loss {
        what,
        begin,
        end: Nanoseconds::new(2_000_000_000),
    };
    let events = |log: &mut TestSink<'_>| {
        let known = loss(
            Lost::Events(LostEvents::Count(5)),
            Nanoseconds::new(1_000_000_000),
        );
        log.lost(&known, place.origin()).unwrap();
        log.lost(&loss(Lost::Packets(1), None), place.origin())
            .unwrap();
    };
    let place = r"in stream chan\u{1b}_0 of trace t";
    assert_eq!(
        plain_lines(events),
        [
            format!("00:00:02.000000000 5 events lost since 00:00:01.000000000 {place}"),
            format!("00:00:02.000000000 1 packet lost {place}"),
        ]
    );
    let coloured = lines(true, events);
    assert!(
        coloured[0].contains("\u{1b}[1;31m5 events lost"),
        "{coloured:?}"
    );
    assert!(coloured[0].ends_with("\u{1b}[0m"), "{coloured:?}");
}

#[test]
fn the_log_sink_forgets_the_spans_of_ended_traces() {
    let lines = plain_lines(|log| {
        show_sent(log, 0, r#"{"ph":"B","name":"a","ts":1,"pid":1,"tid":1}"#);
        let ended = Ended {
            traces: vec![TraceKey(7)],
            ..Ended::default()
        };
        log.flush(&ended).unwrap();
        show_sent(log, 0, r#"{"ph":"B","name":"b","ts":1,"pid":1,"tid":1}"#);
    });
    assert!(lines[1].ends_with("web1 [1:1] B b"), "{lines:?}");
}
