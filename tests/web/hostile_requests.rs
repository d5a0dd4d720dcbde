//! Requests within the limits that cost as much as they can, and messages that are none.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;

use serde_json::{Value, json};
use tests::lab::Lab;
use tests::wait_until;

use crate::made_recording;
use crate::raw_page::{Message, RawPage};
use crate::system::Web;

/// The rounds of the recording, and the rows of each: a job and two parts.
const ROUNDS: u64 = 30_000;
/// The pages that ask for much, and how often each asks for everything.
const PAGES: usize = 24;
const TIMES: usize = 3;
/// The largest time, in nanoseconds.
const MAX_TIME: i64 = i64::MAX;
/// By so much the memory of the server may grow, in bytes: a summary takes as much as the rows of a
/// track, and each page has the largest frame or answer, of 4 MiB, once where it is made and once
/// where it is sent.
const MAX_GROWTH: u64 = ROUNDS * 4 * 32 + PAGES as u64 * 2 * (4 << 20);

/// Peak of the resident memory of the server, in bytes.
fn peak_memory(web: &Web) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", web.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let line = line.unwrap().trim().trim_end_matches(" kB");
    line.parse::<u64>().unwrap() << 10
}

/// Opens a server that has read the recording.
fn serve(lab: &Lab) -> Web {
    let directory = made_recording::write_long(lab, ROUNDS);
    let web = Web::show_directory(lab, &directory);
    let mut page = RawPage::open(&web);
    wait_until("the recording is read", || match page.receive().unwrap() {
        Message::Text(state) => {
            let sessions = state["sessions"].as_array().unwrap();
            !sessions.is_empty() && sessions.iter().all(|session| session["isEnded"] == true)
        }
        Message::Frame(_) => false,
    });
    web
}

/// Requests that are valid, and as large as they can be.
fn requests() -> Vec<Value> {
    let mut requests = Vec::new();
    let times = [i64::MIN, -1, 0, made_recording::BEGIN, MAX_TIME];
    for from in times {
        for to in times {
            for kind in ["summary", "count"] {
                let range = json!({"type": kind, "from": from.to_string(), "to": to.to_string()});
                requests.push(range);
            }
        }
    }
    for text in ["", "o", "job", &"x".repeat(4096)] {
        for is_backward in [false, true] {
            requests.push(json!({
                "type": "search", "text": text, "isWhole": false, "from": "0",
                "isBackward": is_backward,
            }));
        }
    }
    for track in [0, 1, 2, 3, 4096, u32::MAX] {
        for row in [0, 1, 99_999, u32::MAX] {
            requests.push(json!({"type": "details", "track": track, "row": row}));
        }
    }
    for text in [
        "$name == \"job*\"",
        "x == 1",
        "((((((((",
        "",
        &"(".repeat(4096),
    ] {
        requests.push(json!({"type": "filter", "text": text}));
    }
    let tracks: Vec<u32> = (0..512).collect();
    for (from, to) in [
        (0, 10),
        (
            made_recording::BEGIN,
            made_recording::BEGIN + 600_000_000_000,
        ),
    ] {
        requests.push(json!({
            "type": "view", "from": from.to_string(), "to": to.to_string(), "isFollowing": false,
            "width": 16_384, "tracks": tracks, "countsRows": true,
        }));
    }
    requests
}

/// Asks for everything again and again, and takes what is answered. A summary is answered only if
/// no other is asked for.
fn ask_for_everything(mut page: RawPage) -> io::Result<usize> {
    let mut answers = 0;
    for _ in 0..TIMES {
        for request in requests() {
            let has_answer = !matches!(request["type"].as_str(), Some("view" | "summary"));
            let number = page.ask(request)?;
            if has_answer {
                page.answer(number)?;
                answers += 1;
            }
        }
    }
    Ok(answers)
}

