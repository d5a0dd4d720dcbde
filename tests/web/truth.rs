//! Every number that a page shows is what follows from `--sink json`, at several zooms.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};
use tests::browser::Browser;
use tests::collections::real_trace;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::{wait_for, wait_until};

use crate::expected::{Recording, SpanSum};
use crate::made_recording;
use crate::shown::{Shown, date_and_time, nanoseconds_of_day};
use crate::system::{Agent, Web};

/// The width of the names of tracks, and of the part with rows, in pixels.
pub(crate) const GUTTER: f64 = 220.0;
pub(crate) const PLOT: f64 = 1060.0;
/// The width of a column of the graph of events, in pixels, at least.
const COLUMN: i64 = 2;

/// Keeps what is written on the canvases.
const KEEP_TEXTS: &str = "const of = CanvasRenderingContext2D.prototype, fill = of.fillText;
    window.texts = [];
    of.fillText = function (text, x, y) {
        window.texts.push([this.canvas.id, text, x, y]);
        fill.call(this, text, x, y);
    };";

/// Draws the page again, and returns what is written on a canvas.
const TEXTS: &str = "const done = arguments[arguments.length - 1];
    requestAnimationFrame(() => {
        window.texts.length = 0;
        dispatchEvent(new HashChangeEvent('hashchange', { newURL: location.href }));
        requestAnimationFrame(() => requestAnimationFrame(() => done(window.texts)));
    })";

/// A text on a canvas, and where it is.
pub(crate) struct Text {
    canvas: String,
    text: String,
    x: f64,
    y: f64,
}

/// A page with a recording that has been read.
pub(crate) struct Page {
    pub(crate) browser: Browser,
    _web: Web,
    pub(crate) recording: Recording,
}

/// A row of a table: what its cells show, and without rounding.
type Cells = Vec<(String, String)>;

impl Page {
    pub(crate) fn open(lab: &Lab, directory: &Path) -> Self {
        let recording = Recording::read(lab, directory);
        let web = Web::show_directory(lab, directory);
        let browser = Browser::start(lab);
        browser.open(&web.url);
        let is_read = "return window.__view && __view().sessions.length > 0 && __view().sessions.every(s => s.isEnded)";
        browser.wait_for("the recording is read", is_read);
        browser.run(KEEP_TEXTS);
        Self {
            browser,
            _web: web,
            recording,
        }
    }

    pub(crate) fn show(&self, from: i64, to: i64) {
        self.browser
            .run(&format!("location.hash = 'from={from}&to={to}'"));
        let is_shown = format!("return __view().from === '{from}' && __view().to === '{to}'");
        self.browser.wait_for("the view", &is_shown);
    }

    pub(crate) fn texts(&self) -> Vec<Text> {
        let texts = self.browser.run_async(TEXTS);
        // The page may have been drawn twice.
        let mut known = HashSet::new();
        let texts = texts.as_array().unwrap().iter();
        let texts = texts.filter(|text| known.insert(text.to_string()));
        let text = |text: &Value| Text {
            canvas: text[0].as_str().unwrap().to_owned(),
            text: text[1].as_str().unwrap().to_owned(),
            x: text[2].as_f64().unwrap(),
            y: text[3].as_f64().unwrap(),
        };
        texts.map(text).collect()
    }

    /// The text of an element.
    fn text(&self, id: &str) -> String {
        let text = self.browser.run(&format!(
            "return document.getElementById('{id}').textContent"
        ));
        text.as_str().unwrap().to_owned()
    }

