//! Writes events to shared memory: `TRACE_RING_DIR=/tmp/ring cargo run -p trace-ring --example requests`.
//! `consumer rings --ring /tmp/ring --print` shows them, during the run or behind it.

fn main() {
    for n in 0..3_u64 {
        let status = if n == 2 { 404_u32 } else { 200 };
        trace_ring::event!(
            Info,
            "request done",
            n = n,
            status = status,
            path = "/orders"
        );
    }
    assert_eq!(
        trace_ring::lost_without_ring(),
        0,
        "there is no run directory"
    );
}
