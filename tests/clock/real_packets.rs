//! Packets of two virtual machines, whose traces are in a collection beside the project: offset and
//! bounds are those that follow from all pairs of packets.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tests::babeltrace::Babeltrace;
use tests::collections::real_trace;
use tests::lab::Lab;
use tests::test_live;

const BILLION: i128 = 1_000_000_000;

/// The highest drift, in parts per billion.
const MAX_DRIFT: i128 = 500_000;

/// What readings of two clocks in whole nanoseconds add to a bound.
const READING_ERROR: i128 = 2;

/// A bound of the offset: time and offset.
type Bound = (i128, i128);

/// A host: its clock's zero in nanoseconds since 1970, and the time of each packet by its fields.
struct Host {
    clock_offset: i128,
    sent: BTreeMap<String, Vec<i128>>,
    received: BTreeMap<String, Vec<i128>>,
}

impl Host {
    /// Reads a trace as Babeltrace shows it. Version 2 ends at the first time that goes back.
    fn read(trace: &Path) -> Self {
        let metadata = Babeltrace::Two.read_with(&["-o", "ctf-metadata"], trace);
        let metadata = metadata.expect_success().join("\n");
        let (_, offset) = metadata.split_once("\toffset = ").unwrap();
        let (offset, _) = offset.split_once(';').unwrap();
        let mut host = Self {
            clock_offset: offset.parse().unwrap(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
        };
        let lines = Babeltrace::One.read_with(&["--clock-cycles", "--no-delta"], trace);
        for line in lines.expect_success() {
            let (time, event) = line.split_once(' ').unwrap();
            let packets = match event {
                _ if event.contains(" inet_sock_local_out: ") => &mut host.sent,
                _ if event.contains(" inet_sock_local_in: ") => &mut host.received,
                _ => continue,
            };
            let time = time.trim_matches(['[', ']']).parse().unwrap();
            let field = |name: &str| {
                let (_, rest) = event.split_once(&format!(" {name} = ")).unwrap();
                rest.split([',', ' ']).next().unwrap().to_owned()
            };
            let key = ["seq", "ack_seq", "window", "flags"].map(field).join(" ");
            packets.entry(key).or_default().push(time);
        }
        host
    }

    /// Returns when this host has sent each packet, and the other has received it.
    fn packets_to(&self, other: &Self) -> Vec<(i128, i128)> {
        let pair =
            |(key, sent): (&String, &Vec<i128>)| match (&sent[..], &other.received.get(key)?[..]) {
                ([sent], [received]) => Some((*sent, *received)),
                _ => None,
            };
        self.sent.iter().filter_map(pair).collect()
    }
}

/// Returns the lowest and the highest offset of all lines that agree with packets, by looking at
/// all pairs of bounds.
fn bounds_by_all_pairs([upper, lower]: &[Vec<Bound>; 2], time: i128) -> (i128, i128) {
    // Fractions, with positive denominators.
    let less = |one: Bound, other: Bound| one.0 * other.1 < other.0 * one.1;
    let (mut lowest, mut highest) = ((-MAX_DRIFT, BILLION), (MAX_DRIFT, BILLION));
    for (above, high) in upper {
        for (below, low) in lower {
            let (run, rise) = (above - below, high - low);
            if run > 0 && less((rise, run), highest) {
                highest = (rise, run);
            }
            if run < 0 && less(lowest, (-rise, -run)) {
                lowest = (-rise, -run);
            }
        }
    }
    let flipped = lower
        .iter()
        .map(|(time, offset)| (*time, -offset))
        .collect::<Vec<_>>();
    let falling = [(-highest.0, highest.1), (-lowest.0, lowest.1)];
    (
        -highest_by_all_pairs(&flipped, falling, time),
        highest_by_all_pairs(upper, [lowest, highest], time),
    )
}

/// Returns the highest offset of lines below all bounds with rates in a range, rounded up.
fn highest_by_all_pairs(upper: &[Bound], [lowest, highest]: [Bound; 2], time: i128) -> i128 {
    let on_line = |(begin, offset): Bound, (rise, run): Bound| {
        offset - (-(rise * (time - begin))).div_euclid(run)
    };
    let alone = upper.iter().map(|bound| {
        let rate = if bound.0 > time { lowest } else { highest };
        on_line(*bound, rate)
    });
    let pairs = upper.iter().flat_map(|before| {
        let after = upper
            .iter()
            .filter(move |after| before.0 < time && after.0 > time);
        after.map(move |after| on_line(*before, (after.1 - before.1, after.0 - before.0)))
    });
    alone.chain(pairs).min().unwrap()
}

fn info(lab: &Lab, options: &[&str], traces: &Path) -> Value {
    let options = [&["info", "--json", "--no-events"], options].concat();
    let lines = test_live::read(lab, &options, traces).expect_success();
    serde_json::from_str(&lines.join("\n")).unwrap()
}

#[test]
fn offset_of_virtual_machines_is_that_of_all_pairs_of_their_packets() {
    let Some(traces) = real_trace("synctraces") else {
        println!("synctraces are not there: nothing to compare");
        return;
    };
    let lab = Lab::new();
    let [reference, host] = ["scp_src", "scp_dest"].map(|name| Host::read(&traces.join(name)));
    let upper = host.packets_to(&reference).into_iter();
    let upper = upper.map(|(sent, received)| (sent, received - sent + READING_ERROR));
    let lower = reference.packets_to(&host).into_iter();
    let lower = lower.map(|(sent, received)| (received, sent - received - READING_ERROR));
    let bounds = [upper.collect::<Vec<_>>(), lower.collect::<Vec<_>>()];
    assert!(bounds.iter().all(|bounds| bounds.len() > 20));
    let middle = |time| {
        let (low, high) = bounds_by_all_pairs(&bounds, time);
        (
            (low + high) / 2 + reference.clock_offset - host.clock_offset,
            (high - low) / 2 + 1,
        )
    };
    let aligned = info(&lab, &["--align=network"], &traces);
    let number = |value: &Value| i128::from(value.as_i64().unwrap());
    let last = bounds.iter().flatten().map(|bound| bound.0).max().unwrap();
    let offset = &aligned["offsets"][1];
    assert_eq!(offset["host"], "VM3");
    assert_eq!(
        number(&offset["packets"]),
        (bounds[0].len() + bounds[1].len()) as i128
    );
    let shown = (number(&offset["ahead_ns"]), number(&offset["error_ns"]));
    assert_eq!(shown, middle(last));
    // Far from the packets, the drift makes it uncertain, and the middle is still the same.
    let as_it_is = info(&lab, &[], &traces);
    for end in ["begin_ns", "end_ns"] {
        let time = |info: &Value| number(&info["traces"][0]["streams"][0][end]);
        let (before, after) = (time(&as_it_is), time(&aligned));
        let (ahead, error) = middle(before - host.clock_offset);
        assert_eq!(after - before, ahead, "{end}");
        assert!(error > 1_000_000, "{end}: {error}");
    }
}