    /// What the panel says of what it shows: each name and its value.
    fn facts(&self) -> Vec<(String, String)> {
        let facts = self.browser.run(
            "return [...document.querySelectorAll('#panel-facts dt')].map(dt =>
                 [dt.textContent, dt.nextElementSibling.firstChild?.textContent ?? ''])",
        );
        serde_json::from_value(facts).unwrap()
    }

    fn fact(&self, name: &str) -> Option<String> {
        let mut facts = self.facts().into_iter();
        facts.find_map(|(fact, value)| (fact == name).then_some(value))
    }

    /// A table of the summary that is shown: the other cells of each row by the first one.
    fn table(&self, part: &str) -> BTreeMap<String, Cells> {
        let script = format!(
            "const tab = document.getElementById('summary-{part}');
             if (!tab) return null;
             if (tab.ariaSelected !== 'true') tab.click();
             return [...document.querySelectorAll('#panel-summary tbody tr')].map(row =>
                 [...row.cells].map(cell => [cell.textContent, cell.title]))"
        );
        let rows = self.browser.wait_for(part, &script);
        let rows: Vec<Cells> = serde_json::from_value(rows).unwrap();
        rows.into_iter()
            .map(|mut row| (row.remove(0).0, row))
            .collect()
    }

    /// Checks every number that the page shows of a range.
    fn check(&self, from: i64, to: i64) {
        self.show(from, to);
        self.check_drawing(from, to);
        self.check_texts(from, to);
        self.browser.press("v");
        self.check_summary("In view", from, to);
        self.browser.press("m");
        self.check_summary("Selected range", from, to);
        self.check_range(from, to);
        self.browser.press("\u{e00c}");
    }

    /// Each row within the range is part of a box.
    pub(crate) fn check_drawing(&self, from: i64, to: i64) {
        let (within, losses) = self.recording.drawn_within(from, to);
        let sums = "const sum = rows => rows.reduce((sum, row) => sum + row.count, 0);
            const rows = __view().shown;
            return [sum(rows.filter(row => row.kind !== 2)), sum(rows.filter(row => row.kind === 2))]";
        let what = format!("{within} rows and {losses} losses of {from} to {to}");
        wait_until(&what, || self.browser.run(sums) == json!([within, losses]));
    }

    fn check_texts(&self, from: i64, to: i64) {
        let recording = &self.recording;
        let span = (to - from) as f64;
        let header = self.text("range");
        let (begin, duration) = header.split_once("  +  ").unwrap();
        assert_eq!(begin, date_and_time(from));
        Shown::of_duration(duration).assert(span, "the view");
        let kept = self.text("kept");
        let kept = kept.strip_suffix(" rows kept").unwrap();
        Shown::of_count(kept).assert(recording.rows() as f64, "rows kept");

        let texts = self.texts();
        let on = |canvas: &'static str| texts.iter().filter(move |text| text.canvas == canvas);
        // The graph of the whole recording.
        let max = on("histogram").find_map(|text| text.text.strip_prefix("at most "));
        let room = PLOT as i64 / COLUMN;
        let (columns, width) = recording.histogram(room);
        let rate = *columns.iter().max().unwrap() as f64 * 1e9 / width as f64;
        Shown::of_count(max.unwrap()).assert(rate, "at most");
        let shown = self.browser.run("return __view().histogram.events");
        assert_eq!(shown, json!(columns));
        // The line of times.
        let step = on("timeline").find_map(|text| text.text.strip_prefix("one line is "));
        let step = Shown::of_duration(step.unwrap());
        let ticks: Vec<_> = on("timeline")
            .filter(|text| text.x > GUTTER && text.y == 13.0)
            .map(|text| (nanoseconds_of_day(&text.text), text.x - 4.0))
            .collect();
        assert!(ticks.len() > 1, "{from} to {to}");
        for pair in ticks.windows(2) {
            step.assert((pair[1].0 - pair[0].0) as f64, "one line is");
        }
        for (time, x) in ticks {
            let offset = time - nanoseconds_of_day(&date_and_time(from));
            let expected = GUTTER + offset as f64 / span * PLOT;
            assert!((x - expected).abs() <= 0.51, "{time}: {x} {expected}");
        }
        self.check_sessions(&texts);
    }

    /// The line of each session: how many events it has, and what was lost.
    fn check_sessions(&self, texts: &[Text]) {
        let sessions = self.browser.run("return __view().sessions");
        let mut events = 0;
        for session in sessions.as_array().unwrap() {
            let name = session["name"].as_str().unwrap();
            let place = texts.iter().position(|text| text.text == name).unwrap();
            let line = &texts[place..(place + 3).min(texts.len())];
            let facts: Vec<_> = line[1].text.split("  ·  ").collect();
            assert_eq!(facts[0], "ended");
            let count = session["events"].as_u64().unwrap();
            events += count;
            let shown = facts[1].strip_suffix(" events").unwrap();
            Shown::of_count(shown).assert(count as f64, name);
            let lost = self.recording.lost(name);
            assert_eq!(session["lost"], lost, "{name}");
            assert!(lost.is_empty() || line[2].text == lost, "{name}");
        }
        assert_eq!(events, self.recording.times.len() as u64);
    }

    fn check_summary(&self, title: &str, from: i64, to: i64) {
        wait_until(&format!("{title} {from} to {to}"), || {
            let is_of_range = self.fact("Begin") == Some(date_and_time(from));
            is_of_range && self.text("panel-title") == title
        });
        self.browser.wait_for(
            "the tables",
            "return document.querySelector('#panel-summary table, #panel-summary .graph') !== null",
        );
        let recording = &self.recording;
        let duration = self.fact("Duration").unwrap();
        let duration = duration.split(" (").next().unwrap();
        Shown::of_duration(duration).assert((to - from) as f64, "the range");

        let mut shown = self.table("spans");
        for (name, sum) in recording.span_sums(from, to) {
            let cells = shown.remove(&name);
            assert_span(&cells.unwrap_or_else(|| panic!("no {name}")), &name, &sum);
        }
        assert!(shown.is_empty(), "{shown:?}");

        let mut shown = self.table("events");
        for (name, count) in recording.instant_counts(from, to) {
            let cells = shown
                .remove(&name)
                .unwrap_or_else(|| panic!("no {name}, {from} to {to}"));
            Shown::of_exact(&cells[0].0).assert(count as f64, &name);
            let rate = cells[1].0.strip_suffix("/s").unwrap();
            let seconds = (to - from) as f64 / 1e9;
            Shown::of_count(rate).assert(count as f64 / seconds, &name);
        }
        assert!(shown.is_empty(), "{shown:?}");

        let shown = self.table("counters");
        let sums = recording.counter_sums(from, to);
        assert_eq!(shown.len(), sums.len(), "{shown:?} {sums:?}");
        for (track, cells) in shown {
            let name = track.rsplit(" / ").next().unwrap();
            let values = sums[name];
            for (cell, value) in cells.iter().zip(values) {
                Shown::of_value(&cell.0).assert(value, &track);
            }
        }
        self.check_graph(from, to);
    }

    /// The graph has each name within names, as wide as its part of the time.
    fn check_graph(&self, from: i64, to: i64) {
        self.table("graph");
        let boxes = self.browser.run(
            "return [...document.querySelectorAll('.graph div')].map(box =>
                 [parseFloat(box.style.top) / 19, parseFloat(box.style.width), box.title])",
        );
        let mut nodes = self.recording.graph(from, to);
        let roots = nodes.iter().filter(|(path, _)| path.len() == 1);
        let whole: i64 = roots.map(|(_, took)| took).sum();
        let mut path: Vec<String> = Vec::new();
        for node in boxes.as_array().unwrap() {
            path.truncate(node[0].as_f64().unwrap() as usize);
            let title = node[2].as_str().unwrap();
            let (name, numbers) = title.rsplit_once(": ").unwrap();
            path.push(name.to_owned());
            let took = nodes.remove(&path);
            let took = took.unwrap_or_else(|| panic!("{path:?} is not there")) as f64;
            let (duration, percent) = numbers.split_once(", ").unwrap();
            Shown::of_duration(duration).assert(took, title);
            let part = took / whole as f64 * 100.0;
            let percent: f64 = percent.strip_suffix(" %").unwrap().parse().unwrap();
            let width = node[1].as_f64().unwrap();
            assert!((percent - part).abs() < 0.051 && (width - part).abs() < 0.001);
        }
        // Narrow ones are left out.
        for (path, took) in nodes {
            assert!(took as f64 / whole as f64 <= 0.0015, "no {path:?}: {took}");
        }
    }

    /// A counter that is searched for is shown with its value at that time.
    fn check_found_counter(&self, name: &str) {
        let browser = &self.browser;
        let search = format!(
            "const text = document.getElementById('search-text');
             text.value = '{name}';
             document.getElementById('search').requestSubmit()"
        );
        browser.run(&search);
        wait_until("a value is found", || self.fact("Value").is_some());
        let values = &self.recording.counters[name];
        let found = self.text("search-result");
        assert_eq!(found, format!("{} found", values.len()));
        let begin = self.fact("Begin").unwrap();
        let at = values
            .iter()
            .find(|(time, _)| date_and_time(*time) == begin);
        let value: f64 = self.fact("Value").unwrap().parse().unwrap();
        assert_eq!(Some(value), at.map(|(_, value)| *value), "at {begin}");
        browser.press("\u{e00c}");
    }

    /// What the panel says of a selected range.
    fn check_range(&self, from: i64, to: i64) {
        assert_eq!(self.fact("End"), Some(date_and_time(to)));
        let duration = self.fact("Duration").unwrap();
        let exact = duration.split(['(', ')']).nth(1).unwrap();
        let digits: String = exact.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits.parse::<i64>().unwrap(), to - from);
        let rows = self.recording.rows_within(from, to);
        let shown = wait_for("the events are counted", || {
            self.fact("Spans, events, values")
                .filter(|text| text != "counting")
        });
        Shown::of_exact(&shown).assert(rows as f64, "events of the range");
    }
}

