//! Many events: all of them are found, the page keeps up with them, and the history stays bounded.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::{Timestamp, TraceWriter};
use tests::browser::Browser;
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::wait_until;

use crate::system::{Agent, Client, Web};

/// Threads of the traced program.
const THREADS: usize = 8;
/// Older than this the newest event may never look while a program emits, in milliseconds: far more
/// than it is, so that the test holds on a machine that is busy.
const MAX_LAG_MS: f64 = 10_000.0;
/// The history of the test that fills it, in rows.
const HISTORY: usize = 10_000;
/// Rows that may be added before the oldest are dropped, and those of blocks that are not full.
const HISTORY_SLACK: usize = 6_000;

/// Sends a span and an instant on each of the threads, `times` times.
fn send_units(client: &mut Client, times: usize) {
    let mut lines = String::new();
    for number in 0..times {
        for thread in 0..THREADS {
            let ts = number * 20;
            lines += &format!(
                r#"{{"ph":"X","name":"unit-{}","ts":{ts},"dur":10,"pid":7,"tid":{thread}}}"#,
                number % 4
            );
            lines += &format!(
                "\n{}\n",
                format_args!(
                    r#"{{"ph":"i","name":"mark","ts":{},"pid":7,"tid":{thread}}}"#,
                    ts + 12
                )
            );
        }
    }
    client.send(&lines);
}

/// Waits until a search in the page finds this number of rows.
fn wait_until_found(browser: &Browser, name: &str, rows: &str) {
    let search = format!(
        "const text = document.getElementById('search-text');
         text.value = '{name}';
         document.getElementById('search').requestSubmit();
         return document.getElementById('search-result').textContent"
    );
    wait_until(&format!("{rows} rows have {name} in their name"), || {
        browser.run(&search) == format!("{rows} found")
    });
}

fn number(browser: &Browser, member: &str) -> f64 {
    let value = browser.run(&format!("return __view().{member}"));
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{member}: {value}"))
}

#[test]
fn page_that_follows_is_drawn_again_and_again_says_how_old_the_newest_event_is_and_misses_none() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let mut client = agent.open("busy");
    let (mut frames, mut drawn) = (0.0, 0.0);
    for round in 1..=5 {
        send_units(&mut client, 50);
        let arrived = format!(
            "return window.__view && __view().sessions.some(s => s.events >= {})",
            round * 50 * 2 * THREADS
        );
        browser.wait_for("the events of this round are counted", &arrived);
        let lag = number(&browser, "lag");
        assert!((0.0..MAX_LAG_MS).contains(&lag), "{lag} ms");
        // Following goes on while events come: the server sends frames, and the page draws more
        // often than that.
        wait_until("there are further frames", || {
            number(&browser, "frames") > frames + 3.0 && number(&browser, "drawn") > drawn + 3.0
        });
        (frames, drawn) = (number(&browser, "frames"), number(&browser, "drawn"));
    }
    let text = browser.run("return document.getElementById('lag').textContent");
    assert!(
        text.as_str().unwrap().starts_with("latest event "),
        "{text}"
    );
    assert!(number(&browser, "framesPerSecond") > 0.0);
    // Exactly what was sent: 250 units of each of the threads.
    wait_until_found(&browser, "unit", "2,000");
    wait_until_found(&browser, "mark", "2,000");
    wait_until_found(&browser, "unit-3", "480");
    drop((client, web));
}

