//! `test-live spans` and `--sink folded`, on traces whose spans are known: what is shown is what
//! the test has computed from the spans themselves.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use ctf::directory::StreamHandle;
use ctf::model::Uuid;
use ctf::write::{
    Appended, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter, TraceDeclaration,
    Value as FieldValue, Width,
};
use ctf::{Timestamp, TraceWriter};
use serde_json::Value;
use tef::Record;
use tef::ctf::Classes;
use tempfile::TempDir;

/// A span as the test makes it, in nanoseconds.
#[derive(Debug, Clone)]
struct Made {
    name: String,
    begin: u64,
    end: u64,
    inner: Vec<Self>,
}

/// What must be shown of the spans of a name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    own: u64,
    durations: Vec<u64>,
}

/// Numbers that are the same each time. (splitmix64)
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % limit
    }

    /// Makes spans side by side within a time, and spans within them; recursive ones among them.
    fn spans(&mut self, begin: u64, end: u64, depth: u32) -> Vec<Made> {
        let mut made = Vec::new();
        let mut now = begin;
        while depth > 0 && made.len() < 6 {
            let begin = now + self.below(50);
            let length = self.below((end - now).max(1));
            if begin + length > end {
                break;
            }
            now = begin + length;
            made.push(Made {
                name: ["parse", "load", "draw", "wait"][usize::try_from(self.below(4)).unwrap()]
                    .to_owned(),
                begin,
                end: now,
                inner: self.spans(begin, now, depth - 1),
            });
        }
        made
    }
}

impl Made {
    /// Adds what must be shown, and the time of each stack.
    fn expect(
        &self,
        around: &str,
        names: &mut BTreeMap<String, Expected>,
        stacks: &mut BTreeMap<String, u64>,
    ) {
        let within: u64 = self.inner.iter().map(|inner| inner.end - inner.begin).sum();
        let duration = self.end - self.begin;
        let expected = names.entry(self.name.clone()).or_default();
        expected.own += duration - within;
        expected.durations.push(duration);
        let stack = format!("{around};{}", self.name);
        if duration > within {
            *stacks.entry(stack.clone()).or_default() += duration - within;
        }
        for inner in &self.inner {
            inner.expect(&stack, names, stacks);
        }
    }

    /// Calls `edge` for each begin and end, in order of time.
    fn each_edge(&self, edge: &mut impl FnMut(&str, u64, bool)) {
        edge(&self.name, self.begin, true);
        for inner in &self.inner {
            inner.each_edge(edge);
        }
        edge(&self.name, self.end, false);
    }

    /// Appends the span and those within it, each when it has ended.
    fn whole<'m>(&'m self, all: &mut Vec<&'m Self>) {
        for inner in &self.inner {
            inner.whole(all);
        }
        all.push(self);
    }
}

/// Records lines of Trace Event Format as a `tldrs` daemon does.
fn record(lines: &[String]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
    let stream = metadata.stream(0).unwrap();
    let classes = Classes::declare(&mut metadata, &stream).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 20, 1 << 20));
    let (mut now, mut packets) = (Timestamp(1000), Vec::new());
    writer.open(now).unwrap();
    for line in lines {
        now.0 += 1000;
        let sent = Record::parse(line).unwrap();
        let encoded = classes.record(1, &sent);
        let append = |writer: &mut StreamWriter| {
            let appended = writer.append(encoded.class(), &encoded.at(now));
            appended.unwrap() == Appended::Written
        };
        if !append(&mut writer) {
            packets.extend(writer.close(now).unwrap().bytes);
            writer.open(now).unwrap();
            assert!(append(&mut writer), "{line}");
        }
    }
    packets.extend(writer.close(now).unwrap().bytes);
    let path = |name| directory.path().join(name);
    std::fs::write(path("metadata"), metadata.as_str()).unwrap();
    std::fs::write(path("stream"), packets).unwrap();
    directory
}

