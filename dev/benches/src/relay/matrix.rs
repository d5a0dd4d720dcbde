//! Both relays under every combination of producers, streams, packet sizes and send modes, in
//! pairs.
//!
//! The relays take turns, with all rows that have the same producers and streams. A pair is a row
//! on one relay and soon after on the other, so that what slows the machine down for a while slows
//! both. Each pair gives a ratio; a row is won or lost only if the ratios of all pairs agree.

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::relay::Relay;

use super::load::{Load, SendMode, Sender};
use super::noise::Noise;
use super::{Which, median};
use crate::process::{cpu, machine_cpu};

/// Number of pairs, unless `--pairs` says otherwise.
const PAIRS: usize = 5;

const PRODUCERS: [usize; 3] = [1, 8, 64];
/// Streams of each producer.
const STREAMS: [usize; 4] = [1, 8, 64, 512];
/// Bytes of a packet, and the packets of one measurement: about a third of a second of
/// `lttng-relayd`.
const PACKETS: [(usize, u64); 4] = [
    (4 << 10, 12 << 10),
    (64 << 10, 4 << 10),
    (256 << 10, 1200),
    (1 << 20, 400),
];
const SEND_MODES: [(SendMode, &str); 3] = [
    (SendMode::OneInFlight, "Nagle"),
    (SendMode::OneInFlightNoDelay, "nodelay"),
    (SendMode::Pipelined, "pipelined"),
];

/// The figures that are measured, and whether more of each is better.
const FIGURES: [(&str, bool); 5] = [
    ("MB/s", true),
    ("relay CPU us/packet", false),
    ("machine CPU us/packet", false),
    ("index p50 us", false),
    ("index p99 us", false),
];

/// The figures of one measurement, in the order of [`FIGURES`]. None: not measured, the indexes are
/// pipelined.
type Figures = [Option<f64>; FIGURES.len()];

/// The rows that are to be run, and how.
#[derive(Debug)]
struct Options {
    pairs: usize,
    noise: Option<Noise>,
    /// Multiplies the packets of each measurement.
    times: u64,
    /// A row is run if its name contains all of these.
    parts: Vec<String>,
}

/// A row of the table, and its measurements.
#[derive(Debug)]
struct Row {
    name: String,
    producers: usize,
    packet: usize,
    /// Packets of a measurement, of all producers together.
    packets: u64,
    send_mode: SendMode,
    reference: Vec<Figures>,
    ours: Vec<Figures>,
}

/// Whether the pairs of a row agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

/// Prints the table, row by row, then a summary.
pub(super) fn run(arguments: &[String]) {
    let options = parse(arguments);
    println!(
        "# {} pairs; packets of a measurement: {} x the usual number{}; congestion control: {}; ratios are relayd / lttng-relayd: median (lowest to highest)",
        options.pairs,
        options.times,
        if options.noise.is_some() {
            "; other programs use half of each processor"
        } else {
            ""
        },
        congestion_control(),
    );
    let mut done = Vec::new();
    for producers in PRODUCERS {
        for streams in STREAMS {
            let rows = rows_of(producers, streams, options.times);
            let is_chosen = |row: &Row| options.parts.iter().all(|part| row.name.contains(part));
            let mut rows: Vec<_> = rows.into_iter().filter(is_chosen).collect();
            if rows.is_empty() {
                continue;
            }
            for pair in 0..options.pairs {
                // The order changes: the second of a pair finds other caches.
                let mut both = [Which::Reference, Which::Ours];
                both.rotate_left(pair % 2);
                for which in both {
                    measure_group(which, streams, &mut rows, options.noise.as_ref());
                }
            }
            rows.iter().for_each(Row::print);
            done.append(&mut rows);
        }
    }
    assert!(
        !done.is_empty(),
        "no row has a name with all of {:?}",
        options.parts
    );
    summarize(&done);
}

/// The congestion control of TCP, which decides how fast producers may send.
fn congestion_control() -> String {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    setting.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

fn parse(arguments: &[String]) -> Options {
    let mut options = Options {
        pairs: PAIRS,
        noise: None,
        times: 1,
        parts: Vec::new(),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--pairs" => {
                let pairs = arguments.next().and_then(|pairs| pairs.parse().ok());
                options.pairs = pairs.filter(|pairs| *pairs > 0).expect("--pairs NUMBER");
            }
            "--times" => {
                let times = arguments.next().and_then(|times| times.parse().ok());
                options.times = times.filter(|times| *times > 0).expect("--times NUMBER");
            }
            "--noise" => options.noise = Some(Noise::start()),
            part => options.parts.push(part.to_owned()),
        }
    }
    options
}

fn rows_of(producers: usize, streams: usize, times: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (packet, packets) in PACKETS {
        for (send_mode, mode_name) in SEND_MODES {
            rows.push(Row {
                name: format!(
                    "{producers} x {streams} x {} KiB, {mode_name}",
                    packet >> 10
                ),
                producers,
                packet,
                // The same number for each producer.
                packets: (times * packets).next_multiple_of(producers as u64),
                send_mode,
                reference: Vec::new(),
                ours: Vec::new(),
            });
        }
    }
    rows
}

/// Starts a relay, opens the sessions once, and measures all rows on them.
fn measure_group(which: Which, streams: usize, rows: &mut [Row], noise: Option<&Noise>) {
    let Some(first) = rows.first() else { return };
    let lab = Lab::new();
    let mut relay = which.start(&lab);
    // What the rows differ in is set before each measurement.
    let load = Load {
        what: "matrix",
        aims: ["", ""],
        producers: first.producers,
        streams,
        packet: first.packet,
        bytes: 0,
        send_mode: SendMode::OneInFlight,
    };
    // Opened once for all rows: to open 64 sessions of 512 streams takes longer than to measure.
    let mut senders: Vec<_> = (0..first.producers)
        .map(|number| Sender::open(&relay, &format!("matrix-{number}"), &load))
        .collect();
    for row in rows {
        let figures = row.measure(&mut relay, &mut senders, noise);
        match which {
            Which::Reference => row.reference.push(figures),
            Which::Ours => row.ours.push(figures),
        }
    }
    senders.iter_mut().for_each(Sender::end);
}

