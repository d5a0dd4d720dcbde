//! What an archive in Ceph costs a relay, how long it takes until packets are acknowledged, and how
//! fast an archived session is read. Ceph shares the processors with everything that is measured.
//!
//! `SECONDS=N` sets the length of each run of the relay.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relay_proto::reply::ReturnCode;
use relay_proto::resume::{GetPosition, MakeResumable, OpenStream, StreamOpened, StreamPosition};
use relay_proto::{Command as Request, Minor, Reply};
use tests::ceph::Ceph;
use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::status_endpoint::StatusEndpoint;
use tests::{binaries, test_live};
use wire::{SeqNum, StreamId};

use crate::process::{cpu, peak_memory};
use crate::relay::median;
use crate::viewer::{size, trace};

/// Size of the packets that are sent, in bytes.
const PACKET: usize = 512 << 10;
/// Bytes that are sent in a second.
const RATE: f64 = 8e6;
/// Number of streams, which are sent packets in turn.
const STREAMS: usize = 4;
/// Time between two questions for the position of a stream, unless packets are sent.
const POSITION_INTERVAL: Duration = Duration::from_millis(5);
/// Length of a run of the relay in seconds, unless the environment says another.
const DEFAULT_SECONDS: u32 = 30;
/// Runs of the relay with and without an archive each.
const ROUNDS: usize = 3;

/// Minimum size of the trace that is read, in bytes.
const TRACE_BYTES: u64 = 200_000_000;
/// Number of times that it is read. Odd, so that a median is one of them.
const READS: usize = 5;
/// The session of the trace.
const SESSION: &str = "read";

/// The archive in the bucket.
const PREFIX: &str = "bench";

/// A run of a relay.
#[derive(Debug, Default)]
struct Run {
    /// From the moment when a packet begins to be written until its position is durable, in
    /// milliseconds.
    acknowledged: Vec<f64>,
    /// Processor time of the relay in milliseconds for a megabyte.
    cpu: f64,
    /// Processor time of the relay in percent of a processor.
    load: f64,
    /// Peak memory of the relay in MiB.
    memory: f64,
    /// Objects that were stored in a second.
    objects: f64,
}

/// Prints the measurements.
pub(crate) fn run() {
    eprintln!("starting Ceph");
    let ceph = Ceph::start();
    let lab = Lab::new_in(&tests::build_directory());
    let directory = lab.path().join("trace");
    trace::write(&directory, TRACE_BYTES).unwrap();
    measure_relay(&ceph, &payloads(&directory));
    measure_reader(&ceph, &lab, &directory);
}

/// Cuts a stream of the trace into payloads, which compress as real ones do.
fn payloads(directory: &Path) -> Vec<Vec<u8>> {
    let stream = fs::read(directory.join("channel_0")).unwrap();
    stream.chunks_exact(PACKET).map(<[u8]>::to_vec).collect()
}

fn measure_relay(ceph: &Ceph, payloads: &[Vec<u8>]) {
    println!(
        "packets of {} KiB, {} MB/s, {ROUNDS} rounds in turns; medians of rounds",
        PACKET >> 10,
        RATE / 1e6
    );
    println!(
        "{:<20}{:>12}{:>10}{:>10}{:>14}{:>8}{:>10}{:>10}",
        "", "ack p50 ms", "p99 ms", "max ms", "CPU ms per MB", "CPU %", "peak MiB", "PUT/s"
    );
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(send(None, payloads));
        with.push(send(Some(ceph), payloads));
    }
    for (name, mut runs) in [("without archive", without), ("--archive", with)] {
        let acknowledged = runs.iter_mut().flat_map(|run| run.acknowledged.drain(..));
        let mut acknowledged: Vec<f64> = acknowledged.collect();
        acknowledged.sort_by(f64::total_cmp);
        let percentile = |percent| acknowledged[(acknowledged.len() - 1) * percent / 100];
        let median_of =
            |value: fn(&Run) -> f64| median(&mut runs.iter().map(value).collect::<Vec<_>>());
        println!(
            "{name:<20}{:>12.0}{:>10.0}{:>10.0}{:>14.2}{:>8.1}{:>10.0}{:>10.2}",
            percentile(50),
            percentile(99),
            percentile(100),
            median_of(|run| run.cpu),
            median_of(|run| run.load),
            median_of(|run| run.memory),
            median_of(|run| run.objects),
        );
    }
}

