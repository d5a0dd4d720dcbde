//! The run directory of the rings: which process directories it has, and opening and removing their
//! files.
//!
//! Everything below the run directory belongs to the traced programs, which may be hostile. No
//! symbolic link is followed and no mount point is crossed; a FIFO, a device or a file of another
//! user is not opened for use.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, inotify, statat,
};
use rustix::io::Errno;
use rustix::process::getuid;
use thiserror::Error;
use trace_ring_core::format::{META_FILE, parse_directory_name, parse_ring_file_name};

use crate::limits::{MAX_RING_DIRECTORY_ENTRIES, MAX_RING_ENTRIES_OF_USER, MAX_RINGS_OF_PROCESS};

/// Mode of a run directory that root makes: every user may add a directory, and only its owner may
/// remove it.
const SHARED_MODE: u32 = 0o1733;
/// Mode of a run directory that any other user makes.
const PRIVATE_MODE: u32 = 0o700;

/// Bits of the mode of a process directory that `trace-ring` never sets: its group and others may
/// write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Age from which a directory that is not complete counts as abandoned.
const UNFINISHED_TIMEOUT: Duration = Duration::from_secs(60);

/// Entries of a process directory that are read at a time, besides those of its rings.
const OTHER_ENTRIES: usize = 64;

/// The name of a process directory: `<pid>-<start ticks>-<random>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectoryName(String);

impl DirectoryName {
    /// Parses a name; `None` for everything else that may be in the directory.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        parse_directory_name(name).map(|_| Self(name.to_owned()))
    }

    /// Returns the name as it is in the run directory: ASCII letters, digits and hyphens.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the process id in the name, which the process has chosen.
    #[must_use]
    pub fn pid(&self) -> u32 {
        parse_directory_name(&self.0).map_or(0, |(pid, _)| pid)
    }
}

/// A file or directory of a process is not used.
#[derive(Debug, Error)]
pub enum RefusedFile {
    /// The system does not open or describe the file.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The file is not what its name says: a symbolic link, FIFO, device or directory instead of a
    /// file.
    #[error("not a {0}")]
    Type(&'static str),
    /// The file has several names: those of other processes may be among them, whose user would be
    /// read many times.
    #[error("it has {0} names")]
    Names(u64),
    /// Other users than the owner may change what is in the directory.
    #[error("other users may write to it (mode {0:04o})")]
    Mode(u32),
    /// The file belongs to a user whose events are not taken, or to another user than its
    /// directory.
    #[error("owned by the user {owner}, not by {expected}")]
    Owner {
        /// The user id of its owner.
        owner: u32,
        /// The user id of the directory's owner, or of this process.
        expected: u32,
    },
}

impl From<Errno> for RefusedFile {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// The run directory, open: what is done below it is done by its descriptor, whatever happens to
/// its path.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl RunDirectory {
    /// Opens the directory, and makes it if it is missing.
    ///
    /// # Errors
    /// If it cannot be made or read.
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_root = getuid().is_root();
        let mode = if is_root { SHARED_MODE } else { PRIVATE_MODE };
        if !path.exists() {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match DirBuilder::new().mode(PRIVATE_MODE).create(path) {
                // The mode of mkdir is subject to the umask.
                Ok(()) => fs::chmod(path, Mode::from_raw_mode(mode))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Self::open(path)
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// If it does not exist or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            directory: fs::open(path, flags, Mode::empty())?,
        })
    }

