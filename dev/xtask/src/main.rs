//! Every developer command in one place: `cargo xtask <job>`.
//!
//! This program depends on none of the programs of the workspace, so that it compiles in seconds
//! and can print what it does while cargo compiles the rest: see [`stage`].

mod bench;
mod demo;
mod fuzz;
mod lttng_suite;
mod man;
mod package;
mod packages;
mod stage;
mod test;
mod test_programs;
mod walk;
mod web;

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
    /// Measure next to the real peers
    Bench(bench::Options),
    /// Record a live session, watch it, and exit when it has ended
    Demo(demo::Options),
    /// Feed hostile input to the parsers (needs cargo-fuzz)
    Fuzz(fuzz::Options),
    /// Run the regression suite of LTTng with relayd in the place of lttng-relayd (needs root)
    LttngSuite(lttng_suite::Options),
    /// Write the man pages of all programs to target/man, shell completions to target/completions
    Man,
    /// Build Debian packages, an archive of static programs, and an image for containers
    Package(package::Options),
    /// Run everything that must pass: format, lints, documentation, all tests with the real peers
    Test(test::Options),
    /// Follow the first steps of each user on a Debian that has nothing, and measure them (needs
    /// root)
    Walk(walk::Options),
    /// Build the page of test-live web (needs npm)
    Web(web::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().job {
        Job::Bench(options) => bench::run(&options),
        Job::Demo(options) => demo::run(&options),
        Job::Fuzz(options) => fuzz::run(&options),
        Job::LttngSuite(options) => lttng_suite::run(&options),
        Job::Man => man::run(),
        Job::Package(options) => package::run(&options),
        Job::Test(options) => test::run(&options),
        Job::Walk(options) => walk::run(&options),
        Job::Web(options) => web::run(&options),
    }
}
