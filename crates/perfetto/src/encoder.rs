//! A trace as bytes.

use std::cmp::Reverse;
use std::collections::HashMap;

use prost::Message;
use tef::lanes::{LanePlace, LaneTable};

use crate::argument::{Argument, Text};
use crate::batch::{Batch, Rank, write_packet, write_packet_with};
use crate::ftrace::{FtraceEvent, FtraceEventBundle, KernelEvent};
use crate::interner::Interner;
use crate::message::{
    Clock, ClockSnapshot, NEEDS_STATE, ProcessTree, STATE_CLEARED, SystemInfo, TracePacket,
    TrackDescriptor, TrackEvent, Utsname,
};

/// The sequence of all packets with interned texts.
const SEQUENCE: u32 = 1;
/// Largest number of events of one CPU in a packet.
const MAX_BUNDLED: usize = 1024;
/// Largest number of CPUs whose events are collected. Those of more are packets of their own.
const MAX_CPUS: usize = 4096;

/// The id of a track. Not 0, and never narrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u64);

/// A host whose kernel is traced: 0, 1, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine(pub u32);

impl Machine {
    /// The number as it is written: the first machine has none.
    fn id(self) -> Option<u32> {
        (self.0 > 0).then_some(self.0)
    }
}

/// A CPU of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// The machine.
    pub machine: Machine,
    /// The number of the CPU, from 0.
    pub number: u32,
}

/// What a slice or a point in time is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mark {
    /// The name that Perfetto shows.
    pub name: Text,
    /// The category; empty if there is none.
    pub category: Text,
    /// The arguments, in the order in which Perfetto shows them.
    pub arguments: Vec<Argument>,
    /// The flows that go through it.
    pub flows: Vec<u64>,
    /// The flows that end at it.
    pub ending_flows: Vec<u64>,
}

impl Mark {
    /// The number of bytes of memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let arguments: usize = self.arguments.iter().map(Argument::bytes).sum();
        size_of::<Self>() + self.name.len() + self.category.len() + arguments
    }
}

/// The value of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CounterValue {
    /// An integer of 64 bits with a sign.
    Integer(i64),
    /// Any other number.
    Float(f64),
}

impl From<u64> for CounterValue {
    /// The nearest value that there is: counters of Perfetto have 64 bits with a sign.
    fn from(value: u64) -> Self {
        match i64::try_from(value) {
            Ok(value) => Self::Integer(value),
            #[expect(clippy::cast_precision_loss, reason = "the nearest value")]
            Err(_) => Self::Float(value as f64),
        }
    }
}

/// Events of one CPU that are not written yet.
#[derive(Debug, Default)]
struct Bundle {
    /// The events, as the field of a bundle.
    events: Vec<u8>,
    count: usize,
}

impl Bundle {
    fn add(&mut self, event: &FtraceEvent) {
        prost::encoding::message::encode(FtraceEventBundle::EVENT, event, &mut self.events);
        self.count += 1;
    }
}

/// Encodes a trace. Times are in nanoseconds since 1970; those before are shown as 1970.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Packets that come before those of the batch.
    head: Vec<u8>,
    batch: Batch,
    interner: Interner,
    /// The event that is added. Its memory is used again for the next one.
    event: TracePacket,
    lanes: LaneTable<TrackId>,
    /// The time from which described tracks exist.
    now: Option<i64>,
    cpus: HashMap<Cpu, Bundle>,
    lossy_cpus: Vec<Cpu>,
    has_begun: bool,
}

impl Encoder {
    /// Sets the time from which tracks exist that are described now: threads of the same numbers
    /// may have existed before.
    pub fn set_time(&mut self, time: i64) {
        self.now = Some(time);
    }

    /// Describes a track, which must come before what is on it.
    pub fn track(&mut self, descriptor: TrackDescriptor) {
        let packet = TracePacket {
            timestamp: self.now.map(timestamp),
            sequence: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        };
        write_packet(&packet, &mut self.head);
    }

    /// Finds the lane of a slice of a row; the first lane is the track of the row itself. To be
    /// called for a slice when it ends.
    pub fn place(&mut self, row: TrackId, begin: i64, end: Option<i64>) -> LanePlace {
        self.lanes.place(row, begin, end, self.batch.number())
    }

    /// Adds a slice, on a track where it [has its place](Self::place). Without an end it goes on
    /// until the end of the trace.
    pub fn slice(&mut self, track: TrackId, begin: i64, end: Option<i64>, mark: &Mark) {
        let is_point = end == Some(begin);
        let rank = match is_point {
            true => Rank::Instant,
            false => Rank::Begin(Reverse(end.unwrap_or(i64::MAX))),
        };
        self.event(TrackEvent::BEGIN, track, Some(mark));
        self.add(begin, rank);
        if let Some(end) = end {
            let rank = if is_point { Rank::Instant } else { Rank::End };
            self.event(TrackEvent::END, track, None);
            self.add(end, rank);
        }
    }