impl Row {
    fn measure(&self, relay: &mut Relay, senders: &mut [Sender], noise: Option<&Noise>) -> Figures {
        for sender in &mut *senders {
            sender.set_send_mode(self.send_mode);
            // Wakes the relay up before the time begins, and opens the first tracefiles.
            sender.set_packets(8, self.packet);
            sender.send_all();
            sender.set_packets(self.packets / self.producers as u64, self.packet);
        }
        let id = relay.process().id();
        let noise_cpu = || noise.map_or(Duration::ZERO, Noise::cpu);
        let start = Barrier::new(senders.len() + 1);
        let begun = Instant::now();
        let mut before = Vec::new();
        let mut round_trips: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = senders
                .iter_mut()
                .map(|sender| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        sender.send_all()
                    })
                })
                .collect();
            // The time begins when all threads are there: starting them takes longer than a row
            // may.
            before.extend([cpu(id), machine_cpu(), noise_cpu()]);
            start.wait();
            before.push(begun.elapsed());
            let joined = running.into_iter().map(|sender| sender.join().unwrap());
            joined.flatten().collect()
        });
        senders.iter_mut().for_each(Sender::wait_until_read);
        let after = [cpu(id), machine_cpu(), noise_cpu(), begun.elapsed()];
        let spent: Vec<_> = after
            .iter()
            .zip(&before)
            .map(|(after, before)| *after - *before)
            .collect();
        let (relay_cpu, taken) = (spent[0], spent[3]);
        // Without what the background load itself uses.
        let machine = spent[1].saturating_sub(spent[2]);
        round_trips.sort_unstable();
        let percentile = |percent: usize| {
            let at = round_trips.len() * percent / 100;
            Some(round_trips.get(at)?.as_secs_f64() * 1e6)
        };
        let packets = self.packets as f64;
        let bytes = packets * self.packet as f64;
        [
            Some(bytes / 1e6 / taken.as_secs_f64()),
            Some(relay_cpu.as_secs_f64() * 1e6 / packets),
            Some(machine.as_secs_f64() * 1e6 / packets),
            percentile(50),
            percentile(99),
        ]
    }

    /// The ratios of a figure, in ascending order: one of each pair. Empty if it is not measured.
    fn ratios(&self, figure: usize) -> Vec<f64> {
        let pairs = self.reference.iter().zip(&self.ours);
        let ratio = |(theirs, ours): (&Figures, &Figures)| Some(ours[figure]? / theirs[figure]?);
        let mut ratios: Vec<_> = pairs.filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    fn verdict(&self, figure: usize) -> Verdict {
        let (ratios, more_is_better) = (self.ratios(figure), FIGURES[figure].1);
        // All pairs must agree: one that differs may be chance.
        let is_above = ratios.iter().all(|ratio| *ratio > 1.0);
        let is_below = ratios.iter().all(|ratio| *ratio < 1.0);
        match (is_above, is_below) {
            (true, false) if more_is_better => Verdict::Better,
            (true, false) => Verdict::Worse,
            (false, true) if more_is_better => Verdict::Worse,
            (false, true) => Verdict::Better,
            _ => Verdict::Same,
        }
    }

    fn print(&self) {
        for (figure, (unit, _)) in FIGURES.iter().enumerate() {
            let ratios = self.ratios(figure);
            let [Some(lowest), Some(highest)] = [ratios.first(), ratios.last()] else {
                continue;
            };
            let middle = |all: &[Figures]| {
                let mut all: Vec<_> = all.iter().filter_map(|figures| figures[figure]).collect();
                median(&mut all)
            };
            println!(
                "{:<30} {unit:<22} {:>9.1} {:>9.1} {:>6.2}x ({lowest:.2} to {highest:.2})  {}",
                self.name,
                middle(&self.reference),
                middle(&self.ours),
                median(&mut ratios.clone()),
                match self.verdict(figure) {
                    Verdict::Better => "better",
                    Verdict::Same => "same",
                    Verdict::Worse => "WORSE",
                },
            );
        }
    }
}

/// Prints, for each figure, how many rows are better and worse, and the median of the rows' ratios.
fn summarize(rows: &[Row]) {
    let many: Vec<_> = rows.iter().filter(|row| row.producers > 1).collect();
    println!(
        "# summary: rows better, same, worse; median of all rows, of those with several producers"
    );
    for (figure, (unit, _)) in FIGURES.iter().enumerate() {
        let count = |verdict| {
            let measured = rows.iter().filter(|row| !row.ratios(figure).is_empty());
            measured
                .filter(|row| row.verdict(figure) == verdict)
                .count()
        };
        let middle = |rows: &[&Row]| {
            let ratios = rows.iter().map(|row| row.ratios(figure));
            let measured = ratios.filter(|ratios| !ratios.is_empty());
            let mut medians: Vec<_> = measured.map(|mut ratios| median(&mut ratios)).collect();
            if medians.is_empty() {
                return "-".to_owned();
            }
            format!("{:.2}x", median(&mut medians))
        };
        println!(
            "{unit:<22} {:>4} {:>4} {:>4}  {:>6} {:>6}",
            count(Verdict::Better),
            count(Verdict::Same),
            count(Verdict::Worse),
            middle(&rows.iter().collect::<Vec<_>>()),
            middle(&many),
        );
    }
}
