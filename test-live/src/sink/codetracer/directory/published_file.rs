//! A file that grows and that readers see whole: what a reader has opened never changes.
//!
//! A file whose end must be closed, as a JSON array, cannot be extended under a reader: one that
//! has passed the end would read on into the extension. A write lease says whether anybody has the
//! file open, and lets those wait who are about to open it:
//!
//! - If nobody has, and what is to be written is within one page of the file, one call writes new
//!   bytes over the end, with a new end after them.
//! - Else the next state is written to a spare copy, which then changes names with the visible one.
//!   The copy that was replaced is the next spare when its readers have closed it, and lacks
//!   little.
//!
//! The first way is preferred since `cp` gives up on a file that is replaced between its `stat` and
//! its `open`. It is limited to a page since the kernel copies page by page, and a process that is
//! killed ends its call between two of them. Spare copies have names with a dot. The names stay, so
//! that `cp -r` finds all that it has listed.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use regular_file::open_at;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, copy_file_range, fallocate, linkat,
    openat, renameat_with,
};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use super::lease::WriteLease;
use super::steps;

/// Spare copies that are kept. Of more readers that hold on to old copies, the oldest copy loses
/// its name.
const MAX_SPARES: usize = 8;
/// Bytes that are copied at a time where the kernel cannot do it.
const COPY_BYTES: usize = 256 << 10;

/// A file of a directory, and its spare copies.
#[derive(Debug)]
pub(super) struct PublishedFile {
    directory: Arc<OwnedFd>,
    name: &'static str,
    visible: Option<FileCopy>,
    spares: Vec<(String, FileCopy)>,
    /// The number of bytes that stay.
    len: u64,
    /// A byte that may follow the end of the file.
    padding: Option<u8>,
}

#[derive(Debug)]
struct FileCopy {
    file: Arc<File>,
    /// The number of bytes that it has of those that stay; `None` if an earlier process has written
    /// it.
    len: Option<u64>,
    /// The size of the file.
    size: u64,
    /// Whether readers may have opened it by its public name.
    was_visible: bool,
}

impl PublishedFile {
    /// The file `name` of a directory. A file of an earlier process stays visible until the first
    /// publication. `padding` may follow its end.
    pub(super) fn open(
        directory: Arc<OwnedFd>,
        name: &'static str,
        padding: Option<u8>,
    ) -> io::Result<Self> {
        let mut published = Self {
            padding,
            visible: None,
            spares: Vec::new(),
            len: 0,
            directory,
            name,
        };
        published.visible = published.open_copy(name)?;
        // Copies that an earlier process has left are used again, or they would pile up.
        for number in 1..=MAX_SPARES {
            let name = published.spare_name(number);
            if let Some(copy) = published.open_copy(&name)? {
                published.spares.push((name, copy));
            }
        }
        Ok(published)
    }

    /// The file that readers see, if there is one.
    pub(super) fn visible(&self) -> Option<&File> {
        self.visible.as_ref().map(|copy| &*copy.file)
    }

    /// Appends bytes that stay, and then `end` in place of the end before. Readers see it if
    /// `is_published`.
    pub(super) fn write(&mut self, bytes: &[u8], end: &[u8], is_published: bool) -> io::Result<()> {
        if self.visible.is_none() && self.spares.is_empty() && is_published {
            return self.create_visible(bytes, end);
        }
        if is_published && self.write_in_place(bytes, end)? {
            return Ok(());
        }
        let (place, lease) = self.writable_spare()?;
        let (_, spare) = self.spares.get(place).ok_or(ErrorKind::NotFound)?;
        // Bytes of an earlier process may be those of another recording: they are written over.
        let has = spare.len.unwrap_or(0);
        if has < self.len {
            let source = self.newest().ok_or(ErrorKind::NotFound)?;
            steps::check()?;
            copy(&source.file, &spare.file, has..self.len)?;
        }
        append(&spare.file, self.len, bytes, end)?;
        // Given back before the copy is visible: readers that open it would wait.
        drop(lease);
        self.len += bytes.len() as u64;
        if let Some((_, spare)) = self.spares.get_mut(place) {
            spare.len = Some(self.len);
            spare.size = self.len + end.len() as u64;
        }
        if is_published {
            self.publish(place)?;
        }
        Ok(())
    }

