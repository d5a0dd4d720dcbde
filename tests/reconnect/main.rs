//! Viewers whose connections are lost: `test-live` continues where it was, and shows every event
//! once and in order.

mod cuts;
mod next_relay;
mod program;

use std::path::PathBuf;

use ctf::write::{FieldType, Value, Width};
use tests::lab::Lab;
use tests::traces::TraceBuilder;

/// The number of streams of [`interleaved_trace`].
const STREAMS: u64 = 4;

/// The number of events in each of its packets.
const EVENTS_IN_PACKET: u64 = 5;

/// Returns a trace whose streams take turns: the times of all events are different, and those of
/// the packets overlap. Its metadata is larger than one reply of a relay often is.
fn interleaved_trace(lab: &Lab, name: &str, packets: u64) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory(name));
    let number = FieldType::Unsigned(Width::Bits64);
    let tick = trace.event(
        "tick",
        &[("number", number.clone()), ("text", FieldType::Text)],
    );
    for further in 0..60 {
        let _ = trace.event(&format!("unused_{further}"), &[("number", number.clone())]);
    }
    let mut streams: Vec<_> = (0..STREAMS)
        .map(|stream| trace.stream(u32::try_from(stream).unwrap()))
        .collect();
    let text = "some text, so that a packet has a size".repeat(3);
    let in_packet = EVENTS_IN_PACKET * STREAMS;
    for packet in 0..packets {
        for (stream, builder) in streams.iter_mut().enumerate() {
            let time = |event: u64| packet * in_packet + event * STREAMS + stream as u64;
            let values: Vec<_> = (0..EVENTS_IN_PACKET)
                .map(|event| [Value::Unsigned(time(event)), Value::Text(&text)])
                .collect();
            let events: Vec<_> = (0..EVENTS_IN_PACKET)
                .zip(&values)
                .map(|(event, values)| (time(event), &tick, &values[..]))
                .collect();
            builder.packet((time(0), time(EVENTS_IN_PACKET - 1)), &events);
        }
    }
    trace.finish(streams, true)
}
