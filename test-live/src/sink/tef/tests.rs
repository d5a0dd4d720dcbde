//! Events that are visited field by field, and the JSON that they become.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};
use serde_json::{Value, json};
use viewer::test_support::{TestOrigin, labels, plain};

use super::*;

type TestSink<'o> = Tef<&'o mut Vec<u8>>;

/// The records that are written of some events.
fn records(events: impl FnOnce(&mut TestSink<'_>)) -> Vec<Value> {
    let mut out = Vec::new();
    let mut tef = Tef::new(&mut out, TefOptions::default());
    events(&mut tef);
    tef.finish(true).unwrap();
    drop(tef);
    let mut whole: Value = serde_json::from_slice(&out).unwrap();
    serde_json::from_value(whole["traceEvents"].take()).unwrap()
}

/// Shows an event of this name, kind and time, with the fields that `visit` visits.
fn show(
    tef: &mut TestSink<'_>,
    (name, kind, time): (&str, &RecordKind, i64),
    environment: Environment<'_>,
    place: &TestOrigin,
    visit: impl FnOnce(&mut EventFields),
) {
    let visit = |to: &mut EventFields| {
        visit(to);
        Ok(())
    };
    let written = tef.write_event(name, kind, Some(time), environment, place.origin(), visit);
    written.unwrap();
}

fn scope(to: &mut EventFields, scope: Scope, members: impl FnOnce(&mut EventFields)) {
    to.begin_scope(scope);
    to.begin_structure();
    members(to);
    to.end_structure();
    to.end_scope();
}

fn number(to: &mut EventFields, name: &str, value: u64) {
    to.member(name);
    to.unsigned(value, plain());
}

fn text(to: &mut EventFields, name: &str, value: &str) {
    to.member(name);
    to.text(value.as_bytes());
}

fn thread(to: &mut EventFields) {
    scope(to, Scope::PacketContext, |to| number(to, "cpu_id", 3));
    scope(to, Scope::CommonContext, |to| {
        number(to, "vpid", 100);
        number(to, "vtid", 101);
        text(to, "procname", "render");
    });
}

fn labelled(labels: &Labels) -> NumberFormat<'_> {
    NumberFormat {
        labels: Some(labels),
        ..plain()
    }
}

#[test]
fn a_tef_record_of_an_event_is_an_instant_with_payload_and_contexts() {
    let place = TestOrigin::new("t", "s");
    let environment = Environment {
        host: Some("h"),
        ..Environment::default()
    };
    let records = records(|tef| {
        for time in [1_234_567, -1] {
            let event = ("p:e", &RecordKind::Instant, time);
            show(tef, event, environment, &place, |to| {
                thread(to);
                scope(to, Scope::SpecificContext, |to| number(to, "perf", 9));
                scope(to, Scope::Payload, |to| {
                    number(to, "n", 1);
                    to.member("a");
                    to.begin_array(1);
                    to.element(0);
                    to.text(b"x\"\xFF");
                    to.end_array();
                });
            });
        }
    });
    let args = json!({
        "n": 1, "a": ["x\"\u{fffd}"],
        "context": {"cpu_id": 3, "vpid": 100, "vtid": 101, "procname": "render", "perf": 9},
    });
    let event = |time: Value| {
        json!({
            "ph": "i", "name": "p:e", "cat": "p", "ts": time, "s": "t",
            "pid": 100, "tid": 101, "args": args,
        })
    };
    let name = |what: &str, tid: u64, name: &str| json!({"ph": "M", "name": what, "pid": 100, "tid": tid, "args": {"name": name}});
    assert_eq!(
        records,
        [
            name("process_name", 0, "render @ h"),
            name("thread_name", 101, "render"),
            event(json!(1234.567)),
            event(json!(-0.001)),
        ]
    );
}

