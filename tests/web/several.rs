//! Several people look at the same: a link shows the same to all, and many pages stay current.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::wait_until;

use crate::made_recording::{self, BEGIN};
use crate::raw_page::{Message, RawPage};
use crate::system::{Agent, Web, wait_for_row};

/// The pages that a server has at most.
const MAX_PAGES: usize = 32;
/// The pages of these that are in a browser.
const BROWSERS: usize = 2;
/// Time between two frames of a page, at least.
const FRAME_INTERVAL: Duration = Duration::from_millis(50);
/// The spans of a round, and the rounds.
const SPANS: u64 = 100;
const ROUNDS: u64 = 10;
/// The part of the speed of a processor that a slow page has.
const THROTTLING: u32 = 4;

/// All that a page shows: its texts, and the pixels of its canvases.
const SHOWN: &str = "
    const texts = ['range', 'kept', 'panel-title', 'panel-facts', 'panel-summary', 'filter-result'];
    const canvases = ['timeline', 'histogram'];
    return [
        ...texts.map(id => document.getElementById(id).textContent),
        ...canvases.map(id => document.getElementById(id).toDataURL()),
        document.getElementById('filter-text').value,
    ]";

#[test]
fn link_shows_the_same_range_selection_and_filter_in_another_browser() {
    let lab = Lab::new();
    let web = Web::show_directory(&lab, &made_recording::write(&lab));
    let browsers = [0, 1].map(|_| Browser::start(&lab));
    let [first, second] = &browsers;
    let (from, to) = (BEGIN + 450_000_000, BEGIN + 720_000_000);
    let (begin, end) = (BEGIN + 600_000_000, BEGIN + 640_000_000);
    // The first one zooms, filters and selects, as its user would.
    first.open(&web.url);
    wait_for_row(first, "job");
    first.run(&format!("location.hash = 'from={begin}&to={end}'"));
    first.wait_for("the view", &format!("return __view().to === '{end}'"));
    first.run(
        "document.getElementById('filter-text').value = '$name == \"job*\"';
         document.getElementById('filter').requestSubmit()",
    );
    first.press("m");
    first.run(&format!("location.hash = 'from={from}&to={to}'"));
    let is_linked = format!(
        "return location.hash.includes('from={from}&to={to}&range={begin}-{end}&filter=') && location.href"
    );
    let link = first.wait_for("the link", &is_linked);
    second.open(link.as_str().unwrap());
    // Four jobs of one thread and the one that begins as the range ends, and one of another thread;
    // marks and parts do not pass the filter.
    let is_shown = "return window.__view && document.getElementById('filter-result').textContent === 'applied'
        && document.getElementById('panel-facts').textContent.endsWith('Spans, events, values6')
        && __view().shown.length > 0 && __view().shown.every(row => row.name === 'job' || row.kind === 2)";
    for browser in &browsers {
        browser.wait_for("the filtered view", is_shown);
    }
    let mut shown = [Value::Null, Value::Null];
    wait_until("both show the same", || {
        shown = [first.run(SHOWN), second.run(SHOWN)];
        shown[0] == shown[1]
    });
    assert_eq!(shown[0][2], "Selected range");
}

/// What a page without a browser has received.
struct Received {
    frames: u32,
    elapsed: Duration,
    /// The most rows of a frame, and of the last one the events that they stand for.
    max_rows: usize,
    events: u64,
}

/// Follows as a page does until a frame has this number of events.
fn follow(mut page: RawPage, events: u64) -> JoinHandle<io::Result<Received>> {
    thread::spawn(move || {
        let mut tracks: Vec<u64> = Vec::new();
        let mut first: Option<Instant> = None;
        let (mut frames, mut max_rows) = (0, 0);
        loop {
            match page.receive()? {
                Message::Text(state) => {
                    let new = state["tracks"].as_array().into_iter().flatten();
                    let new: Vec<_> = new.filter_map(|track| track["id"].as_u64()).collect();
                    let known = tracks.len();
                    tracks.extend(new);
                    tracks.sort_unstable();
                    tracks.dedup();
                    if tracks.len() > known {
                        page.follow(&tracks)?;
                    }
                }
                Message::Frame(frame) => {
                    let first = *first.get_or_insert_with(Instant::now);
                    frames += 1;
                    max_rows = max_rows.max(frame.rows);
                    page.acknowledge(frame.number)?;
                    if frame.events >= events {
                        return Ok(Received {
                            frames,
                            elapsed: first.elapsed(),
                            max_rows,
                            events: frame.events,
                        });
                    }
                }
            }
        }
    })
}

#[test]
fn thirty_two_pages_of_a_live_session_stay_current_and_get_no_more_frames_than_they_can_show() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let mut client = agent.open("shared");
    let browsers = [0; BROWSERS].map(|_| Browser::start(&lab));
    for browser in &browsers {
        browser.open(&web.long_url());
        browser.throttle_processor(THROTTLING);
        browser.wait_for(
            "the page is connected",
            "return window.__view && __view().isConnected",
        );
    }
    let pages: Vec<_> = (BROWSERS..MAX_PAGES)
        .map(|_| follow(RawPage::open(&web), ROUNDS * SPANS))
        .collect();
    assert_eq!(RawPage::try_open(&web).1, "503", "one page more");
    let (mut drawn, begun) = ([0.0; BROWSERS], Instant::now());
    for round in 1..=ROUNDS {
        let lines = (0..SPANS).map(|number| {
            format!(
                r#"{{"ph":"X","name":"span","ts":{},"dur":500,"pid":7,"tid":{}}}"#,
                number * 1000,
                number % 4
            )
        });
        client.send(&lines.collect::<Vec<_>>().join("\n"));
        // Each page has all of it, and is drawn again.
        let sum = "return __view().shown.reduce((sum, row) => sum + row.count, 0)";
        for (browser, drawn) in browsers.iter().zip(&mut drawn) {
            wait_until("the spans of this round are drawn", || {
                browser.run(sum) == round * SPANS
            });
            let now = browser.run("return __view().drawn").as_f64().unwrap();
            assert!(now > *drawn);
            *drawn = now;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    for (browser, drawn) in browsers.iter().zip(drawn) {
        let ms = browser.run("return __view().drawMs / __view().drawn");
        println!(
            "a slow page: {:.1} frames/s, {ms} ms of script a frame",
            drawn / seconds
        );
    }
    for page in pages {
        let received = page.join().unwrap().unwrap();
        assert_eq!(received.events, ROUNDS * SPANS);
        // Whatever the machine: no more often than the interval says, but for new views; and no
        // more rows than there are places for.
        let intervals = received.elapsed.as_millis() / FRAME_INTERVAL.as_millis();
        let views = 5;
        assert!(u128::from(received.frames) <= intervals + views + 2);
        assert!(received.max_rows <= 4 * 1000, "{}", received.max_rows);
    }
    // One has left: there is room again.
    wait_until("another page is served", || {
        RawPage::try_open(&web).1 == "101"
    });
}
