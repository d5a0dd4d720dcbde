//! Opens regular files by names that somebody may meanwhile have given to a FIFO or a device.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// Opens a regular file. A FIFO or a device of that name is an error, and its open(2) cannot block.
///
/// # Errors
/// If the file cannot be opened, or is not a regular file.
pub(super) fn open_regular(path: &Path, access: OFlags) -> io::Result<File> {
    // O_NOCTTY: a terminal of that name must not become the controlling terminal of the daemon.
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
    let opened = match open(flags | OFlags::NONBLOCK) {
        // Another process has a lease on the file (fcntl(2), `F_SETLEASE`), which only regular files have. Without
        // O_NONBLOCK the kernel waits until that process gives the lease up.
        Err(Errno::WOULDBLOCK) => open(flags),
        opened => opened,
    }?;
    let about = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_or_device_in_the_place_of_a_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stream");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        for access in [OFlags::RDONLY, OFlags::RDWR] {
            for path in [&path, Path::new("/dev/null"), directory.path()] {
                assert!(open_regular(path, access).is_err(), "{}", path.display());
            }
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "events").unwrap();
        let file = open_regular(&path, OFlags::RDONLY).unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "events");
    }
}
