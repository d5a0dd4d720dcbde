//! Writes a trace of three events, which `babeltrace2`, Trace Compass and the example `read_trace`
//! read: `cargo run -p ctf --example write_trace -- DIRECTORY`.
#![expect(
    clippy::disallowed_methods,
    reason = "a program gives the time to the crate"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use ctf::write::{FieldType, Width};
use ctf::{Timestamp, TraceWriter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .ok_or("usage: write_trace DIRECTORY")?;
    let mut trace = TraceWriter::create(&directory)?;
    let status = FieldType::Unsigned(Width::Bits16);
    let done = trace.event_class(
        "http:done",
        &[("path", FieldType::Text), ("status", status)],
    )?;
    for (path, status) in [("/", 200_u16), ("/orders", 200), ("/favicon.ico", 404)] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let now = Timestamp(now.try_into()?);
        trace.write(&done, now, &[path.into(), status.into()])?;
    }
    // Dropping the writer would write the rest too, but ignore an error.
    trace.finish()?;
    Ok(())
}
