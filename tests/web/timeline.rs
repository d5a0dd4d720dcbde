//! Events appear on the timeline, which follows, pauses, zooms and pans.

use serde_json::json;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app::TracedApp;
use tests::{traces, wait_until};

use crate::system::{Agent, Web, center, rows_named, show_from, wait_for_row};

/// A program with two threads, spans in spans, an instant and a counter. Times are in microseconds.
const PROGRAM: &str = r#"{"ph":"M","name":"process_name","pid":7,"tid":8,"args":{"name":"builder"}}
{"ph":"B","name":"load","ts":1000,"pid":7,"tid":8}
{"ph":"B","name":"parse","ts":1200,"pid":7,"tid":8}
{"ph":"i","name":"checkpoint","ts":1250,"pid":7,"tid":9}
{"ph":"E","ts":1700,"pid":7,"tid":8}
{"ph":"E","name":"load","ts":2000,"pid":7,"tid":8}
{"ph":"X","name":"inner","ts":2200,"dur":100,"pid":7,"tid":8}
{"ph":"X","name":"outer","ts":2100,"dur":400,"pid":7,"tid":8}
{"ph":"C","name":"queue","ts":1500,"pid":7,"args":{"length":12}}
"#;

fn page(lab: &Lab, web: &Web) -> Browser {
    let browser = Browser::start(lab);
    browser.open(&web.long_url());
    browser
}

#[test]
fn spans_instants_and_counters_of_a_program_appear_on_their_tracks() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = page(&lab, &web);
    browser.wait_for("the page is connected", "return __view().isConnected");
    // The session appears without a reload.
    let mut client = agent.open("first");
    client.send(PROGRAM);
    let row = wait_for_row(&browser, "load");
    show_from(&browser, &row);
    wait_until("all rows are shown apart", || {
        let names = ["load", "parse", "checkpoint", "inner", "outer"];
        let is_single = |name: &&str| {
            rows_named(&browser, name)
                .iter()
                .any(|row| row["count"] == 1)
        };
        names.iter().all(is_single) && !rows_named(&browser, "queue").is_empty()
    });
    let of = |name: &str| rows_named(&browser, name).remove(0);
    let nanoseconds = |name: &str| {
        let row = of(name);
        let time = |member: &str| row[member].as_str().unwrap().parse::<i64>().unwrap();
        time("end") - time("begin")
    };
    assert_eq!(
        (nanoseconds("load"), nanoseconds("parse")),
        (1_000_000, 500_000)
    );
    assert_eq!(
        (nanoseconds("outer"), nanoseconds("inner")),
        (400_000, 100_000)
    );
    for (name, depth) in [("load", 0), ("parse", 1), ("outer", 0), ("inner", 1)] {
        assert_eq!(of(name)["depth"], depth, "{name}");
        assert_eq!(of(name)["process"], "builder 7");
        assert_eq!(of(name)["thread"], "thread 8");
    }
    assert_eq!(of("checkpoint")["thread"], "thread 9");
    assert_eq!(of("queue")["value"], 12.0);
    // What the hook says is what is drawn: a pixel of the span differs from the background.
    let (x, y) = center(&of("load"));
    let pixel = |x: i64, y: i64| {
        browser.run(&format!(
            "const c = document.getElementById('timeline'), r = devicePixelRatio, t = c.getBoundingClientRect().top;
             return [...c.getContext('2d').getImageData({x} * r, ({y} - t) * r, 1, 1).data]"
        ))
    };
    assert_ne!(pixel(x, y + 6), pixel(x, y + 300));
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"), "a screenshot is a PNG");
    drop((client, web));
}

