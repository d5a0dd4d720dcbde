//! Writes events to shared memory for a second:
//! `TRACE_RING_DIR=/tmp/ring cargo run -p trace-ring --example requests`.
//! `consumer rings --ring /tmp/ring --print` shows them, during the run or after it. A pair
//! `_begin` and `_end` is a span for viewers.

use std::thread::sleep;
use std::time::Duration;

fn main() {
    for n in 0..50_u64 {
        trace_ring::event!(Info, "request_begin", n = n, path = "/orders");
        sleep(Duration::from_millis(15));
        let status = if n % 7 == 0 { 404_u32 } else { 200 };
        trace_ring::event!(Info, "request_end", n = n, status = status);
        sleep(Duration::from_millis(5));
    }
    let lost = trace_ring::lost_without_ring();
    assert_eq!(lost, 0, "no ring could be made");
}
