//! The units for systemd are such that it takes them.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// As they are, but with a program that is there.
fn installed(from: &Path, to: &Path) -> Vec<std::path::PathBuf> {
    let units = fs::read_dir(from).unwrap();
    let install = |unit: std::io::Result<fs::DirEntry>| {
        let unit = unit.unwrap();
        let text = fs::read_to_string(unit.path()).unwrap();
        let path = to.join(unit.file_name());
        let program = env!("CARGO_BIN_EXE_tldrs");
        fs::write(&path, text.replace("/usr/bin/tldrs", program)).unwrap();
        path
    };
    units.map(install).collect()
}

#[test]
fn systemd_has_nothing_to_say_against_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("no systemd-analyze: not tried");
        return;
    }
    for (whose, option) in [("user", "--user"), ("system", "--system")] {
        let directory = tempfile::tempdir().unwrap();
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
        let units = installed(&units.join(whose), directory.path());
        assert!(!units.is_empty());
        let mut analyze = Command::new("systemd-analyze");
        analyze
            .args([option, "--man=no", "verify"])
            .args(&units)
            .env("XDG_RUNTIME_DIR", directory.path());
        let verdict = analyze.output().unwrap();
        let said = String::from_utf8_lossy(&verdict.stderr);
        // It may complain about other units of this machine.
        let of_ours = said.lines().filter(|line| line.contains("tldrs"));
        let of_ours: Vec<_> = of_ours.collect();
        assert!(
            verdict.status.success() && of_ours.is_empty(),
            "{whose}: {said}"
        );
    }
}
