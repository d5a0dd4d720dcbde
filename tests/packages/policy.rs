//! What Debian asks of packages, and what builders ask of them: equal bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::{Lab, peers};

use crate::built::{self, OLD};

#[test]
fn lintian_finds_neither_errors_nor_warnings() {
    let lab = Lab::new();
    let mut lintian = Command::new(peers::program("lintian"));
    lintian
        .args(["--fail-on=error,warning", "--tag-display-limit=0"])
        // The tests run as root.
        .arg("--allow-root")
        .args(debs(built::packages(), OLD))
        .env("TMPDIR", lab.path());
    let ended = lintian.output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{printed}{errors}");
}

#[test]
fn packages_built_twice_have_equal_bytes() {
    let first = built::packages();
    let second = built::scratch("second");
    built::package("deb", &built::programs(), &second, &["--revision", OLD]);
    for package in debs(first, OLD) {
        let again = second.join(package.file_name().unwrap());
        let is_equal = fs::read(&package).unwrap() == fs::read(&again).unwrap();
        assert!(is_equal, "{}", package.display());
    }
    check_sums(&second);
}

#[test]
fn agent_has_the_library_that_records_functions() {
    let packages = debs(built::packages(), OLD);
    let is_agent = |package: &&PathBuf| package.to_string_lossy().contains("lttng-live-agent_");
    let mut contents = Command::new("dpkg-deb");
    contents
        .arg("--contents")
        .arg(packages.iter().find(is_agent).unwrap());
    let listed = String::from_utf8(contents.output().unwrap().stdout).unwrap();
    let library = "./usr/lib/lttng-live-agent/libtrace_ring_functions.so";
    let line = listed.lines().find(|line| line.ends_with(library)).unwrap();
    assert!(line.starts_with("-rw-r--r-- root/root"), "{line}");
}

#[test]
fn units_of_the_packages_pass_the_check_of_systemd() {
    let lab = Lab::new();
    for package in debs(built::packages(), OLD) {
        let unpacked = Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&package)
            .arg(lab.path())
            .status();
        assert!(unpacked.unwrap().success());
    }
    for (directory, manager) in [
        ("lib/systemd/system", "--system"),
        ("usr/lib/systemd/user", "--user"),
    ] {
        let entries = fs::read_dir(lab.path().join(directory)).unwrap();
        let mut units: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        units.sort();
        for unit in &units {
            // The programs are not installed on this host.
            let text = fs::read_to_string(unit).unwrap();
            let programs = lab.path().join("usr/bin");
            let programs = programs.to_str().unwrap();
            let text = text.replace("/usr/bin", programs);
            // The check does not look at ExecSearchPath.
            let name = unit.file_stem().unwrap().to_str().unwrap();
            let found = format!("ExecStart={programs}/{name} ");
            let text = text.replace(&format!("ExecStart={name} "), &found);
            fs::write(unit, text).unwrap();
        }
        let mut analyze = Command::new("systemd-analyze");
        analyze.args([manager, "--man=no", "verify"]).args(&units);
        let ended = analyze.env("XDG_RUNTIME_DIR", lab.path()).output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        // It reports faults of other units of this host as well.
        let is_ours = |line: &&str| {
            ["relayd", "consumer", "tldrs"]
                .iter()
                .any(|name| line.contains(name))
        };
        let ours: Vec<_> = printed.lines().filter(is_ours).collect();
        assert!(
            ended.status.success() && ours.is_empty(),
            "{directory}: {printed}"
        );
    }
}

/// Returns the packages of a directory in a revision.
fn debs(directory: &Path, revision: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.contains(&format!("-{revision}_")) && name.ends_with(".deb")
    };
    let mut found: Vec<_> = paths.filter(is_wanted).collect();
    found.sort();
    assert_eq!(found.len(), 4, "{found:?}");
    found
}

/// Checks that SHA256SUMS of a directory holds.
pub(crate) fn check_sums(directory: &Path) {
    let mut check = Command::new("sha256sum");
    check
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(directory);
    let ended = check.output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stdout)
    );
}
