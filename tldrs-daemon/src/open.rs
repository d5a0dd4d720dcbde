//! Opens and removes files in directories that other users may write to: another user may have put a link, a
//! pipe or a device there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file.
///
/// # Errors
/// If the system refuses, or the path is a symbolic link or anything but a regular file. Opening a pipe does
/// not wait for its other end.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Opens a regular file of the user that this process runs as.
///
/// # Errors
/// As [`open_regular`]; also if the file belongs to another user, which could read what is written to it
/// and decide what is read from it.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_regular(path, options)?;
    let (owner, uid) = (file.metadata()?.uid(), rustix::process::geteuid().as_raw());
    if owner == uid {
        Ok(file)
    } else {
        let what = format!("the file belongs to user {owner}, not {uid}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    }
}

/// Opens a file of the user that this process runs as for appending, or makes it.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    open_own(path, File::options().read(true).append(true).create(true))
}

/// Removes a file, if it exists.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn symlinks_and_pipes_are_neither_followed_nor_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("target"), "").unwrap();
        symlink("target", at("link")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["link", "pipe", "."] {
            let mut reading = File::options();
            assert!(
                open_regular(&at(name), reading.read(true)).is_err(),
                "{name}"
            );
            let mut writing = File::options();
            let writing = writing.append(true).create(true);
            assert!(open_regular(&at(name), writing).is_err(), "{name}");
        }
        assert!(open_own(&at("target"), File::options().read(true)).is_ok());
    }

    #[test]
    fn file_of_another_user_is_not_opened_as_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let foreign = if rustix::process::geteuid().is_root() {
            chown(&path, Some(65_534), None).unwrap();
            path.as_path()
        } else {
            eprintln!(
                "only root can change the owner of a file: the test uses a file of root instead"
            );
            Path::new("/etc/passwd")
        };
        let error = open_own(foreign, File::options().read(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(open_regular(foreign, File::options().read(true)).is_ok());
    }
}
