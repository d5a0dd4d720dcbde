//! The order in which the events of recorded streams are shown.

use ctf::decode::Event;
use ctf::model::Uuid;
use ctf::write::{EventRecord, FieldType, TraceDeclaration, Value, Width};
use ctf::{Timestamp, TraceWriter};
use proptest::prelude::*;
use viewer::attach::{Packet, TraceInfo, TraceKey};
use viewer::mux::{Mux, Progress, Stage};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::time::Nanoseconds;

/// Records the order of events: their times and the numbers of their streams.
#[derive(Default)]
struct Order {
    shown: Vec<(i64, u64)>,
    /// Whether it does not look at events.
    counts_only: bool,
    /// No more events than this.
    limit: Option<usize>,
}

impl Order {
    fn add(&mut self, time: Option<Nanoseconds>, stream: u64) -> bool {
        self.shown.push((time.unwrap().get(), stream));
        Some(self.shown.len()) != self.limit
    }
}

impl Stage for Order {
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        assert_eq!(event.time().and_then(Nanoseconds::new), time);
        Ok(self.add(time, origin.stream.id.unwrap()))
    }

    fn counts_only(&self) -> bool {
        self.counts_only
    }

    fn count_event(&mut self, time: Option<Nanoseconds>, _: TraceKey) -> Result<bool, SinkError> {
        Ok(self.add(time, 0))
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

    fn report_failure(&mut self, what: &str) {
        panic!("{what}");
    }

    fn report_warning(&mut self, what: &str) {
        panic!("{what}");
    }
}

/// Writes a trace and shows it to `order`. Each stream is the time of its first event and the steps
/// from one event to the next, a number of which makes a packet.
fn show(streams: &[(u8, Vec<u8>, usize)], order: &mut Order) -> Progress {
    let lab = tempfile::tempdir().unwrap();
    let declaration = TraceDeclaration::new(Uuid([3; 16]), "t");
    let mut trace = TraceWriter::create_with(lab.path().join("t"), &declaration).unwrap();
    let class = trace.event_class("e", &[("n", FieldType::Unsigned(Width::Bits8))]);
    let class = class.unwrap();
    for (number, (first, steps, in_packet)) in streams.iter().enumerate() {
        let stream = match number {
            0 => ctf::directory::StreamHandle::FIRST,
            _ => trace.add_stream(),
        };
        let mut time = u64::from(*first);
        for (place, step) in steps.iter().enumerate() {
            time += u64::from(*step);
            let event = EventRecord {
                time: Timestamp(time),
                process: 1,
                thread: 1,
                values: &[Value::Unsigned(0)],
            };
            trace.write_to(stream, &class, &event).unwrap();
            if place % in_packet == 0 {
                trace.flush().unwrap();
            }
        }
    }
    trace.finish().unwrap();
    let mut mux = Mux::new();
    for trace in ctf::directory::open(&[lab.path().to_owned()])
        .unwrap()
        .traces
    {
        mux.add_directory(TraceKey::fresh(), trace, order).unwrap();
    }
    mux.run(order, &|| false).unwrap()
}

/// The order of events by time, then by the number of their stream.
fn sorted(streams: &[(u8, Vec<u8>, usize)]) -> Vec<(i64, u64)> {
    let mut events = Vec::new();
    for (number, (first, steps, _)) in (0..).zip(streams) {
        let mut time = i64::from(*first);
        for step in steps {
            time += i64::from(*step);
            events.push((time, number));
        }
    }
    events.sort_unstable();
    events
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn events_of_recorded_streams_are_shown_by_time_and_then_by_stream(
        streams in prop::collection::vec(
            (any::<u8>(), prop::collection::vec(0_u8..3, 1..700), 1_usize..600),
            1..7,
        ),
    ) {
        let mut order = Order::default();
        prop_assert_eq!(show(&streams, &mut order), Progress::Ended);
        prop_assert_eq!(&order.shown, &sorted(&streams));

        let mut counted = Order { counts_only: true, ..Order::default() };
        prop_assert_eq!(show(&streams, &mut counted), Progress::Ended);
        let times = |shown: &[(i64, u64)]| shown.iter().map(|(time, _)| *time).collect::<Vec<_>>();
        prop_assert_eq!(times(&counted.shown), times(&order.shown));
    }
}

#[test]
fn no_event_is_shown_behind_the_last_that_is_wanted() {
    let streams = [(0, vec![1; 1000], 400), (0, vec![1; 1000], 300)];
    for limit in [1, 2, 600, 1999] {
        for counts_only in [false, true] {
            let mut order = Order {
                limit: Some(limit),
                counts_only,
                ..Order::default()
            };
            assert_eq!(show(&streams, &mut order), Progress::Enough);
            assert_eq!(order.shown.len(), limit);
        }
    }
}