#[test]
fn events_without_thread_ids_have_one_tef_track_per_cpu() {
    let place = TestOrigin::new("host/kernel", "s");
    let kernel = Environment {
        is_kernel: true,
        ..Environment::default()
    };
    let begin = RecordKind::of("syscall_entry_read", |_| true);
    let irq = RecordKind::of("irq_handler_entry", |_| true);
    let records = records(|tef| {
        for (kind, time) in [(&begin, 5000), (&irq, 6500)] {
            show(tef, ("e", kind, time), kernel, &place, |to| {
                scope(to, Scope::PacketContext, |to| number(to, "cpu_id", 1));
            });
        }
    });
    let phases: Vec<_> = records
        .iter()
        .map(|record| record["ph"].as_str().unwrap())
        .collect();
    assert_eq!(phases, ["M", "M", "i", "B"]);
    assert_eq!(records[0]["args"]["name"], "host/kernel");
    assert_eq!(records[1]["args"]["name"], "CPU 1");
    assert_eq!(records[2]["ts"], json!(5));
    assert_eq!(records[3]["ts"], json!(6.5));
    assert_eq!(records[3]["name"], "irq_handler");
    assert_eq!(records[3]["args"], json!({}));
}

#[test]
fn spans_without_a_thread_are_tef_instants_with_one_warning() {
    let place = TestOrigin::new("a", "s");
    let user = Environment::default();
    let kinds = [
        RecordKind::of("app:work_begin", |_| true),
        RecordKind::of("app:work_end", |_| true),
        RecordKind::FunctionEntry,
        RecordKind::FunctionExit,
    ];
    let mut out = Vec::new();
    let mut tef = Tef::new(&mut out, TefOptions::default());
    for (is_known, want) in [(true, ["B", "E", "B", "E"]), (false, ["i"; 4])] {
        assert!(!tef.has_unpaired);
        tef.flush(&Ended::default()).unwrap();
        tef.out.clear();
        for kind in &kinds {
            show(
                &mut tef,
                ("app:work", kind, 0),
                user,
                &place,
                |to| match is_known {
                    true => thread(to),
                    false => scope(to, Scope::PacketContext, |to| number(to, "cpu_id", 3)),
                },
            );
        }
        tef.flush(&Ended::default()).unwrap();
        let text = String::from_utf8(tef.out.clone()).unwrap();
        let is_event = |line: &&str| line.contains("app") || line.contains("0x");
        let phases = text.lines().filter(is_event);
        let phase = |line: &str| line.split("\"ph\":\"").nth(1).unwrap()[..1].to_owned();
        assert_eq!(phases.map(phase).collect::<Vec<_>>(), want, "{text}");
    }
    let warning = tef.finish(true).unwrap().warnings.concat();
    assert!(warning.contains("lttng add-context -u -t vpid -t vtid"));
}

