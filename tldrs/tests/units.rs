//! Verifies the systemd units of the daemon and of the agent.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies the units, with the path of a program that exists. Returns the copies.
fn installed(from: &Path, to: &Path) -> Vec<std::path::PathBuf> {
    let units = fs::read_dir(from).unwrap();
    let install = |unit: std::io::Result<fs::DirEntry>| {
        let unit = unit.unwrap();
        let text = fs::read_to_string(unit.path()).unwrap();
        let path = to.join(unit.file_name());
        let program = env!("CARGO_BIN_EXE_tldrs");
        let text = text
            .replace("/usr/bin/tldrs", program)
            .replace("/usr/bin/consumer", program)
            // The check does not look at ExecSearchPath.
            .replace("ExecStart=tldrs ", &format!("ExecStart={program} "))
            .replace("ExecStart=consumer ", &format!("ExecStart={program} "));
        fs::write(&path, text).unwrap();
        path
    };
    units.map(install).collect()
}

#[test]
fn systemd_verifies_the_units_without_warnings() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("systemd-analyze is missing: the units are not verified");
        return;
    }
    for (unit_directory, option) in [
        ("tldrs/systemd/user", "--user"),
        ("tldrs/systemd/system", "--system"),
        ("consumer/systemd/user", "--user"),
        ("consumer/systemd/system", "--system"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let units = installed(&root.join(unit_directory), directory.path());
        assert!(!units.is_empty());
        let mut analyze = Command::new("systemd-analyze");
        analyze
            .args([option, "--man=no", "verify"])
            .args(&units)
            .env("XDG_RUNTIME_DIR", directory.path());
        let output = analyze.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // `systemd-analyze` reports faults of other units of this machine as well.
        let is_of_ours = |line: &&str| line.contains("tldrs") || line.contains("consumer");
        let of_ours = errors.lines().filter(is_of_ours);
        let of_ours: Vec<_> = of_ours.collect();
        assert!(
            output.status.success() && of_ours.is_empty(),
            "{unit_directory}: {errors}"
        );
    }
}
