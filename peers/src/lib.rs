//! The real programs that tests and measurements run, and the Debian packages that contain them. A missing
//! program is an error, never a skipped test: a test that did not run has shown nothing.

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
    ("strace", "strace"),
    ("promtool", "prometheus"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
];

/// Lists the packages of the programs that are not on the `PATH`, without duplicates.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let missing = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none());
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

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
