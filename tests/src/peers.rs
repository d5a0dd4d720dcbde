//! The real programs. One that is missing is an error: a test that did not run has shown nothing.

use std::path::PathBuf;

/// Programs that the tests need, and the Debian packages that bring them.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("lttng", "lttng-tools"),
    ("lttng-sessiond", "lttng-tools"),
    ("lttng-relayd", "lttng-tools"),
    ("lttng-gen-tp", "liblttng-ust-dev"),
    ("babeltrace", "babeltrace"),
    ("babeltrace2", "babeltrace2"),
    ("cc", "gcc"),
    ("prlimit", "util-linux"),
    ("perl", "perl-base"),
    ("strace", "strace"),
];

/// The packages that are not installed.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let missing = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none());
    let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

/// The command that installs packages.
#[must_use]
pub fn install_command(packages: &[&str]) -> String {
    format!(
        "apt-get install --yes --no-install-recommends {}",
        packages.join(" ")
    )
}

/// Where a program is.
///
/// # Panics
/// If it is not installed.
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
