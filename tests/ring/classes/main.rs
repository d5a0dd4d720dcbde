//! A traced program for the tests: `ring-classes CLASSES` writes one event of each of CLASSES event
//! classes, at most 8192, then waits until it is killed.
//!
//! One call site of `tracing` has a class for each combination of fields that have values.

use tracing::info;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() {
    let classes = std::env::args().nth(1);
    let classes = classes.and_then(|text| text.parse::<u32>().ok());
    let classes = classes.expect("CLASSES");
    tracing_subscriber::registry()
        .with(trace_ring_core::layer())
        .init();
    for number in 0..classes {
        write(number);
    }
    println!("written");
    loop {
        std::thread::park();
    }
}

/// Writes an event whose fields are the bits of its number.
fn write(number: u32) {
    let bit = |place: u32| (number >> place & 1 == 1).then_some(true);
    info!(
        thread = 0_u64,
        number = u64::from(number),
        a = bit(0),
        b = bit(1),
        c = bit(2),
        d = bit(3),
        e = bit(4),
        f = bit(5),
        g = bit(6),
        h = bit(7),
        i = bit(8),
        j = bit(9),
        k = bit(10),
        l = bit(11),
        m = bit(12),
        "classes"
    );
}
