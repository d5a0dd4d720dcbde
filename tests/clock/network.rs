//! `test-live --align=network`: hosts whose clocks are related by nothing but the packets that they
//! have sent to each other.

use std::path::PathBuf;

use fastrand::Rng;
use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::{test_live, traces};

use crate::align::SECOND;
use crate::kernel_trace::{KernelTrace, Packet, Recorded};

const MILLI: i64 = 1_000_000;
const MICRO: i64 = 1000;

/// 2026-01-01.
const TRUE_BEGIN: i64 = 1_767_225_600 * SECOND;

/// A host: by how much its time of day is wrong, the time since its start, and parts per billion by
/// which its clock is fast.
#[derive(Debug, Clone, Copy)]
struct Host {
    name: &'static str,
    shift: i64,
    uptime: i64,
    drift: i64,
}

const ROBOT_7: Host = Host {
    name: "robot-7",
    shift: 0,
    uptime: 5000 * SECOND,
    drift: 0,
};
const ROBOT_8: Host = Host {
    name: "robot-8",
    shift: 3 * SECOND,
    uptime: 100 * SECOND,
    drift: 40_000,
};
const ROBOT_9: Host = Host {
    name: "robot-9",
    shift: -3600 * SECOND,
    uptime: 90_000 * SECOND,
    drift: -30_000,
};

impl Host {
    /// Returns the monotonic clock at a time since the beginning.
    fn clock(self, time: i64) -> u64 {
        let drift = i128::from(time) * i128::from(self.drift) / i128::from(SECOND);
        u64::try_from(self.uptime + time + i64::try_from(drift).unwrap()).unwrap()
    }

    /// Returns by how much the time of day of another host is ahead, at a time since the beginning.
    fn ahead(self, other: Self, time: i64) -> i64 {
        let time_of_day = |host: Self| host.clock(time).cast_signed() + host.clock_offset();
        time_of_day(other) - time_of_day(self)
    }

    fn clock_offset(self) -> i64 {
        TRUE_BEGIN + self.shift - self.uptime
    }

    fn trace(self) -> KernelTrace {
        KernelTrace::new(self.name, self.clock_offset())
    }
}

/// Sends packets from one host to the other for ten seconds, from 100 to 900 microseconds each.
fn send(
    rng: &mut Rng,
    recorded: Recorded,
    (from, sender): (Host, &mut KernelTrace),
    (to, receiver): (Host, &mut KernelTrace),
) {
    let ports = [rng.u16(1024..), rng.u16(1..1024)];
    for number in 0..50 {
        let packet = Packet {
            recorded,
            ports,
            sequence: rng.u32(..),
            acknowledgement: rng.u32(..),
            identification: number,
        };
        let sent = i64::from(number) * 200 * MILLI + rng.i64(0..100 * MILLI);
        let received = sent + rng.i64(100 * MICRO..900 * MICRO);
        sender.sent(from.clock(sent), "eth0", &packet);
        receiver.received(to.clock(received), "eth0", &packet);
    }
}

fn exchange(
    rng: &mut Rng,
    recorded: Recorded,
    (one, one_trace): (Host, &mut KernelTrace),
    (other, other_trace): (Host, &mut KernelTrace),
) {
    send(rng, recorded, (one, one_trace), (other, other_trace));
    send(rng, recorded, (other, other_trace), (one, one_trace));
}

fn show(lab: &Lab, options: &[&str], traces: &[PathBuf]) -> CompletedProcess {
    Process::start(test_live::command(lab, options).args(traces)).wait()
}

/// An offset as it is shown.
#[derive(Debug)]
pub(crate) struct ShownOffset {
    /// In nanoseconds.
    pub(crate) ahead: i64,
    pub(crate) error: i64,
    /// Of packets or samples.
    pub(crate) count: usize,
}

/// Returns the offset of a host in lines for people.
pub(crate) fn offset_in(lines: &[String], host: &str) -> ShownOffset {
    let begin = format!("{host}: ");
    let parse = |line: &String| {
        let (_, rest) = line.split_once(&begin)?;
        let (ahead, rest) = rest.split_once(" ms ± ")?;
        let (error, rest) = rest.split_once(" ms (")?;
        let (count, _) = rest.split_once(' ')?;
        // Three digits after the point are microseconds.
        let nanoseconds = |text: &str| Some(text.replace('.', "").parse::<i64>().ok()? * 1000);
        Some(ShownOffset {
            ahead: nanoseconds(ahead)?,
            error: nanoseconds(error)?,
            count: count.parse().ok()?,
        })
    };
    let found = lines.iter().find_map(parse);
    found.unwrap_or_else(|| panic!("no offset of {host}: {lines:#?}"))
}

