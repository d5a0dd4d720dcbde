//! Measurements beside the real peers, one module for each. To be built with `--release`, as
//! `cargo xtask bench` does.

mod cost;
mod latency;
mod relay;
mod test_live;
mod viewer;

/// What can be measured.
const BENCHES: &[(&str, fn())] = &[
    ("latency", latency::run),
    ("relay", relay::run),
    ("viewer", viewer::run),
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match BENCHES.iter().find(|(known, _)| *known == name) {
        Some((_, run)) => run(),
        None => {
            let known: Vec<_> = BENCHES.iter().map(|(known, _)| *known).collect();
            eprintln!("usage: benches {}", known.join("|"));
            std::process::exit(2);
        }
    }
}
