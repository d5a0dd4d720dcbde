//! Spans of `tracing`: what a program with nested spans has written is what `test-live` shows of a
//! live session, what babeltrace2 reads from the relay, and what `consumer rings --print` shows on
//! the same host.

use rustix::process::Signal;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::{Viewer, hostname};
use tests::{binaries, test_live, wait_until};

use crate::system::{Agent, command, read_trace, rings_command, session_directory_of};

/// Lines after which the program is killed: some dozens of requests.
const LINES: usize = 500;

/// An event of the program as it must be recorded.
struct Expected {
    target: &'static str,
    /// Name of an event of a span; empty for events of the program, which have a message.
    name: &'static str,
    fields: Vec<(&'static str, Value)>,
}

enum Value {
    Number(u64),
    Text(String),
}

/// Returns the events of one request, as the example `app` writes them: the ids of its spans are
/// known only from the trace.
fn request(n: u64, outer: u64, inner: u64) -> Vec<Expected> {
    let span = |name, id, of, more: Vec<(&'static str, Value)>| {
        let mut fields = vec![("span", Value::Number(id)), ("name", text(of))];
        fields.extend(more);
        Expected {
            target: "app",
            name,
            fields,
        }
    };
    let event = |target, message, more: Vec<(&'static str, Value)>| {
        let mut fields = vec![("message", text(message))];
        fields.extend(more);
        Expected {
            target,
            name: "",
            fields,
        }
    };
    let number = |name, number| (name, Value::Number(number));
    let rows = n % 7;
    let status = if rows == 0 { 404 } else { 200 };
    let mut events = vec![
        span(
            "span:new",
            outer,
            "request",
            vec![number("parent", 0), number("thread", 0), number("n", n)],
        ),
        span("span:enter", outer, "request", vec![]),
        span(
            "span:new",
            inner,
            "query",
            vec![number("parent", outer), ("table", text("orders"))],
        ),
        span("span:enter", inner, "query", vec![]),
        span("span:exit", inner, "query", vec![]),
        span("span:close", inner, "query", vec![]),
    ];
    if rows == 0 {
        events.push(event("app::db", "no rows", vec![number("n", n)]));
    }
    let path = ("path", text(&format!("/orders/{n}")));
    let done = vec![
        number("n", n),
        number("status", status),
        number("rows", rows),
        path,
    ];
    events.extend([
        span(
            "span:record",
            outer,
            "request",
            vec![number("status", status)],
        ),
        event("app", "request done", done),
        span("span:exit", outer, "request", vec![]),
        span("span:close", outer, "request", vec![]),
    ]);
    events
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

impl Expected {
    /// Returns the end of a line of babeltrace2.
    fn in_trace(&self) -> (String, String) {
        let name = match self.name {
            "" => format!(") {}: ", self.target),
            name => format!(") {}:{name}: ", self.target),
        };
        let field = |(name, value): &(&str, Value)| match value {
            Value::Number(number) => format!("{name} = {number}"),
            Value::Text(text) => format!("{name} = \"{text}\""),
        };
        let fields: Vec<_> = self.fields.iter().map(field).collect();
        (name, format!("}}, {{ {} }}", fields.join(", ")))
    }
}

/// Returns the lines of one request of `consumer rings --print` or `test-live --sink log` after the
/// thread: two for each span, without the durations of ends.
fn printed_request(n: u64) -> Vec<String> {
    let rows = n % 7;
    let status = if rows == 0 { 404 } else { 200 };
    let mut lines = vec![
        format!("INFO  app: -> request{{thread=0 n={n}}}"),
        "INFO      app: -> query{table=orders}".to_owned(),
        "INFO      app: <- query{table=orders}".to_owned(),
    ];
    if rows == 0 {
        lines.push(format!("WARN      app::db: no rows n={n}"));
    }
    lines.extend([
        format!("INFO      app: request done n={n} status={status} rows={rows} path=/orders/{n}"),
        format!("INFO  app: <- request{{thread=0 n={n} status={status}}}"),
    ]);
    lines
}

/// Checks printed lines of the thread that serves requests. Returns the number of whole requests.
fn assert_printed_requests(lines: &[String]) -> u64 {
    let mut lines = lines.iter();
    for n in 0.. {
        let expected = printed_request(n);
        let shown: Vec<_> = lines.by_ref().take(expected.len()).collect();
        for (line, want) in shown.iter().zip(&expected) {
            let (_, text) = line.split_once("] ").unwrap();
            match text.contains("<- ") {
                false => assert_eq!(text, want),
                true => {
                    let (text, duration) = text.rsplit_once(" (").unwrap();
                    assert_eq!(text, want);
                    assert!(duration.ends_with("s)"), "{line}");
                }
            }
        }
        if shown.len() < expected.len() {
            return n;
        }
    }
    unreachable!()
}

/// Checks the recorded lines of the thread that serves requests: those of whole requests, in order.
/// The last request is the one in which the program was killed. Returns the number of requests.
fn assert_requests(lines: &[&String]) -> u64 {
    let id = |line: &str| -> u64 {
        let (_, rest) = line.split_once("{ span = ").unwrap();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    };
    let mut rest = lines;
    for n in 0.. {
        let [first, _, third, ..] = rest else {
            return n;
        };
        let events = request(n, id(first), id(third));
        for (line, expected) in rest.iter().zip(&events) {
            let (name, fields) = expected.in_trace();
            assert!(line.contains(&name), "{line}: not {name}");
            assert!(line.ends_with(&fields), "{line}: not {fields}");
        }
        rest = rest.get(events.len()..).unwrap_or_default();
    }
    unreachable!()
}

#[test]
fn spans_are_shown_live_recorded_and_printed_with_equal_fields() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay, &["--clock-interval=0"]);
    let print = Process::start(&mut rings_command(&lab, &["--print"]));
    let mut app = command(&lab, binaries::ring_app());
    let mut app = Process::start(app.args(["--busy", "--interval", "1"]));
    let pid = app.id();
    let session = format!("app-{pid}");
    Viewer::connect(relay.live).wait_for_session(&session);
    let url = test_live::url(relay.live, &hostname(), &session);
    let live = test_live::start(&lab, &["--no-delta", "--seek", "beginning", &url]);
    test_live::wait_until_attached(&relay, &session, 1);
    let attached_at = print.stdout_line_count();
    wait_until("more is shown", || {
        print.stdout_line_count() > attached_at + LINES
    });
    app.signal(Signal::KILL);
    wait_until("the program is dead", || !app.is_running());
    let live = live.wait().expect_success();
    agent.stop(&lab);
    let (recorded, discarded) = read_trace(&session_directory_of("app", &relay.output, pid));
    assert_eq!(discarded, 0);
    assert_eq!(live, recorded);