#[test]
fn events_of_hosts_without_samples_are_shown_in_the_order_in_which_they_happened() {
    let lab = Lab::new();
    let mut rng = Rng::with_seed(7);
    let hosts = [ROBOT_7, ROBOT_8, ROBOT_9];
    // Programs of a host have its clock, and its packets align them.
    let [mut traces, mut programs] = [hosts.map(Host::trace), hosts.map(Host::trace)];
    for number in 0..300 {
        let host = number % 3;
        let time = hosts[host].clock(number as i64 * 33 * MILLI);
        programs[host].numbered(time, number as u32);
    }
    let [seven, eight, nine] = &mut traces;
    exchange(&mut rng, Recorded::Ipv4, (ROBOT_7, seven), (ROBOT_8, eight));
    exchange(&mut rng, Recorded::Ipv6, (ROBOT_7, seven), (ROBOT_8, eight));
    exchange(&mut rng, Recorded::AddOn, (ROBOT_8, eight), (ROBOT_9, nine));
    let traces = traces.map(|trace| trace.write(&lab, "kernel"));
    let programs = programs.map(|trace| trace.write(&lab, "programs"));
    // The traces are as babeltrace2 reads them.
    let lines = Babeltrace::Two.read(&traces[0]).expect_success();
    let of_tcp = |name: &str| {
        let is_of_tcp = |line: &&String| line.contains(name) && line.contains("dest_port = ");
        lines.iter().filter(is_of_tcp).count()
    };
    assert_eq!(
        [of_tcp("net_dev_queue"), of_tcp("net_if_receive_skb")],
        [100; 2]
    );
    let traces = [traces, programs].concat();

    let numbered = ["--no-follow", "--filter", "$name == \"numbered\""];
    let shown = show(&lab, &numbered, &traces).expect_success();
    assert!(!numbers(&shown).is_sorted());
    let options = [&numbered[..], &["--align=network"]].concat();
    let aligned = show(&lab, &options, &traces);
    let notices = aligned.stderr.clone();
    let aligned = aligned.expect_success();
    assert_eq!(numbers(&aligned), (0..300).collect::<Vec<_>>());
    // Robot 8 has sent packets to both others.
    assert!(
        notices.contains(&"test-live: all times are those of robot-8".to_owned()),
        "{notices:#?}"
    );
    for (host, packets, max_error) in [
        (ROBOT_7, 200, MILLI),
        (ROBOT_8, 300, 1),
        (ROBOT_9, 100, MILLI),
    ] {
        let offset = offset_in(&notices, host.name);
        assert_eq!(offset.count, packets, "{notices:#?}");
        assert!(offset.error < max_error, "{offset:?}");
        // The last packet is one of the last tenth of a second, in which the clocks drift apart by
        // 7 microseconds at most; what is shown is rounded by two.
        let truth = host.ahead(ROBOT_8, 9_900 * MILLI);
        assert!(
            (offset.ahead - truth).abs() <= offset.error + 9 * MICRO,
            "{offset:?}, in truth {truth}"
        );
    }
    // All that reads the traces corrects the same.
    let threads = show(&lab, &[&options[..], &["--threads=2"]].concat(), &traces);
    assert_eq!(threads.expect_success(), aligned);
    let info = show(&lab, &["info", "--align=network", "--no-events"], &traces).expect_success();
    for host in hosts {
        let notice = notices
            .iter()
            .find(|line| line.contains(&format!("{}: ", host.name)));
        let offset = notice.unwrap().replace("test-live: ", "offset     ");
        assert!(info.contains(&offset), "{offset}: {info:#?}");
    }
}

#[test]
fn packets_that_were_sent_again_are_not_used() {
    let lab = Lab::new();
    let mut rng = Rng::with_seed(8);
    let (mut seven, mut eight) = (ROBOT_7.trace(), ROBOT_8.trace());
    exchange(
        &mut rng,
        Recorded::AddOn,
        (ROBOT_7, &mut seven),
        (ROBOT_8, &mut eight),
    );
    let packet = |sequence, identification| Packet {
        recorded: Recorded::Ipv4,
        ports: [5000, 80],
        sequence,
        acknowledgement: 1,
        identification,
    };
    for number in 0..3 {
        let [first, second] =
            [1000 * MILLI, 1200 * MILLI].map(|at| at + i64::from(number) * SECOND);
        let packet = packet(number, 0);
        seven.sent(ROBOT_7.clock(first), "eth0", &packet);
        seven.sent(ROBOT_7.clock(second), "eth0", &packet);
        // The second one beside the first would be before it was sent.
        eight.received(ROBOT_8.clock(first + MILLI / 2), "eth0", &packet);
    }
    // The number of the IPv4 packet tells them apart, and that a bridge is not the second time.
    for number in 0..3 {
        let time = i64::from(number) * 200 * MILLI;
        let packet = packet(99, number);
        seven.sent(ROBOT_7.clock(time), "br0", &packet);
        seven.sent(ROBOT_7.clock(time + 10 * MICRO), "eth0", &packet);
        eight.received(ROBOT_8.clock(time + MILLI), "eth0", &packet);
        eight.received(ROBOT_8.clock(time + MILLI + 5 * MICRO), "br0", &packet);
    }
    let traces = [seven, eight].map(|trace| trace.write(&lab, "kernel"));
    let shown = show(&lab, &["--align=network", "--sink=dummy"], &traces);
    let offset = offset_in(&shown.stderr, "robot-8");
    assert_eq!(offset.count, 103);
    let truth = ROBOT_8.ahead(ROBOT_7, 9_900 * MILLI);
    assert!(
        (offset.ahead - truth).abs() <= offset.error + 6 * MICRO,
        "{offset:?}"
    );
    let remark =
        "test-live: packets that were sent or received more than once, and are not used: 3";
    assert!(
        shown.stderr.contains(&remark.to_owned()),
        "{:#?}",
        shown.stderr
    );
}

