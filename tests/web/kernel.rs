//! What a kernel did: the threads that CPUs ran, the states of threads, and what woke them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use tests::browser::Browser;
use tests::consumer::{HeldReplay, replay_command};
use tests::lab::Lab;
use tests::relay::Relay;

use crate::perfetto_format::{BEGIN, Packet, write};
use crate::system::{Web, center};

const US: u64 = 1000;
const MS: u64 = 1_000_000;

/// Events as LTTng names them and their fields.
const LTTNG: &str = "env { hostname = \"host-a\"; domain = \"kernel\"; tracer_name = \"lttng-modules\"; };
stream {
  packet.context := struct { u8 cpu_id; };
  event.header := struct { u8 id; time timestamp; };
};
event { id = 0; name = \"sched_switch\"; fields := struct {
  string _prev_comm; i32 _prev_tid; i32 _prev_prio; u64 _prev_state; string _next_comm; i32 _next_tid; i32 _next_prio; }; };
event { id = 1; name = \"sched_waking\"; fields := struct { string _comm; i32 _tid; i32 _target_cpu; }; };
event { id = 2; name = \"irq_handler_entry\"; fields := struct { i32 _irq; string _name; }; };
event { id = 3; name = \"irq_handler_exit\"; fields := struct { i32 _irq; i32 _ret; }; };
event { id = 4; name = \"syscall_entry_read\"; fields := struct { u64 _count; }; };
event { id = 5; name = \"syscall_exit_read\"; fields := struct { u64 _ret; }; };
event { id = 6; name = \"lttng_statedump_process_state\"; fields := struct { i32 _tid; i32 _pid; string _name; }; };
event { id = 7; name = \"timer_start\"; fields := struct { }; };
event { id = 8; name = \"sched_process_fork\"; fields := struct { i32 _parent_tid; i32 _parent_pid; i32 _child_tid; i32 _child_pid; string _child_comm; }; };
";

/// Events as perf names them and their fields. Each says its CPU, thread and process.
const PERF: &str = "env { hostname = \"host-a\"; domain = \"kernel\"; tracer_name = \"perf\"; };
stream { event.header := struct { u8 id; time timestamp; }; };
event { id = 0; name = \"sched:sched_switch\"; fields := struct { i32 perf_cpu; i32 perf_tid; i32 perf_pid;
  string prev_comm; i32 prev_pid; i32 prev_prio; u64 prev_state; string next_comm; i32 next_pid; i32 next_prio; }; };
event { id = 1; name = \"sched:sched_wakeup\"; fields := struct { i32 perf_cpu; i32 perf_tid; i32 perf_pid;
  string comm; i32 pid; i32 target_cpu; }; };
event { id = 2; name = \"irq:irq_handler_entry\"; fields := struct { i32 perf_cpu; i32 perf_tid; i32 perf_pid;
  i32 irq; string name; }; };
event { id = 3; name = \"irq:irq_handler_exit\"; fields := struct { i32 perf_cpu; i32 perf_tid; i32 perf_pid; i32 irq; i32 ret; }; };
event { id = 7; name = \"timer:timer_start\"; fields := struct { i32 perf_cpu; i32 perf_tid; i32 perf_pid; }; };
";

/// Threads: their number, that of their process, and their name.
type Thread = (i32, i32, &'static str);
const IDLE: Thread = (0, 0, "swapper");
const SERVER: Thread = (100, 100, "server");
const WORKER: Thread = (101, 100, "worker");
const CLIENT: Thread = (200, 200, "client");

/// The recorder of the same story in two languages.
struct Recorder {
    is_perf: bool,
    packets: [Packet; 2],
    running: [Thread; 2],
}

impl Recorder {
    fn new(is_perf: bool) -> Self {
        Self {
            is_perf,
            // perf has no packet context.
            packets: [0, 1].map(|cpu| Packet(if is_perf { vec![] } else { vec![cpu] })),
            running: [IDLE; 2],
        }
    }

    fn event(&mut self, cpu: usize, class: u8, time: u64) -> &mut Packet {
        let (tid, pid, _) = self.running[cpu];
        let packet = &mut self.packets[cpu];
        packet.event(class, time);
        if self.is_perf {
            packet
                .small(i32::try_from(cpu).unwrap())
                .small(tid)
                .small(pid);
        }
        packet
    }

    fn switch(&mut self, cpu: usize, time: u64, state: u64, next: Thread) {
        let previous = self.running[cpu];
        let packet = self.event(cpu, 0, time);
        packet
            .text(previous.2)
            .small(previous.0)
            .small(20)
            .number(state);
        packet.text(next.2).small(next.0).small(20);
        self.running[cpu] = next;
    }

    fn wake(&mut self, cpu: usize, time: u64, woken: Thread) {
        self.event(cpu, 1, time)
            .text(woken.2)
            .small(woken.0)
            .small(0);
    }

    fn interrupt(&mut self, cpu: usize, begin: u64) {
        self.event(cpu, 2, begin).small(24).text("eth0");
    }

    fn end_interrupt(&mut self, cpu: usize, end: u64) {
        self.event(cpu, 3, end).small(24).small(1);
    }
}

/// Writes a trace in which an interrupt wakes the server, which then wakes its worker.
fn record(lab: &Lab, name: &str, is_perf: bool) -> PathBuf {
    let mut kernel = Recorder::new(is_perf);
    if !is_perf {
        for (tid, pid, name) in [SERVER, WORKER, CLIENT] {
            kernel.event(0, 6, 0).small(tid).small(pid).text(name);
        }
    }
    kernel.switch(0, MS, 0, SERVER);
    if !is_perf {
        kernel.event(0, 4, 2 * MS).number(10);
    }
    kernel.switch(0, 3 * MS, 1, IDLE);
    kernel.switch(1, 4 * MS, 0, CLIENT);
    kernel.interrupt(1, 6 * MS);
    kernel.wake(1, 6200 * US, SERVER);
    kernel.end_interrupt(1, 6300 * US);
    kernel.switch(0, 6500 * US, 0, SERVER);
    if !is_perf {
        kernel.event(0, 5, 7 * MS).number(3);
    }
    kernel.wake(0, 7200 * US, WORKER);
    kernel.switch(0, 8 * MS, 0, WORKER);
    kernel.switch(0, 9 * MS, 2, SERVER);
    kernel.switch(1, 10 * MS, 32, IDLE);
    kernel.switch(0, 11 * MS, 1, IDLE);
    // A live viewer waits for this CPU before it shows what the other did last.
    kernel.event(1, 7, 11_500 * US);
    let metadata = if is_perf { PERF } else { LTTNG };
    write(lab, name, metadata, &kernel.packets)
}

/// What is shown: of each track the names of its spans and states with their times in microseconds.
fn shown(browser: &Browser) -> BTreeMap<String, Vec<String>> {
    let mut tracks: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let rows = browser.run("return __view().shown");
    for row in rows.as_array().unwrap() {
        // Spans and states, not points in time.
        if !matches!(row["kind"].as_u64().unwrap(), 0 | 4) {
            continue;
        }
        let time = |name: &str| {
            let time = row[name].as_str()?.parse::<u64>().unwrap();
            Some((time - BEGIN) / US)
        };
        let begin = time("begin").unwrap();
        let end = time("end").map_or_else(String::new, |end| end.to_string());
        let text = |name: &str| row[name].as_str().unwrap();
        let line = format!("{} {begin}-{end}", text("name"));
        tracks
            .entry(text("thread").to_owned())
            .or_default()
            .push((begin, line));
    }
    let in_order = |(thread, mut lines): (String, Vec<(u64, String)>)| {
        lines.sort();
        (thread, lines.into_iter().map(|(_, line)| line).collect())
    };
    tracks.into_iter().map(in_order).collect()
}

/// What both traces show.
fn expected(is_perf: bool) -> BTreeMap<String, Vec<String>> {
    let mut server = vec!["Running 1000-3000"];
    if !is_perf {
        server.push("sys_read 2000-7000");
    }
    server.extend([
        "Sleeping 3000-6200",
        "Runnable 6200-6500",
        "Running 6500-8000",
        "Runnable (preempted) 8000-9000",
        "Running 9000-11000",
        "Sleeping 11000-11500",
    ]);
    let tracks: [(&str, &[&str]); 6] = [
        (
            "CPU 0",
            &[
                "server 100 1000-3000",
                "server 100 6500-8000",
                "worker 101 8000-9000",
                "server 100 9000-11000",
            ],
        ),
        ("CPU 1", &["client 200 4000-10000"]),
        ("CPU 1 interrupts", &["irq 24 eth0 6000-6300"]),
        ("server 100", &server),
        (
            "worker 101",
            &[
                "Runnable 7200-8000",
                "Running 8000-9000",
                "Uninterruptible sleep 9000-11500",
            ],
        ),
        (
            "client 200",
            &[
                "Running 4000-6000",
                "Interrupted 6000-6300",
                "Running 6300-10000",
            ],
        ),
    ];
    tracks
        .into_iter()
        .map(|(name, rows)| {
            (
                name.to_owned(),
                rows.iter().map(ToString::to_string).collect(),
            )
        })
        .collect()
}

#[test]
fn cpus_and_states_of_threads_are_those_of_the_events_of_lttng_and_of_perf() {
    let lab = Lab::new();
    for (name, is_perf) in [("lttng", false), ("perf", true)] {
        let web = Web::show_directory(&lab, &record(&lab, name, is_perf));
        let browser = Browser::start(&lab);
        browser.open(&web.url);
        let all = "return window.__view && __view().sessions.length > 0 && __view().sessions[0].isEnded \
                   && __view().shown.some(row => row.name === 'Uninterruptible sleep')";
        browser.wait_for("all events", all);
        tests::wait_until("all rows", || shown(&browser) == expected(is_perf));
        let lanes = browser.run("return __view().lanes.slice(1)");
        assert_eq!(
            lanes,
            Value::from(vec![
                "CPUs",
                "CPU 0",
                "CPU 1",
                "CPU 1 interrupts",
                "server 100",
                "server 100",
                "worker 101",
                "client 200"
            ]),
        );
        if !is_perf {
            waits_are_explained(&browser);
            colors_are_those_of_processes(&browser);
            states_are_summarized(&browser);
        }
    }
}

/// The row of a name on a track that begins at a time in microseconds.
fn row(browser: &Browser, thread: &str, name: &str, begin: u64) -> Value {
    let begin = BEGIN + begin * US;
    let find = format!(
        "return __view().shown.find(row => row.thread === '{thread}' && row.name === '{name}' && row.begin === '{begin}')"
    );
    browser.wait_for(name, &find)
}

/// The facts of the panel with this name, when there is one.
fn fact(browser: &Browser, name: &str) -> String {
    let read = format!(
        "const term = [...document.querySelectorAll('#panel-facts dt')].find(dt => dt.textContent === '{name}');
         return term && term.nextSibling.firstChild.textContent"
    );
    browser.wait_for(name, &read).as_str().unwrap().to_owned()
}

/// The pixels of the timeline at a place of the page.
fn pixels(browser: &Browser, (x, y): (i64, i64), (width, height): (i64, i64)) -> Value {
    browser.run(&format!(
        "const canvas = document.getElementById('timeline');
         const {{ left, top }} = canvas.getBoundingClientRect();
         const scale = devicePixelRatio;
         const data = canvas.getContext('2d').getImageData(({x} - left) * scale, ({y} - top) * scale, {width} * scale, {height} * scale).data;
         return [...data].join()"
    ))
}

fn waits_are_explained(browser: &Browser) {
    let waits = row(browser, "server 100", "Sleeping", 3000);
    let client = row(browser, "CPU 1 interrupts", "irq 24 eth0", 6000);
    // Between the interrupt and the thread that it woke, where the arrow begins to bend.
    let (x, y) = (
        center(&client).0,
        (center(&client).1 + center(&waits).1) / 2,
    );
    let before = pixels(browser, (x - 70, y - 1), (140, 2));
    let (click_x, click_y) = center(&waits);
    browser.click(click_x, click_y);
    assert_eq!(
        fact(browser, "Wake-up"),
        "waited 3.2 ms, woken by irq 24 eth0 on CPU 1"
    );
    assert_eq!(fact(browser, "next_comm"), "swapper");
    tests::wait_until("the arrow", || {
        pixels(browser, (x - 70, y - 1), (140, 2)) != before
    });
    let runnable = row(browser, "worker 101", "Runnable", 7200);
    let (x, y) = center(&runnable);
    browser.click(x, y);
    let by_server = || fact(browser, "Wake-up") == "woken by server 100 on CPU 0";
    tests::wait_until("the waker", by_server);
    browser.run("document.getElementById('panel-close').click()");
}

fn colors_are_those_of_processes(browser: &Browser) {
    let color = |name: &str, begin: u64, cpu: &str| {
        let (x, y) = center(&row(browser, cpu, name, begin));
        // Below the text.
        pixels(browser, (x, y + 6), (1, 1))
    };
    let server = || color("server 100", 1000, "CPU 0");
    // The timeline is drawn anew when the panel is closed.
    tests::wait_until("one color for a process", || {
        server() == color("worker 101", 8000, "CPU 0")
    });
    assert_ne!(server(), color("client 200", 4000, "CPU 1"));
    let state = |name: &str, begin| color(name, begin, "server 100");
    assert_eq!(state("Running", 1000), state("Running", 9000));
    assert_ne!(state("Running", 1000), state("Sleeping", 3000));
}

fn states_are_summarized(browser: &Browser) {
    browser.press("v");
    browser.wait_for(
        "the states",
        "const tab = document.getElementById('summary-states'); tab && tab.click(); return !!tab",
    );
    let read = "const rows = [...document.querySelectorAll('#panel-summary tbody tr')].map(row => [...row.cells].map(cell => cell.textContent).slice(0, 3).join(' '));
                return rows.length > 5 && rows.sort()";
    let rows = browser.wait_for("the table", read);
    assert_eq!(
        rows,
        Value::from(vec![
            "Interrupted 1 300 µs",
            "Runnable (preempted) 1 1 ms",
            "Runnable 2 1.1 ms",
            "Running 6 12.2 ms",
            "Sleeping 2 3.7 ms",
            "Uninterruptible sleep 1 2.5 ms",
            "client 200 1 6 ms",
            "server 100 3 5.5 ms",
            "worker 101 1 1 ms",
        ])
    );
    browser.run("document.getElementById('panel-close').click()");
}

#[test]
fn wakeups_before_a_switch_events_that_are_missing_and_numbers_used_again_do_not_mislead() {
    const NEW: Thread = (200, 200, "new");
    let lab = Lab::new();
    let mut kernel = Recorder::new(false);
    kernel.switch(0, MS, 0, SERVER);
    kernel.switch(1, MS, 0, CLIENT);
    // It has decided to wait, and is woken before it has left its CPU.
    kernel.wake(1, 2900 * US, SERVER);
    kernel.switch(0, 3 * MS, 1, IDLE);
    kernel.switch(0, 4 * MS, 0, SERVER);
    kernel.switch(1, 5 * MS, 32, IDLE);
    let fork = kernel.event(0, 8, 6 * MS);
    fork.small(100).small(100).small(200).small(200).text("new");
    kernel.wake(0, 6100 * US, NEW);
    kernel.switch(1, 7 * MS, 0, NEW);
    // The switch from the server to the worker is missing.
    kernel.running[0] = WORKER;
    kernel.switch(0, 8 * MS, 1, IDLE);
    kernel.interrupt(1, 8 * MS);
    // The end of this interrupt is missing.
    kernel.switch(1, 9 * MS, 1, IDLE);
    kernel.event(0, 7, 10 * MS);
    let trace = write(&lab, "races", LTTNG, &kernel.packets);
    let web = Web::show_directory(&lab, &trace);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    let expected = |tracks: &[(&str, &[&str])]| -> BTreeMap<String, Vec<String>> {
        let rows = |rows: &[&str]| rows.iter().map(ToString::to_string).collect();
        let tracks = tracks.iter();
        tracks
            .map(|(name, lines)| ((*name).to_owned(), rows(lines)))
            .collect()
    };
    let all = expected(&[
        ("CPU 0", &["server 100 1000-3000", "server 100 4000-8000"]),
        ("CPU 1", &["client 200 1000-5000", "new 200 7000-9000"]),
        ("CPU 1 interrupts", &["irq 24 eth0 8000-9000"]),
        (
            "server 100",
            &[
                "Running 1000-3000",
                "Runnable 3000-4000",
                "Running 4000-8000",
            ],
        ),
        ("worker 101", &["Sleeping 8000-10000"]),
        ("client 200", &["Running 1000-5000"]),
        (
            "new 200",
            &[
                "Runnable 6100-7000",
                "Running 7000-8000",
                "Interrupted 8000-9000",
                "Sleeping 9000-10000",
            ],
        ),
    ]);
    browser.wait_for(
        "a page",
        "return window.__view && __view().sessions.length > 0",
    );
    tests::wait_until("all rows", || shown(&browser) == all);
    // The fork says of which process it is.
    let process = "return __view().shown.find(row => row.thread === 'new 200').process";
    assert_eq!(browser.run(process), "new 200");

    let filter = "--filter=$name == \"sched_switch\"";
    let web = Web::start(&lab, &[filter, trace.to_str().unwrap()]);
    browser.open(&web.url);
    let switches = expected(&[
        ("CPU 0", &["server 100 1000-3000", "server 100 4000-8000"]),
        ("CPU 1", &["client 200 1000-5000", "new 200 7000-9000"]),
        (
            "server 100",
            &[
                "Running 1000-3000",
                "Sleeping 3000-4000",
                "Running 4000-8000",
            ],
        ),
        ("worker 101", &["Sleeping 8000-9000"]),
        ("client 200", &["Running 1000-5000"]),
        ("new 200", &["Running 7000-9000", "Sleeping 9000-9000"]),
    ]);
    browser.wait_for(
        "a page",
        "return window.__view && __view().sessions.length > 0",
    );
    tests::wait_until("the switches", || shown(&browser) == switches);
}

#[test]
fn states_of_threads_are_shown_live() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let trace = record(&lab, "lttng", false);
    let mut replay = HeldReplay::open(replay_command(&lab, &relay, "kernel", &trace));
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "a session",
        "return window.__view && __view().sessions.length > 0",
    );
    replay.start_sending();
    let (from, to) = (BEGIN, BEGIN + 12 * MS);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    // What has not ended goes on.
    let mut live = expected(false);
    let rows = live.values_mut().flatten();
    for row in rows.filter(|row| row.contains("leep") && row.ends_with("-11500")) {
        *row = row.replace("-11500", "-");
    }
    tests::wait_until("all rows", || shown(&browser) == live);
    let is_live = browser.run("return !__view().sessions[0].isEnded");
    assert_eq!(is_live, Value::from(true));
}
