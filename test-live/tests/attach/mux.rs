//! The traces, streams and packets that the mux holds.

use ctf::decode::Event;
use viewer::attach::backlog::Backlog;
use viewer::attach::{
    MAX_MEMORY_BYTES, MemoryBudget, Packet, SourceEvent, StreamKey, TraceInfo, TraceKey,
};
use viewer::mux::{Mux, Progress, Stage};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::time::Nanoseconds;

use crate::trace::{Tracefile, metadata};

/// Records what the mux shows.
#[derive(Default)]
struct Shown {
    times: Vec<i64>,
    failures: Vec<String>,
    ended_streams: Vec<StreamKey>,
    ended_traces: Vec<TraceKey>,
}

impl Stage for Shown {
    fn event(
        &mut self,
        _: &Event<'_>,
        time: Option<Nanoseconds>,
        _: Origin<'_>,
    ) -> Result<bool, SinkError> {
        self.times.push(time.unwrap().get());
        Ok(true)
    }

    fn packet(&mut self, _: &Packet, _: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _: &[u8], _: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, _: &Loss, _: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn stream_ended(&mut self, stream: StreamKey) {
        self.ended_streams.push(stream);
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        self.ended_traces.push(trace);
    }

    fn report_failure(&mut self, what: &str) {
        self.failures.push(what.to_owned());
    }

    fn report_warning(&mut self, what: &str) {
        self.failures.push(what.to_owned());
    }
}

/// A mux, what it has shown, and the memory for its packets.
struct Bench {
    mux: Mux,
    shown: Shown,
    memory: MemoryBudget,
}

impl Bench {
    fn new() -> Self {
        Self {
            mux: Mux::new(),
            shown: Shown::default(),
            memory: MemoryBudget::default(),
        }
    }

    fn add_trace(&mut self, metadata: &str) -> TraceKey {
        let trace = TraceKey::fresh();
        self.mux.add_trace(trace, "t".to_owned());
        let extended = self
            .mux
            .extend_metadata(trace, metadata.as_bytes(), &mut self.shown);
        extended.unwrap();
        trace
    }

    fn add_stream(&mut self, trace: TraceKey) -> (StreamKey, Backlog) {
        let (stream, backlog) = (StreamKey::fresh(), Backlog::default());
        let name = "s".to_owned();
        self.mux.add_stream(stream, trace, name, backlog.clone());
        (stream, backlog)
    }

    fn push(&mut self, (stream, backlog): &(StreamKey, Backlog), of: Tracefile) {
        let bytes = of.read(0, of.packet_size());
        let reservation = self.memory.reserve(bytes.len()).unwrap();
        backlog.add_packet(bytes.len());
        let packet = Packet::in_memory(bytes, reservation);
        self.mux.push_packet(*stream, packet, &mut self.shown);
    }