/// Sends packets at the rate to a new relay, which has an archive if Ceph is given.
fn send(ceph: Option<&Ceph>, payloads: &[Vec<u8>]) -> Run {
    let lab = Lab::new_in(&tests::build_directory());
    let mut command = lab.command(binaries::relayd());
    command.arg("--http=0");
    if let Some(ceph) = ceph {
        command.args(["--durability=archive", "--archive", &ceph.archive(PREFIX)]);
        ceph.configure(&mut command);
    }
    let relay = Relay::start_from_command(&lab, command);
    let status = StatusEndpoint::of(&relay);
    let mut sender = Sender::open(&relay);
    // The first packets open the session in the archive as well.
    sender.send_for(Duration::from_secs(3), payloads);
    sender.wait_until_acknowledged();
    sender.acknowledged.clear();
    let objects = || ceph.map_or(0, |_| status.metric("relayd_archive_objects_total"));
    let (cpu_before, objects_before, sent_before) = (cpu(relay.id()), objects(), sender.count());
    let begun = Instant::now();
    sender.send_for(seconds(), payloads);
    sender.wait_until_acknowledged();
    let taken = begun.elapsed().as_secs_f64();
    let cpu = (cpu(relay.id()) - cpu_before).as_secs_f64();
    let bytes = (sender.count() - sent_before) * PACKET;
    Run {
        acknowledged: std::mem::take(&mut sender.acknowledged),
        cpu: cpu * 1e3 / (bytes as f64 / 1e6),
        load: cpu / taken * 100.0,
        memory: peak_memory(relay.id()).unwrap() as f64 / 1024.0,
        objects: (objects() - objects_before) as f64 / taken,
    }
}

fn seconds() -> Duration {
    let seconds = std::env::var("SECONDS");
    let seconds = seconds.map_or(DEFAULT_SECONDS, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds.into())
}

/// A producer that knows when each packet was sent.
struct Sender {
    producer: Producer,
    /// The streams, and the times at which their packets began to be written.
    streams: Vec<(StreamId, Vec<Instant>)>,
    /// Number of packets of each stream that are durable.
    durable: Vec<usize>,
    acknowledged: Vec<f64>,
}

impl Sender {
    fn open(relay: &Relay) -> Self {
        let mut producer = Producer::connect(relay, Minor(15));
        producer.create_session(live_session("bench"));
        // The relay tells positions of sessions that can be resumed.
        let timeout = 600;
        producer.request(Request::MakeResumable(MakeResumable { timeout }));
        assert_eq!(producer.create_chunk(0), OK);
        let mut open = |key: u64, channel: &str| {
            let stream = stream(channel, TRACE_PATH);
            let first = SeqNum(0);
            match producer.request(Request::OpenStream(OpenStream { key, first, stream })) {
                Reply::StreamOpened(StreamOpened {
                    stream: Some(stream),
                    ..
                }) => stream,
                refused => panic!("the relay does not open {channel}: {refused:?}"),
            }
        };
        let metadata = open(0, "metadata");
        let streams = (0..STREAMS).map(|at| (open(at as u64, &format!("chan_{at}")), Vec::new()));
        let streams = streams.collect();
        producer.request(Request::StreamsSent);
        producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
        Self {
            producer,
            streams,
            durable: vec![0; STREAMS],
            acknowledged: Vec::new(),
        }
    }

    /// Number of packets that have been sent.
    fn count(&self) -> usize {
        self.streams.iter().map(|(_, sent)| sent.len()).sum()
    }

