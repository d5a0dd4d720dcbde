//! `test-live --threads`: the same output, messages and exit status, however many threads decode.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctf::directory::StreamHandle;
use ctf::write::{EventRecord, FieldType, Value, Width};
use ctf::{Timestamp, TraceWriter};
use tests::babeltrace::numbers;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::traces::TraceBuilder;
use tests::{test_live, traces};

use super::ctf_traces;

/// The time within which a trace must be read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

fn show(lab: &Lab, trace: &Path, options: &[&str], threads: &str) -> CompletedProcess {
    let mut command = test_live::command(lab, &[&["--threads", threads], options].concat());
    Process::start(command.arg(trace)).wait_within(READ_TIMEOUT)
}

/// Compares what one thread shows with what several show. Returns the number of bytes.
fn assert_same(lab: &Lab, trace: &Path, options: &[&str]) -> usize {
    let alone = show(lab, trace, options, "1");
    for threads in ["2", "5"] {
        let together = show(lab, trace, options, threads);
        let what = format!("{} {options:?}, {threads} threads", trace.display());
        assert_eq!(alone.status.code(), together.status.code(), "{what}");
        assert_eq!(alone.stderr, together.stderr, "{what}");
        assert!(alone.stdout_bytes == together.stdout_bytes, "{what}");
    }
    alone.stdout_bytes.len()
}

#[test]
fn several_threads_show_every_trace_of_the_collection_as_one_does() {
    let lab = Lab::new();
    for case in ctf_traces::cases() {
        let trace = case.join("trace");
        for options in [&["--clock-gmt"][..], &["--sink", "details"]] {
            assert_same(&lab, &trace, options);
        }
    }
}

/// Returns a trace of several streams, whose events have partly the same times, with packets of
/// several sizes.
fn with_many_packets(lab: &Lab) -> PathBuf {
    let directory = lab.path().join("many");
    let mut trace = TraceWriter::create(&directory).unwrap();
    let fields = [
        ("number", FieldType::Unsigned(Width::Bits64)),
        ("text", FieldType::Text),
    ];
    let classes = ["one", "two"].map(|name| trace.event_class(name, &fields).unwrap());
    let mut streams = vec![StreamHandle::FIRST];
    streams.extend((0..4).map(|_| trace.add_stream()));
    let mut random = fastrand::Rng::with_seed(1);
    let mut times = [0; 5];
    let long = "\"quoted\" and long ".repeat(3000);
    for number in 0..40_000_u64 {
        let place = random.usize(0..streams.len());
        times[place] += random.u64(0..3000);
        let text = match random.u32(0..1000) {
            0 => long.as_str(),
            even if even % 2 == 0 => "a text",
            _ => "",
        };
        let event = EventRecord {
            time: Timestamp(times[place]),
            process: 1,
            thread: 1,
            values: &[number.into(), text.into()],
        };
        let class = &classes[random.usize(0..2)];
        trace.write_to(streams[place], class, &event).unwrap();
    }
    trace.finish().unwrap();
    directory
}

#[test]
fn several_threads_show_many_packets_as_one_thread_does_with_any_selection() {
    let lab = Lab::new();
    let many = with_many_packets(&lab);
    let options: &[&[&str]] = &[
        &["--clock-gmt"],
        &["--clock-cycles", "--names", "all", "--fields", "all"],
        &["--no-delta", "--color", "always"],
        &["--limit", "1"],
        &["--limit", "12345"],
        &["--begin", "0.01", "--clock-seconds"],
        &["--end", "0.005", "--clock-seconds"],
        &["--begin", "0.002", "--end", "0.008", "--limit", "777"],
        &["--filter", "number > 100 && text == \"a text\""],
        &["--stream-intersection"],
        &["--sink", "json"],
        &["--sink", "counter"],
    ];
    for options in options {
        assert!(assert_same(&lab, &many, options) > 0, "{options:?}");
    }
    let dummy = ["--sink", "dummy", "--verbose"];
    assert_same(&lab, &many, &dummy);
}

