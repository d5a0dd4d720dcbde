//! Checks of the host that all programs share: its clock, its limits, and the disk of a directory.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{statfs, statvfs};
use rustix::process::{Resource, geteuid, getrlimit};

use super::Report;

/// Created by systemd-timesyncd when the clock was first synchronised after the start of the
/// system.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// Open files below which a warning is given.
const FEW_FILES: u64 = 4096;

/// Free space in bytes below which a warning is given.
const LITTLE_SPACE: u64 = 1 << 30;

/// Free space in bytes below which a disk is full: a file of one byte may still be written where a
/// packet has no room.
const NO_SPACE: u64 = 16 << 20;

/// Numbers of file systems, of `linux/magic.h`.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 3] =
    [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB")];
const TMPFS: u64 = 0x0102_1994;

/// Whether something keeps the clock of this host right. Events of several hosts are ordered by
/// their clocks.
pub fn check_clock(report: &mut Report) {
    let timedatectl = Command::new("timedatectl")
        .args(["show", "--property=NTPSynchronized", "--value"])
        // What it prints without systemd would be among the findings.
        .stderr(Stdio::null())
        .output();
    let answer = timedatectl.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match answer.as_deref().map(str::trim) {
        // The file is there also where timedatectl reaches no systemd.
        _ if Path::new(SYNCHRONIZED).exists() => report.ok("the clock is synchronised"),
        Ok("yes") => report.ok("the clock is synchronised"),
        Ok("no") => report.warning(
            "the clock is not synchronised: events of several hosts are in the wrong order",
            "timedatectl set-ntp true",
        ),
        _ => report.warning(
            "cannot tell whether the clock is synchronised: there is no timedatectl that works",
            "if several hosts are traced, run an NTP client on each, such as chrony",
        ),
    }
}

/// Whether the limit of open files is high enough for many streams: that of a process, or else of
/// this one. `unit` is the service of the program.
pub fn check_open_files(report: &mut Report, unit: &str, process: Option<u32>) {
    // The programs raise their own limit to the hard one.
    match max_open_files(process) {
        Some(limit) if limit < FEW_FILES => report.warning(
            format!("at most {limit} files and connections can be open"),
            format!("ulimit -Hn 65536, or LimitNOFILE=65536 in `systemctl edit {unit}`"),
        ),
        Some(limit) => report.ok(format!("{limit} files and connections can be open")),
        None => report.ok("any number of files and connections can be open"),
    }
}

/// Returns the hard limit of open files of a process, or else of this one. None if there is none.
#[must_use]
pub fn max_open_files(process: Option<u32>) -> Option<u64> {
    let limits = process.map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")));
    match limits {
        Some(Ok(limits)) => {
            let mut lines = limits.lines();
            let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
            // After the soft one; `unlimited` is no number.
            line.split_whitespace().nth(1)?.parse().ok()
        }
        None | Some(Err(_)) => getrlimit(Resource::Nofile).maximum,
    }
}

/// Whether files can be written below a directory, how much space it has, and on what kind of file
/// system it is. The directory is not created: its nearest parent that exists is checked. `option`
/// is the one that names another. The directory of a process is the one that this process sees.
pub fn check_directory(
    report: &mut Report,
    what: &str,
    directory: &Path,
    option: &str,
    process: Option<u32>,
) {
    let seen = |path: &Path| path_of_process(path, process);
    let mut ancestors = directory.ancestors();
    let Some(existing) = ancestors.find(|parent| seen(parent).exists()) else {
        return report.problem(
            format!("{what} {}: no parent of it exists", directory.display()),
            format!("{option} with an absolute path"),
        );
    };
    let (shown, seen) = (directory.display(), seen(existing));
    if !seen.is_dir() {
        return report.problem(
            format!("{what} {shown}: {} is not a directory", existing.display()),
            format!("{option} DIR, or remove the file"),
        );
    }
    let larger = format!("{option} DIR on a larger disk");
    if let Err(error) = write_file(&seen) {
        let remedy = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => larger,
            ErrorKind::ReadOnlyFilesystem => {
                format!("ReadWritePaths={shown} in the unit of a service, or {option} DIR")
            }
            _ => {
                let (user, shown) = (geteuid().as_raw(), directory.display());
                let make = match existing == directory {
                    true => String::new(),
                    false => format!("mkdir -p {shown} && "),
                };
                format!("{make}chown {user} {shown}, or {option} DIR")
            }
        };
        return report.problem(
            format!("{what} {shown}: no file can be created: {error}"),
            remedy,
        );
    }
    // Nothing keeps root from writing, but a service often has a user of its own.
    let writable = match geteuid().is_root() {
        true => "writable by root",
        false => "writable",
    };
    match free_space(&seen) {
        Some(free) if free < NO_SPACE => report.problem(
            format!("{what} {shown}: full, only {} free", bytes_as_text(free)),
            format!("remove files, or {larger}"),
        ),
        Some(free) if free < LITTLE_SPACE => report.warning(
            format!(
                "{what} {shown}: {writable}, but only {} free",
                bytes_as_text(free)
            ),
            larger,
        ),
        Some(free) => report.ok(format!(
            "{what} {shown}: {writable}, {} free",
            bytes_as_text(free)
        )),
        None => report.ok(format!("{what} {shown}: {writable}")),
    }
    check_file_system(report, what, &seen, option);
}

