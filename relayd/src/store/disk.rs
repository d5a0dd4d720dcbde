//! The system calls by which the store changes files and directories. All of them go through this
//! module, so that tests can let any of them fail, stop after any of them, and reconstruct what a
//! power loss would leave. In normal builds each function is the system call and nothing else.

use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::pipe::{SpliceFlags, splice};

#[cfg(test)]
pub(crate) mod plan;
#[cfg(test)]
pub(crate) mod power_loss;

/// Permissions before the umask, as lttng-relayd sets them: the group may read traces, others may
/// not.
pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o660);
const DIRECTORY_MODE: u32 = 0o770;

/// Creates an empty file. With `EXCL` in `flags`, an existing name is an error.
#[inline]
pub(super) fn create(path: &Path, flags: OFlags) -> io::Result<File> {
    #[cfg(test)]
    plan::before(plan::Operation::Create)?;
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
    let file = File::from(retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE))?);
    #[cfg(test)]
    plan::created(&file, path);
    Ok(file)
}

/// Creates an empty file in a directory. The name must not exist.
#[inline]
pub(super) fn create_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    #[cfg(test)]
    plan::before(plan::Operation::Create)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::openat(directory, name, flags, FILE_MODE))?;
    let file = File::from(opened);
    #[cfg(test)]
    plan::created(&file, &plan::path_at(directory, name));
    Ok(file)
}

/// Writes all bytes at a position of a file.
#[inline]
pub(super) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    #[cfg(test)]
    plan::before_write(file, bytes, at)?;
    file.write_all_at(bytes, at)?;
    #[cfg(test)]
    plan::written(file, bytes, at);
    Ok(())
}

/// Writes slices at a position of a file, by one system call. Returns the number of bytes written.
#[inline]
pub(super) fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
    #[cfg(test)]
    plan::before_vectored_write(file, slices, at)?;
    // Network file systems and FUSE may be interrupted.
    let written = retry_on_intr(|| rustix::io::pwritev(file, slices, at))?;
    #[cfg(test)]
    plan::written_slices(file, slices, written, at);
    Ok(written)
}

/// Moves up to `len` bytes from a pipe to a position of a file. Returns the number of bytes.
#[inline]
pub(super) fn splice_at(pipe: impl AsFd, file: &File, len: usize, at: u64) -> io::Result<usize> {
    #[cfg(test)]
    plan::before(plan::Operation::Write)?;
    let flags = SpliceFlags::empty();
    // The offset is a copy, because splice(2) advances it in place.
    let moved = retry_on_intr(|| splice(&pipe, None, file, Some(&mut { at }), len, flags))?;
    #[cfg(test)]
    plan::spliced(file, moved, at);
    Ok(moved)
}

/// Truncates or extends a file to a length in bytes.
#[inline]
pub(super) fn set_len(file: &File, len: u64) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::SetLen)?;
    file.set_len(len)?;
    #[cfg(test)]
    plan::truncated(file, len);
    Ok(())
}

/// Makes the content and length of a file safe from power loss.
#[inline]
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if plan::sync_file(file)? {
        return Ok(());
    }
    // Enough, because fdatasync(2) also syncs the length. Only times may be lost.
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Makes the names in a directory safe from power loss.
#[inline]
pub(super) fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    #[cfg(test)]
    if plan::sync_directory(directory.as_fd())? {
        return Ok(());
    }
    Ok(retry_on_intr(|| rustix::fs::fsync(&directory))?)
}

/// Creates a directory and those of its parents that are missing.
#[inline]
pub(super) fn make_directories(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    plan::before_directories(path)?;
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// Creates a directory in another one.
#[inline]
pub(super) fn make_directory_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::MakeDirectory)?;
    let mode = Mode::from_raw_mode(DIRECTORY_MODE);
    rustix::fs::mkdirat(directory, name, mode)?;
    #[cfg(test)]
    plan::made_directory(&plan::path_at(directory, name));
    Ok(())
}

/// Removes a file by its path. A name that does not exist is an error.
#[inline]
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Remove)?;
    std::fs::remove_file(path)?;
    #[cfg(test)]
    plan::removed(path);
    Ok(())
}

/// Removes a file in a directory.
#[inline]
pub(super) fn remove_file_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Remove)?;
    rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    #[cfg(test)]
    plan::removed(&plan::path_at(directory, name));
    Ok(())
}

/// Removes an empty directory.
#[inline]
pub(super) fn remove_directory(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Remove)?;
    std::fs::remove_dir(path)?;
    #[cfg(test)]
    plan::removed(path);
    Ok(())
}

/// Removes an empty directory in another one.
#[inline]
pub(super) fn remove_directory_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Remove)?;
    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    #[cfg(test)]
    plan::removed(&plan::path_at(directory, name));
    Ok(())
}

/// Removes a directory with everything below it. Does not follow symbolic links.
#[inline]
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Remove)?;
    std::fs::remove_dir_all(path)?;
    #[cfg(test)]
    plan::removed(path);
    Ok(())
}

/// Renames a file or directory.
#[inline]
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Rename)?;
    std::fs::rename(from, to)?;
    #[cfg(test)]
    plan::renamed(from, to);
    Ok(())
}

/// Renames a file or directory in one directory to a name in another.
#[inline]
pub(super) fn rename_at(
    from: (BorrowedFd<'_>, &[u8]),
    to: (BorrowedFd<'_>, &[u8]),
) -> io::Result<()> {
    #[cfg(test)]
    plan::before(plan::Operation::Rename)?;
    #[cfg(test)]
    let paths = (plan::path_at(from.0, from.1), plan::path_at(to.0, to.1));
    rustix::fs::renameat(from.0, from.1, to.0, to.1)?;
    #[cfg(test)]
    plan::renamed(&paths.0, &paths.1);
    Ok(())
}
