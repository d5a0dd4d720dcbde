//! Opens regular files by names that somebody else may meanwhile have given to a symbolic link, a
//! FIFO or a device: in the directory of a recording, in the output of a relay, in a directory that
//! several users write to.
//!
//! No function waits for the other end of a FIFO, or makes a terminal the controlling one. [`open`]
//! takes the path of a user of this program, whose links are followed unless the flags say
//! otherwise. The others take names below a directory that is open, and follow no link: a directory
//! that is replaced meanwhile leads nowhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;

/// The mode of a file that is made, less what the umask takes away.
const NEW_FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// Opens a regular file by its path. Symbolic links are followed, the last one not if the flags
/// have `NOFOLLOW`.
///
/// # Errors
/// If the file cannot be opened, or is not a regular file.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    open_with(CWD, path, flags)
}

/// Opens a directory by its path, whose links are followed: for the calls below only, not to list
/// it.
///
/// # Errors
/// If there is none, or it may not be searched.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || openat(CWD, path, flags, Mode::empty());
    Ok(retry_on_intr(open)?)
}

/// Opens a regular file of a directory by its name.
///
/// # Errors
/// As [`open`]; also if the name is that of a symbolic link.
pub fn open_at(directory: impl AsFd, name: impl Arg + Copy, flags: OFlags) -> io::Result<File> {
    open_with(directory, name, flags | OFlags::NOFOLLOW)
}

/// Opens a regular file below a directory by its path from there, which has names only: no `..`,
/// and no `/` at its begin.
///
/// # Errors
/// As [`open`]; also if a part of the path is a symbolic link, or leads elsewhere.
pub fn open_below(directory: impl AsFd, path: &Path, flags: OFlags) -> io::Result<File> {
    let name = path.file_name().ok_or_else(leads_elsewhere)?;
    let parent = path.parent().unwrap_or(Path::new(""));
    match open_directory_below(&directory, parent)? {
        Some(parent) => open_at(parent, name, flags),
        None => open_at(directory, name, flags),
    }
}

/// Opens a directory below another one. `None` if the path is empty.
fn open_directory_below(directory: impl AsFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let mut below: Option<OwnedFd> = None;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(leads_elsewhere());
        };
        below = Some(match &below {
            Some(parent) => open_directory_at(parent, name)?,
            None => open_directory_at(&directory, name)?,
        });
    }
    Ok(below)
}

/// Opens a directory of a directory by its name.
///
/// # Errors
/// If there is none, or the name is that of a symbolic link.
pub fn open_directory_at(directory: impl AsFd, name: impl Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&directory, name, flags, Mode::empty());
    Ok(retry_on_intr(open)?)
}

fn open_with(directory: impl AsFd, name: impl Arg + Copy, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| retry_on_intr(|| openat(&directory, name, flags, NEW_FILE_MODE));
    let opened = match open(flags | OFlags::NONBLOCK) {
        // Another process has a lease on the file (fcntl(2), `F_SETLEASE`), which only regular
        // files have. Without O_NONBLOCK the kernel waits until that process gives the lease up.
        Err(Errno::WOULDBLOCK) => open(flags),
        opened => opened,
    }?;
    let about = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(File::from(opened))
}

fn leads_elsewhere() -> io::Error {
    io::Error::other("the path leads out of the directory")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_fifo_or_device_in_the_place_of_a_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stream");
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        for access in [
            OFlags::RDONLY,
            OFlags::RDWR,
            OFlags::WRONLY | OFlags::CREATE,
        ] {
            for path in [&path, Path::new("/dev/null"), directory.path()] {
                assert!(open(path, access).is_err(), "{}", path.display());
            }
            let parent = open_directory(directory.path()).unwrap();
            assert!(open_at(&parent, "stream", access).is_err());
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "events").unwrap();
        let file = open(&path, OFlags::RDONLY).unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "events");
    }

    #[test]
    fn only_regular_files_below_the_directory_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink("a", root.join("inside")).unwrap();
        symlink("..", root.join("up")).unwrap();
        let root = open_directory(&root).unwrap();
        let read = |path: &str| open_below(&root, Path::new(path), OFlags::RDONLY);
        assert_eq!(
            io::read_to_string(read("a/b/file").unwrap()).unwrap(),
            "text"
        );
        assert_eq!(read("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        for path in [
            "",
            "/",
            "a/b",
            "link",
            "inside/b/file",
            "up/secret",
            "../secret",
            "a/../../secret",
            "/etc/passwd",
        ] {
            assert!(read(path).is_err(), "{path}");
        }
        for name in ["link", "inside", "up", "none"] {
            assert!(open_directory_at(&root, name).is_err(), "{name}");
        }
        assert!(open_directory_at(&root, "a").is_ok());
    }

    #[test]
    fn the_last_link_of_a_path_is_followed_unless_the_flags_say_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        let made = open(&file, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).unwrap();
        assert!(made.metadata().unwrap().is_file());
        symlink("file", &link).unwrap();
        assert!(open(&link, OFlags::RDONLY).is_ok());
        assert!(open(&link, OFlags::RDONLY | OFlags::NOFOLLOW).is_err());
    }
}