/// Returns the path by which this process reaches what a path is to another one: a service may have
/// its own view of the file system, in which most of it cannot be written.
fn path_of_process(path: &Path, process: Option<u32>) -> PathBuf {
    let root = process.map(|pid| PathBuf::from(format!("/proc/{pid}/root")));
    let root = root.filter(|root| root.join(".").exists());
    match (root, path.strip_prefix("/")) {
        (Some(root), Ok(below)) => root.join(below),
        _ => path.to_owned(),
    }
}

fn check_file_system(report: &mut Report, what: &str, directory: &Path, option: &str) {
    let Ok(found) = statfs(directory) else { return };
    let number = u64::try_from(found.f_type).unwrap_or(0);
    let network = NETWORK_FILE_SYSTEMS.iter().find(|(of, _)| *of == number);
    if let Some((_, name)) = network {
        report.warning(
            format!(
                "{what} is on {name}: locks and syncs may not work, and a lost server stops it"
            ),
            format!("{option} DIR on a local disk"),
        );
    } else if number == TMPFS {
        report.warning(
            format!("{what} is in memory (tmpfs): it is lost when this host restarts"),
            format!("{option} DIR on a disk"),
        );
    }
}

/// Creates a file and removes it.
fn write_file(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".doctor-{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let written = file.write_all(b"x");
    // Before the result of the write is looked at: on a full disk the file exists as well.
    fs::remove_file(&path)?;
    written
}

/// Returns the space in bytes that this user may use.
fn free_space(directory: &Path) -> Option<u64> {
    let space = statvfs(directory).ok()?;
    // Without the blocks that the file system reserves for root.
    space.f_bavail.checked_mul(space.f_frsize)
}

/// Writes bytes as gigabytes or megabytes with one digit after the point.
fn bytes_as_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_000_000_000.. => (1_000_000_000, "GB"),
        _ => (1_000_000, "MB"),
    };
    let tenths = bytes / (unit / 10);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn check(directory: &Path) -> Report {
        let mut report = Report::default();
        check_directory(&mut report, "output", directory, "--output", None);
        report
    }

    #[test]
    fn a_directory_that_does_not_exist_yet_is_checked_by_its_parent_and_not_created() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let report = check(&directory);
        assert_eq!(report.count(State::Problem), 0, "{report}");
        assert!(report.findings()[0].text.contains("writable"), "{report}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_a_problem() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let report = check(&path);
            assert_eq!(report.count(State::Problem), 1, "{report}");
        }
    }

    #[test]
    fn sizes_are_in_gigabytes_or_megabytes() {
        assert_eq!(bytes_as_text(1_290_000_000), "1.2 GB");
        assert_eq!(bytes_as_text(999_999_999), "999.9 MB");
        assert_eq!(bytes_as_text(0), "0.0 MB");
    }

    #[test]
    fn limits_and_directories_are_those_of_the_process() {
        let own = std::process::id();
        assert_eq!(max_open_files(Some(own)), max_open_files(None));
        let directory = tempfile::tempdir().unwrap();
        let seen = path_of_process(directory.path(), Some(own));
        assert!(seen.starts_with("/proc") && seen.is_dir(), "{seen:?}");
    }
}