#[test]
fn hosts_that_packets_do_not_relate_are_unaligned_and_the_reason_is_printed() {
    let lab = Lab::new();
    let mut rng = Rng::with_seed(9);
    let mut seven = ROBOT_7.trace();
    let (mut eight, mut nine) = (ROBOT_8.trace(), ROBOT_9.trace());
    exchange(
        &mut rng,
        Recorded::Ipv4,
        (ROBOT_7, &mut seven),
        (ROBOT_8, &mut eight),
    );
    // No packet of the third host comes back.
    send(
        &mut rng,
        Recorded::Ipv4,
        (ROBOT_7, &mut seven),
        (ROBOT_9, &mut nine),
    );
    // The clock of the fourth is stopped for a second.
    let fourth = Host {
        name: "robot-\u{1b}",
        ..ROBOT_9
    };
    let stopped = Host {
        uptime: fourth.uptime - SECOND,
        ..fourth
    };
    let mut fourth_trace = fourth.trace();
    for host in [fourth, stopped] {
        exchange(
            &mut rng,
            Recorded::Ipv6,
            (ROBOT_7, &mut seven),
            (host, &mut fourth_trace),
        );
    }
    nine.numbered(ROBOT_9.clock(0), 1);
    let mut ten = KernelTrace::new("robot-10", 0);
    let packet = Packet {
        recorded: Recorded::Ipv4,
        ports: [1, 2],
        sequence: 3,
        acknowledgement: 4,
        identification: 5,
    };
    ten.sent(1000, "eth0", &packet);
    let mut eleven = KernelTrace::new("robot-11", 0);
    eleven.numbered(1000, 2);
    let traces = [seven, eight, nine, fourth_trace, ten, eleven];
    let mut traces = traces.map(|trace| trace.write(&lab, "kernel")).to_vec();
    traces.push(traces::with_numbered_events(&lab, "other", 3, 1000));
    let options = ["--align=network", "--filter", "number == 1"];
    let shown = show(&lab, &options, &traces);
    assert_eq!(offset_in(&shown.stderr, "robot-7").count, 100);
    assert_eq!(offset_in(&shown.stderr, "robot-8").count, 100);
    for line in [
        "robot-9: unaligned: there are packets in one direction only, from or to robot-7",
        "robot-\u{fffd}: unaligned: no constant drift agrees with all packets from and to robot-7; a clock was stopped or corrected meanwhile",
        "robot-10: unaligned: no TCP packet in its traces was matched with one of another host",
        "robot-11: unaligned: no TCP packet in its traces was matched with one of another host",
        "host: unaligned: its clock is not identified",
        "all times are those of robot-7",
    ] {
        let line = format!("test-live: {line}");
        assert!(shown.stderr.contains(&line), "{line}: {:#?}", shown.stderr);
    }
    // The times of unaligned hosts stay.
    let as_they_are = show(&lab, &["--filter", "number == 1"], &traces);
    assert_eq!(shown.expect_success(), as_they_are.expect_success());
}

#[test]
fn traces_without_packets_are_shown_as_they_are() {
    let lab = Lab::new();
    let mut seven = ROBOT_7.trace();
    seven.numbered(ROBOT_7.clock(0), 1);
    let trace = seven.write(&lab, "kernel");
    let shown = test_live::read(&lab, &["--align=network"], &trace);
    assert_eq!(
        shown.stderr,
        [
            "test-live: robot-7: unaligned: no TCP packet in its traces was matched with one of another host",
        ]
    );
    assert_eq!(shown.expect_success().len(), 1);
}

#[test]
fn packets_that_come_after_the_events_do_not_align_them() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = test_live::url(relay.live, "robot-7", "kernel");
    for command in [
        &[][..],
        &["top", "--batch"],
        &["web", "--listen=127.0.0.1:0"],
    ] {
        let ended = show(&lab, &[command, &["--align=network", &url]].concat(), &[]);
        assert_eq!(ended.status.code(), Some(2), "{:?}", ended.stderr);
        let what = "--align=network needs all packets before the events";
        assert!(ended.stderr[0].contains(what), "{:?}", ended.stderr);
    }
}
