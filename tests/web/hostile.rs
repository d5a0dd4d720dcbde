//! Names that would be scripts, requests beyond all limits, and pages that take nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::{traces, wait_until};

use crate::raw_page::RawPage;
use crate::system::{Agent, Web, show_from, wait_for_row};

#[test]
fn names_of_events_are_never_run_or_shown_as_markup() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let name = r#"<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"#;
    let escaped = name.replace('"', "\\\"");
    let mut client = agent.open("hostile");
    for line in [
        r#"{"ph":"M","name":"process_name","pid":7,"tid":8,"args":{"name":"NAME"}}"#,
        r#"{"ph":"M","name":"thread_name","pid":7,"tid":8,"args":{"name":"NAME"}}"#,
        r#"{"ph":"X","name":"NAME","ts":1000,"dur":900,"pid":7,"tid":8}"#,
    ] {
        client.send(&format!("{}\n", line.replace("NAME", &escaped)));
    }
    let row = wait_for_row(&browser, name);
    show_from(&browser, &row);
    browser.wait_for(
        "the span is wide",
        "return __view().shown.some(row => row.width > 200)",
    );
    let row = wait_for_row(&browser, name);
    let (x, y) = crate::system::center(&row);
    browser.click(x, y);
    let title = browser.run("return document.getElementById('panel-title').textContent");
    assert_eq!(title, name);
    assert_eq!(browser.run("return window.hacked === undefined"), true);
    assert_eq!(
        browser.run("return document.querySelectorAll('img').length"),
        0
    );
    // The policy of the page forbids scripts in its text, too.
    browser.run("const s = document.createElement('script'); s.textContent = 'window.hacked=1'; document.body.append(s)");
    assert_eq!(browser.run("return window.hacked === undefined"), true);
}

#[test]
fn page_that_takes_nothing_delays_no_other_page() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let web = Web::show(&lab, relay.live);
    let mut client = agent.open("busy");
    client.send("{\"ph\":\"i\",\"name\":\"first\",\"ts\":1,\"pid\":7,\"tid\":8}\n");
    let view = r#"{"type":"view","number":1,"from":"0","to":"1000000000","isFollowing":true,"width":1000,"tracks":[0,1,2,3,4,5,6,7]}"#;
    let mut slow: Vec<_> = (0..8).map(|_| RawPage::open(&web)).collect();
    for page in &mut slow {
        page.send_text(view).unwrap();
        // It says that it has shown everything, and reads nothing.
        for frame in 1..2000 {
            if page.acknowledge(frame).is_err() {
                break;
            }
        }
    }
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    wait_for_row(&browser, "first");
    client.send("{\"ph\":\"i\",\"name\":\"second\",\"ts\":1,\"pid\":7,\"tid\":9}\n");
    wait_for_row(&browser, "second");
}

#[test]
fn requests_beyond_the_limits_close_their_connection_only() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut web = Web::show(&lab, relay.live);
    let long = "x".repeat(100_000);
    for text in [
        "",
        "{",
        "[]",
        &long,
        r#"{"type":"view","number":1,"from":"0","to":"1","isFollowing":false,"width":4294967295,"tracks":[]}"#,
        r#"{"type":"view","number":1,"from":"9999999999999999999999","to":"1","isFollowing":false,"width":1,"tracks":[]}"#,
    ] {
        let mut page = RawPage::open(&web);
        let _ = page.send_text(text);
        let mut rest = Vec::new();
        // Either an end or a reset.
        let _ = page.socket.read_to_end(&mut rest);
    }
    wait_until("the server answers", || {
        web.request("/", "").starts_with("HTTP/1.1 200")
    });
    assert!(web.process.is_running());
}

#[test]
fn connections_that_take_nothing_lock_nobody_out() {
    let lab = Lab::new();
    let directory = traces::with_numbered_events(&lab, "numbered", 10, 1_000_000);
    // Only requests with the token are served, but for scripts and styles.
    let token = lab.path().join("token");
    std::fs::write(&token, "a-token-of-at-least-16-characters\n").unwrap();
    let token = format!("--token={}", token.display());
    let web = Web::start(&lab, &[&token, directory.to_str().unwrap()]);
    let request = format!("GET /page.js HTTP/1.1\r\nHost: {}\r\n\r\n", web.address());
    // More than the server and the system take of answers that nobody reads.
    let requests = request.repeat(400);
    let mut silent = Vec::new();
    for _ in 0..2 * 128 {
        let mut socket = TcpStream::connect(web.address()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.write(requests.as_bytes());
        silent.push(socket);
    }
    let (_, query) = web.url.split_once("/?").unwrap();
    let answer = web.request(&format!("/?{query}"), "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(silent);
}
