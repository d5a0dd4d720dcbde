//! Every developer command in one place: `cargo xtask <job>`.

mod bench;
mod demo;
mod fuzz;
mod man;
mod packages;
mod test;

use clap::{Parser, Subcommand};

/// Jobs for developers, and a demonstration for everyone.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Measure beside the real peers
    Bench(bench::Options),
    /// Record a real live session, watch it, and end by itself
    Demo(demo::Options),
    /// Give the readers hostile input for a while (needs cargo-fuzz)
    Fuzz(fuzz::Options),
    /// Write the man pages of all programs to target/man, shell completions to target/completions
    Man,
    /// Run everything that must pass: format, lints, documentation, all tests with the real peers
    Test(test::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().job {
        Job::Bench(options) => bench::run(&options),
        Job::Demo(options) => demo::run(&options),
        Job::Fuzz(options) => fuzz::run(&options),
        Job::Man => man::run(),
        Job::Test(options) => test::run(&options),
    }
}
