//! The fields of an event that was clicked.

use serde_json::Value;
use tests::binaries;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;

use crate::system::{Agent, Web, center, wait_for_row};

#[test]
fn fields_are_those_that_the_program_sent_and_select_events_like_it() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let agent = Agent::start(&lab, &relay);
    let mut client = agent.open("shop");
    client.send(
        r#"{"ph":"X","name":"GET /orders","cat":"http","ts":0,"dur":400000,"pid":7,"tid":8,"args":{"size":3,"path":"a*b"}}
           {"ph":"X","name":"GET /items","cat":"http","ts":500000,"dur":400000,"pid":7,"tid":8,"args":{"size":3,"path":"axb"}}"#,
    );
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    browser.wait_for("both", "return window.__view && __view().rows === 2");
    let begin = "const begins = __view().shown.map(row => row.begin).sort(); return begins.length > 0 && begins[0]";
    let begin = browser.wait_for("the first event", begin);
    let begin: i64 = begin.as_str().unwrap().parse().unwrap();
    let (from, to) = (begin - 100_000_000, begin + 1_000_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    let (x, y) = center(&wait_for_row(&browser, "GET /orders"));
    browser.click(x, y);
    let facts = "const names = [...document.querySelectorAll('#panel-facts dt')].map(dt => dt.textContent);
        const values = [...document.querySelectorAll('#panel-facts dd')].map(dd => dd.firstChild.textContent);
        return names.includes('args.size') && Object.fromEntries(names.map((name, at) => [name, values[at]]))";
    let facts = browser.wait_for("the fields", facts);
    let mut names: Vec<_> = facts.as_object().unwrap().keys().collect();
    names.sort_unstable();
    let expected = [
        "Begin",
        "Duration",
        "End",
        "Track",
        "args.path",
        "args.size",
        "cat",
        "dur",
        "host",
        "name",
        "ph",
        "pid",
        "tid",
        "ts",
    ];
    assert_eq!(names, expected);
    for (name, value) in [
        ("name", "GET /orders"),
        ("dur", "400000"),
        ("pid", "7"),
        ("args.path", "a*b"),
        ("Duration", "400 ms (0.400\u{2009}000\u{2009}000 s)"),
    ] {
        assert_eq!(facts[name], value, "{name}");
    }

    browser.run("document.getElementById('copy-json').click()");
    let copied = "const label = document.getElementById('copy-json').textContent; return label !== 'Copy as JSON' && label";
    assert_eq!(browser.wait_for("the copy", copied), "Copied");

    // Only the first has this text; a wildcard would select both.
    let filter = browser.run(
        "const filter = [...document.querySelectorAll('#panel-facts button')].find(button => button.title.startsWith('args.path'));
         filter.click(); return document.getElementById('filter-text').value",
    );
    assert_eq!(filter, r#"args.path == "a\*b""#);
    names_in_view(&browser, &["GET /orders"]);
    for (path, shown) in [
        ("$name", &["GET /orders"][..]),
        ("cat", &["GET /items", "GET /orders"]),
        ("args.size", &["GET /items", "GET /orders"]),
    ] {
        browser.run(&format!(
            "[...document.querySelectorAll('#panel-facts button')].find(button => button.title.startsWith('{path}')).click()"
        ));
        names_in_view(&browser, shown);
    }
}

/// Waits until these are the names of all rows in view.
fn names_in_view(browser: &Browser, expected: &[&str]) {
    tests::wait_until("the names in view", || {
        let names = browser.run("return __view().shown.map(row => row.name).sort()");
        names == Value::from(expected)
    });
}

#[test]
fn a_span_of_tracing_has_its_fields_and_the_spans_around_it() {
    let lab = Lab::new();
    let mut program = lab.command(binaries::ring_app());
    program.args(["--requests", "3", "--tasks", "1"]);
    let recording = lab.path().join("recording");
    let mut snapshot = lab.command(binaries::consumer());
    snapshot.args(["rings", "--snapshot"]).arg(&recording);
    for command in [&mut program, &mut snapshot] {
        command.env("TRACE_RING_DIR", lab.directory("rings"));
        // Rings that nobody reads stay until the snapshot.
        command.env("TRACE_RING", "overwrite");
        Process::start(command).wait().expect_success();
    }
    let web = Web::show_directory(&lab, &recording);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "the recording",
        "return window.__view && __view().sessions.length > 0 && __view().sessions[0].isEnded",
    );
    let facts_of_longest = |name: &str| {
        browser.press("v");
        browser.wait_for(
            "the table of spans",
            &format!(
                "const button = [...document.querySelectorAll('#panel-summary tbody button')].find(button => button.textContent === '{name}');
                 if (button) {{ button.click(); }} return !!button"
            ),
        );
        let facts = browser.wait_for(
            "the fields",
            "const names = [...document.querySelectorAll('#panel-facts dt')];
             const fact = dt => `${dt.textContent} ${dt.nextSibling.firstChild.textContent}`;
             const wanted = ['Within', 'n', 'result', 'status', 'table', 'thread'];
             return names.some(dt => dt.textContent === 'span')
                 && names.filter(dt => wanted.includes(dt.textContent)).map(fact).join(', ')",
        );
        facts.as_str().unwrap().to_owned()
    };
    assert_eq!(facts_of_longest("query"), "Within request, table orders");
    // Entered twice, by threads of which neither made it; its result is known before the second.
    assert_eq!(facts_of_longest("task"), "n 0, result done");
    let request = facts_of_longest("request");
    let requests = [
        "n 0, thread 0, status 404",
        "n 1, thread 0, status 200",
        "n 2, thread 0, status 200",
    ];
    assert!(requests.contains(&&*request), "{request}");
}
