//! The Debian packages, built once for all tests from the programs of the tests, in two revisions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tests::{binaries, build_directory};

/// The revisions of the packages: that which is installed, and that to which it is upgraded.
pub(crate) const OLD: &str = "0local1";
pub(crate) const NEW: &str = "0local2";

/// Returns the directory of all packages in both revisions.
pub(crate) fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let directory = scratch("packages");
        for revision in [OLD, NEW] {
            package("deb", &programs(), &directory, &["--revision", revision]);
        }
        directory
    })
}

/// Returns the directory of the programs that the tests run.
pub(crate) fn programs() -> PathBuf {
    for program in [
        binaries::relayd(),
        binaries::consumer(),
        binaries::tldrs(),
        binaries::test_live(),
    ] {
        assert!(program.exists(), "{}", program.display());
    }
    // The libraries of all packages are in one directory.
    let library = binaries::ring_library().join("libtrace_ring_functions.so");
    assert!(library.exists(), "{}", library.display());
    binaries::xtask().parent().unwrap().to_owned()
}

/// Runs `cargo xtask package`.
pub(crate) fn package(format: &str, programs: &Path, output: &Path, options: &[&str]) {
    let mut xtask = Command::new(binaries::xtask());
    xtask
        .args(["package", format, "--fast", "--binaries"])
        .arg(programs);
    xtask.arg("--output").arg(output).args(options);
    let ended = xtask.output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{xtask:?}: {printed}");
}

/// Returns a directory for packages of this process. It stays until the next run: nothing removes a
/// value that all tests share.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let target = build_directory().join("..").canonicalize().unwrap();
    let all = target.join("package-tests");
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        let process = entry.file_name();
        if !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let directory = all.join(std::process::id().to_string()).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}