    fn run(&mut self) -> Progress {
        self.mux.run(&mut self.shown, &|| false).unwrap()
    }
}

/// Two streams that take turns.
fn two(stream: u64) -> Tracefile {
    Tracefile {
        stream,
        streams: 2,
        packets: 1,
        ticks: 3,
        bulk: 5,
    }
}

#[test]
fn the_mux_removes_ended_traces_and_streams_after_their_last_event() {
    let mut bench = Bench::new();
    let text = metadata(0);
    let lasting = bench.add_trace(&text);
    for round in 1..=300 {
        let trace = bench.add_trace(&text);
        let streams = [bench.add_stream(trace), bench.add_stream(trace)];
        bench.push(&streams[0], two(0));
        bench.mux.end_stream(streams[0].0);
        bench.mux.end_trace(trace);
        // The other stream may have something earlier.
        assert_eq!(bench.run(), Progress::Waiting);
        assert_eq!(bench.mux.counts(), (2, 2));
        bench.push(&streams[1], two(1));
        bench.mux.end_stream(streams[1].0);
        assert_eq!(bench.run(), Progress::Ended);
        assert_eq!(bench.mux.counts(), (1, 0));
        assert_eq!(bench.shown.ended_traces.len(), round);
        assert_eq!(bench.shown.ended_streams.len(), 2 * round);
        let times = std::mem::take(&mut bench.shown.times);
        assert_eq!(times, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }
    assert_eq!(bench.memory.reserved(), 0);
    bench.mux.end_trace(lasting);
    bench.run();
    assert_eq!(bench.mux.counts(), (0, 0));
    assert!(bench.shown.failures.is_empty());
}

#[test]
fn the_mux_drops_packets_and_streams_of_a_trace_with_malformed_metadata() {
    let mut bench = Bench::new();
    let trace = bench.add_trace(&metadata(0));
    let streams = [bench.add_stream(trace), bench.add_stream(trace)];
    bench.push(&streams[0], two(0));
    let bad = b"event { nonsense ";
    let extended = bench.mux.extend_metadata(trace, bad, &mut bench.shown);
    extended.unwrap();
    let extended = bench.mux.extend_metadata(trace, b"; } }", &mut bench.shown);
    extended.unwrap();
    bench.run();
    for stream in &streams {
        for _ in 0..3 {
            bench.push(stream, two(1));
        }
        assert_eq!((stream.1.len(), bench.memory.reserved()), (0, 0));
        bench.mux.end_stream(stream.0);
    }
    bench.mux.end_trace(trace);
    assert_eq!(bench.run(), Progress::Ended);
    assert_eq!(bench.mux.counts(), (0, 0));
    assert_eq!(bench.shown.failures.len(), 1, "{:?}", bench.shown.failures);
}

#[test]
fn the_mux_releases_the_memory_of_a_packet_when_it_is_decoded() {
    let mut bench = Bench::new();
    let trace = bench.add_trace(&metadata(0));
    let stream = bench.add_stream(trace);
    for _ in 0..2 {
        bench.push(&stream, two(0));
    }
    assert!(bench.memory.reserved() > 0 && bench.memory.has_room(MAX_MEMORY_BYTES / 2));
    assert_eq!(bench.run(), Progress::Waiting);
    assert_eq!(bench.memory.reserved(), 0);
}

#[test]
fn events_wait_for_a_stream_unless_it_is_not_holding() {
    let mut bench = Bench::new();
    let trace = bench.add_trace(&metadata(0));
    let streams = [bench.add_stream(trace), bench.add_stream(trace)];
    bench.push(&streams[0], two(0));
    assert_eq!(bench.run(), Progress::Waiting);
    assert_eq!(bench.shown.times, [0; 0]);
    bench.mux.set_holding(streams[1].0, false);
    assert_eq!(bench.run(), Progress::Waiting);
    assert_eq!(bench.shown.times, [0, 0, 2, 2, 4, 4]);
    // It holds again: what it has is late, and what comes after that waits.
    bench.mux.set_holding(streams[1].0, true);
    bench.push(&streams[0], two(0));
    bench.run();
    assert_eq!(bench.shown.times.len(), 6);
    bench.push(&streams[1], two(1));
    bench.run();
    assert!(bench.shown.times.len() > 6);
}

#[test]
fn events_wait_for_a_newcomer_until_it_is_released_and_again_behind_its_first_packet() {
    let mut bench = Bench::new();
    let trace = bench.add_trace(&metadata(0));
    let known = bench.add_stream(trace);
    bench.push(&known, two(0));
    let (stream, backlog) = (StreamKey::fresh(), Backlog::default());
    let event = SourceEvent::Stream {
        stream,
        trace,
        name: "newcomer".to_owned(),
        backlog: backlog.clone(),
        is_newcomer: true,
    };
    bench.mux.handle(event, &mut bench.shown).unwrap();
    assert_eq!(bench.run(), Progress::Waiting);
    assert!(bench.shown.times.is_empty() && bench.mux.is_held_by_newcomers());
    bench.mux.release_newcomers();
    assert!(!bench.mux.is_held_by_newcomers());
    bench.run();
    let shown = bench.shown.times.len();
    assert!(shown > 0);
    // From now on the known stream waits for it as for any other.
    bench.push(&(stream, backlog), two(1));
    bench.run();
    bench.mux.end_stream(known.0);
    bench.run();
    assert!(bench.shown.times.len() > shown && !bench.mux.is_held_by_newcomers());
    // A stream that was there from the beginning is waited for, however long that takes.
    let first = bench.add_stream(trace);
    let other = bench.add_stream(trace);
    bench.push(&other, two(0));
    bench.run();
    assert!(bench.mux.holds_back() && !bench.mux.is_held_by_newcomers());
    bench.mux.end_stream(first.0);
}