    let main_thread = format!("vtid = {pid} ");
    let of_requests: Vec<_> = recorded
        .iter()
        .filter(|line| !line.contains(&main_thread))
        .collect();
    let requests = assert_requests(&of_requests);
    assert!(requests > 30, "{requests}");

    // The same on this host and from the relay, but for the host, and the offset of the clock,
    // which each measures.
    let host = format!(" {} ", hostname());
    let logged = test_live::read(&lab, &["--no-follow", "--sink=log"], &relay.output);
    let logged: Vec<_> = logged.expect_success();
    wait_until("everything is printed", || {
        print.stdout_line_count() >= logged.len()
    });
    print.signal(Signal::INT);
    let printed = print.wait().expect_success();
    assert_eq!(printed.len(), logged.len());
    let limited = ["--no-follow", "--sink=log", "--limit=9"];
    let limited = test_live::read(&lab, &limited, &relay.output);
    assert_eq!(limited.expect_success(), logged[..9]);
    // The filter lets only `span:new` of the events of the span through: it is shown as a whole.
    let filtered = ["--no-follow", "--sink=log", "--filter=n == 3"];
    let filtered = test_live::read(&lab, &filtered, &relay.output);
    let is_of_request = |line: &&String| line.contains("n=3 ") || line.contains("n=3}");
    let of_request: Vec<_> = logged.iter().filter(is_of_request).cloned().collect();
    assert_eq!(of_request.len(), 3, "{of_request:?}");
    assert_eq!(filtered.expect_success(), of_request);
    let logged: Vec<_> = logged
        .iter()
        .map(|line| line.replacen(&host, " ", 1))
        .collect();
    let main_thread = format!("[{pid}:{pid}]");
    let of_requests = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().filter(|line| !line.contains(&main_thread));
        let lines = lines.map(|line| line.split_once(' ').unwrap().1);
        lines.map(str::to_owned).collect()
    };
    let (printed, logged) = (of_requests(&printed), of_requests(&logged));
    assert_eq!(printed, logged);
    assert_eq!(assert_printed_requests(&printed), requests);
}

