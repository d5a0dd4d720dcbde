//! The directory of one process: made under a hidden name, renamed when it is complete.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use crate::format::{
    CONTROL_FILE, CONTROL_SIZE, Control, META_FILE, META_HEADER_SIZE, MetaHeader, RING_STATE_LIVE,
    RingHeader, ring_file_name,
};
use crate::memory::{Mapping, RingMapping, keep_lock};

/// Bytes that `meta` has at first: the header and some hundred event classes.
const INITIAL_META_SIZE: usize = 64 << 10;

/// The directory of this process, complete and locked.
#[derive(Debug)]
pub(crate) struct ProcessDirectory {
    path: PathBuf,
    /// The header of `meta`.
    pub(crate) meta_header: Mapping,
    pub(crate) control: Mapping,
}

impl ProcessDirectory {
    /// Makes the directory `name` under `parent`, which is made if it is missing. Returns it with a
    /// mapping of all of `meta` for the table of event classes.
    ///
    /// When a directory or file cannot be made, for example because the file system is full.
    /// Nothing is left then.
    pub(crate) fn create(
        parent: &Path,
        name: &str,
        header: &MetaHeader,
        control: &Control,
    ) -> io::Result<(Self, Mapping)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        // The program may change its working directory.
        let parent = parent.canonicalize()?;
        let hidden = parent.join(format!(".{name}"));
        DirBuilder::new().mode(0o700).create(&hidden)?;
        let path = parent.join(name);
        let result = fill(&hidden, header, control).and_then(|files| {
            keep_lock(files.lock.into())?;
            fs::rename(&hidden, &path)?;
            let Files {
                meta_header,
                control,
                ..
            } = files;
            Ok((
                Self {
                    path,
                    meta_header,
                    control,
                },
                files.meta,
            ))
        });
        if result.is_err() {
            // Best effort: the error that is reported is the first one.
            let _ = fs::remove_dir_all(&hidden);
        }
        result
    }

    /// Makes a ring file, which appears under its name when it is complete.
    ///
    /// When the file cannot be made or has no room. Nothing is left then.
    pub(crate) fn create_ring(&self, header: &RingHeader) -> io::Result<RingMapping> {
        let name = ring_file_name(header.number);
        let hidden = self.path.join(format!(".{name}"));
        let result = create_file(&hidden, header.file_size()).and_then(|file| {
            let mapping = RingMapping::new(&file, header)?;
            mapping.set_state(RING_STATE_LIVE);
            fs::rename(&hidden, self.path.join(&name))?;
            Ok(mapping)
        });
        if result.is_err() {
            let _ = fs::remove_file(&hidden);
        }
        result
    }

    /// Removes the file of a ring that the drainer has released.
    pub(crate) fn remove_ring(&self, number: u32) {
        // A drainer may have removed the directory: there is nothing to do then.
        let _ = fs::remove_file(self.path.join(ring_file_name(number)));
    }

    /// Allocates more of `meta` and maps it anew.
    ///
    /// # Errors
    /// When the file system has no room, or the file cannot be opened any more.
    pub(crate) fn grow_meta(&self, size: usize) -> io::Result<Mapping> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(META_FILE))?;
        allocate(&file, size as u64)?;
        Ok(Mapping::new(&file, size)?)
    }
}

/// The files of a new directory.
struct Files {
    /// The file `meta`, which is locked.
    lock: File,
    meta_header: Mapping,
    meta: Mapping,
    control: Mapping,
}

fn fill(path: &Path, header: &MetaHeader, control: &Control) -> io::Result<Files> {
    let lock = create_file(&path.join(META_FILE), INITIAL_META_SIZE as u64)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let meta_header = Mapping::new(&lock, META_HEADER_SIZE)?;
    let mut meta = Mapping::new(&lock, INITIAL_META_SIZE)?;
    meta.write(0, &header.encode());
    let file = create_file(&path.join(CONTROL_FILE), CONTROL_SIZE as u64)?;
    let bytes = control
        .encode()
        .ok_or_else(|| io::Error::other("the filter is too long"))?;
    let mut control = Mapping::new(&file, CONTROL_SIZE)?;
    // Call sites of a forked child look at the generation before the child has a directory of its
    // own.
    control.share_with_children()?;
    control.write(0, &bytes);
    Ok(Files {
        lock,
        meta_header,
        meta,
        control,
    })
}

fn create_file(path: &Path, size: u64) -> io::Result<File> {
    // `create_new` fails on anything that is there already, a symbolic link included.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    allocate(&file, size)?;
    Ok(file)
}

/// Allocates storage before the file is mapped: a full file system is an error here, not SIGBUS at
/// some event.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        // Some network file systems allocate only what is written.
        Err(Errno::OPNOTSUPP) => {
            let present = file.metadata()?.len();
            let mut end = file;
            end.seek(SeekFrom::End(0))?;
            let zeros = io::repeat(0).take(size.saturating_sub(present));
            io::copy(&mut { zeros }, &mut end).map(|_| ())
        }
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Mode, SeverityClass};

    fn ring_header() -> RingHeader {
        RingHeader {
            number: 0,
            sub_buffer_size: 4096,
            sub_buffer_count: 2,
            mode: Mode::Discard,
            severity_class: SeverityClass::Normal,
            tid: 1,
            thread_name: [0; 16],
            created: 0,
        }
    }

    fn directory(parent: &Path) -> io::Result<(ProcessDirectory, Mapping)> {
        let header = MetaHeader {
            pid: 1,
            uid: 0,
            start_ticks: 2,
            uuid: [0; 16],
            boot_id: [0; 16],
            process_name: [0; 16],
            program: Vec::new(),
            committed: 0,
            clock_offset: 0,
            lost_no_ring: 0,
        };
        let control = Control {
            generation: 1,
            directives: "info".into(),
        };
        ProcessDirectory::create(parent, "1-2-00000000", &header, &control)
    }

    #[test]
    fn a_file_or_link_that_is_there_already_is_never_written_to() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, _) = directory(parent.path()).unwrap();
        let target = parent.path().join("target");
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, directory.path.join(".r0")).unwrap();
        let error = directory.create_ring(&ring_header()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_is_there_already_is_never_used() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join(".1-2-00000000")).unwrap();
        let error = directory(parent.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_run_directory_that_is_a_file_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(directory(file.path()).is_err());
    }

    #[test]
    fn rings_of_a_directory_that_a_drainer_has_removed_cannot_be_made_but_do_no_harm() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, _) = directory(parent.path()).unwrap();
        fs::remove_dir_all(&directory.path).unwrap();
        assert!(directory.create_ring(&ring_header()).is_err());
        directory.remove_ring(0);
    }
}