#[test]
fn page_follows_the_present_until_it_is_paused_and_zooms_and_pans_by_keys_and_mouse() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let mut client = agent.open("live");
    client.send(PROGRAM);
    let browser = page(&lab, &web);
    let row = wait_for_row(&browser, "load");
    let number = |script: &str| -> i128 {
        let text = browser.run(&format!("return __view().{script}"));
        text.as_str().unwrap().parse().unwrap()
    };
    assert_eq!(browser.run("return __view().isFollowing"), true);
    let before = number("to");
    wait_until("the page moves", || number("to") > before);
    browser.wait_for("many frames", "return __view().frames > 20");

    browser.press(" ");
    assert_eq!(browser.run("return __view().isFollowing"), false);
    let (from, to) = (number("from"), number("to"));
    assert_eq!((number("from"), number("to")), (from, to));
    browser.press("+");
    let span = number("to") - number("from");
    assert!(span < to - from, "zoomed in: {span}");
    browser.press("\u{e012}");
    assert!(number("from") < from + (to - from), "panned to the left");
    let from = number("from");
    browser.drag(&[(700, 500), (600, 500), (500, 500)]);
    assert!(number("from") > from, "dragged to the left");

    // Down to nanoseconds: the begin of the span is still exact.
    let begin: i128 = row["begin"].as_str().unwrap().parse().unwrap();
    browser.run(&format!(
        "location.hash = 'from={}&to={}'",
        begin - 50,
        begin + 50
    ));
    let near = wait_for_row(&browser, "load");
    assert_eq!(near["begin"], row["begin"]);
    assert_eq!((number("from"), number("to")), (begin - 50, begin + 50));

    // A link that is changed by hand is not that of the view before, also if the page has written
    // that one meanwhile.
    let changed = browser.run_async(&format!(
        "const before = location.hash;
         location.hash = 'from={}&to={}';
         history.replaceState(null, '', before);
         addEventListener('hashchange', () => arguments[0](location.hash), {{ once: true }});",
        begin - 60,
        begin + 60
    ));
    assert_eq!(changed, format!("#from={}&to={}", begin - 60, begin + 60));

    // The link restores the view.
    let link = browser.run("return location.href");
    browser.open("about:blank");
    browser.open(link.as_str().unwrap());
    wait_for_row(&browser, "load");
    assert_eq!((number("from"), number("to")), (begin - 60, begin + 60));
    browser.press(" ");
    assert_eq!(browser.run("return __view().isFollowing"), true);
}

#[test]
fn events_of_lttng_appear_in_the_page() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("lttng", &relay, Some(20_000));
    daemon.enable_channel("lttng", "channel", &[], true);
    daemon.lttng(&["start", "lttng"]);
    let web = Web::show(&lab, relay.live);
    let browser = page(&lab, &web);
    let mut app = TracedApp::start(&lab, "app");
    app.emit(25);
    let shown = "return __view().sessions.some(s => s.events === 25 && s.name.endsWith('/lttng'))";
    browser.wait_for("25 events are counted", shown);
    browser.run("document.getElementById('all').click()");
    let count = "const rows = __view().shown.filter(r => r.name.startsWith('tracee:') || r.name.includes(':'));
                 return rows.reduce((sum, row) => sum + row.count, 0) === 25";
    browser.wait_for("25 events are drawn", count);
    app.end();
    daemon.lttng(&["destroy", "lttng"]);
    let ended = "return __view().sessions.every(s => s.isEnded)";
    browser.wait_for("the session has ended", ended);
    browser.wait_for("its events stay", count);
}

#[test]
fn ten_sessions_come_and_go_without_a_reload() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = page(&lab, &web);
    browser.wait_for("the page is connected", "return __view().isConnected");
    let mut clients = Vec::new();
    for number in 0..10 {
        let mut client = agent.open(&format!("session-{number}"));
        client.send(&PROGRAM.replace("load", &format!("load-{number}")));
        clients.push(client);
    }
    let all = "return __view().sessions.filter(s => !s.isEnded && s.events > 0).length === 10";
    browser.wait_for("ten sessions are live", all);
    drop(clients);
    let ended = "return __view().sessions.filter(s => s.isEnded).length === 10";
    browser.wait_for("ten sessions have ended", ended);
    let lanes = browser.run("return __view().lanes");
    let is_session = |name: &String| {
        lanes
            .as_array()
            .unwrap()
            .iter()
            .any(|lane| lane.as_str().unwrap().ends_with(name.as_str()))
    };
    assert!(
        (0..10)
            .map(|number| format!("/session-{number}"))
            .all(|name| is_session(&name))
    );
}

