//! Every developer command in one place: `cargo xtask <job>`.

mod demo;
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
    /// Record a real live session, watch it, and end by itself
    Demo(demo::Options),
    /// Run everything that must pass: format, lints, documentation, all tests with the real peers
    Test(test::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().job {
        Job::Demo(options) => demo::run(&options),
        Job::Test(options) => test::run(&options),
    }
}
