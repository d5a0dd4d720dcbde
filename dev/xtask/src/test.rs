//! Everything that must pass.

use clap::Args;

use crate::{lttng_suite, package, packages, stage, test_programs, walk};

/// How much is run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also run what takes long: 20,000 cases of every property, every whole-program test ten
    /// times, every fault test twelve times, which kills more than 500 programs, all traces of the
    /// collections, half an hour at full load, archives in Ceph, the regression suite of LTTng, the
    /// targets of the fuzzer, and the released packages
    #[arg(long)]
    long: bool,
    /// Only run the tests of archives in Ceph, which is installed for them (94 packages): OSDs,
    /// gateways and relays are killed under load, also those of a fleet with 1,000 sessions
    #[arg(long, conflicts_with = "long")]
    archive: bool,
}

/// The programs that most tests run. The others are built by the tests that need them.
const PROGRAMS: [&str; 4] = [
    "--bin=relayd",
    "--bin=consumer",
    "--bin=tldrs",
    "--bin=test-live",
];

/// Runs of the whole-program tests with `--long`.
const LONG_ROUNDS: usize = 10;

/// Traced programs that are killed with `--long`.
const LONG_RING_KILLS: &str = "500";

/// Seconds for which a program scribbles over its rings with `--long`.
const LONG_RING_SCRIBBLE: &str = "600";

/// Runs of every fault test with `--long`. One run of all kills more than 40 programs.
const LONG_FAULT_ROUNDS: &str = "12";

/// The packages that can be published. `tests/structure/publish.rs` has the same list, and the
/// checks that take no time.
const PUBLISHED: &str = "--package=wire --package=ctf --package=tef --package=relay-proto --package=viewer-proto \
     --package=trace-ring-core --package=trace-ring";

/// Relays with an archive that each test of them kills with `--long`.
const LONG_ARCHIVE_KILLS: &str = "200";

/// Seeds of the simulated fleet with `--long`.
const LONG_FLEET_SEEDS: &str = "5000";

/// Daemons of Ceph and relays of each kind that are killed with `--archive` or `--long`.
const CEPH_KILLS: &str = "10";

/// Seconds at full load with `--long`.
const LONG_SOAK: &str = "1800";

/// Cases of every property with `--long`.
const LONG_CASES: &str = "20000";

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::install_missing()?;
    if options.archive {
        return run_ceph();
    }
    // The fast stages first, so that the most frequent mistakes are reported in seconds.
    stage::cargo(
        "1 of 6: format (cargo fmt --check)",
        "fmt --all --check",
        &[],
    )?;
    stage::cargo(
        "2 of 6: lints (cargo clippy)",
        "clippy --workspace --all-targets -- --deny=warnings",
        &[],
    )?;
    stage::cargo(
        "3 of 6: documentation (cargo doc)",
        "doc --workspace --no-deps",
        &[("RUSTDOCFLAGS", "--deny=warnings")],
    )?;
    stage::build("4 of 6: programs that tests run (cargo build)", &PROGRAMS)?;
    stage::announce("5 of 6: all tests (whole programs and the real peers included)");
    test_programs::run()?;
    stage::cargo(
        "6 of 6: examples in the documentation (cargo test --doc)",
        "test --workspace --doc",
        &[],
    )?;
    if options.long {
        run_long()?;
    }
    stage::announce("everything passed");
    Ok(())
}

/// Runs the stages that only `--long` asks for.
fn run_long() -> anyhow::Result<()> {
    stage::cargo(
        "long: properties",
        "test --workspace --exclude=tests",
        &[("PROPTEST_CASES", LONG_CASES)],
    )?;
    stage::cargo(
        "long: targets of the fuzzer",
        "check --locked --manifest-path=dev/fuzz/Cargo.toml",
        &[],
    )?;
    // Compiles each from the files in its archive alone, in a directory of its own: other features
    // would be compiled.
    stage::cargo(
        "long: packages as they are published",
        &format!("package --allow-dirty --target-dir=target/publish {PUBLISHED}"),
        &[],
    )?;
    // Again and again, because a race shows only sometimes.
    for round in 1..=LONG_ROUNDS {
        let stage = format!("long: whole programs, round {round} of {LONG_ROUNDS}");
        stage::cargo(&stage, "test --package=tests", &[])?;
    }
    stage::cargo(
        "long: all traces of the collections",
        "test --package=tests --test=web --test=export -- collect",
        &[("ALL_COLLECTED_TRACES", "1")],
    )?;
    stage::cargo(
        "long: faults",
        "test --package=tests --test=faults -- --nocapture",
        &[("FAULT_ROUNDS", LONG_FAULT_ROUNDS), ("FAULT_LONG", "1")],
    )?;
    stage::cargo(
        "long: shared-memory rings",
        "test --package=tests --test=ring -- kills scribble --nocapture",
        &[
            ("RING_KILLS", LONG_RING_KILLS),
            ("RING_SCRIBBLE_SECONDS", LONG_RING_SCRIBBLE),
        ],
    )?;
    stage::cargo(
        "long: simulated fleets",
        "test --package=relayd --lib -- a_fleet_archives --nocapture",
        &[("FLEET_SEEDS", LONG_FLEET_SEEDS)],
    )?;
    stage::cargo(
        "long: killed relays with an archive",
        "test --package=tests --test=archive -- kill:: --nocapture",
        &[("ARCHIVE_KILLS", LONG_ARCHIVE_KILLS)],
    )?;
    stage::cargo(
        "long: sessions resumed after every byte",
        "test --package=tests --test=resume",
        &[("RESUME_EVERY_BYTE", "1")],
    )?;
    stage::cargo(
        "long: full load",
        "test --package=tests --test=soak -- --nocapture",
        &[("SOAK_SECONDS", LONG_SOAK)],
    )?;
    walk::run(&walk::Options::default())?;
    run_ceph()?;
    lttng_suite::run(&lttng_suite::Options::default())?;
    let packages = package::build_all()?;
    stage::cargo(
        "long: released packages",
        "test --package=tests --test=packages -- released --nocapture",
        &[("PACKAGES", &packages)],
    )
}

/// Runs the tests of archives in Ceph.
fn run_ceph() -> anyhow::Result<()> {
    packages::install_ceph()?;
    // One after the other: each starts a Ceph of its own.
    stage::cargo(
        "archives in Ceph",
        "test --package=tests --test=archive -- --ignored --test-threads=1 --nocapture",
        &[("CEPH_KILLS", CEPH_KILLS)],
    )
}
