//! The text sink of `test-live` prints the same bytes as Babeltrace 2, for a directory as well as
//! for a live session.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, Value,
};
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::{HOST, IdleStream, MetadataPieces, Replay};
use tests::traces::{self, TraceBuilder};
use tests::{test_live, wait_until};
use wire::Timestamp;

const OPTIONS: &[&[&str]] = &[
    &["--clock-gmt"],
    &["--clock-seconds"],
    &["-n", "all", "-f", "all", "--clock-gmt"],
    &["--no-delta", "--clock-gmt"],
    &["--clock-cycles"],
    &["--clock-gmt", "--clock-date"],
];

fn synthetic_traces(lab: &Lab) -> Vec<PathBuf> {
    vec![
        traces::with_every_field_type(lab),
        traces::with_equal_timestamps(lab),
        traces::with_losses(lab),
        traces::with_idle_streams(lab),
    ]
}

/// Returns the warnings about losses, sorted: those of the same time are in any order.
fn losses(ended: &CompletedProcess) -> Vec<String> {
    let is_loss = |line: &&String| line.starts_with("WARNING: Tracer");
    let mut lines: Vec<_> = ended.stderr.iter().filter(is_loss).cloned().collect();
    lines.sort();
    lines
}

fn assert_same_text(what: &str, ours: &[u8], theirs: &[u8]) {
    if ours == theirs {
        return;
    }
    let lines = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        text.split('\n').map(str::to_owned).collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let place = ours
        .iter()
        .zip(&theirs)
        .position(|(one, other)| one != other);
    let place = place.unwrap_or(ours.len().min(theirs.len()));
    panic!(
        "{what}: {} and {} lines; line {place}:\n{:?}\n{:?}",
        ours.len(),
        theirs.len(),
        ours.get(place),
        theirs.get(place)
    );
}

fn assert_reads_as_babeltrace(lab: &Lab, directory: &Path) {
    for options in OPTIONS {
        let what = format!("{} {options:?}", directory.display());
        let theirs = Babeltrace::Two.read_with(options, directory);
        let ours = test_live::read(lab, options, directory);
        assert!(ours.status.success(), "{what}: {:?}", ours.stderr);
        assert!(!theirs.stdout_bytes.is_empty(), "{what}");
        assert_same_text(&what, &ours.stdout_bytes, &theirs.stdout_bytes);
        assert_eq!(losses(&ours), losses(&theirs), "{what}");
    }
}

/// Starts a viewer that waits for a session which does not exist yet.
fn start_viewer_early(lab: &Lab, relay: &Relay, session: &str) -> Process {
    let mut viewer = test_live::follow(lab, relay, HOST, session, &["--clock-gmt"]);
    viewer.wait_for_stderr_text("waiting for a live session");
    viewer
}

/// The moment at which a viewer attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttachTime {
    /// When the session is created.
    Early,
    /// After all packets are sent, before the session is closed.
    Late,
}

/// Checks that a replayed session is printed as its directory is. One viewer at a time, since
/// `lttng-relayd` allows no more for each session.
fn assert_same_live(lab: &Lab, relay: &Relay, name: &str, directory: &Path, idle: IdleStream) {
    let want = test_live::read(lab, &["--clock-gmt"], directory);
    for (pieces, attach_time) in [
        (MetadataPieces::Whole, AttachTime::Early),
        (MetadataPieces::Many, AttachTime::Early),
        (MetadataPieces::Many, AttachTime::Late),
    ] {
        let session = format!("{name}-{pieces:?}-{attach_time:?}");
        let what = format!("{} as {session}", directory.display());
        let viewer = match attach_time {
            AttachTime::Early => Some(start_viewer_early(lab, relay, &session)),
            AttachTime::Late => None,
        };
        let mut replay = Replay::open(relay, &session, directory, pieces, idle);
        if viewer.is_some() {
            test_live::wait_until_attached(relay, &session, 1);
        }
        replay.send_packets();
        let viewer = viewer.unwrap_or_else(|| {
            let options = ["--clock-gmt", "--seek", "beginning"];
            test_live::follow(lab, relay, HOST, &session, &options)
        });
        test_live::wait_until_attached(relay, &session, 1);
        // The beacons alone must let the viewer print everything, before any stream closes.
        wait_until(&format!("all events are printed: {what}"), || {
            viewer.stdout_line_count() == want.stdout.len()
        });
        replay.close();
        let ended = viewer.wait();
        assert!(ended.status.success(), "{what}: {:?}", ended.stderr);
        let what = format!("{what}: {:#?}", ended.stderr);
        assert_same_text(&what, &ended.stdout_bytes, &want.stdout_bytes);
        let counts = |ended: &CompletedProcess| losses(ended).len();
        assert_eq!(counts(&ended), counts(&want), "{what}");
    }
}