    /// Adds a point in time.
    pub fn instant(&mut self, track: TrackId, time: i64, mark: &Mark) {
        self.event(TrackEvent::INSTANT, track, Some(mark));
        self.add(time, Rank::Instant);
    }

    /// Adds a value of a counter.
    pub fn counter(&mut self, track: TrackId, time: i64, value: CounterValue) {
        let event = self.event(TrackEvent::COUNTER, track, None);
        match value {
            CounterValue::Integer(value) => event.counter_value = Some(value),
            CounterValue::Float(value) => event.double_counter_value = Some(value),
        }
        self.add(time, Rank::Instant);
    }

    /// Adds an event of a kernel, on the CPU where `thread` ran.
    pub fn kernel_event(&mut self, cpu: Cpu, time: i64, thread: u32, event: KernelEvent) {
        self.begin(time);
        let event = FtraceEvent {
            timestamp: Some(timestamp(time)),
            thread: Some(thread),
            event: Some(event),
        };
        if self.cpus.len() >= MAX_CPUS && !self.cpus.contains_key(&cpu) {
            self.write_bundles();
        }
        let bundle = self.cpus.entry(cpu).or_default();
        bundle.add(&event);
        if bundle.count >= MAX_BUNDLED {
            let mut bundle = std::mem::take(bundle);
            self.write_bundle(cpu, &mut bundle);
            self.cpus.insert(cpu, bundle);
        }
    }

    /// Records that events of a CPU were lost before the next one.
    pub fn kernel_loss(&mut self, cpu: Cpu) {
        // Those before are in a packet without a loss.
        if let Some(mut bundle) = self.cpus.remove(&cpu) {
            self.write_bundle(cpu, &mut bundle);
        }
        if self.lossy_cpus.len() < MAX_CPUS && !self.lossy_cpus.contains(&cpu) {
            self.lossy_cpus.push(cpu);
        }
    }

    /// Adds processes and threads that existed at a time.
    pub fn process_tree(&mut self, machine: Machine, time: i64, tree: ProcessTree) {
        self.begin(time);
        let packet = TracePacket {
            timestamp: Some(timestamp(time)),
            sequence: Some(SEQUENCE),
            machine: machine.id(),
            process_tree: Some(tree),
            ..TracePacket::default()
        };
        write_packet(&packet, &mut self.head);
    }

    /// Says which kernel a machine has: the states of threads depend on it.
    pub(crate) fn kernel(&mut self, machine: Machine, kernel: Utsname) {
        let packet = TracePacket {
            sequence: Some(SEQUENCE),
            machine: machine.id(),
            system_info: Some(SystemInfo {
                utsname: Some(kernel),
            }),
            ..TracePacket::default()
        };
        write_packet(&packet, &mut self.head);
    }