#[test]
fn history_is_bounded_and_what_was_dropped_is_marked() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let (history, target) = (
        format!("--history={HISTORY}"),
        format!("net://{}", relay.live),
    );
    let web = Web::start(&lab, &["--seek=beginning", &history, &target]);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let mut client = agent.open("long");
    let mut memory = 0;
    let mut dropped = String::new();
    for round in 1..=6 {
        send_units(&mut client, 500);
        let arrived = format!(
            "return window.__view && __view().sessions.some(s => s.events >= {})",
            round * 500 * 2 * THREADS
        );
        browser.wait_for("the events of this round are counted", &arrived);
        let kept = number(&browser, "rows") as usize;
        assert!(kept <= HISTORY + HISTORY_SLACK, "{kept} rows");
        if round == 2 {
            memory = resident_memory(&web);
        }
        if round >= 2 {
            let until = browser.wait_for("rows were dropped", "return __view().droppedUntil");
            let until = until.as_str().unwrap().to_owned();
            assert!(until >= dropped, "{until} after {dropped}");
            dropped = until;
        }
    }
    let grown = resident_memory(&web).saturating_sub(memory);
    assert!(grown < 32 << 20, "grown by {grown} bytes with as many rows");
    // The whole session is in view: what was dropped looks different from what is empty.
    browser.press("\u{e011}");
    let is_marked = "
        const view = __view(), canvas = document.getElementById('timeline'), ratio = devicePixelRatio;
        const gutter = 220, from = BigInt(view.from), width = canvas.clientWidth - gutter;
        const part = Number(BigInt(view.droppedUntil) - from) / Number(BigInt(view.to) - from);
        const context = canvas.getContext('2d'), y = (canvas.clientHeight - 60) * ratio;
        // Most of some pixels: lines of the grid may be among them.
        const color = x => {
            const all = context.getImageData(x * ratio, y, 15, 1).data, times = new Map();
            for (let at = 0; at < all.length; at += 4) {
                const key = all.slice(at, at + 3).join();
                times.set(key, (times.get(key) ?? 0) + 1);
            }
            return [...times].sort((one, other) => other[1] - one[1])[0][0];
        };
        return part > 0.1 && part < 1 && color(gutter + part * width / 2 - 7) !== color(gutter + width - 16)";
    browser.wait_for("the dropped part is marked", is_marked);
    drop((client, web));
}

/// Writes a trace of 45,000 ticks, a microsecond apart.
fn write_ticks(lab: &Lab) -> PathBuf {
    let directory = lab.path().join("ticks");
    let mut trace = TraceWriter::create(&directory).unwrap();
    let class = trace.event_class("tick", &[]).unwrap();
    for number in 0..45_000 {
        trace.write(&class, Timestamp(number * 1000), &[]).unwrap();
    }
    trace.finish().unwrap();
    directory
}

/// Shows a recording with a small history, and its other rows in a file of this directory.
fn show_with_history_in(lab: &Lab, directory: &Path) -> Web {
    let recording = write_ticks(lab);
    let options = [
        format!("--history={HISTORY}"),
        format!("--history-dir={}", directory.display()),
        recording.display().to_string(),
    ];
    Web::start(lab, &options.each_ref().map(String::as_str))
}

#[test]
fn rows_that_memory_has_no_room_for_are_shown_and_found() {
    let lab = Lab::new();
    let web = show_with_history_in(&lab, &lab.directory("history"));
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "all",
        "return window.__view && __view().rows === 45000 && __view().droppedUntil === null",
    );
    wait_until_found(&browser, "tick", "45,000");
    // Everything, parts in the file and at its border, and single rows.
    for (from, to) in [
        (0, 44_999),
        (5, 1_000),
        (30_000, 44_999),
        (7, 7),
        (30_000, 30_004),
    ] {
        let view = format!("from={}&to={}", from * 1000 - 1, to * 1000 + 1);
        browser.run(&format!("location.hash = '{view}'"));
        let shown = format!(
            "return __view().shown.reduce((sum, row) => sum + row.count, 0) === {}",
            to - from + 1
        );
        browser.wait_for(&view, &shown);
    }
    // The file has no name.
    assert_eq!(fs::read_dir(lab.path().join("history")).unwrap().count(), 0);
    drop(web);
}

#[test]
fn rows_that_neither_memory_nor_disk_has_room_for_are_dropped() {
    let lab = Lab::new();
    let directory = lab.directory("history");
    let Some(_disk) = SmallDisk::mount(&directory, 1024) else {
        return;
    };
    let web = show_with_history_in(&lab, &directory);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "rows are dropped",
        "return window.__view && __view().droppedUntil",
    );
    browser.wait_for(
        "the end",
        "return __view().sessions.every(session => session.isEnded)",
    );
    let kept = number(&browser, "rows") as usize;
    assert!(
        (HISTORY..=HISTORY + HISTORY_SLACK).contains(&kept),
        "{kept} rows"
    );
    drop(web);
}

/// Returns the resident memory of the server, in bytes.
fn resident_memory(web: &Web) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", web.process.id())).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