#[test]
fn pages_that_ask_for_as_much_as_they_can_are_answered_and_others_stay_served() {
    let lab = Lab::new();
    let mut web = serve(&lab);
    let before = peak_memory(&web);
    let busy: Vec<_> = (0..PAGES)
        .map(|_| {
            let page = RawPage::open(&web);
            thread::spawn(move || ask_for_everything(page))
        })
        .collect();
    // One that asks for all summaries at once and takes nothing.
    let mut silent = RawPage::open(&web);
    let whole =
        json!({"type": "summary", "from": i64::MIN.to_string(), "to": MAX_TIME.to_string()});
    for _ in 0..2000 {
        silent.ask(whole.clone()).unwrap();
    }
    // Meanwhile somebody else is answered, with the right numbers.
    let mut other = RawPage::open(&web);
    let mut turns = 0;
    loop {
        let is_over = busy.iter().all(thread::JoinHandle::is_finished);
        let search = json!({
            "type": "search", "text": "job", "isWhole": true, "from": "0", "isBackward": false,
        });
        let number = other.ask(search).unwrap();
        assert_eq!(other.answer(number).unwrap()["total"], ROUNDS);
        let number = other.ask(whole.clone()).unwrap();
        let summary = other.answer(number).unwrap();
        assert_eq!(summary["spans"][0]["count"], ROUNDS, "{}", summary["spans"]);
        turns += 1;
        if is_over {
            break;
        }
    }
    assert!(turns > 1);
    let asked = TIMES * requests().len();
    for page in busy {
        let answers = page.join().unwrap().unwrap();
        assert!(answers > asked / 2, "{answers} of {asked}");
    }
    let grown = peak_memory(&web) - before;
    println!("grown by {} MiB, with {turns} turns", grown >> 20);
    assert!(grown < MAX_GROWTH, "grown by {grown} bytes");
    assert!(web.process.is_running());
}

#[test]
fn messages_that_are_no_requests_close_their_connection_only() {
    let lab = Lab::new();
    let mut web = serve(&lab);
    let before = peak_memory(&web);
    let long = |length: u64, bytes: &[u8]| {
        [&[0x81, 0xFF], &length.to_be_bytes()[..], &[0; 4], bytes].concat()
    };
    let cases: [(&str, Vec<u8>); 9] = [
        ("not masked", b"\x81\x02{}".to_vec()),
        ("a length beyond all memory", long(1 << 62, b"{}")),
        ("a negative length", long(u64::MAX, b"{}")),
        (
            "just above the limit",
            long((64 << 10) + 1, &vec![b' '; (64 << 10) + 1]),
        ),
        ("bytes", vec![0x82, 0x82, 0, 0, 0, 0, 1, 2]),
        ("no UTF-8", vec![0x81, 0x82, 0, 0, 0, 0, 0xFF, 0xFE]),
        (
            "a part of nothing",
            vec![0x80, 0x82, 0, 0, 0, 0, b'{', b'}'],
        ),
        (
            "a ping that is too long",
            [&[0x89, 0xFE, 0, 126][..], &[0; 130]].concat(),
        ),
        ("reserved bits", vec![0xF1, 0x80, 0, 0, 0, 0]),
    ];
    for (case, bytes) in cases {
        let mut page = RawPage::open(&web);
        let _ = page.socket.write_all(&bytes);
        let mut rest = Vec::new();
        // Either an end or a reset: the connection does not stay open.
        if let Err(error) = page.socket.read_to_end(&mut rest) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{case}");
        }
    }
    // A message whose rest never comes, and requests whose bodies have other lengths.
    let mut partial = RawPage::open(&web);
    partial.socket.write_all(&long(60_000, b"{")).unwrap();
    let host = format!("Host: {}\r\n", web.address());
    for head in [
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    ] {
        let mut socket = TcpStream::connect(web.address()).unwrap();
        let request = format!("GET /page.css HTTP/1.1\r\n{host}{head}\r\nabc");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 5];
        let answered = socket.read(&mut answer).unwrap_or(0);
        assert!(answered == 0 || answer.starts_with(b"HTTP/"), "{head}");
    }
    let mut page = RawPage::open(&web);
    let count = json!({"type": "count", "from": "0", "to": MAX_TIME.to_string()});
    let number = page.ask(count).unwrap();
    // The last packet reports nothing: jobs, parts, and a mark of each third round of ten.
    let rows = ROUNDS * 3 + ROUNDS / 10 * 4;
    assert_eq!(page.answer(number).unwrap()["rows"], rows);
    let grown = peak_memory(&web) - before;
    assert!(grown < 64 << 20, "grown by {grown} bytes");
    assert!(web.process.is_running());
}