    /// Returns the path by which the directory was opened, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock of the process that frees the rings, as long as this value lives. Returns
    /// false if another process has it.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn try_lock(&self) -> io::Result<bool> {
        match fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes directories that processes were making when they died: those with a leading dot that
    /// are old, and whose `meta` is missing or not locked. Returns how many.
    ///
    /// # Errors
    /// If the run directory cannot be read.
    pub fn remove_unfinished(&self, now: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        let mut entries = Dir::read_from(&self.directory)?;
        for _ in 0..MAX_RING_DIRECTORY_ENTRIES {
            let Some(entry) = entries.read() else { break };
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().ok() else {
                continue;
            };
            let Some(unfinished) = name.strip_prefix('.').and_then(DirectoryName::parse) else {
                continue;
            };
            // Its files are removed by the name with the dot.
            let name = DirectoryName(format!(".{}", unfinished.as_str()));
            if self
                .remove_if_abandoned(&name, now)
                .is_ok_and(|is_removed| is_removed)
            {
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn remove_if_abandoned(
        &self,
        name: &DirectoryName,
        now: SystemTime,
    ) -> Result<bool, RefusedFile> {
        let process = self.open_process(name)?;
        let stat = fs::fstat(&process.directory)?;
        let changed = u64::try_from(stat.st_mtime).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::from_secs(changed);
        // The process may be about to make its first file. A clock that was set back only delays
        // the removal.
        if now.duration_since(changed).unwrap_or_default() < UNFINISHED_TIMEOUT {
            return Ok(false);
        }
        let meta = process.open_file(META_FILE, Access::Read);
        // A process holds the lock of its `meta` as long as it lives.
        if let Ok((meta, _)) = &meta
            && !file_lock::try_lock_exclusive(meta)?
        {
            return Ok(false);
        }
        process.remove_all_files(META_FILE)?;
        process.remove_file(META_FILE)?;
        self.remove_process(name)?;
        Ok(true)
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn unlock(&self) -> io::Result<()> {
        Ok(fs::flock(&self.directory, FlockOperation::Unlock)?)
    }

    /// Finds the process directories that `is_wanted`. All entries are looked at, however many
    /// there are, and of each user some are returned. `owner` is asked for the owner of a directory
    /// that is known already.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn find(
        &self,
        is_wanted: impl Fn(&DirectoryName) -> bool,
        owner: impl Fn(&DirectoryName) -> Option<u32>,
    ) -> io::Result<FoundProcesses> {
        let mut found = FoundProcesses::default();
        let mut entries = Dir::read_from(&self.directory)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            let parsed = name.to_str().ok().and_then(DirectoryName::parse);
            let Some(parsed) = parsed.filter(&is_wanted) else {
                continue;
            };
            let uid = match owner(&parsed) {
                // A scan comes often, and may find thousands of entries: those that are known cost
                // no call.
                Some(uid) => uid,
                None => match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat.st_uid,
                    // It is gone.
                    Err(_) => continue,
                },
            };
            found.add(parsed, uid);
        }
        Ok(found)
    }

    /// Opens the directory of a process.
    ///
    /// # Errors
    /// If it is not a directory, other users may write to it, or its owner is not one whose events
    /// this process takes: any user for root, itself for others.
    pub fn open_process(&self, name: &DirectoryName) -> Result<ProcessDirectory, RefusedFile> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open_beneath(&self.directory, name.as_str(), flags)?;
        let stat = fs::fstat(&directory)?;
        let own = getuid();
        if !own.is_root() && stat.st_uid != own.as_raw() {
            return Err(RefusedFile::Owner {
                owner: stat.st_uid,
                expected: own.as_raw(),
            });
        }
        if stat.st_mode & OTHERS_MAY_WRITE != 0 {
            return Err(RefusedFile::Mode(stat.st_mode & 0o7777));
        }
        Ok(ProcessDirectory {
            name: name.clone(),
            directory,
            uid: stat.st_uid,
        })
    }

    /// Removes the directory of a process, which must be empty.
    ///
    /// # Errors
    /// If it is not.
    pub fn remove_process(&self, name: &DirectoryName) -> io::Result<()> {
        fs::unlinkat(&self.directory, name.as_str(), AtFlags::REMOVEDIR)?;
        Ok(())
    }

    /// Watches the directory for new process directories.
    ///
    /// # Errors
    /// If the user has no watch left.
    pub fn watch(&self) -> io::Result<DirectoryWatch> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags)?;
        // A process renames its directory when it is complete.
        let events = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CREATE;
        inotify::add_watch(&watch, &self.path, events)?;
        Ok(DirectoryWatch(watch))
    }
}

/// Entries of the run directory that have the names of process directories, by their owners.
#[derive(Debug, Default)]
pub struct FoundProcesses {
    users: BTreeMap<u32, Vec<DirectoryName>>,
    /// Entries that are not looked at.
    left_out: BTreeMap<u32, usize>,
}

impl FoundProcesses {
    fn add(&mut self, name: DirectoryName, uid: u32) {
        let of_user = self.users.entry(uid).or_default();
        if of_user.len() < MAX_RING_ENTRIES_OF_USER {
            of_user.push(name);
        } else {
            *self.left_out.entry(uid).or_default() += 1;
        }
    }

    /// Returns the users who have too many entries, with the number of those that are left out.
    pub fn left_out(&self) -> impl Iterator<Item = (u32, usize)> {
        self.left_out.iter().map(|(uid, count)| (*uid, *count))
    }

    /// Returns the entries with their owners, in turns: one of each user, then the next one of
    /// each. Where there is no room for all, there is for some of each user.
    #[must_use]
    pub fn in_turns(&self) -> Vec<(DirectoryName, u32)> {
        let rounds = self.users.values().map(Vec::len).max().unwrap_or(0);
        let users = |round: usize| {
            let of_round = move |(uid, names): (&u32, &Vec<DirectoryName>)| {
                names.get(round).map(|name| (name.clone(), *uid))
            };
            self.users.iter().filter_map(of_round)
        };
        (0..rounds).flat_map(users).collect()
    }
}

/// Reports that the run directory has new entries.
#[derive(Debug)]
pub struct DirectoryWatch(OwnedFd);

