//! Opens and removes files in directories that other users may write to: another user may have put
//! a link, a pipe or a device there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file.
///
/// # Errors
/// If the system refuses, or the path is a symbolic link or anything but a regular file.
pub(crate) fn open_regular(path: &Path, flags: OFlags) -> io::Result<File> {
    regular_file::open(path, flags | OFlags::NOFOLLOW)
}

/// Opens a regular file of the user that this process runs as.
///
/// # Errors
/// As [`open_regular`]; also if the file belongs to another user, which could read what is written
/// to it and decide what is read from it.
pub(crate) fn open_own(path: &Path, flags: OFlags) -> io::Result<File> {
    let file = open_regular(path, flags)?;
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
    open_own(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
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
            for flags in [
                OFlags::RDONLY,
                OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
            ] {
                assert!(open_regular(&at(name), flags).is_err(), "{name}");
            }
        }
        assert!(open_own(&at("target"), OFlags::RDONLY).is_ok());
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
        let error = open_own(foreign, OFlags::RDONLY).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(open_regular(foreign, OFlags::RDONLY).is_ok());
    }
}