/// Checks a row of the table of spans. Percentiles are right to 0.5 %.
fn assert_span(cells: &Cells, name: &str, sum: &SpanSum) {
    let durations = &sum.durations;
    let count = durations.len();
    Shown::of_exact(&cells[0].0).assert(count as f64, name);
    let total: i64 = durations.iter().sum();
    let rank = |percent: usize| durations[(count * percent).div_ceil(100) - 1] as f64;
    let mean = total as f64 / count as f64;
    let max = durations[count - 1] as f64;
    let values = [total as f64, sum.own as f64, mean, rank(50), rank(99), max];
    for (place, ((shown, exact), value)) in cells[1..].iter().zip(values).enumerate() {
        let what = format!("{name}, column {place}");
        let allowed = if matches!(place, 3 | 4) { 0.005 } else { 0.0 };
        Shown::of_duration(shown).assert_within(value, allowed, &what);
        let exact = exact.strip_suffix(" ns").unwrap();
        Shown::of_exact(exact).assert_within(value, allowed, &what);
    }
}

#[test]
fn numbers_of_a_recording_with_gaps_and_losses_are_those_of_its_events_at_every_zoom() {
    let lab = Lab::new();
    let page = Page::open(&lab, &made_recording::write(&lab));
    let (first, last) = page.recording.range();
    let margin = (last - first) / 50;
    page.check(first - margin, last + margin);
    // A tenth with the end of the first session, one with a gap, a hundredth and a thousandth.
    page.check(first + 900_000_000, first + 1_100_000_000);
    page.check(first + 440_000_000, first + 640_000_000);
    page.check(first + 38_500_000, first + 58_500_000);
    page.check(first + 31_000_000, first + 33_000_000);
    // One event, and what it says of itself.
    let mark = first + 35_000_000;
    page.check(mark - 500, mark + 500);
    page.browser.click(750, 150);
    let row = page
        .browser
        .run("return __view().shown.find(row => row.name === 'mark')");
    let (x, y) = crate::system::center(&row);
    page.browser.click(x, y);
    wait_until("the fields", || page.fact("number").is_some());
    assert_eq!(page.fact("number").unwrap(), "35000");
    assert_eq!(page.fact("Begin"), Some(date_and_time(mark)));
}

