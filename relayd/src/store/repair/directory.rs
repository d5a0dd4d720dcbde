//! Lists directories and opens files relative to the descriptors of their parents, so that a
//! directory that is replaced by a symbolic link meanwhile does not lead out of the output.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub(super) use regular_file::{open_at as open_file, open_directory_at as open_directory};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};
use rustix::io::Errno;

/// The names in a directory, without `.` and `..` and without symbolic links, sockets and devices.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub directories: Vec<Vec<u8>>,
    pub files: Vec<Vec<u8>>,
}

impl Listing {
    /// Lists a directory. The whole directory is read before anything in it is changed, because
    /// POSIX leaves open whether a directory that changes while it is read shows the change.
    pub(super) fn of(directory: impl AsFd) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let file_type = match entry.file_type() {
                // Some file systems do not store the type in the directory (readdir(3)).
                FileType::Unknown => {
                    let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            let bytes = name.to_bytes();
            match file_type {
                FileType::Directory if !matches!(bytes, b"." | b"..") => {
                    listing.directories.push(bytes.to_owned());
                }
                FileType::RegularFile => listing.files.push(bytes.to_owned()),
                _ => {}
            }
        }
        Ok(listing)
    }

    pub(super) fn has_directory(&self, name: &str) -> bool {
        self.directories.iter().any(|own| own == name.as_bytes())
    }
}

/// Opens a regular file for reading and writing. None: the name does not exist.
pub(super) fn open_if_exists(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<File>> {
    match open_file(directory, name, OFlags::RDWR) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
        opened => opened.map(Some),
    }
}