impl DirectoryWatch {
    /// Returns the descriptor, which is readable when there are new entries.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }
}

/// The directory of one process.
#[derive(Debug)]
pub struct ProcessDirectory {
    name: DirectoryName,
    directory: OwnedFd,
    uid: u32,
}

/// How a file of a process is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read only, as an observer does.
    Read,
    /// To read, and to write the few fields that belong to the reader.
    ReadWrite,
}

impl ProcessDirectory {
    /// Returns the name of the directory.
    #[must_use]
    pub fn name(&self) -> &DirectoryName {
        &self.name
    }

    /// Returns the user id of its owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Opens a file of the process.
    ///
    /// # Errors
    /// If it is not a regular file, not of the directory's owner, or has several names.
    pub fn open_file(&self, name: &str, access: Access) -> Result<(File, Stat), RefusedFile> {
        // Non-blocking: opening a FIFO, or a file with a lease, must not wait for its owner.
        let access = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = open_beneath(&self.directory, name, flags)?;
        let stat = fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(RefusedFile::Type("regular file"));
        }
        // Checked on the open file: by its name, another one could take its place in between.
        if stat.st_nlink > 1 {
            return Err(RefusedFile::Names(stat.st_nlink));
        }
        if stat.st_uid != self.uid {
            return Err(RefusedFile::Owner {
                owner: stat.st_uid,
                expected: self.uid,
            });
        }
        Ok((file.into(), stat))
    }

    /// Returns the numbers of the ring files, in ascending order; at most those among the first
    /// entries.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn ring_numbers(&self) -> io::Result<Vec<u32>> {
        let mut entries = Dir::read_from(&self.directory)?;
        let mut numbers = Vec::new();
        for _ in 0..MAX_RINGS_OF_PROCESS + OTHER_ENTRIES {
            let Some(entry) = entries.read() else { break };
            let entry = entry?;
            let name = entry.file_name().to_str();
            numbers.extend(name.ok().and_then(parse_ring_file_name));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes all files but one, whatever their names: also those that the process was still
    /// making. Directories stay.
    ///
    /// # Errors
    /// If the directory cannot be read, or a file cannot be removed.
    pub fn remove_all_files(&self, except: &str) -> io::Result<()> {
        let mut entries = Dir::read_from(&self.directory)?;
        for _ in 0..MAX_RING_DIRECTORY_ENTRIES {
            let Some(entry) = entries.read() else { break };
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type() == FileType::Directory || name.to_bytes() == except.as_bytes() {
                continue;
            }
            match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes a file of the process. It is no error if there is none.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens an entry of a directory, which is neither a symbolic link nor a mount point.
fn open_beneath(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, RefusedFile> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let opened = match fs::openat2(&directory, name, flags, Mode::empty(), resolve) {
        // Sandboxes of older systems do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => fs::openat(&directory, name, flags, Mode::empty()),
        opened => opened,
    };
    match opened {
        Ok(opened) => Ok(opened),
        Err(Errno::LOOP) => Err(RefusedFile::Type("file, but a symbolic link")),
        Err(Errno::NOTDIR) => Err(RefusedFile::Type("directory")),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_user_hide_none_of_another() {
        let mut found = FoundProcesses::default();
        let name = |pid: usize| DirectoryName::parse(&format!("{pid}-17-00000000")).unwrap();
        for pid in 0..70_000 {
            found.add(name(pid), 1);
        }
        for (pid, uid) in [(70_001, 2), (70_002, 2), (70_003, 3)] {
            found.add(name(pid), uid);
        }
        let turns = found.in_turns();
        assert_eq!(turns.len(), MAX_RING_ENTRIES_OF_USER + 3);
        let owners: Vec<u32> = turns.iter().map(|(_, uid)| *uid).take(6).collect();
        assert_eq!(owners, [1, 2, 3, 1, 2, 1]);
        assert_eq!(turns[1].0, name(70_001));
        let left_out: Vec<_> = found.left_out().collect();
        assert_eq!(left_out, [(1, 70_000 - MAX_RING_ENTRIES_OF_USER)]);
    }

    #[test]
    fn all_entries_of_the_directory_are_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        for entry in ["1-17-00000000", "2-17-00000000", ".3-17-00000000", "junk"] {
            std::fs::create_dir(directory.path().join(entry)).unwrap();
        }
        let own = rustix::process::geteuid().as_raw();
        let found = run.find(|name| name.pid() != 2, |_| None).unwrap();
        let first = DirectoryName::parse("1-17-00000000").unwrap();
        assert_eq!(found.in_turns(), [(first, own)]);
        let found = run.find(|_| true, |_| Some(7)).unwrap();
        assert!(found.in_turns().iter().all(|(_, uid)| *uid == 7));
    }
}
