//! Opens the file that a command writes its output to.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use thiserror::Error;

use super::directory::{DirectoryError, ROOT, open_directory};

/// Permissions of a new file, before the umask.
const NEW_MODE: Mode = Mode::from_raw_mode(0o666);

/// A file for output cannot be opened.
#[derive(Debug, Error)]
pub enum OutputError {
    /// A symbolic link of another user decides which file is written to.
    #[error("a symbolic link belongs to user {owner}, neither to user {uid} nor to root")]
    LinkOfOther {
        /// The user that runs the command.
        uid: u32,
        /// The user that owns the link.
        owner: u32,
    },
    /// The file belongs to another user, which could read the output.
    #[error("the file belongs to user {owner}, not to user {uid}")]
    FileOfOther {
        /// The user that runs the command.
        uid: u32,
        /// The user that owns the file.
        owner: u32,
    },
    /// The path ends in a directory.
    #[error("the path has no file name")]
    NoName,
    /// The system refuses to open the file.
    #[error(transparent)]
    Open(#[from] io::Error),
}

/// Opens a file at an absolute path for writing, and makes it if it does not exist. The file is not
/// truncated.
///
/// A regular file or pipe of another user is not opened, and no symbolic link of another user is
/// followed: in a directory like `/tmp` any user may have made it. Links of root are followed to
/// any kind of file, so that `/dev/stdout` works.
///
/// # Errors
/// If the path leads to a file or through a link of another user, or the system refuses.
pub fn open_output(path: &Path) -> Result<File, OutputError> {
    let uid = rustix::process::geteuid().as_raw();
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Err(OutputError::NoName);
    };
    let parent = open_directory(parent, uid).map_err(|error| match error {
        DirectoryError::LinkOfOther { owner } => OutputError::LinkOfOther { uid, owner },
        DirectoryError::Open(error) => OutputError::Open(error.into()),
    })?;
    let found = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some((FileType::from_raw_mode(stat.st_mode), stat.st_uid)),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(OutputError::Open(error.into())),
    };
    let open = |follow: OFlags| -> Result<OwnedFd, OutputError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | follow;
        let opened = openat(&parent, name, flags, NEW_MODE);
        opened.map_err(|error| OutputError::Open(error.into()))
    };
    match found {
        Some((FileType::Symlink, owner)) if ![ROOT, uid].contains(&owner) => {
            return Err(OutputError::LinkOfOther { uid, owner });
        }
        Some((FileType::Symlink, _)) => return Ok(open(OFlags::empty())?.into()),
        // Checked before opening: opening a pipe waits for its other end.
        Some((FileType::Fifo, owner)) if owner != uid => {
            return Err(OutputError::FileOfOther { uid, owner });
        }
        _ => {}
    }
    // The opened file is checked, not the path: another user may have replaced the file since
    // `statat`.
    let file = open(OFlags::NOFOLLOW)?;
    let stat = fstat(&file).map_err(io::Error::from)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Fifo) && stat.st_uid != uid {
        let owner = stat.st_uid;
        return Err(OutputError::FileOfOther { uid, owner });
    }
    Ok(file.into())
}
