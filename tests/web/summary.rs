//! What a range and the visible part amount to, and the keys that lead there.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::system::{Agent, Client, Web};

const THREADS: i64 = 2;
const ROUNDS: i64 = 40;

/// A span as it was sent: name, and begin and end in microseconds.
type Sent = (&'static str, i64, i64);

/// The spans of a thread: each round has 9 ms of `work` with two times `step` in it.
fn spans(thread: i64) -> Vec<Sent> {
    let rounds = (0..ROUNDS).flat_map(|round| {
        let begin = round * 10_000 + thread * 1_000;
        [
            ("work", begin, begin + 9_000),
            ("step", begin + 1_000, begin + 2_000 + round * 10),
            ("step", begin + 5_000, begin + 8_000),
        ]
    });
    rounds.collect()
}

/// What runs, in the order in which it ends.
struct System {
    _client: Client,
    _web: Web,
    _agent: Agent,
    _relay: Relay,
}

/// Sends everything, and opens a page that shows all of it. Returns the time that all others are
/// relative to, in nanoseconds.
fn open(lab: &Lab) -> (System, Browser, i64) {
    let relay = Relay::start(lab);
    let agent = Agent::start(lab, &relay);
    let mut client = agent.open("summed");
    let mut lines = Vec::new();
    for thread in 0..THREADS {
        let mut edges: Vec<(i64, &str, &str)> = Vec::new();
        for (name, begin, end) in spans(thread) {
            edges.extend([(begin, "B", name), (end, "E", name)]);
        }
        edges.sort_unstable();
        for (ts, ph, name) in edges {
            lines.push(json!({"ph": ph, "name": name, "ts": ts, "pid": 7, "tid": 8 + thread}));
        }
    }
    for round in 0..ROUNDS {
        let ts = round * 10_000;
        let args = json!({"queue": round % 5});
        lines.push(json!({"ph": "i", "name": "tick", "ts": ts, "pid": 7, "tid": 8}));
        lines.push(json!({"ph": "C", "name": "load", "ts": ts, "pid": 7, "tid": 8, "args": args}));
    }
    let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    client.send(&lines.join("\n"));
    let web = Web::show(lab, relay.live);
    let browser = Browser::start(lab);
    browser.open(&web.url);
    let rows = THREADS * ROUNDS * 3 + ROUNDS * 2;
    browser.wait_for(
        "all rows",
        &format!("return window.__view && __view().rows === {rows}"),
    );
    browser.press("\u{e011}");
    let first = "const tick = __view().shown.filter(r => r.thread === 'load queue' || r.name === 'tick'); \
        return tick.length > 0 && tick.map(r => r.begin).sort()[0]";
    let first = browser.wait_for("the first event", first);
    let first = first.as_str().unwrap().parse().unwrap();
    let system = System {
        _client: client,
        _web: web,
        _agent: agent,
        _relay: relay,
    };
    (system, browser, first)
}

/// A table of the summary: the cells of each row by its name, without rounding.
fn table(browser: &Browser, part: &str) -> BTreeMap<String, Vec<String>> {
    let script = format!(
        "const tab = document.getElementById('summary-{part}');
         if (!tab) return null;
         if (tab.ariaSelected !== 'true') tab.click();
         return [...document.querySelectorAll('#panel-summary tbody tr')].map(row =>
             [...row.cells].map(cell => cell.title || cell.textContent))"
    );
    let rows = browser.wait_for(part, &script);
    let rows: Vec<Vec<String>> = serde_json::from_value(rows).unwrap();
    rows.into_iter()
        .map(|mut row| (row.remove(0), row))
        .collect()
}

/// Count, total, own time, mean, percentiles and the longest, as the page has to show them of the
/// spans within a range of microseconds.
fn expected(name: &str, from: i64, to: i64) -> Option<Vec<String>> {
    let (mut durations, mut own) = (Vec::new(), 0);
    for thread in 0..THREADS {
        let spans = spans(thread);
        let within = |(_, begin, end): &Sent| (to.min(*end) - from.max(*begin)).max(0);
        for span in spans.iter().filter(|(of, ..)| *of == name) {
            let (_, begin, end) = *span;
            if begin <= to && end >= from {
                durations.push(within(span));
                let is_inner =
                    |(_, b, e): &&Sent| *b >= begin && *e <= end && (*b, *e) != (begin, end);
                let inner: i64 = spans.iter().filter(is_inner).map(within).sum();
                own += within(span) - inner;
            }
        }
    }
    durations.sort_unstable();
    let count = i64::try_from(durations.len()).unwrap();
    let total: i64 = durations.iter().sum();
    let rank = |percent: usize| durations[(durations.len() * percent).div_ceil(100) - 1];
    let max = *durations.last()?;
    let shown = |ns: i64| format!("{} ns", grouped(ns));
    let mean = (total as f64 * 1000.0 / count as f64).round() as i64;
    Some(vec![
        grouped(count),
        shown(total * 1000),
        shown(own * 1000),
        shown(mean),
        shown(rank(50) * 1000),
        shown(rank(99) * 1000),
        shown(max * 1000),
    ])
}

/// A number with commas.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn number(text: &str) -> i64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Checks a table of spans against what was sent. Percentiles are right to 0.5 %.
fn assert_spans(shown: &BTreeMap<String, Vec<String>>, from: i64, to: i64) {
    for name in ["work", "step"] {
        let expected = expected(name, from, to);
        let shown = shown.get(name);
        let (Some(expected), Some(shown)) = (&expected, shown) else {
            assert!(expected.is_none() && shown.is_none(), "{name}: {shown:?}");
            continue;
        };
        for (place, (shown, expected)) in shown.iter().zip(expected).enumerate() {
            match place {
                4 | 5 => {
                    let (shown, expected) = (number(shown), number(expected));
                    let error = (shown - expected).abs();
                    assert!(
                        error * 200 <= expected,
                        "{name} {place}: {shown} {expected}"
                    );
                }
                _ => assert_eq!(shown, expected, "{name} {place}, {from} to {to}"),
            }
        }
    }
}

#[test]
fn tables_of_a_range_and_of_what_is_in_view_are_those_of_the_events_that_were_sent() {
    let lab = Lab::new();
    let (_system, browser, zero) = open(&lab);
    // What is in view, at three zooms: everything, some rounds, and part of a span.
    for (from, to) in [(-50_000, 450_000), (100_500, 203_300), (101_500, 101_900)] {
        let (begin, end) = (zero + from * 1000, zero + to * 1000);
        browser.run(&format!("location.hash = 'from={begin}&to={end}'"));
        browser.wait_for("the view", &format!("return __view().to === '{end}'"));
        browser.press("v");
        let has_tables =
            "return document.getElementById('panel-title').textContent === 'In view' &&
             document.getElementById('panel-facts').textContent.includes('Duration') &&
             document.querySelector('#panel-summary table') !== null";
        browser.wait_for("the tables", has_tables);
        assert_spans(&table(&browser, "spans"), from, to);
        let ticks = (0..ROUNDS).filter(|round| (from..=to).contains(&(round * 10_000)));
        let values: Vec<i64> = ticks.map(|round| round % 5).collect();
        let events = table(&browser, "events");
        let shown = events.get("tick").map(|row| number(&row[0]));
        let count = i64::try_from(values.len()).unwrap();
        assert_eq!(shown, (count > 0).then_some(count));
        let counters = table(&browser, "counters");
        let (_, counter) = counters.first_key_value().unwrap();
        assert_eq!(number(&counter[0]), count, "{counters:?}");
        browser.press("\u{e00c}");
    }

    // The same of a range that is selected: M takes what is in view, and the link keeps it.
    let (from, to) = (100_500, 203_300);
    let (begin, end) = (zero + from * 1000, zero + to * 1000);
    browser.run(&format!("location.hash = 'from={begin}&to={end}'"));
    browser.wait_for("the view", &format!("return __view().to === '{end}'"));
    browser.press("m");
    let is_range = format!("return __view().range && __view().range.to === '{end}'");
    browser.wait_for("the range", &is_range);
    let is_linked = format!("return location.hash.includes('range={begin}-{end}')");
    browser.wait_for("the link", &is_linked);
    assert_spans(&table(&browser, "spans"), from, to);
    let link = browser.run("return location.href");
    browser.open("about:blank");
    browser.open(link.as_str().unwrap());
    browser.wait_for("the range of the link", &is_range);
    assert_spans(&table(&browser, "spans"), from, to);

    // A click on a name goes to the longest, and the keys to its neighbours of the same name.
    browser.run("document.querySelector('#panel-summary tbody button').click()");
    let title = "return document.getElementById('panel-title').textContent";
    assert_eq!(browser.run(title), "work");
    let facts = "return document.getElementById('panel-facts').textContent";
    let duration =
        "return document.getElementById('panel-facts').textContent.includes('Duration9 ms')";
    browser.wait_for("the longest", duration);
    let at = browser.run(facts);
    browser.press("]");
    browser.wait_for("the next", &format!("{facts} !== {at}"));
    browser.press("[");
    browser.wait_for(
        "the one before",
        &format!("{facts}.slice(0, 60) === {at}.slice(0, 60)"),
    );
    browser.press("f");
    browser.wait_for(
        "the span fills the view",
        "return Number(BigInt(__view().to) - BigInt(__view().from)) < 12e6",
    );
}

#[test]
fn keys_zoom_pan_and_show_what_they_do_and_a_search_lists_what_it_finds() {
    let lab = Lab::new();
    let (_system, browser, zero) = open(&lab);
    let (begin, end) = (zero, zero + 400_000_000);
    browser.run(&format!("location.hash = 'from={begin}&to={end}'"));
    browser.wait_for("the view", &format!("return __view().to === '{end}'"));
    let view = |browser: &Browser| {
        let view = browser.run("return [__view().from, __view().to]");
        let time = |place: usize| view[place].as_str().unwrap().parse::<i64>().unwrap();
        (time(0), time(1))
    };
    browser.press("w");
    let zoomed = view(&browser);
    assert!(zoomed.0 > begin && zoomed.1 < end);
    browser.press("d");
    let later = view(&browser);
    assert!(later.0 > zoomed.0 && later.1 - later.0 == zoomed.1 - zoomed.0);
    browser.press("a");
    assert_eq!(view(&browser), zoomed);
    browser.press("s");
    assert!((view(&browser).0 - begin).abs() < 10);

    browser.press("?");
    let help = browser.wait_for(
        "the help",
        "return document.getElementById('help').open && document.getElementById('help').innerText",
    );
    for key in ["W", "zoom in", "next span of the same name", "Ctrl F"] {
        assert!(help.as_str().unwrap().contains(key), "{help}");
    }
    browser.press("\u{e00c}");
    browser.wait_for("no help", "return !document.getElementById('help').open");

    let height = "return document.querySelector('header').getBoundingClientRect().height";
    let before = browser.run(height);
    browser.press("/");
    browser.wait_for(
        "the search",
        "return document.activeElement.id === 'search-text'",
    );
    for key in ["s", "t", "e", "p", "\u{e007}"] {
        browser.press(key);
    }
    let found = browser.wait_for(
        "what was found",
        "const found = document.getElementById('panel-found'); return !found.hidden && found.innerText",
    );
    let all = 2 * THREADS * ROUNDS;
    assert!(
        found
            .as_str()
            .unwrap()
            .contains(&format!("{all} names contain “step”"))
    );
    let listed = browser.run("return document.querySelectorAll('#panel-found li').length");
    assert!(listed.as_i64().unwrap() > all / 4, "{listed}");
    assert_eq!(browser.run(height), before);
    browser.run("document.querySelector('#panel-found li:last-child button').click()");
    let title = browser.run("return document.getElementById('panel-title').textContent");
    assert_eq!(title, "step");
    let icon = browser.run_async(
        "fetch(document.querySelector('link[rel=icon]').href).then(r => r.headers.get('content-type')).then(arguments[0])",
    );
    assert_eq!(icon, "image/svg+xml");
}
