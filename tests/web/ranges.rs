//! Search, filter, the fields of an event, and what is taken out of a range.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::babeltrace::Babeltrace;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::{test_live, traces, wait_for};

use crate::system::{Agent, Web, center, show_from, wait_for_row};

/// Returns a recording of 200 numbered events, and a page that shows it.
fn numbered(lab: &Lab) -> (String, Web, Browser, i64) {
    let directory = traces::with_numbered_events(lab, "numbered", 200, 1_000_000);
    let web = Web::show_directory(lab, &directory);
    let browser = Browser::start(lab);
    browser.open(&web.url);
    browser.wait_for("all events", "return __view().rows === 200");
    let first = "return __view().shown.map(r => r.begin).sort()[0]";
    let first = browser.wait_for("the first event", first);
    let first = first.as_str().unwrap().parse().unwrap();
    (directory.to_str().unwrap().to_owned(), web, browser, first)
}

/// Shows what is between two times, in nanoseconds.
fn show(browser: &Browser, from: i64, to: i64) {
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    browser.wait_for(
        "the range is shown",
        &format!("return __view().to === '{to}'"),
    );
}

fn text_of(browser: &Browser, id: &str) -> String {
    let text = browser.run(&format!(
        "return document.getElementById('{id}').textContent"
    ));
    text.as_str().unwrap_or_default().to_owned()
}

fn fill(browser: &Browser, form: &str, text: &str) {
    let text = serde_json::to_string(text).unwrap();
    browser.run(&format!(
        "document.getElementById('{form}-text').value = {text};
         document.getElementById('{form}').requestSubmit()"
    ));
}

#[test]
fn clicked_event_is_shown_with_all_its_fields() {
    let lab = Lab::new();
    let (_directory, _web, browser, first) = numbered(&lab);
    // The event of number 17 begins at 17 ms.
    show(&browser, first + 16_900_000, first + 17_100_000);
    let row = wait_for_row(&browser, "numbered");
    let (x, y) = center(&row);
    browser.click(x, y);
    tests::wait_until("the fields are shown", || {
        text_of(&browser, "panel-facts").contains("number17")
    });
    assert_eq!(text_of(&browser, "panel-title"), "numbered");
}

#[test]
fn names_are_found_in_both_directions_and_a_filter_hides_other_events() {
    let lab = Lab::new();
    let (_directory, _web, browser, first) = numbered(&lab);
    show(&browser, first, first + 20_000_000);
    fill(&browser, "search", "NUMB");
    browser.wait_for(
        "the number of events",
        "return document.getElementById('search-result').textContent === '200 found'",
    );
    fill(&browser, "search", "nothing");
    browser.wait_for(
        "nothing is found",
        "return document.getElementById('search-result').textContent === 'none'",
    );

    browser.press("\u{e011}");
    fill(&browser, "filter", "number >= 50 && number < 60");
    let shown = "return __view().shown.reduce((sum, row) => sum + row.count, 0)";
    browser.run("document.getElementById('all').click()");
    browser.wait_for("ten events match", &format!("{shown} === 10"));
    fill(&browser, "filter", "number >= ");
    browser.wait_for(
        "the error is shown",
        "return document.querySelector('#filter-result.wrong') !== null",
    );
    assert!(!text_of(&browser, "filter-result").is_empty());
    fill(&browser, "filter", "");
    browser.wait_for("all events are shown again", &format!("{shown} === 200"));
}

#[test]
fn filter_selects_events_by_the_names_that_are_shown_and_describes_those_that_none_has() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let mut client = agent.open("named");
    client.send(
        r#"{"ph":"X","name":"load","ts":1000,"dur":500,"pid":7,"tid":8,"args":{"size":3}}
{"ph":"X","name":"parse","ts":2000,"dur":500,"pid":7,"tid":8}
"#,
    );
    let row = wait_for_row(&browser, "load");
    show_from(&browser, &row);
    wait_for_row(&browser, "parse");
    let result = |text: &str| {
        format!("return document.getElementById('filter-result').textContent === {text:?}")
    };
    fill(&browser, "filter", "$name == \"parse\"");
    let only = "const rows = __view().shown; return rows.length > 0 && rows.every(row => row.name === 'parse')";
    browser.wait_for("only this name is shown", only);
    browser.wait_for("the filter is applied", &result("applied"));
    for (filter, hint) in [
        (
            "$name == \"pars\"",
            "no event is named \"pars\"; did you mean parse?",
        ),
        ("nme == 5", "no event has a field nme; did you mean name?"),
        (
            "args.sise > 2",
            "no event has a field args.sise; did you mean size?",
        ),
    ] {
        fill(&browser, "filter", filter);
        browser.wait_for(filter, &result(hint));
    }
    fill(&browser, "filter", "args.size > 2");
    browser.wait_for("the filter is applied", &result("applied"));
    fill(&browser, "filter", "");
    browser.wait_for("there is no filter", &result(""));
}