    /// Whether there are enough bytes to be [taken](Self::take).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.batch.is_full() || self.head.len() >= 4 << 20
    }

    /// Appends to `out` all that has been added.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        self.write_bundles();
        out.append(&mut self.head);
        self.batch.write(out);
    }

    /// As [`take`](Self::take), at the end. A trace is never empty: readers would not know it.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin(0);
        self.take(out);
    }

    /// Writes the events of all CPUs, and forgets the CPUs.
    fn write_bundles(&mut self) {
        let mut cpus: Vec<_> = self.cpus.drain().collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (cpu, mut bundle) in cpus {
            self.write_bundle(cpu, &mut bundle);
        }
    }

    /// Writes events of a CPU. The bundle is empty then.
    fn write_bundle(&mut self, cpu: Cpu, bundle: &mut Bundle) {
        let is_lossy = self.lossy_cpus.contains(&cpu);
        self.lossy_cpus.retain(|lossy| *lossy != cpu);
        let packet = TracePacket {
            sequence: Some(SEQUENCE),
            machine: cpu.machine.id(),
            ..TracePacket::default()
        };
        let of = FtraceEventBundle {
            cpu: Some(cpu.number),
            lost_events: is_lossy.then_some(true),
        };
        write_packet_with(
            &packet,
            TracePacket::FTRACE,
            &of,
            &bundle.events,
            &mut self.head,
        );
        bundle.events.clear();
        bundle.count = 0;
    }

    /// Writes what comes before the first packet with a time.
    fn begin(&mut self, time: i64) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        // Both clocks show the same: so times of the trace are times since 1970.
        let clock = |clock| Clock {
            clock: Some(clock),
            timestamp: Some(timestamp(time)),
        };
        let packet = TracePacket {
            timestamp: Some(timestamp(time)),
            sequence: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(Clock::BOOTTIME), clock(Clock::REALTIME)],
            }),
            ..TracePacket::default()
        };
        let mut first = Vec::new();
        write_packet(&packet, &mut first);
        first.append(&mut self.head);
        self.head = first;
    }

    /// Begins the event that [`add`](Self::add) adds.
    fn event(&mut self, tag: i32, track: TrackId, mark: Option<&Mark>) -> &mut TrackEvent {
        if mark.is_some() && self.interner.is_full() {
            self.forget_texts();
        }
        let event = self.event.track_event.get_or_insert_default();
        event.clear();
        event.tag = Some(tag);
        event.track = Some(track.0);
        let Some(mark) = mark else {
            return event;
        };
        if !mark.name.is_empty() {
            event.name_iid = Some(self.interner.event_name(&mark.name));
        }
        if !mark.category.is_empty() {
            event
                .category_iids
                .push(self.interner.category(&mark.category));
        }
        self.interner
            .annotate(&mark.arguments, &mut event.annotations);
        event.flow_ids.clone_from(&mark.flows);
        event.terminating_flow_ids.clone_from(&mark.ending_flows);
        event
    }

    fn add(&mut self, time: i64, rank: Rank) {
        self.begin(time);
        if let Some(data) = self.interner.unwritten() {
            let packet = TracePacket {
                sequence: Some(SEQUENCE),
                interned_data: Some(data),
                ..TracePacket::default()
            };
            write_packet(&packet, &mut self.head);
        }
        self.event.timestamp = Some(timestamp(time));
        self.event.sequence = Some(SEQUENCE);
        self.event.sequence_flags = Some(NEEDS_STATE);
        self.batch.add(time, rank, &self.event);
    }

    /// Forgets all interned texts, after what uses them.
    fn forget_texts(&mut self) {
        self.batch.write(&mut self.head);
        self.interner = Interner::default();
        let packet = TracePacket {
            sequence: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            ..TracePacket::default()
        };
        write_packet(&packet, &mut self.head);
    }
}

fn timestamp(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::InternedText;

    #[derive(Clone, PartialEq, Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packets: Vec<TracePacket>,
    }

    /// The packets of a trace.
    fn packets(mut encoder: Encoder) -> Vec<TracePacket> {
        let mut out = Vec::new();
        encoder.finish(&mut out);
        Trace::decode(&*out).unwrap().packets
    }

    fn mark(name: &str) -> Mark {
        Mark {
            name: name.into(),
            ..Mark::default()
        }
    }

    #[test]
    fn slices_that_end_first_are_written_within_those_around_them() {
        let mut encoder = Encoder::default();
        let row = TrackId(9);
        for (name, begin, end) in [("inner", 10, 20), ("outer", 10, 30), ("point", 10, 10)] {
            assert_eq!(encoder.place(row, begin, Some(end)).lane, 0);
            encoder.slice(row, begin, Some(end), &mark(name));
        }
        let events: Vec<_> = packets(encoder)
            .into_iter()
            .filter_map(|packet| {
                let event = packet.track_event?;
                assert_eq!(event.track, Some(9));
                Some((packet.timestamp?, event.tag?, event.name_iid))
            })
            .collect();
        let (begin, end) = (TrackEvent::BEGIN, TrackEvent::END);
        let want = [
            (10, begin, Some(2)),
            (10, begin, Some(1)),
            (10, begin, Some(3)),
            (10, end, None),
            (20, end, None),
            (30, end, None),
        ];
        assert_eq!(events, want);
    }

    #[test]
    fn names_are_defined_before_they_are_used_also_after_they_were_forgotten() {
        let mut encoder = Encoder::default();
        for number in 0..150_000 {
            encoder.instant(TrackId(1), number, &mark(&format!("event {number}")));
        }
        let mut names: HashMap<u64, String> = HashMap::new();
        let (mut seen, mut resets, mut most) = (0, 0, 0);
        for packet in packets(encoder) {
            if packet.sequence_flags == Some(STATE_CLEARED) {
                names.clear();
                resets += 1;
            }
            for text in packet.interned_data.unwrap_or_default().event_names {
                let InternedText { iid, text } = text;
                names.insert(iid.unwrap(), text.unwrap());
            }
            most = most.max(names.len());
            if let Some(event) = packet.track_event {
                let name = &names[&event.name_iid.unwrap()];
                assert_eq!(*name, format!("event {}", packet.timestamp.unwrap()));
                seen += 1;
            }
        }
        assert_eq!((seen, resets, most), (150_000, 3, 1 << 16));
    }
}