#[test]
fn several_threads_report_losses_and_broken_packets_where_one_thread_does() {
    let lab = Lab::new();
    for trace in [
        traces::with_losses(&lab),
        traces::with_idle_streams(&lab),
        traces::with_equal_timestamps(&lab),
        traces::with_every_field_type(&lab),
    ] {
        assert_same(&lab, &trace, &["--clock-gmt"]);
    }
    let many = with_many_packets(&lab);
    let mut random = fastrand::Rng::with_seed(2);
    let files = fs::read_dir(&many)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| !path.ends_with("metadata")).collect();
    files.retain(|path| path.is_file());
    files.sort();
    for round in 0..6 {
        let file = &files[random.usize(0..files.len())];
        let good = fs::read(file).unwrap();
        let mut bad = good.clone();
        for _ in 0..=round {
            let at = random.usize(100..bad.len());
            bad[at] = 0xFF;
        }
        if round % 2 == 1 {
            bad.truncate(bad.len() / 3 * 2);
        }
        fs::write(file, &bad).unwrap();
        assert_same(&lab, &many, &["--clock-gmt"]);
        assert_same(&lab, &many, &["--sink", "dummy"]);
        fs::write(file, &good).unwrap();
    }
}

/// Returns a trace of up to six streams with losses, packets without events, and pauses.
fn with_random_packets(lab: &Lab, random: &mut fastrand::Rng) -> PathBuf {
    let name = format!("random-{}", random.u64(..));
    let mut trace = TraceBuilder::new(lab.directory(&name));
    let fields = [("number", FieldType::Unsigned(Width::Bits64))];
    let tick = trace.event("tick", &fields);
    let mut streams = Vec::new();
    for id in 0..random.u32(1..=6) {
        let mut stream = trace.stream(id);
        let (mut time, mut without_events) = (random.u64(0..500), 0);
        for number in 0..random.u64(1..40) {
            if random.u32(0..10) == 0 {
                stream.discard(random.u64(1..9));
            }
            let begin = time + random.u64(0..2) * random.u64(0..300);
            let end = begin + random.u64(0..300);
            time = end;
            if random.u32(0..20) == 0 {
                stream.lose_packet((begin, end));
                continue;
            }
            if random.u32(0..10) == 0 {
                without_events = random.u32(1..6);
            }
            let events = if without_events > 0 {
                0
            } else {
                random.usize(0..6)
            };
            without_events = without_events.saturating_sub(1);
            let mut times: Vec<_> = (0..events).map(|_| random.u64(begin..=end)).collect();
            times.sort_unstable();
            let number = [Value::Unsigned(number)];
            let events: Vec<_> = times
                .iter()
                .map(|time| (*time, &tick, &number[..]))
                .collect();
            stream.packet((begin, end), &events);
        }
        streams.push(stream);
    }
    trace.finish(streams, true)
}