#[test]
fn downloads_of_a_range_are_what_the_sinks_write() {
    let lab = Lab::new();
    let (directory, web, browser, first) = numbered(&lab);
    show(&browser, first, first + 200_000_000);
    // On the line of times a drag selects.
    browser.drag(&[(400, 108), (600, 108), (900, 108)]);
    let range = browser.wait_for("a range", "return __view().range");
    let time = |name: &str| range[name].as_str().unwrap().parse::<i64>().unwrap();
    let (from, to) = (time("from"), time("to"));
    let events = 1 + (to - first) / 1_000_000 - (from - first + 999_999) / 1_000_000;
    let counted = format!(
        "return document.getElementById('panel-facts').textContent.endsWith('Spans, events, values{events}')"
    );
    browser.wait_for("the number of events", &counted);

    let bound = |time: i64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
    for (format, sink) in [("tef", "tef"), ("json", "json")] {
        let href = browser.run(&format!(
            "return document.getElementById('download-{format}').href"
        ));
        let path = href
            .as_str()
            .unwrap()
            .splitn(4, '/')
            .nth(3)
            .unwrap()
            .to_owned();
        let response = web.request(&format!("/{path}"), "");
        assert!(
            response.contains("content-disposition: attachment"),
            "{response}"
        );
        let downloaded = browser.run(&format!(
            "return fetch(document.getElementById('download-{format}').href).then(r => r.text())"
        ));
        let arguments = ["--sink", sink, "--begin", &bound(from), "--end", &bound(to)];
        let written = test_live::read(&lab, &arguments, directory.as_ref());
        let written = String::from_utf8(written.stdout_bytes).unwrap();
        assert_eq!(records(downloaded.as_str().unwrap()).len() as i64, events);
        assert_eq!(
            records(downloaded.as_str().unwrap()),
            records(&written),
            "{format}"
        );
    }
    let refused = web.request("/download?format=tef&from=0&to=1&filter=%28", "");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
}

#[test]
fn download_in_ctf_is_the_packets_of_the_range_for_any_reader() {
    let lab = Lab::new();
    let directory = traces::with_numbered_events(&lab, "numbered", 2_000, 1_000_000);
    let every = traces::with_every_field_type(&lab);
    let read = |directory: &Path| {
        let options = ["--no-delta", "--clock-cycles"];
        Babeltrace::Two.read_with(&options, directory)
    };
    let original = read(&every).expect_success();
    let web = Web::show_directory(&lab, &every);
    let (from, to) = (i64::MIN, i64::MAX);
    // The history is read after the URL is printed.
    let extracted = wait_for("an archive of all packets", || {
        let archive = web.download(&format!("/download?format=ctf&from={from}&to={to}"));
        let extracted = extract(&lab, &archive)?;
        // Part of a trace may not be readable yet.
        let written = read(&extracted);
        (written.stdout == original).then_some(extracted)
    });
    assert!(fs::read_dir(extracted).unwrap().next().is_some());
    drop(web);

    let web = Web::show_directory(&lab, &directory);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for("all events", "return __view().rows === 2000");
    let first = "return __view().shown.map(r => r.begin).sort()[0]";
    let first = browser.wait_for("the first event", first);
    let first: i64 = first.as_str().unwrap().parse().unwrap();
    show(&browser, first, first + 2_000_000_000);
    fill(&browser, "filter", "number < 5");
    browser.drag(&[(400, 108), (600, 108), (900, 108)]);
    let range = browser.wait_for("a range", "return __view().range");
    let time = |name: &str| range[name].as_str().unwrap().parse::<i64>().unwrap();
    let href = browser.run("return document.getElementById('download-ctf').href");
    let path = href.as_str().unwrap().splitn(4, '/').nth(3).unwrap();
    let extracted = extract(&lab, &web.download(&format!("/{path}"))).unwrap();
    let bound = |time: i64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
    let (begin, end) = (bound(time("from")), bound(time("to")));
    let arguments = ["--begin", &begin, "--end", &end];
    let events = |of: &Path| test_live::read(&lab, &arguments, of).expect_success();
    assert!(!events(&directory).is_empty());
    assert_eq!(events(&extracted), events(&directory));
    let refused = web.request(&format!("/{path}&filter=number"), "");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
}

/// Unpacks an archive into a new directory; none if it has no file.
fn extract(lab: &Lab, archive: &[u8]) -> Option<PathBuf> {
    let file = lab.path().join("traces.tar");
    fs::write(&file, archive).unwrap();
    let directory = lab.directory(&format!("extracted-{}", archive.len()));
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&file).arg("-C").arg(&directory);
    assert!(tar.status().unwrap().success());
    let is_empty = fs::read_dir(&directory).unwrap().next().is_none();
    (!is_empty).then_some(directory)
}

/// Returns the events of a file, without those that name processes and threads.
fn records(text: &str) -> Vec<Value> {
    if let Ok(Value::Object(document)) = serde_json::from_str::<Value>(text)
        && let Some(Value::Array(records)) = document.get("traceEvents")
    {
        let is_event = |record: &&Value| record["ph"] != "M";
        return records.iter().filter(is_event).cloned().collect();
    }
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn range_is_passed_to_perfetto_when_its_page_answers() {
    let lab = Lab::new();
    let (_directory, _web, browser, first) = numbered(&lab);
    show(&browser, first, first + 200_000_000);
    browser.drag(&[(400, 108), (600, 108), (900, 108)]);
    browser.wait_for("a range", "return __view().range");
    // In place of the other page: it answers a ping.
    browser.run(
        "window.open = url => ({ postMessage(message, origin) {
             if (message === 'PING') {
                 dispatchEvent(new MessageEvent('message', { data: 'PONG', origin: 'https://evil.example' }));
                 dispatchEvent(new MessageEvent('message', { data: 'PONG', origin }));
             } else {
                 window.passed = { url, origin, ...message.perfetto };
             }
         } });
         document.getElementById('open-perfetto').click()",
    );
    let passed = browser.wait_for(
        "the trace is passed",
        "return window.passed && [passed.url, passed.origin, Array.from(new Uint8Array(passed.buffer.slice(0, 1)))]",
    );
    assert_eq!(passed[0], "https://ui.perfetto.dev");
    assert_eq!(passed[1], "https://ui.perfetto.dev");
    // The tag of a packet in Perfetto's own format.
    assert_eq!(passed[2], serde_json::json!([0x0a]));
}