    /// Sends packets at the rate for some time, and asks for positions meanwhile.
    fn send_for(&mut self, time: Duration, payloads: &[Vec<u8>]) {
        let interval = Duration::from_secs_f64(PACKET as f64 / RATE);
        let begun = Instant::now();
        let mut due = begun;
        while begun.elapsed() < time {
            if Instant::now() >= due {
                due += interval;
                self.send(payloads);
            }
            self.ask_for_positions();
            std::thread::sleep(
                POSITION_INTERVAL.min(due.saturating_duration_since(Instant::now())),
            );
        }
    }

    fn send(&mut self, payloads: &[Vec<u8>]) {
        let count = self.count();
        let payload = &payloads[count % payloads.len()];
        let (stream, sent) = &mut self.streams[count % STREAMS];
        let number = sent.len() as u64;
        let packet = packet_of(*stream, number, payload, 0);
        sent.push(Instant::now());
        self.producer.data.write_all(&packet).unwrap();
        let _ = self
            .producer
            .send_index(*stream, number, index(number, PACKET as u64));
    }

    fn ask_for_positions(&mut self) {
        for (at, (stream, sent)) in self.streams.iter().enumerate() {
            let asked = Request::GetPosition(GetPosition { stream: *stream });
            let Reply::Position(StreamPosition {
                code: ReturnCode::OK,
                durable,
                ..
            }) = self.producer.request(asked)
            else {
                panic!("the relay does not tell the position of {stream:?}");
            };
            let now = Instant::now();
            let durable = usize::try_from(durable).unwrap();
            let new = &sent[self.durable[at]..durable];
            let taken = new.iter().map(|sent| (now - *sent).as_secs_f64() * 1e3);
            self.acknowledged.extend(taken);
            self.durable[at] = durable;
        }
    }

    fn wait_until_acknowledged(&mut self) {
        while self.durable.iter().sum::<usize>() < self.count() {
            self.ask_for_positions();
            std::thread::sleep(POSITION_INTERVAL);
        }
    }
}

fn measure_reader(ceph: &Ceph, lab: &Lab, directory: &Path) {
    let mut command = lab.command(binaries::relayd());
    command.args(["--archive", &ceph.archive(PREFIX)]);
    ceph.configure(&mut command);
    let relay = Relay::start_from_command(lab, command);
    let replayed = replay_command(lab, &relay, SESSION, directory).output();
    assert!(replayed.unwrap().status.success());
    let _ = relay.stop().expect_success();
    let megabytes = size(directory) as f64 / 1e6;
    println!("\nan ended session of {megabytes:.0} MB, read {READS} times in turns; medians");
    println!("{:<20}{:>16}{:>10}", "", "first event ms", "MB/s");
    let archived = format!("{}/host/{HOST}/{SESSION}", ceph.archive(PREFIX));
    let targets = [
        ("directory", directory.display().to_string()),
        ("s3://", archived),
    ];
    let mut times = [const { (Vec::new(), Vec::new()) }; 2];
    for _ in 0..READS {
        for ((_, target), (first, whole)) in targets.iter().zip(&mut times) {
            let read = |options: &[&str]| {
                let mut command = test_live::command(lab, options);
                ceph.configure(command.arg(target));
                command
            };
            first.push(time_to_first_event(read(&[])));
            whole.push(megabytes / time_to_end(read(&["--sink", "dummy"])));
        }
    }
    for ((name, _), (mut first, mut whole)) in targets.iter().zip(times) {
        println!(
            "{name:<20}{:>16.0}{:>10.0}",
            median(&mut first),
            median(&mut whole)
        );
    }
}

/// Time from the start of a reader until it prints something, in milliseconds.
fn time_to_first_event(mut command: Command) -> f64 {
    let begun = Instant::now();
    let mut reader = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    reader
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let taken = begun.elapsed();
    reader.kill().unwrap();
    reader.wait().unwrap();
    taken.as_secs_f64() * 1e3
}

/// Time that a reader takes for everything, in seconds.
fn time_to_end(mut command: Command) -> f64 {
    let begun = Instant::now();
    assert!(command.status().unwrap().success());
    begun.elapsed().as_secs_f64()
}