fn test_live(words: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_test-live"));
    let ended = command.args(words).arg(directory).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    ended
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the rows of `test-live spans --json`.
fn rows(options: &[&str], directory: &Path) -> Vec<Value> {
    let words = [&["spans", "--json"], options].concat();
    serde_json::from_slice(&test_live(&words, directory).stdout).unwrap()
}

fn stacks(directory: &Path) -> BTreeMap<String, u64> {
    let shown = text(&test_live(&["--sink", "folded"], directory).stdout);
    let lines = shown.lines().map(|line| {
        let (stack, own) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), own.parse().unwrap())
    });
    let stacks: BTreeMap<_, _> = lines.collect();
    assert_eq!(
        stacks.len(),
        shown.lines().count(),
        "a stack is there twice"
    );
    stacks
}

fn assert_rows(rows: &[Value], mut expected: BTreeMap<String, Expected>) {
    let totals: Vec<_> = rows.iter().map(|row| row["total_ns"].as_u64()).collect();
    assert!(totals.is_sorted_by(|one, other| one >= other), "{totals:?}");
    assert_eq!(rows.len(), expected.len(), "{rows:?}");
    for row in rows {
        let mut expected = expected.remove(row["name"].as_str().unwrap()).unwrap();
        let durations = &mut expected.durations;
        durations.sort_unstable();
        let (count, total) = (durations.len(), durations.iter().sum::<u64>());
        for (member, exact) in [
            ("count", count as u64),
            ("total_ns", total),
            ("self_ns", expected.own),
            ("mean_ns", total / count as u64),
            ("min_ns", durations[0]),
            ("max_ns", durations[count - 1]),
            ("open", 0),
            ("without_begin", 0),
        ] {
            assert_eq!(row[member], exact, "{member} of {row}");
        }
        for (member, percent) in [("p50_ns", 50), ("p90_ns", 90), ("p99_ns", 99)] {
            let exact = durations[(count * percent).div_ceil(100) - 1];
            let shown = row[member].as_u64().unwrap();
            assert!(
                shown.abs_diff(exact) <= exact / 200,
                "{member} of {row}: {exact}"
            );
        }
    }
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

#[test]
fn sent_spans_are_measured_whether_begins_and_ends_or_whole_ones_come_in_any_order() {
    let mut random = Random(1);
    let threads: Vec<_> = (0..4)
        .map(|thread| (thread / 2, thread, random.spans(1000, 2_000_000, 5)))
        .collect();
    let (mut expected, mut stacks_expected) = (BTreeMap::new(), BTreeMap::new());
    for (process, thread, spans) in &threads {
        for span in spans {
            let around = format!("[{process}];[{thread}]");
            span.expect(&around, &mut expected, &mut stacks_expected);
        }
    }
    assert!(
        expected
            .values()
            .all(|expected| expected.durations.len() > 20)
    );
    for form in ["begin and end", "whole", "whole, by begin", "whole, mixed"] {
        let mut lines = Vec::new();
        for (process, thread, spans) in &threads {
            let of = format!(r#""pid":{process},"tid":{thread}"#);
            let mut whole = Vec::new();
            for span in spans {
                span.whole(&mut whole);
                if form == "begin and end" {
                    span.each_edge(&mut |name, time, is_begin| {
                        let phase = if is_begin { "B" } else { "E" };
                        let ts = microseconds(time);
                        lines.push(format!(
                            r#"{{"ph":"{phase}","name":"{name}",{of},"ts":{ts}}}"#
                        ));
                    });
                }
            }
            match form {
                "begin and end" => continue,
                "whole, by begin" => whole.reverse(),
                "whole, mixed" => whole.sort_by_key(|span| span.begin.wrapping_mul(7919) % 1009),
                _ => {}
            }
            lines.extend(whole.iter().map(|span| {
                let (ts, dur) = (
                    microseconds(span.begin),
                    microseconds(span.end - span.begin),
                );
                let name = &span.name;
                format!(r#"{{"ph":"X","name":"{name}",{of},"ts":{ts},"dur":{dur}}}"#)
            }));
        }
        let trace = record(&lines);
        // Without the order of arrival, equal spans are told apart by chance: only their sum is
        // known.
        if form == "whole" || form == "begin and end" {
            let mut again = BTreeMap::new();
            for (_, _, spans) in &threads {
                for span in spans {
                    span.expect("", &mut again, &mut BTreeMap::new());
                }
            }
            assert_rows(&rows(&[], trace.path()), again);
            assert_eq!(stacks(trace.path()), stacks_expected, "{form}");
        }
        let sum = |of: &BTreeMap<String, u64>| of.values().sum::<u64>();
        assert_eq!(sum(&stacks(trace.path())), sum(&stacks_expected), "{form}");
        let shown: u64 = rows(&[], trace.path())
            .iter()
            .map(|row| row["self_ns"].as_u64().unwrap())
            .sum();
        assert_eq!(shown, sum(&stacks_expected), "{form}");
    }
}

#[test]
fn asynchronous_spans_of_different_ids_overlap_and_those_of_one_id_nest() {
    let line = |phase: &str, name: &str, id: &str, ts: u64| {
        format!(r#"{{"ph":"{phase}","cat":"io","name":"{name}","pid":1,"ts":{ts},{id}}}"#)
    };
    let lines = [
        line("b", "read", r#""id":1"#, 10),
        line("b", "read", r#""id":2"#, 20),
        line("b", "seek", r#""id":1"#, 25),
        line("e", "seek", r#""id":1"#, 30),
        line("e", "read", r#""id":1"#, 40),
        line("e", "read", r#""id":2"#, 80),
        line("b", "send", r#""id2":{"global":"0x7"}"#, 90),
        line("e", "send", r#""id2":{"global":"0x7"}"#, 95).replace(r#""pid":1"#, r#""pid":2"#),
    ];
    let trace = record(&lines);
    let expected = [
        ("read", 60 + 25, vec![30, 60]),
        ("seek", 5, vec![5]),
        ("send", 5, vec![5]),
    ];
    let expected = expected.map(|(name, own, durations)| {
        let durations = durations.iter().map(|duration| duration * 1000).collect();
        let own = own * 1000;
        (name.to_owned(), Expected { own, durations })
    });
    assert_rows(&rows(&[], trace.path()), expected.into());
    let stacks = stacks(trace.path());
    assert_eq!(stacks["[1];async;read;seek"], 5000);
    assert_eq!(stacks["[1];async;read"], 85_000);
}

#[test]
fn an_end_of_an_asynchronous_id_is_of_the_last_begin_of_its_name() {
    let line = |phase: &str, name: &str, ts: u64| {
        format!(r#"{{"ph":"{phase}","cat":"io","name":"{name}","pid":1,"id":7,"ts":{ts}}}"#)
    };
    let trace = record(&[
        line("b", "read", 0),
        line("b", "send", 1),
        line("e", "read", 2),
        line("e", "send", 3),
    ]);
    let expected = [("read", 1000), ("send", 2000)].map(|(name, own)| {
        let durations = vec![2000];
        (name.to_owned(), Expected { own, durations })
    });
    assert_rows(&rows(&[], trace.path()), expected.into());
}

#[test]
fn times_that_are_sent_finer_than_nanoseconds_or_as_strings_are_rounded() {
    let lines = [
        r#"{"ph":"X","name":"fine","pid":1,"ts":123456.78912,"dur":5.12345}"#,
        r#"{"ph":"B","name":"text","pid":1,"ts":"200000.5"}"#,
        r#"{"ph":"E","name":"text","pid":1,"ts":"200003.75"}"#,
    ];
    let trace = record(&lines.map(str::to_owned));
    let expected = [("fine", 5123), ("text", 3250)].map(|(name, own)| {
        let durations = vec![own];
        (name.to_owned(), Expected { own, durations })
    });
    assert_rows(&rows(&[], trace.path()), expected.into());
}

#[test]
fn spans_without_an_end_or_a_begin_are_counted_and_take_no_time() {
    let line = |phase: &str, name: &str, ts: u64| {
        format!(r#"{{"ph":"{phase}","name":"{name}","pid":1,"tid":2,"ts":{ts}}}"#)
    };
    let lines = [
        line("E", "early", 1),
        line("B", "main", 10),
        line("B", "lost", 20),
        line("B", "step", 30),
        line("E", "step", 40),
        line("B", "step", 50),
        // The end of `lost` is missing: that of the span around it ends it.
        line("E", "step", 60),
        line("E", "main", 100),
        line("B", "late", 110),
    ];
    let trace = record(&lines);
    let rows = rows(&["--sort", "name"], trace.path());
    let row = |row: &Value| {
        let number = |member| row[member].as_u64().unwrap();
        (
            row["name"].as_str().unwrap().to_owned(),
            ["count", "total_ns", "self_ns", "open", "without_begin"].map(number),
        )
    };
    let expected = [
        ("early", [0, 0, 0, 0, 1]),
        ("late", [0, 0, 0, 1, 0]),
        ("lost", [0, 0, 0, 1, 0]),
        ("main", [1, 90_000, 70_000, 0, 0]),
        ("step", [2, 20_000, 20_000, 0, 0]),
    ];
    let expected = expected.map(|(name, numbers)| (name.to_owned(), numbers));
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
    let table = text(&test_live(&["spans"], trace.path()).stdout);
    assert!(table.starts_with("COUNT "), "{table}");
    assert!(table.contains("OPEN  NO BEGIN  NAME"), "{table}");
    assert!(table.contains("90.00 us"), "{table}");
}

/// Writes a trace of two streams with spans of `tracing`, pairs, and functions.
fn write_declared(directory: &Path, spans: &[Made]) {
    let mut trace = TraceWriter::create(directory).unwrap();
    let streams = [StreamHandle::FIRST, trace.add_stream()];
    let fields = [
        ("span", FieldType::Unsigned(Width::Bits64)),
        ("name", FieldType::Text),
    ];
    let enter = trace.event_class("app:span:enter", &fields).unwrap();
    let exit = trace.event_class("app:span:exit", &fields).unwrap();
    let [begin, end] =
        ["gfx:frame_begin", "gfx:frame_end"].map(|name| trace.event_class(name, &[]).unwrap());
    let address = [("addr", FieldType::Unsigned(Width::Bits64))];
    let entry = "lttng_ust_cyg_profile:func_entry";
    let entry = trace.event_class(entry, &address).unwrap();
    let leave = trace.event_class("lttng_ust_cyg_profile_fast:func_exit", &[]);
    let leave = leave.unwrap();
    let mut write = |stream: usize, class: &_, thread, time, values: &[FieldValue<'_>]| {
        let event = EventRecord {
            time: Timestamp(time),
            process: 7,
            thread,
            values,
        };
        trace.write_to(streams[stream], class, &event).unwrap();
    };
    // Thread 1: a pair and functions, in one stream.
    for span in spans {
        let mut depth = 0;
        span.each_edge(&mut |_, time, is_begin| {
            // The outermost are frames, those within are functions.
            match (is_begin, depth) {
                (true, 0) => write(0, &begin, 1, time, &[]),
                (true, _) => write(0, &entry, 1, time, &[0x40_u64.into()]),
                (false, 1) => write(0, &end, 1, time, &[]),
                (false, _) => write(0, &leave, 1, time, &[]),
            }
            depth = if is_begin { depth + 1 } else { depth - 1 };
        });
    }
    // Thread 2: two spans whose guards are dropped in the other order, in another stream.
    for (class, id, name, time) in [
        (&enter, 1_u64, "outer", 10),
        (&enter, 2, "inner", 30),
        (&exit, 1, "outer", 60),
        (&exit, 2, "inner", 100),
    ] {
        write(1, class, 2, time, &[id.into(), name.into()]);
    }
    trace.finish().unwrap();
}

#[test]
fn spans_of_all_declared_kinds_are_measured_by_thread_over_several_streams() {
    let spans = Random(2).spans(1000, 1_000_000, 4);
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    write_declared(&trace, &spans);
    let mut renamed = spans;
    fn rename(span: &mut Made, name: &str) {
        span.name = name.to_owned();
        span.inner
            .iter_mut()
            .for_each(|inner| rename(inner, "0x40"));
    }
    renamed
        .iter_mut()
        .for_each(|span| rename(span, "gfx:frame"));
    let (mut expected, mut expected_stacks) = (BTreeMap::new(), BTreeMap::new());
    for span in &renamed {
        span.expect("trace[7];[1]", &mut expected, &mut expected_stacks);
    }
    // The thread is in one of them at a time: that which it has entered last.
    for (name, own, duration) in [("outer", 20, 50), ("inner", 70, 70)] {
        let durations = vec![duration];
        expected.insert(name.to_owned(), Expected { own, durations });
    }
    expected_stacks.insert("trace[7];[2];outer".to_owned(), 20);
    expected_stacks.insert("trace[7];[2];outer;inner".to_owned(), 70);
    assert_rows(&rows(&[], &trace), expected);
    let shown: BTreeMap<_, _> = stacks(&trace)
        .into_iter()
        .map(|(stack, own)| {
            let (_, rest) = stack.split_once(';').unwrap();
            (format!("trace[7];{rest}"), own)
        })
        .collect();
    assert_eq!(shown, expected_stacks);

    let by_thread = rows(&["--by", "thread", "--sort", "name"], &trace);
    let threads: Vec<_> = by_thread
        .iter()
        .map(|row| (row["tid"].as_u64().unwrap(), row["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        threads,
        [(1, "0x40"), (1, "gfx:frame"), (2, "inner"), (2, "outer")]
    );
    assert!(by_thread.iter().all(|row| row["pid"] == 7));
    let by_process = rows(&["--by", "process", "--limit", "2"], &trace);
    assert_eq!(by_process.len(), 2);
    assert!(by_process[0].get("tid").is_none() && by_process[0]["pid"] == 7);
}

#[test]
fn a_filter_selects_spans_by_their_begins_and_does_not_change_their_times() {
    let spans = Random(3).spans(1000, 1_000_000, 4);
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    write_declared(&trace, &spans);
    let all = rows(&[], &trace);
    let all = all.iter().find(|row| row["name"] == "gfx:frame").unwrap();
    let selected = rows(&["--filter", r#"$name == "gfx:frame_begin""#], &trace);
    assert_eq!(selected.iter().collect::<Vec<_>>(), [all]);
}

#[test]
fn hostile_names_are_escaped_and_more_names_than_rows_are_one_row() {
    let mut lines = Vec::new();
    let hostile = r"a;b\nc \u001b[2J\u202e\u009b";
    for thread in 0..2 {
        lines.push(format!(
            r#"{{"ph":"X","name":"{hostile}","pid":"p;{thread}\n","tid":3,"ts":1,"dur":5}}"#
        ));
    }
    let many = 80_000_u64;
    for number in 0..many {
        let mut line = String::new();
        let ts = 100 + number;
        write!(
            line,
            r#"{{"ph":"X","name":"name {number}","pid":1,"tid":1,"ts":{ts},"dur":1}}"#
        )
        .unwrap();
        lines.push(line);
    }
    let trace = record(&lines);
    let ended = test_live(&["spans", "--sort", "max", "--by", "process"], trace.path());
    let (table, errors) = (text(&ended.stdout), text(&ended.stderr));
    assert!(table.contains(r"a;b\nc \u{1b}[2J\u{202e}\u{9b}"));
    assert!(!table.contains('\u{1b}') && !table.contains('\u{202e}'));
    assert!(errors.contains("more than 32768 rows"), "{errors}");
    let json = test_live(&["spans", "--json"], trace.path()).stdout;
    assert!(text(&json).contains(r"\u009b") && !text(&json).contains('\u{9b}'));
    let rows = rows(&["--by", "process"], trace.path());
    assert!(rows.len() <= 32_769, "{}", rows.len());
    let counts = rows.iter().map(|row| row["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), many + 2);
    assert_eq!(rows[0]["name"], "<other>");

    let stacks = stacks(trace.path());
    let hostile = r"a:b\nc \u{1b}[2J\u{202e}\u{9b}";
    let stack = format!(r"[p:0\n];[3];{hostile}");
    assert_eq!(stacks.get(&stack), Some(&5000));
    assert_eq!(stacks.values().sum::<u64>(), 10_000 + many * 1000);
}
