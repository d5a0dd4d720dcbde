//! Traces that `test-live --sink perfetto` writes, opened by Perfetto itself.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::perfetto::{open_output, rows};
use tests::process::Process;
use tests::test_live;

/// The begin of the recordings, in nanoseconds since 1970.
pub(crate) const BEGIN: u64 = 1_700_000_000_000_000_000;
/// A thread that Perfetto has no number for.
const WIDE_THREAD: u64 = 5_000_000_000;

/// What the metadata of both recordings begin with.
const TYPES: &str = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 32; align = 8; signed = true; } := i32;
typealias integer { size = 64; align = 8; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
clock { name = c; freq = 1000000000; };
typealias integer { size = 64; align = 8; map = clock.c.value; } := time;
";

const PROGRAM: &str = "env { hostname = \"host-a\"; };
stream {
  event.header := struct { u8 id; time timestamp; };
  event.context := struct { u64 _vpid; u64 _vtid; };
};
event { id = 0; name = \"app:span:new\"; fields := struct { u64 _span; string _name; string _resource; }; };
event { id = 1; name = \"app:span:enter\"; fields := struct { u64 _span; string _name; }; };
event { id = 2; name = \"app:span:exit\"; fields := struct { u64 _span; string _name; }; };
event { id = 3; name = \"p:frame_begin\"; fields := struct { u64 _number; }; };
event { id = 4; name = \"p:frame_end\"; fields := struct { u64 _number; }; };
event { id = 5; name = \"app:mark\"; fields := struct { i32 _depth; struct { string _text; } _in; }; };
";

const KERNEL: &str = "env { hostname = \"host-a\"; domain = \"kernel\"; kernel_release = \"6.1.0\"; };
stream {
  packet.context := struct { u8 cpu_id; };
  event.header := struct { u8 id; time timestamp; };
};
event { id = 0; name = \"sched_switch\"; fields := struct {
  string _prev_comm; i32 _prev_tid; i32 _prev_prio; u64 _prev_state; string _next_comm; i32 _next_tid; i32 _next_prio; }; };
event { id = 1; name = \"lttng_statedump_process_state\"; fields := struct {
  i32 _tid; i32 _pid; i32 _ppid; string _name; }; };
event { id = 2; name = \"syscall_entry_read\"; fields := struct { u64 _count; }; };
event { id = 3; name = \"syscall_exit_read\"; fields := struct { u64 _ret; }; };
";

/// The bytes of a packet.
#[derive(Default)]
pub(crate) struct Packet(pub(crate) Vec<u8>);

impl Packet {
    pub(crate) fn event(&mut self, class: u8, time: u64) -> &mut Self {
        self.0.push(class);
        self.number(BEGIN + time)
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn small(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.0.extend(text.as_bytes());
        self.0.push(0);
        self
    }

    fn of_thread(&mut self, class: u8, time: u64) -> &mut Self {
        self.event(class, time).number(7).number(WIDE_THREAD)
    }
}

pub(crate) fn write(lab: &Lab, name: &str, metadata: &str, packets: &[Packet]) -> PathBuf {
    let directory = lab.directory(name);
    fs::write(directory.join("metadata"), format!("{TYPES}{metadata}")).unwrap();
    for (number, packet) in packets.iter().enumerate() {
        fs::write(directory.join(format!("stream_{number}")), &packet.0).unwrap();
    }
    directory
}

/// Lets the sink write a trace, and opens it in Perfetto.
pub(crate) fn open(lab: &Lab, input: &Path, arguments: &[&str], name: &str) -> (Browser, Process) {
    open_output(lab, name, |output| {
        let words = ["--sink", "perfetto", "--output", output];
        test_live::read(lab, &[&words, arguments].concat(), input).expect_success();
    })
}

/// The events of a trace, as the JSON sink writes them.
pub(crate) fn events(lab: &Lab, input: &Path) -> Vec<Value> {
    let lines = test_live::read(lab, &["--sink", "json"], input).expect_success();
    let lines = lines.iter();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn slices_of_a_program_have_the_times_and_arguments_that_the_json_sink_shows() {
    let lab = Lab::new();
    let mut packet = Packet::default();
    packet.of_thread(5, 0).small(-3).text("deep");
    packet.of_thread(3, 10).number(1);
    // With the same begin as what is around it.
    packet.of_thread(3, 10).number(2);
    packet.of_thread(4, 20).number(2);
    packet.of_thread(4, 40).number(1);
    for (span, begin) in [(1, 100), (2, 110)] {
        let resource = format!("r{span}");
        packet
            .of_thread(0, begin)
            .number(span)
            .text("image")
            .text(&resource);
        packet.of_thread(1, begin).number(span).text("image");
    }
    // Neither is within the other.
    packet.of_thread(2, 120).number(1).text("image");
    packet.of_thread(2, 130).number(2).text("image");
    packet.of_thread(1, 200).number(3).text("open");
    let input = write(&lab, "program", PROGRAM, &[packet]);

    let mut want = Vec::new();
    let mut open_slices: HashMap<String, Vec<(String, i64)>> = HashMap::new();
    for event in events(&lab, &input) {
        let name = event["event"].as_str().unwrap();
        let time = event["time"].as_i64().unwrap();
        let fields = &event["fields"];
        let span = fields["name"].as_str().unwrap_or("p:frame");
        let key = fields["span"].to_string();
        match name {
            "app:span:enter" | "p:frame_begin" => {
                open_slices
                    .entry(key)
                    .or_default()
                    .push((span.to_owned(), time));
            }
            "app:span:exit" | "p:frame_end" => {
                let (name, begin) = open_slices.get_mut(&key).unwrap().pop().unwrap();
                want.push(format!("{name} {begin} {}", time - begin));
            }
            name => want.push(format!("{name} {time} 0")),
        }
    }
    for (name, begin) in open_slices.into_values().flatten() {
        want.push(format!("{name} {begin} -1"));
    }
    want.sort();
    assert_eq!(want.len(), 8);

    let counter = ["--counter", "depth=app:mark.depth"];
    let (browser, _server) = open(&lab, &input, &counter, "trace.pftrace.gz");
    let rows = |sql: &str| rows(&browser, sql);
    let slices = "select name || ' ' || ts || ' ' || dur as row from slice order by row";
    assert_eq!(rows(slices), want);
    let arguments = "select extract_arg(arg_set_id, 'debug.resource') || ' ' || dur as row from slice \
                     where name = 'image' order by row";
    assert_eq!(rows(arguments), ["r1 20", "r2 20"]);
    let nested =
        "select extract_arg(arg_set_id, 'debug.in.text') as row from slice where name = 'app:mark'";
    assert_eq!(rows(nested), ["deep"]);
    let frames = "select extract_arg(arg_set_id, 'debug.number') || ' ' || depth as row from slice \
                  where name = 'p:frame' order by row";
    assert_eq!(rows(frames), ["1 0", "2 1"]);
    let threads = "select t.name || ' of ' || p.pid as row from thread t join process p using (upid) \
                   where t.name is not null and t.tid > 0";
    assert_eq!(rows(threads), ["TID 5000000000 of 7"]);
    let counters = "select ts || ' ' || value as row from counter";
    assert_eq!(rows(counters), [format!("{BEGIN} -3.0")]);
    // Wall time.
    let clocks =
        "select min(ts = clock_value) as row from clock_snapshot where clock_name = 'REALTIME'";
    assert_eq!(rows(clocks), ["1"]);
}

/// Packets of two CPUs with 400 switches between three threads, and their system calls.
fn switches() -> [Packet; 2] {
    let mut packets = [0, 1].map(|cpu| Packet(vec![cpu]));
    for (tid, pid, name) in [
        (100, 100, "server"),
        (101, 100, "worker"),
        (200, 200, "client"),
    ] {
        packets[0].event(1, u64::from(tid as u32) / 50);
        packets[0].small(tid).small(pid).small(1).text(name);
    }
    let threads = [
        (0, "swapper"),
        (100, "server"),
        (101, "worker"),
        (200, "client"),
    ];
    for step in 0..400_usize {
        let packet = &mut packets[step % 2];
        let (prev, next) = (threads[step / 2 % 4], threads[(step / 2 + 1) % 4]);
        let time = 1000 + 10 * step as u64;
        packet.event(0, time).text(prev.1).small(prev.0).small(20);
        packet
            .number((step % 3) as u64)
            .text(next.1)
            .small(next.0)
            .small(20);
        packet.event(2, time + 2).number(4096);
        packet.event(3, time + 5).number(7);
    }
    packets
}

#[test]
fn kernel_traces_have_every_switch_in_the_table_of_the_scheduler() {
    let lab = Lab::new();
    let input = write(&lab, "kernel", KERNEL, &switches());
    let switches = events(&lab, &input)
        .into_iter()
        .filter(|event| event["event"] == "sched_switch");
    let want: Vec<_> = switches
        .map(|event| {
            let (fields, packet) = (&event["fields"], &event["packet"]);
            let (time, cpu) = (&event["time"], &packet["cpu_id"]);
            format!(
                "{time} {cpu} {} {}",
                fields["next_tid"], fields["next_prio"]
            )
        })
        .collect();
    assert_eq!(want.len(), 400);

    let (browser, _server) = open(&lab, &input, &[], "kernel.pftrace");
    let rows = |sql: &str| rows(&browser, sql);
    let sched = "select ts || ' ' || cpu || ' ' || tid || ' ' || priority as row \
                 from sched join thread using (utid) order by ts";
    assert_eq!(rows(sched), want);
    let tree = "select t.tid || ' ' || t.name || ' of ' || p.pid || ' ' || p.name as row \
                from thread t join process p using (upid) where t.tid > 1 order by t.tid";
    assert_eq!(
        rows(tree),
        [
            "100 server of 100 server",
            "101 worker of 100 server",
            "200 client of 200 client"
        ]
    );
    let states = "select state || ' ' || count(*) as row from thread_state where utid > 0 group by state order by state";
    assert_eq!(rows(states).len(), 4, "{:?}", rows(states));
    // System calls are on the threads that run; those of the idle thread are of none.
    let calls = "select t.tid || ' ' || count(*) || ' ' || min(s.dur) || ' ' || max(s.dur) as row from slice s \
                 join thread_track k on s.track_id = k.id join thread t using (utid) where s.name = 'sys_read' \
                 group by t.tid order by t.tid";
    assert_eq!(rows(calls), ["100 100 3 3", "101 100 3 3", "200 100 3 3"]);
}

#[test]
fn kernels_of_two_hosts_are_two_machines_with_the_same_numbers_of_threads() {
    let lab = Lab::new();
    write(&lab, "both/a", KERNEL, &switches());
    let other = KERNEL.replace("host-a", "host-b");
    write(&lab, "both/b", &other, &switches());
    let (browser, _server) = open(&lab, &lab.path().join("both"), &[], "kernels.pftrace");
    let rows = |sql: &str| rows(&browser, sql);
    let sched = "select ifnull(c.machine_id, 0) || ' ' || c.cpu || ' ' || count(*) as row from sched s \
                 join cpu c on c.ucpu = s.ucpu group by c.machine_id, c.cpu order by row";
    let parts = ["0 0 200", "0 1 200", "1 0 200", "1 1 200"];
    assert_eq!(rows(sched), parts);
    let names = "select ifnull(machine_id, 0) || ' ' || tid || ' ' || name as row from thread \
                 where tid in (100, 101, 200) order by row";
    let threads = ["100 server", "101 worker", "200 client"];
    let of = |machine| threads.map(|thread| format!("{machine} {thread}"));
    assert_eq!(rows(names), [of(0), of(1)].concat());
    // System calls are on the threads of the first machine, and on tracks that name the other host.
    let calls = "select ifnull(p.name, '') || ' ' || count(*) as row from slice s join thread_track k on s.track_id = k.id \
                 join thread t using (utid) left join process p using (upid) where s.name = 'sys_read' \
                 group by p.upid order by row";
    let other = ["PID 100 @ host-b 200", "PID 200 @ host-b 100"];
    assert_eq!(
        rows(calls),
        [&other[..], &["client 100", "server 200"]].concat()
    );
}
