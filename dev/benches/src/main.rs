//! Benchmarks against the reference programs, one module each. Build with `--release`, as
//! `cargo xtask bench` does.

mod archive;
mod codetracer;
mod durability;
mod export;
mod latency;
mod links;
mod process;
mod relay;
mod replay;
mod ring;
mod tldrs;
mod viewer;
mod web;

/// Name and function of each benchmark.
const BENCHES: &[(&str, fn())] = &[
    ("latency", latency::run),
    ("relay", relay::run),
    ("links", links::run),
    ("tldrs", tldrs::run),
    ("replay", replay::run),
    ("viewer", viewer::run),
    ("export", export::run),
    ("durability", durability::run),
    ("archive", archive::run),
    ("ring", ring::run),
    ("codetracer", codetracer::run),
    ("web", web::run),
];

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    // The measurements start this program again as their load, so that no other has to be built.
    if name == tldrs::reference::NAME {
        return tldrs::reference::run(&arguments);
    }
    if name == ring::load::NAME {
        return ring::load::run(&arguments);
    }
    if name == web::load::NAME {
        return web::load::run(&arguments);
    }
    if name == relay::noise::NAME {
        return relay::noise::run();
    }
    match BENCHES.iter().find(|(known, _)| *known == name) {
        Some((_, run)) => run(),
        None => {
            let known: Vec<_> = BENCHES.iter().map(|(known, _)| *known).collect();
            eprintln!("usage: benches {}", known.join("|"));
            std::process::exit(2);
        }
    }
}