#[test]
fn processes_of_two_hosts_with_the_same_pid_have_different_tef_tracks() {
    let (one, two) = (TestOrigin::new("a", "s"), TestOrigin::new("b", "s"));
    let records = records(|tef| {
        for (place, host) in [(&one, "a"), (&two, "b"), (&one, "a")] {
            let environment = Environment {
                host: Some(host),
                ..Environment::default()
            };
            show(
                tef,
                ("e", &RecordKind::Instant, 0),
                environment,
                place,
                thread,
            );
        }
    });
    let events = records.iter().filter(|record| record["ph"] == "i");
    let pids: Vec<_> = events
        .map(|record| record["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(pids[0], 100);
    assert_ne!(pids[1], 100);
    assert_eq!(pids[2], 100);
}

#[test]
fn function_events_are_tef_spans_named_by_their_address() {
    let place = TestOrigin::new("a", "s");
    let records = records(|tef| {
        for kind in [RecordKind::FunctionEntry, RecordKind::FunctionExit] {
            let event = ("lttng_ust_cyg_profile:f", &kind, 0);
            show(tef, event, Environment::default(), &place, |to| {
                thread(to);
                scope(to, Scope::Payload, |to| number(to, "addr", 0x40_1000));
            });
        }
    });
    let spans: Vec<_> = records[2..]
        .iter()
        .map(|record| (&record["ph"], &record["name"]))
        .collect();
    assert_eq!(
        spans,
        [
            (&json!("B"), &json!("0x401000")),
            (&json!("E"), &json!("0x401000"))
        ]
    );
}

/// Shows arguments as our producers write them.
fn arguments(to: &mut EventFields, name: &str) {
    to.member(name);
    to.begin_array(7);
    let flag = labels(&[("false", 0, 0), ("true", 1, 1)]);
    let kinds = ["nil", "flag", "sint", "uint", "real", "text", "text"];
    for (index, kind) in kinds.into_iter().enumerate() {
        to.element(index as u64);
        to.begin_structure();
        text(to, "key", &format!("{kind}{index}"));
        number(to, "kind", index as u64);
        to.member("value");
        to.begin_variant(Some(kind));
        match index {
            0 => to.unsigned(0, plain()),
            1 => to.unsigned(1, labelled(&flag)),
            2 => to.signed(-4096, plain()),
            3 => to.unsigned(u64::MAX, plain()),
            4 => to.float(0.75, 64),
            5 => to.text(br#"{"a": [1, null]}"#),
            _ => to.text(br#"{"not json"#),
        }
        to.end_variant();
        to.end_structure();
    }
    to.end_array();
}

fn arguments_json() -> Value {
    json!({
        "nil0": null, "flag1": true, "sint2": -4096, "uint3": u64::MAX, "real4": 0.75,
        "text5": {"a": [1, null]}, "text6": "{\"not json",
    })
}

#[test]
fn a_tldrs_record_is_written_as_it_was_sent() {
    let place = TestOrigin::new("a", "s");
    let phases = labels(&[("X", 88, 88), ("i", 105, 105)]);
    let of = |tef: &mut TestSink<'_>, phase, flow| {
        let event = ("tef:event", &RecordKind::Record, 10_000);
        show(tef, event, Environment::default(), &place, |to| {
            thread(to);
            scope(to, Scope::Payload, |to| {
                to.member("ph");
                to.unsigned(phase, labelled(&phases));
                text(to, "name", "upload");
                text(to, "cat", "io");
                number(to, "dur_ns", 2500);
                number(to, "flow_id", flow);
                number(to, "_args_length", 7);
                arguments(to, "args");
            });
        });
    };
    let records = records(|tef| {
        of(tef, 88, 0);
        of(tef, u64::from(b's'), 0xAB_CDEF);
        of(tef, 105, 0);
    });
    assert_eq!(
        records[2..],
        [
            json!({
                "ph": "X", "name": "upload", "cat": "io", "ts": 10, "dur": 2.5,
                "pid": 100, "tid": 101, "args": arguments_json(),
            }),
            json!({
                "ph": "s", "name": "upload", "cat": "io", "ts": 10, "id": "0xabcdef",
                "pid": 100, "tid": 101, "args": arguments_json(),
            }),
            json!({
                "ph": "i", "name": "upload", "cat": "io", "ts": 10, "s": "t",
                "pid": 100, "tid": 101, "args": arguments_json(),
            }),
        ]
    );
}

#[test]
fn log_and_span_records_of_our_producers_are_tef_instants_and_spans() {
    let place = TestOrigin::new("a", "s");
    let levels = labels(&[("INFO", 3, 3)]);
    let none = Environment::default();
    let records = records(|tef| {
        show(
            tef,
            ("log:record", &RecordKind::Log, 0),
            none,
            &place,
            |to| {
                thread(to);
                scope(to, Scope::Payload, |to| {
                    to.member("level");
                    to.unsigned(3, labelled(&levels));
                    text(to, "target", "app::http");
                    text(to, "message", "listening");
                    text(to, "file", "src/http.rs");
                    number(to, "line", 42);
                    number(to, "span", 0x11);
                    arguments(to, "fields");
                });
            },
        );
        for kind in [RecordKind::SpanEnter, RecordKind::SpanExit] {
            show(tef, ("span:x", &kind, 0), none, &place, |to| {
                thread(to);
                scope(to, Scope::Payload, |to| {
                    number(to, "span", 0x11);
                    if kind == RecordKind::SpanEnter {
                        text(to, "name", "request");
                        text(to, "target", "app::http");
                    }
                });
            });
        }
    });
    let mut args = arguments_json();
    for (name, value) in [
        ("level", json!("INFO")),
        ("file", json!("src/http.rs")),
        ("line", json!(42)),
        ("span", json!("0x11")),
    ] {
        args[name] = value;
    }
    assert_eq!(
        records[2],
        json!({
            "ph": "i", "name": "listening", "cat": "app::http", "ts": 0, "s": "t",
            "pid": 100, "tid": 101, "args": args,
        })
    );
    assert_eq!(records[3]["ph"], "B");
    assert_eq!(records[3]["name"], "request");
    assert_eq!(records[3]["cat"], "app::http");
    assert_eq!(records[4]["ph"], "E");
    assert_eq!(records[4]["args"], json!({"span": "0x11"}));
}

#[test]
fn spans_of_tracing_with_a_target_begin_and_end_tef_slices_of_one_name() {
    let place = TestOrigin::new("a", "s");
    let none = Environment::default();
    let records = records(|tef| {
        for (name, kind) in [
            ("app::db:span:enter", RecordKind::SpanEnter),
            ("app::db:span:exit", RecordKind::SpanExit),
        ] {
            show(tef, (name, &kind, 0), none, &place, |to| {
                thread(to);
                scope(to, Scope::Payload, |to| {
                    number(to, "span", 0x11);
                    text(to, "name", "query");
                });
            });
        }
    });
    for (record, phase) in records[2..].iter().zip(["B", "E"]) {
        assert_eq!(
            *record,
            json!({
                "ph": phase, "name": "query", "cat": "app::db", "ts": 0,
                "pid": 100, "tid": 101, "args": {"span": "0x11"},
            })
        );
    }
    assert_eq!(records.len(), 4);
}

#[test]
fn tef_output_without_events_or_of_a_dropped_sink_is_complete_json() {
    assert!(records(|_| ()).is_empty());
    let mut out = Vec::new();
    let place = TestOrigin::new("a", "s");
    let mut tef = Tef::new(&mut out, TefOptions::default());
    let (none, origin) = (Environment::default(), place.origin());
    tef.write_event("e", &RecordKind::Instant, None, none, origin, |_| Ok(()))
        .unwrap();
    tef.flush(&Ended::default()).unwrap();
    drop(tef);
    serde_json::from_slice::<Value>(&out).unwrap();
}

/// The process and thread of each record of this phase.
fn owners(records: &[Value], phase: &str) -> Vec<(i64, i64)> {
    let of = |record: &&Value| record["ph"] == phase;
    let owner = |record: &Value| {
        (
            record["pid"].as_i64().unwrap(),
            record["tid"].as_i64().unwrap(),
        )
    };
    records.iter().filter(of).map(owner).collect()
}

#[test]
fn threads_with_wide_ids_have_tef_tracks_that_viewers_tell_apart() {
    let place = TestOrigin::new("t", "s");
    let wide = [140_589_156_634_432, 140_588_800_255_680, 101];
    let records = records(|tef| {
        for id in wide.into_iter().chain(wide) {
            let event = ("p:e", &RecordKind::Instant, 1);
            show(tef, event, Environment::default(), &place, |to| {
                scope(to, Scope::CommonContext, |to| {
                    number(to, "vpid", 100);
                    number(to, "vtid", id);
                });
            });
        }
    });
    let owners = owners(&records, "i");
    assert_eq!(owners[..3], owners[3..], "they stay the same");
    assert_eq!(owners[2], (100, 101));
    assert_ne!(owners[0], owners[1]);
    let is_known = |(_, thread): &(i64, i64)| (1..1 << 32).contains(thread);
    assert!(owners.iter().all(is_known), "{owners:?}");
    let named = |number: i64, id: u64| {
        let name = id.to_string();
        json!({"ph": "M", "name": "thread_name", "pid": 100, "tid": number, "args": {"name": name}})
    };
    assert!(records.contains(&named(owners[0].1, wide[0])));
    assert!(records.contains(&named(owners[1].1, wide[1])));
}

#[test]
fn idle_threads_of_a_kernel_are_those_of_their_cpus() {
    let place = TestOrigin::new("t", "s");
    let kernel = Environment {
        is_kernel: true,
        ..Environment::default()
    };
    let begin = RecordKind::of("irq_handler_entry", |_| true);
    let end = RecordKind::of("irq_handler_exit", |_| true);
    let records = records(|tef| {
        for (kind, cpu) in [(&begin, 0), (&begin, 1), (&end, 0), (&end, 1)] {
            show(tef, ("e", kind, 1), kernel, &place, |to| {
                scope(to, Scope::PacketContext, |to| number(to, "cpu_id", cpu));
                scope(to, Scope::CommonContext, |to| {
                    number(to, "pid", 0);
                    number(to, "tid", 0);
                });
            });
        }
    });
    let (begins, ends) = (owners(&records, "B"), owners(&records, "E"));
    assert_eq!((begins.len(), &begins), (2, &ends));
    assert_ne!(begins[0], begins[1]);
}

/// The records of two spans of a thread, of which the outer one ends first, then an instant.
fn overlapping_spans(options: TefOptions, is_lossy: bool) -> Vec<Value> {
    let mut out = Vec::new();
    let mut tef = Tef::new(&mut out, options);
    let place = TestOrigin::new("a", "s");
    let none = Environment::default();
    for (kind, id, name, time) in [
        (RecordKind::SpanEnter, 1, "outer_first", 0),
        (RecordKind::SpanEnter, 2, "inner_last", 2_000),
        (RecordKind::SpanExit, 1, "outer_first", 5_000),
        (RecordKind::SpanExit, 2, "inner_last", 8_000),
        (RecordKind::SpanEnter, 1, "outer_first", 9_000),
        (RecordKind::SpanExit, 1, "outer_first", 9_500),
    ] {
        if is_lossy && time == 5_000 {
            let loss = Loss {
                what: viewer::sink::Lost::Packets(1),
                begin: None,
                end: None,
            };
            tef.lost(&loss, place.origin()).unwrap();
        }
        let class = match kind {
            RecordKind::SpanEnter => "app:span:enter",
            _ => "app:span:exit",
        };
        show(&mut tef, (class, &kind, time), none, &place, |to| {
            thread(to);
            scope(to, Scope::Payload, |to| {
                number(to, "span", id);
                text(to, "name", name);
            });
        });
    }
    tef.finish(true).unwrap();
    drop(tef);
    let mut whole: Value = serde_json::from_slice(&out).unwrap();
    let records: Vec<Value> = serde_json::from_value(whole["traceEvents"].take()).unwrap();
    records
        .into_iter()
        .filter(|record| record["ph"] != "M")
        .collect()
}

/// A record of [`overlapping_spans`].
fn edge(phase: &str, span: u64, time: f64) -> Value {
    let name = ["outer_first", "inner_last"][usize::try_from(span).unwrap() - 1];
    let mut record = json!({
        "ph": phase, "name": name, "cat": "app", "ts": time, "pid": 100, "tid": 101,
        "args": {"span": format!("{span:#x}")},
    });
    if record["ts"]
        .as_f64()
        .is_some_and(|time| time.fract() == 0.0)
    {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        let whole = time as i64;
        record["ts"] = whole.into();
    }
    if let "b" | "e" = phase {
        record["id2"] = json!({"local": format!("{span:#x}")});
    }
    record
}

#[test]
fn span_of_tracing_that_outlives_the_one_around_it_is_an_async_slice() {
    let perfetto = TefOptions {
        perfetto: true,
        ..TefOptions::default()
    };
    let slice = |begin, dur| {
        let mut slice = edge("X", 1, begin);
        slice["dur"] = dur;
        slice
    };
    assert_eq!(
        overlapping_spans(perfetto, false),
        [
            slice(0.0, json!(5)),
            edge("b", 2, 2.0),
            edge("e", 2, 8.0),
            slice(9.0, json!(0.5)),
        ]
    );
    // What is written as it comes cannot be taken back.
    let mut begin = edge("E", 2, 2.0);
    begin["args"] = json!({});
    assert_eq!(
        overlapping_spans(TefOptions::default(), false)[..6],
        [
            edge("B", 1, 0.0),
            edge("B", 2, 2.0),
            begin,
            edge("b", 2, 2.0),
            edge("E", 1, 5.0),
            edge("e", 2, 8.0),
        ]
    );
}

#[test]
fn span_of_tracing_whose_end_may_be_lost_ends_with_the_one_around_it() {
    let records = overlapping_spans(TefOptions::default(), true);
    let mut end = edge("E", 2, 5.0);
    end["args"] = json!({});
    assert_eq!(records[2..4], [end, edge("E", 1, 5.0)]);
}