    /// Whether the first `length` bytes that an earlier process has left are the first ones that
    /// have been written.
    pub(super) fn has_same_begin(&self, length: u64) -> io::Result<bool> {
        let (Some(visible), Some(newest)) = (&self.visible, self.newest()) else {
            return Ok(true);
        };
        if length > self.len {
            return Ok(false);
        }
        let (mut left, mut right) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
        let mut at = 0;
        while at < length {
            let here = usize::try_from(length - at)
                .unwrap_or(usize::MAX)
                .min(COPY_BYTES);
            let left = left.get_mut(..here).unwrap_or_default();
            let right = right.get_mut(..here).unwrap_or_default();
            visible.file.read_exact_at(left, at)?;
            newest.file.read_exact_at(right, at)?;
            if left != right {
                return Ok(false);
            }
            at += here as u64;
        }
        Ok(true)
    }

    /// Empties the spare copies that no reader has open.
    pub(super) fn free_spares(&mut self) -> io::Result<()> {
        for (_, spare) in self.spares.drain(..) {
            // As long as the lease is held, nobody can open the file and miss what it had.
            if let Some(_lease) = WriteLease::acquire(&spare.file) {
                spare.file.set_len(0)?;
            }
        }
        Ok(())
    }

    /// Writes over the end of the visible file. Returns false if it is open elsewhere, or if a
    /// process that is killed could leave part of what is to be written.
    fn write_in_place(&mut self, bytes: &[u8], end: &[u8]) -> io::Result<bool> {
        let Some(visible) = &mut self.visible else {
            return Ok(false);
        };
        let len = self.len + bytes.len() as u64;
        let size = len + end.len() as u64;
        let surplus = usize::try_from(visible.size.saturating_sub(size)).unwrap_or(usize::MAX);
        let is_whole = is_within_page(self.len, size.max(visible.size));
        if visible.len != Some(self.len) || !is_whole || surplus > 0 && self.padding.is_none() {
            return Ok(false);
        }
        let Some(_lease) = WriteLease::acquire(&visible.file) else {
            return Ok(false);
        };
        // One call within a page: a process that is killed leaves all of it or nothing.
        let mut all = [bytes, end].concat();
        // What the new end does not cover of the old one becomes padding.
        all.resize(all.len() + surplus, self.padding.unwrap_or_default());
        if !reserve(&visible.file, self.len, all.len() as u64)? {
            return Ok(false);
        }
        steps::check()?;
        visible.file.write_all_at(&all, self.len)?;
        visible.size = visible.size.max(size);
        visible.len = Some(len);
        self.len = len;
        Ok(true)
    }

    /// Makes the first copy, without a name until it is whole.
    fn create_visible(&mut self, bytes: &[u8], end: &[u8]) -> io::Result<()> {
        steps::check()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let Ok(file) = openat(&*self.directory, ".", flags, MODE) else {
            // The file system has no files without name.
            self.create_spare()?;
            return self.write(bytes, end, true);
        };
        let file = File::from(file);
        append(&file, 0, bytes, end)?;
        steps::check()?;
        link(&file, &*self.directory, self.name)?;
        self.len = bytes.len() as u64;
        self.visible = Some(FileCopy {
            file: Arc::new(file),
            len: Some(self.len),
            size: self.len + end.len() as u64,
            was_visible: true,
        });
        Ok(())
    }

    /// The spare copy to write to: one that nobody reads, and of those the one that lacks least.
    /// Nobody can open it as long as the lease is held.
    fn writable_spare(&mut self) -> io::Result<(usize, Option<WriteLease>)> {
        let mut places: Vec<_> = (0..self.spares.len()).collect();
        let len = |place: &usize| self.spares.get(*place).and_then(|(_, copy)| copy.len);
        places.sort_by_key(|place| Reverse(len(place)));
        for place in places {
            let Some((_, spare)) = self.spares.get(place) else {
                continue;
            };
            // Nobody has opened a copy that was never visible: it needs no lease.
            if !spare.was_visible {
                return Ok((place, None));
            }
            if let Some(lease) = WriteLease::acquire(&spare.file) {
                return Ok((place, Some(lease)));
            }
        }
        self.create_spare()?;
        Ok((self.spares.len() - 1, None))
    }