#[test]
fn synthetic_traces_are_printed_as_babeltrace_prints_them() {
    let lab = Lab::new();
    for directory in synthetic_traces(&lab) {
        assert_reads_as_babeltrace(&lab, &directory);
    }
}

#[test]
fn cycles_of_clocks_with_different_offsets_are_printed_as_babeltrace_prints_them() {
    let lab = Lab::new();
    let root = lab.directory("clocks");
    // The event with the later time has the smaller cycle count.
    for (number, offset, cycles) in [(1, 100, 1000), (2, 600, 502)] {
        let mut trace = TraceDeclaration::new(Uuid([number; 16]), "test");
        trace.clock.offset_nanoseconds = offset;
        let mut metadata = MetadataText::new(&trace);
        let stream = metadata.stream(0).unwrap();
        let class = metadata
            .event(&stream, &EventDeclaration::new(0, "event"))
            .unwrap();
        let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(4096, 4096));
        let time = Timestamp(cycles);
        writer.open(time).unwrap();
        let event = EventRecord {
            time,
            process: 1,
            thread: 1,
            values: &[],
        };
        assert_eq!(writer.append(&class, &event), Ok(Appended::Written));
        let directory = root.join(number.to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("metadata"), metadata.as_str()).unwrap();
        fs::write(directory.join("events"), writer.close(time).unwrap().bytes).unwrap();
    }
    assert_reads_as_babeltrace(&lab, &root);
}

#[test]
fn recordings_of_lttng_are_printed_as_babeltrace_prints_them() {
    for buffers in ["--buffers-uid", "--buffers-pid"] {
        let lab = Lab::new();
        let directory = traces::recorded_by_lttng(&lab, buffers, 500);
        assert_reads_as_babeltrace(&lab, &directory);
    }
}

#[test]
fn synthetic_traces_are_printed_the_same_live() {
    let (lab, relay) = Relay::start_in_new_lab();
    for (number, directory) in synthetic_traces(&lab).iter().enumerate() {
        assert_same_live(
            &lab,
            &relay,
            &format!("s{number}"),
            directory,
            IdleStream::Present,
        );
    }
}

#[test]
fn synthetic_traces_are_printed_the_same_live_through_lttng_relayd() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    for (number, directory) in synthetic_traces(&lab).iter().enumerate() {
        assert_same_live(
            &lab,
            &relay,
            &format!("s{number}"),
            directory,
            IdleStream::Absent,
        );
    }
}

#[test]
fn recordings_of_lttng_are_printed_the_same_live_through_both_relays() {
    for buffers in ["--buffers-uid", "--buffers-pid"] {
        let recorded = Lab::new();
        let directory = traces::recorded_by_lttng(&recorded, buffers, 500);
        for (start, idle) in [
            (Relay::start as fn(&Lab) -> Relay, IdleStream::Present),
            (Relay::start_reference, IdleStream::Absent),
        ] {
            let lab = Lab::new();
            assert_same_live(&lab, &start(&lab), "recorded", &directory, idle);
        }
    }
}

#[test]
fn an_empty_string_is_printed_as_an_empty_string() {
    // Babeltrace 2.0.4 prints the value of an earlier event instead: it reuses its field objects
    // without clearing them.
    let lab = Lab::new();
    let mut trace = TraceBuilder::new(lab.directory("empty"));
    let event = trace.event("say", &[("text", FieldType::Text)]);
    let mut stream = trace.stream(0);
    let texts = ["before", "", "after"].map(|text| [Value::Text(text)]);
    let [before, empty, after] = &texts;
    let events: &[_] = &[
        (1, &event, &before[..]),
        (2, &event, &empty[..]),
        (3, &event, &after[..]),
    ];
    stream.packet((0, 10), events);
    let directory = trace.finish(vec![stream], true);
    let printed = test_live::read(&lab, &[], &directory).expect_success();
    let texts_shown: Vec<_> = printed
        .iter()
        .map(|line| line.split_once("text = ").unwrap().1)
        .collect();
    assert_eq!(texts_shown, ["\"before\" }", "\"\" }", "\"after\" }"]);
}
