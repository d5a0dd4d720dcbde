//! What the programs of these tests do.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::Empty;
use tracing::{Level, Subscriber, debug, error, info, info_span, trace, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Runs as the program of another test.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn run() {
    let scenario = std::env::var("SCENARIO").unwrap_or_default();
    if scenario == "other-layer" {
        return beside_another_layer();
    }
    tracing_subscriber::registry()
        .with(trace_ring_core::layer())
        .init();
    match scenario.as_str() {
        "values" => every_kind_of_value(),
        "long" => long_strings(),
        "optional" => optional_fields(),
        "nested" => info!(value = ?Loud, n = 1_u64),
        "spans" => spans(),
        "levels" => every_level(),
        "filter" => wait_for_filter(),
        "filter-in-child" => {
            info!("parent");
            let pid = crate::calls::fork(wait_for_filter);
            assert!(crate::calls::wait_for(pid), "the child ends well");
        }
        "" => {}
        other => panic!("no scenario {other}"),
    }
}

fn every_kind_of_value() {
    let n = 7_u8;
    info!(
        n,
        signed = -7_i32,
        float = 0.5_f32,
        yes = true,
        wide = u128::MAX,
        bytes = &[1_u8, 2][..],
        "typed {n}"
    );
    info!(text = "ä", debug = ?Some("a"), display = %format_args!("{:.2}", 1.5));
    error!(name: "request done", target: "app::db", status = 200_u64);
}

fn long_strings() {
    let text = "ä".repeat(50_000);
    info!(text);
    info!(text = ?text);
}

fn optional_fields() {
    for n in 0..4_u64 {
        info!(always = n, sometimes = n.is_multiple_of(2).then_some(n));
    }
}

/// Writes an event while it is formatted.
struct Loud;

impl fmt::Debug for Loud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info!("inner");
        f.write_str("Loud")
    }
}

fn spans() {
    let outer = info_span!("request", path = "/x", name = "own");
    let entered = outer.enter();
    let inner = info_span!("query", rows = Empty, table = "t");
    inner.in_scope(|| {
        inner.record("rows", 3_u64);
        info!("inside");
    });
    drop(inner);
    drop(entered);
}

fn every_level() {
    error!("error");
    warn!("warn");
    info!("info");
    debug!("debug");
    trace!("trace");
}

/// Keeps the levels of all events.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl<S: Subscriber> Layer<S> for Levels {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }
}

fn beside_another_layer() {
    let levels = Levels::default();
    tracing_subscriber::registry()
        .with(trace_ring_core::layer())
        .with(levels.clone())
        .init();
    every_level();
    let levels = levels.0.lock().unwrap();
    let text: Vec<String> = levels.iter().map(Level::to_string).collect();
    eprintln!("[{}]", text.join(", "));
}

/// Writes, waits until the filter has been changed, and writes again. Fields are evaluated only for
/// what is written.
fn wait_for_filter() {
    let evaluated = std::cell::Cell::new(0);
    let count = || evaluated.replace(evaluated.get() + 1);
    let write_debug = || {
        debug!(target: "app::web", count = count(), "page");
        debug!(target: "app::db", count = count(), "query");
    };
    let write_info = || info!("notice");
    write_debug();
    // The first event of a forked child makes its directory and its filter.
    write_info();
    assert_eq!(evaluated.get(), 0);
    println!("scenario: off");
    while evaluated.get() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        write_debug();
    }
    write_info();
    assert_eq!(evaluated.get(), 1);
}