/// Damages some packets of a stream: changes times of packets and events, or other bytes, or puts
/// the packets of two streams into one file.
fn damage(trace: &Path, random: &mut fastrand::Rng) {
    let traces = ctf::directory::open(&[trace.to_owned()]).unwrap().traces;
    let streams = &traces[0].streams;
    let Some(stream) = random.choice(streams) else {
        return;
    };
    let mut bytes = fs::read(&stream.files[0]).unwrap();
    let mut offset = 0;
    for packet in stream.packet_summaries() {
        let whole = offset..offset + packet.bytes as usize;
        offset = whole.end;
        if random.u32(0..8) > 0 {
            continue;
        }
        let packet_bytes = &mut bytes[whole];
        let (begin, end) = (packet.begin.unwrap(), packet.end.unwrap());
        let times: Vec<_> = packet_bytes
            .windows(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .enumerate()
            .filter(|(_, time)| (begin.max(1)..=end).contains(time))
            .collect();
        match random.choice(times) {
            Some((at, time)) if random.u32(0..5) > 0 => {
                let by = if random.bool() { 400 } else { 4000 };
                let changed = (time + random.u64(0..by)).saturating_sub(by / 2);
                packet_bytes[at..at + 8].copy_from_slice(&changed.to_le_bytes());
            }
            _ => packet_bytes[random.usize(80..200)] = 0xFF,
        }
    }
    let other = random.choice(streams).unwrap();
    if random.u32(0..5) == 0 && other.id != stream.id {
        bytes.extend(fs::read(&other.files[0]).unwrap());
        fs::remove_file(&other.files[0]).unwrap();
    }
    fs::write(&stream.files[0], bytes).unwrap();
}

#[test]
fn several_threads_show_damaged_packets_as_one_thread_does() {
    let lab = Lab::new();
    let mut random = fastrand::Rng::with_seed(3);
    let (mut shown, mut changed) = (0, 0);
    for _ in 0..40 {
        let trace = with_random_packets(&lab, &mut random);
        shown += assert_same(&lab, &trace, &["--clock-gmt"]);
        let before = show(&lab, &trace, &["--clock-gmt"], "1");
        damage(&trace, &mut random);
        let after = show(&lab, &trace, &["--clock-gmt"], "1");
        changed += u32::from(before.stderr != after.stderr);
        assert_same(&lab, &trace, &["--clock-gmt"]);
        assert_same(&lab, &trace, &["--sink", "dummy", "--verbose"]);
        assert_same(&lab, &trace, &["--sink", "json"]);
    }
    assert!(shown > 200_000 && changed > 15, "{shown}, {changed}");
}

#[test]
fn several_threads_show_an_event_that_is_earlier_than_its_packet_where_one_thread_does() {
    let lab = Lab::new();
    let mut trace = TraceBuilder::new(lab.directory("early"));
    let tick = trace.event("tick", &[]);
    let (mut early, mut other) = (trace.stream(0), trace.stream(1));
    early.packet((0, 10), &[(1, &tick, &[])]);
    early.lose_packet((20, 30));
    // So late that the header of the event has all of its time.
    let late: u64 = 60 + (1 << 33);
    early.packet((60, late), &[(late, &tick, &[])]);
    for begin in [0, 5, 20, 40, 65, 90] {
        other.packet((begin, begin + 4), &[(begin + 2, &tick, &[])]);
    }
    let trace = trace.finish(vec![early, other], true);
    let file = trace.join("events_0");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes
        .windows(8)
        .rposition(|time| time == late.to_le_bytes());
    let time = at.unwrap()..at.unwrap() + 8;
    bytes[time].copy_from_slice(&3_u64.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    // Behind the loss, which begins at 10, and before the event at 22.
    assert!(assert_same(&lab, &trace, &["--clock-cycles"]) > 0);
    let shown = show(&lab, &trace, &["--clock-cycles"], "2").stdout;
    let times: Vec<_> = shown.iter().map(|line| &line[18..21]).collect();
    assert_eq!(
        times,
        ["001", "002", "007", "003", "022", "042", "067", "092"]
    );
}

#[test]
fn packets_whose_times_go_back_are_shown_in_the_order_of_their_file_with_one_warning() {
    let lab = Lab::new();
    let trace = traces::with_restarted_clock(&lab);
    let copy = lab.path().join("copy");
    let options = ["--sink", "ctf", "--output", copy.to_str().unwrap()];
    show(&lab, &trace, &options, "1");
    for trace in [&trace, &copy] {
        assert!(assert_same(&lab, trace, &["--clock-cycles"]) > 0);
        let shown = show(&lab, trace, &["--clock-cycles"], "2");
        assert_eq!(numbers(&shown.stdout), [10, 0, 11, 1, 2, 3, 12]);
        let stderr = &shown.stderr;
        assert!(
            stderr.len() == 1 && stderr[0].contains("event times go backwards"),
            "{stderr:?}"
        );
        assert!(shown.status.success());
    }
}