#[test]
fn page_continues_after_the_relay_and_the_server_were_restarted() {
    let (lab, relay) = Relay::start_in_new_lab();
    let addresses = relay.addresses();
    let agent = Agent::start(&lab, &relay);
    let mut web = Web::show(&lab, relay.live);
    let browser = page(&lab, &web);
    let mut client = agent.open("before");
    client.send(PROGRAM);
    wait_for_row(&browser, "load");
    // Until the viewer has its end: the relay that follows does not have a session that has ended.
    drop((client, agent));
    web.process.wait_for_stderr_text("/before has ended");
    let _ = relay.stop();
    let relay = Relay::start_at(&lab, addresses);
    let agent = Agent::start(&lab, &relay);
    let mut client = agent.open("after");
    client.send(&PROGRAM.replace("load", "reload"));
    wait_for_row(&browser, "reload");

    let listen = format!("--listen={}", web.address());
    web.process.signal(rustix::process::Signal::TERM);
    let ended = web.process.wait();
    assert!(ended.status.success(), "{:?}", ended.stderr);
    browser.wait_for(
        "the page says so",
        "return !document.getElementById('connection').hidden",
    );
    let target = format!("net://{}", relay.live);
    let web = Web::start_with(&lab, &["web", &listen, "--seek=beginning", &target]);
    browser.wait_for("the page is connected again", "return __view().isConnected");
    let again = PROGRAM
        .replace("load", "again")
        .replace(r#""pid":7"#, r#""pid":17"#);
    client.send(&again);
    wait_for_row(&browser, "again");
    drop(web);
}

#[test]
fn losses_of_a_recording_are_marked_on_its_track() {
    let lab = Lab::new();
    let directory = traces::with_losses(&lab);
    let web = Web::show_directory(&lab, &directory);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    let losses =
        "const rows = __view().shown.filter(r => r.kind === 2); return rows.length > 3 && rows";
    let rows = browser.wait_for("losses are shown", losses);
    let names = rows.to_string();
    assert!(
        names.contains("events discarded") && names.contains("packets lost"),
        "{names}"
    );
    let lost = browser.run("return __view().sessions[0].lost");
    assert!(lost.as_str().unwrap().contains("lost"), "{lost}");
    assert_eq!(browser.run("return __view().isLive"), json!(false));
    let rows = browser.run("return __view().shown.filter(r => r.kind === 2)");
    let (x, y) = center(&rows[0]);
    browser.click(x, y);
    let title = browser.run("return document.getElementById('panel-title').textContent");
    assert!(names.contains(title.as_str().unwrap()), "{title}");
}

#[test]
fn counter_of_a_session_that_has_ended_has_no_value_after_it() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = page(&lab, &web);
    let mut client = agent.open("over");
    client.send(PROGRAM);
    let counter = wait_for_row(&browser, "queue");
    drop(client);
    browser.wait_for(
        "the session has ended",
        "return __view().sessions.every(s => s.isEnded)",
    );
    // Another session goes on.
    let mut client = agent.open("after");
    client.send(&PROGRAM.replace("load", "later").replace("queue", "other"));
    let later = wait_for_row(&browser, "later");
    let time = |row: &serde_json::Value| row["begin"].as_str().unwrap().parse::<i64>().unwrap();
    let (from, to) = (time(&counter) - 1_000_000, time(&later) + 1_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    // In pixels: where the value ends, where its session does, and where the view does.
    let ends = "const view = __view();
        const row = view.shown.find(row => row.name === 'queue');
        const track = view.tracks.find(track => track.thread === 'queue');
        const right = document.getElementById('timeline').clientWidth;
        if (!row || !track || !track.endedAt || view.from !== FROM) { return null; }
        const part = Number(BigInt(track.endedAt) - BigInt(view.from)) / Number(BigInt(view.to) - BigInt(view.from));
        return [row.x + row.width, 220 + part * (right - 220), right];";
    let ends = browser.wait_for(
        "the counter is shown",
        &ends.replace("FROM", &format!("'{from}'")),
    );
    let end = |place: usize| ends[place].as_f64().unwrap();
    assert!((end(0) - end(1)).abs() < 2.0, "{ends}");
    assert!(end(0) < end(2) - 10.0, "{ends}");
    // A view of what came after it does not show it at all.
    let (from, to) = (time(&later) - 1000, time(&later) + 1_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    wait_for_row(&browser, "later");
    let shown = format!(
        "const view = __view(); return view.from === '{from}' && view.shown.every(row => row.name !== 'queue')"
    );
    browser.wait_for("the counter is not shown", &shown);
}

#[test]
fn steady_rate_of_events_is_no_comb_in_the_graph_above_the_timeline() {
    let lab = Lab::new();
    // 625 buckets of 128 ms: more than the graph has columns, and fewer than twice as many.
    let directory = traces::with_numbered_events(&lab, "steady", 4000, 20_000_000);
    let web = Web::show_directory(&lab, &directory);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    let columns = "const columns = window.__view ? __view().histogram : null;
        const sum = columns === null ? 0 : columns.events.reduce((sum, events) => sum + events, 0);
        return sum === 4000 && columns";
    let columns = browser.wait_for("all events are counted", columns);
    assert_eq!(columns["buckets"], 2);
    let events = columns["events"].as_array().unwrap();
    let events: Vec<_> = events.iter().map(|count| count.as_u64().unwrap()).collect();
    // The first and the last one may stand for a part of their time only.
    let inner = &events[1..events.len() - 1];
    let (min, max) = (inner.iter().min().unwrap(), inner.iter().max().unwrap());
    assert!(inner.len() > 200 && max - min <= 1, "{events:?}");
}