#[test]
fn numbers_of_spans_and_counters_that_a_program_has_sent_at_once_are_those_of_its_events() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let mut client = agent.open("sent");
    let mut lines = Vec::new();
    for round in 0..200 {
        let ts = round * 10_000;
        let event = |ph: &str, name: &str, ts: i64| json!({"ph": ph, "name": name, "ts": ts, "pid": 7, "tid": 8});
        lines.push(event("B", "work", ts));
        lines.push(event("i", "tick", ts + 100));
        let mut inner = event("X", "step", ts + 1000);
        inner["dur"] = (2000 + round).into();
        lines.push(inner);
        lines.push(event("E", "work", ts + 7000));
        let mut load = event("C", "load", ts + 8000);
        load["args"] = json!({"cpu": (round % 7) as f64 / 4.0, "queue": 100 - round});
        lines.push(load);
    }
    let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    client.send(&lines.join("\n"));
    drop(client);
    drop(agent);
    // What the relay has written when the session has ended.
    let output = relay.output.clone();
    let _ = relay.stop();
    let page = Page::open(&lab, &output);
    let (first, last) = page.recording.range();
    let margin = (last - first) / 50;
    page.check(first - margin, last + margin);
    page.check(first + 500_000_000, first + 700_000_000);
    page.check(first + 501_500_000, first + 503_500_000);
    page.check_found_counter("load queue");
    // The whole recording is in view at first.
    page.browser.press("\u{e011}");
    let view = page.browser.run("return [__view().from, __view().to]");
    let time = |place: usize| view[place].as_str().unwrap().parse::<i64>().unwrap();
    assert!(time(0) < first && time(1) > last, "{view} {first} {last}");
}

#[test]
fn numbers_of_a_ros_2_recording_are_those_of_its_events() {
    let Some(directory) = real_trace("ros2") else {
        println!("there is no such recording: nothing to compare");
        return;
    };
    let lab = Lab::new();
    let page = Page::open(&lab, &directory);
    let (first, last) = page.recording.range();
    for (from, to) in [
        (first - 1000, last + 1000),
        (first + 5_000_000_000, first + 6_000_000_000),
        (first + 5_000_000_000, first + 5_010_000_000),
    ] {
        page.show(from, to);
        page.check_texts(from, to);
        page.browser.press("v");
        page.check_summary("In view", from, to);
        page.browser.press("m");
        page.check_range(from, to);
        page.browser.press("\u{e00c}");
    }
}