    fn create_spare(&mut self) -> io::Result<()> {
        steps::check()?;
        let is_used = |name: &String| self.spares.iter().any(|(used, _)| used == name);
        let mut names = (1..=MAX_SPARES).map(|number| self.spare_name(number));
        let name = match names.find(|name| !is_used(name)) {
            Some(name) => name,
            None => {
                let (name, _) = self.spares.remove(0);
                rustix::fs::unlinkat(&*self.directory, &*name, AtFlags::empty())?;
                name
            }
        };
        // A file of this name that has come meanwhile may have readers.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&*self.directory, &*name, flags, MODE)?;
        let copy = FileCopy {
            file: Arc::new(file.into()),
            len: Some(0),
            size: 0,
            was_visible: false,
        };
        self.spares.push((name, copy));
        Ok(())
    }

    /// Lets a spare copy change names with the visible one.
    fn publish(&mut self, place: usize) -> io::Result<()> {
        steps::check()?;
        let Some((name, spare)) = self.spares.get_mut(place) else {
            return Ok(());
        };
        spare.was_visible = true;
        let directory = &*self.directory;
        let rename = |flags| renameat_with(directory, &**name, directory, self.name, flags);
        if let Some(visible) = &mut self.visible {
            match rename(RenameFlags::EXCHANGE) {
                Ok(()) => {
                    // The file system has exchanged the names already.
                    std::mem::swap(visible, spare);
                    return Ok(());
                }
                // The file system cannot exchange names, or the visible file is gone.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Readers of the old file go on with it, but no later reader finds it.
        rename(RenameFlags::empty())?;
        self.visible = Some(self.spares.remove(place).1);
        Ok(())
    }

    /// A copy that has all bytes that stay.
    fn newest(&self) -> Option<&FileCopy> {
        let spares = self.spares.iter().map(|(_, copy)| copy);
        let mut copies = self.visible.iter().chain(spares);
        copies.find(|copy| copy.len == Some(self.len))
    }

    fn open_copy(&self, name: &str) -> io::Result<Option<FileCopy>> {
        match open_at(&*self.directory, name, OFlags::RDWR) {
            Ok(file) => Ok(Some(FileCopy {
                file: Arc::new(file),
                len: None,
                size: 0,
                was_visible: true,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn spare_name(&self, number: usize) -> String {
        format!(".{}.{number}", self.name)
    }
}

/// Files for everybody that the umask allows.
pub(super) const MODE: Mode = Mode::from_raw_mode(0o666);

/// Gives a file without name its first one.
pub(super) fn link(file: &File, directory: impl AsFd, name: &str) -> io::Result<()> {
    // The way without a path, `AT_EMPTY_PATH`, needs a privilege.
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(
        CWD,
        unnamed,
        directory,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

/// Writes `bytes` and `end` at `offset`, and removes what follows.
fn append(file: &File, offset: u64, bytes: &[u8], end: &[u8]) -> io::Result<()> {
    steps::check()?;
    file.write_all_at(bytes, offset)?;
    steps::check()?;
    let end_at = offset + bytes.len() as u64;
    file.write_all_at(end, end_at)?;
    steps::check()?;
    file.set_len(end_at + end.len() as u64)
}

/// Whether a range, which is not empty, is within one page of a file.
fn is_within_page(begin: u64, end: u64) -> bool {
    let page_bytes = page_size() as u64;
    begin / page_bytes == end.saturating_sub(1) / page_bytes
}

/// Reserves space for bytes that are written over the end of a file: a full disk must not cut them
/// off. Returns false if the file system cannot.
fn reserve(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    steps::check()?;
    // Beyond this limit, a write is cut short or the signal SIGXFSZ ends the process.
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| offset + length > limit) {
        return Err(ErrorKind::FileTooLarge.into());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
        Ok(()) => Ok(true),
        // The caller then writes another copy, which needs no reservation.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies a range to the same place of another file.
fn copy(from: &File, to: &File, range: std::ops::Range<u64>) -> io::Result<()> {
    let (mut from_at, mut to_at) = (range.start, range.start);
    while to_at < range.end {
        let left = usize::try_from(range.end - to_at).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), left) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel does not copy between these file systems.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_by_hand(from, to, to_at..range.end);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, range: std::ops::Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let piece = buffer.get_mut(..left.min(COPY_BYTES)).unwrap_or_default();
        from.read_exact_at(piece, at)?;
        to.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}
