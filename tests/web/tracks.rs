//! Which tracks are shown.

use std::fmt::Write;

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::system::{Agent, Web};

#[test]
fn tracks_are_found_by_name_pinned_hidden_and_sorted_by_what_is_in_view() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let agent = Agent::start(&lab, &relay);
    let mut client = agent.open("threads");
    let mut lines = String::new();
    // Thread n has n events, one every 100 ms.
    for thread in 1..=4 {
        for number in 0..thread {
            writeln!(
                lines,
                r#"{{"ph":"X","name":"step","ts":{},"dur":50,"pid":7,"tid":{thread}}}"#,
                number * 100_000
            )
            .unwrap();
        }
    }
    client.send(&lines);
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    browser.wait_for("all rows", "return window.__view && __view().rows === 10");
    let first = browser.wait_for(
        "the first event",
        "const begins = __view().shown.map(row => row.begin).sort(); return begins.length > 0 && begins[0]",
    );
    let first: i64 = first.as_str().unwrap().parse().unwrap();
    let show = |from: i64, to: i64| {
        let (from, to) = (first + from * 1_000_000, first + to * 1_000_000);
        browser.run(&format!("location.hash = 'from={from}&to={to}'"));
        browser.wait_for("the view", &format!("return __view().to === '{to}'"));
    };
    show(-10, 500);
    assert_lanes(&browser, &["thread 1", "thread 2", "thread 3", "thread 4"]);

    browser.press("r");
    browser.run("document.getElementById('tracks-activity').click()");
    assert_lanes(&browser, &["thread 4", "thread 3", "thread 2", "thread 1"]);
    // Only the third and the fourth thread have events after 150 ms.
    browser.run("document.getElementById('tracks-empty').click()");
    show(150, 500);
    assert_lanes(&browser, &["thread 4", "thread 3"]);
    show(-10, 500);
    assert_lanes(&browser, &["thread 4", "thread 3", "thread 2", "thread 1"]);

    let press = |label: &str| {
        browser.run(&format!(
            "[...document.querySelectorAll('#panel-tracks button')].find(button => button.ariaLabel === '{label}').click()"
        ));
    };
    press("Pin to the top: process 7 / thread 2");
    let pinned = ["process 7 / thread 2", "thread 4", "thread 3", "thread 1"];
    assert_lanes(&browser, &pinned);
    press("Hide: process 7 / thread 3");
    assert_lanes(&browser, &["process 7 / thread 2", "thread 4", "thread 1"]);
    press("Unpin: process 7 / thread 2");
    press("Show: process 7 / thread 3");
    browser.run(
        "const text = document.getElementById('tracks-text'); text.value = 'THREAD 3'; text.dispatchEvent(new Event('input'))",
    );
    assert_lanes(&browser, &["thread 3"]);
}

#[test]
fn session_of_an_agents_clock_is_folded_below_the_others() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let agent = Agent::start_with(&lab, &relay, "--clock-interval=100");
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let is_there = "window.__view && __view().sessions.some(session => session.name.endsWith('/clock') && session.events > 1)";
    browser.wait_for("the clock", &format!("return {is_there}"));
    let mut client = agent.open("threads");
    client.send(r#"{"ph":"X","name":"step","ts":0,"dur":50,"pid":7,"tid":1}"#);
    let is_below = "const lanes = __view().lanes;
        return lanes.at(-2) === 'thread 1' && lanes.at(-1).endsWith('/clock')
            && lanes.filter(lane => lane.endsWith('/clock')).length === 1";
    browser.wait_for("the clock below the other session", is_below);
}

/// Waits until these are the tracks that are shown, from the top.
fn assert_lanes(browser: &Browser, expected: &[&str]) {
    tests::wait_until(&format!("{expected:?}"), || {
        let lanes = browser.run("return __view().lanes.filter(lane => lane.includes('thread ') )");
        lanes == Value::from(expected)
    });
}
