//! The file that an export is written to: access checks, and atomic replacement by rename.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use super::directory::{DirectoryError, open_directory};
use crate::limits::REPLACED_FILE_CHECK_BYTES;

/// Names that are tried for a draft before it is given up. Each is random: one that is taken is a
/// rare accident, and no other user can take all of them beforehand.
const MAX_DRAFT_NAMES: u32 = 16;

/// Bytes of the file's name that its draft takes over.
const DRAFT_NAME_BYTES: usize = 200;

/// Permissions of a new export, before the umask.
const NEW_MODE: Mode = Mode::from_raw_mode(0o644);

/// Permissions that an export may take over from the file it replaces: neither set-user-id nor
/// set-group-id, and only the owner writes.
const KEPT_MODE: Mode = Mode::from_raw_mode(0o755);

/// Permissions of a draft until it takes over a mode: other users must not open it before.
const PRIVATE_MODE: Mode = Mode::from_raw_mode(0o600);

/// An export may not be written to a path.
#[derive(Debug, Error)]
pub(crate) enum ExportRefusal {
    #[error("the path is not absolute")]
    Relative,
    #[error("the path has no file name")]
    NoName,
    #[error(
        "a symbolic link in the path belongs to user {owner}, neither to user {uid} nor to root"
    )]
    LinkOfOther { uid: u32, owner: u32 },
    #[error("that file belongs to user {owner}, not {uid}")]
    FileOfOther { uid: u32, owner: u32 },
    #[error("the path exists and is no regular file")]
    NoRegularFile,
    #[error("the existing file does not look like a trace")]
    NoTrace,
    #[error("no such directory")]
    Directory(#[source] io::Error),
    #[error("cannot read the existing file")]
    Look(#[source] io::Error),
}

/// A directory, and the name in it that an export may have.
#[derive(Debug)]
pub(crate) struct ExportTarget {
    parent: OwnedFd,
    name: OsString,
    /// The file that the export replaces.
    replaced: Option<ReplacedFile>,
}

/// A file that an export replaces.
#[derive(Debug, Clone, Copy)]
struct ReplacedFile {
    /// Permissions that the export takes over.
    mode: Mode,
    gid: u32,
}

/// An export that is being written under a temporary name. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ExportDraft<'a> {
    target: &'a ExportTarget,
    file: File,
    name: OsString,
    is_published: bool,
}

/// Checks that the file at the target, if there is one, may be replaced by this user.
fn check_replaced_file(
    parent: &OwnedFd,
    name: &OsStr,
    uid: u32,
) -> Result<Option<ReplacedFile>, ExportRefusal> {
    let failed = |error: Errno| ExportRefusal::Look(error.into());
    let check = |stat: &Stat| match (FileType::from_raw_mode(stat.st_mode), stat.st_uid) {
        (FileType::RegularFile, owner) if owner == uid => Ok(()),
        (FileType::RegularFile, owner) => Err(ExportRefusal::FileOfOther { uid, owner }),
        _ => Err(ExportRefusal::NoRegularFile),
    };
    // Opening a device or pipe may have side effects.
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => check(&stat)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(parent, name, flags, Mode::empty()).map_err(failed)?;
    // Another file may have taken the name since.
    let stat = fstat(&file).map_err(failed)?;
    check(&stat)?;
    let mut buffer = [0; REPLACED_FILE_CHECK_BYTES];
    let read = rustix::io::read(&file, &mut buffer).map_err(failed)?;
    let begin = buffer.get(..read).unwrap_or_default().trim_ascii_start();
    let is_blank = begin.is_empty() && read < REPLACED_FILE_CHECK_BYTES;
    if is_blank || matches!(begin.first(), Some(b'[' | b'{')) {
        Ok(Some(ReplacedFile::new(&stat)))
    } else {
        Err(ExportRefusal::NoTrace)
    }
}

impl ReplacedFile {
    fn new(stat: &Stat) -> Self {
        let mode = Mode::from_raw_mode(stat.st_mode) & KEPT_MODE;
        // A hard link: another user may have made it, to read the export by the other name.
        let is_linked = stat.st_nlink > 1;
        Self {
            mode: if is_linked { mode & Mode::RWXU } else { mode },
            gid: stat.st_gid,
        }
    }
}

impl ExportTarget {
    /// Opens the directory of this path, and checks that the user `uid`, which runs the daemon, may
    /// export to it.
    pub(crate) fn open(path: &Path, uid: u32) -> Result<Self, ExportRefusal> {
        if !path.is_absolute() {
            return Err(ExportRefusal::Relative);
        }
        // `Path` ignores a slash at the end.
        let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
        let (Some(name), Some(parent), false) = (path.file_name(), path.parent(), is_directory)
        else {
            return Err(ExportRefusal::NoName);
        };
        let parent = open_directory(parent, uid).map_err(|error| match error {
            DirectoryError::LinkOfOther { owner } => ExportRefusal::LinkOfOther { uid, owner },
            DirectoryError::Open(error) => ExportRefusal::Directory(error.into()),
        })?;
        Ok(Self {
            replaced: check_replaced_file(&parent, name, uid)?,
            parent,
            name: name.to_owned(),
        })
    }

    /// Makes the temporary file that the export is written to.
    pub(crate) fn create_draft(&self) -> io::Result<ExportDraft<'_>> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The mode is restricted from the start: a process that opens the file keeps it open,
        // whatever the mode is later.
        let mode = match self.replaced {
            None => NEW_MODE,
            Some(_) => PRIVATE_MODE,
        };
        let mut tries = 0;
        let (name, file) = loop {
            tries += 1;
            let name = self.draft_name()?;
            match openat(&self.parent, &name, flags, mode) {
                Ok(file) => break (name, file),
                Err(Errno::EXIST) if tries < MAX_DRAFT_NAMES => {}
                Err(error) => return Err(error.into()),
            }
        };
        let draft = ExportDraft {
            target: self,
            file: file.into(),
            name,
            is_published: false,
        };
        draft.take_over_mode()?;
        Ok(draft)
    }

    fn draft_name(&self) -> io::Result<OsString> {
        let bytes = self.name.as_bytes();
        let begin = bytes.get(..DRAFT_NAME_BYTES).unwrap_or(bytes);
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let mut name = OsStr::from_bytes(begin).to_owned();
        name.push(format!(".tmp.{:016x}", u64::from_be_bytes(random)));
        Ok(name)
    }
}

impl ExportDraft<'_> {
    /// Returns the temporary file.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the file to its target.
    pub(crate) fn publish(mut self, sync: bool) -> io::Result<()> {
        if sync {
            self.file.sync_data()?;
        }
        let parent = &self.target.parent;
        renameat(parent, &self.name, parent, &self.target.name)?;
        self.is_published = true;
        Ok(())
    }

    fn take_over_mode(&self) -> io::Result<()> {
        let Some(ReplacedFile { mode, gid }) = self.target.replaced else {
            return Ok(());
        };
        // The permissions of one group are not for another.
        let is_same_group = fstat(&self.file)?.st_gid == gid;
        let mode = if is_same_group {
            mode
        } else {
            mode - Mode::RWXG
        };
        Ok(fchmod(&self.file, mode)?)
    }
}

impl Drop for ExportDraft<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            // The export has failed already; a file that cannot be removed stays.
            let _ = unlinkat(&self.target.parent, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