#[test]
fn a_span_of_several_threads_and_one_that_is_never_entered_are_printed_once() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay, &["--clock-interval=0"]);
    let print = Process::start(&mut rings_command(&lab, &["--print"]));
    let mut app = command(&lab, binaries::ring_app());
    let app = app.args(["--requests", "0", "--tasks", "1"]);
    Process::start(app).wait().expect_success();
    wait_until("everything is printed", || {
        print.stdout().iter().any(|line| line.ends_with("finished"))
    });
    print.signal(Signal::INT);
    let printed = print.wait().expect_success();
    agent.stop(&lab);
    let logged = test_live::read(&lab, &["--no-follow", "--sink=log"], &relay.output);
    let text = |line: &String| line.split_once("INFO  ").unwrap().1.to_owned();
    let printed: Vec<_> = printed.iter().map(text).collect();
    let logged: Vec<_> = logged.expect_success().iter().map(text).collect();
    assert_eq!(printed, logged);
    // The end says how long it took, and how much of that threads were in the span.
    let (end, times) = printed[4].split_once(" (").unwrap();
    assert!(
        times.contains("s, busy ") && times.ends_with("s)"),
        "{times}"
    );
    let others = [1, 2, 3, 5, 6].map(|line| &*printed[line]);
    assert_eq!(end, "app: <- task{n=0 result=done}");
    assert_eq!(
        others,
        [
            "app: -> task{n=0}",
            "    app: task waits",
            "    app: task goes on",
            "app: <- cancelled{n=0} (never entered)",
            "app: finished",
        ]
    );
}

#[test]
fn spans_of_rings_take_as_long_as_their_enter_and_exit_events_say() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay, &[]);
    let mut app = command(&lab, binaries::ring_app());
    let mut app = Process::start(app.args(["--busy", "--interval", "1"]));
    let session = format!("app-{}", app.id());
    let url = test_live::url(relay.live, &hostname(), &session);
    Viewer::connect(relay.live).wait_for_session(&session);
    let live = ["spans", "--json", "--seek", "beginning", &url];
    let live = test_live::start(&lab, &live);
    let events = test_live::start(&lab, &["--sink", "json", "--seek", "beginning", &url]);
    wait_until("more is shown", || events.stdout_line_count() > LINES);
    app.signal(Signal::KILL);
    wait_until("the program is dead", || !app.is_running());
    let (live, events) = (live.wait().expect_success(), events.wait().expect_success());
    agent.stop(&lab);

    // One thread serves requests, each with one query within.
    let mut open: Vec<(String, u64, u64)> = Vec::new();
    let mut expected = std::collections::BTreeMap::<String, [u64; 3]>::new();
    for event in &events {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        let (class, time) = (event["event"].as_str().unwrap(), &event["time"]);
        let name = event["fields"]["name"].as_str().unwrap_or_default();
        let time = time.as_u64().unwrap();
        if class.ends_with("span:enter") {
            open.push((name.to_owned(), time, 0));
        } else if class.ends_with("span:exit") {
            let (name, begin, within) = open.pop().unwrap();
            if let Some((_, _, within)) = open.last_mut() {
                *within += time - begin;
            }
            let [count, total, own] = expected.entry(name).or_default();
            *count += 1;
            *total += time - begin;
            *own += time - begin - within;
        }
    }
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["query", "request"]);
    assert!(expected["query"][0] > 30, "{expected:?}");
    let live: Vec<serde_json::Value> = serde_json::from_str(&live.join("\n")).unwrap();
    for row in &live {
        let [count, total, own] = expected[row["name"].as_str().unwrap()];
        assert_eq!(row["count"], count, "{row}");
        assert_eq!(row["total_ns"], total, "{row}");
        assert_eq!(row["self_ns"], own, "{row}");
    }
    assert_eq!(live.len(), 2, "{live:?}");
}
