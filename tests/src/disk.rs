//! A file system of a few kilobytes, which tests can fill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted tmpfs, which is unmounted when the value is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a tmpfs of `kilobytes` KiB. Only root may: otherwise prints that and returns `None`.
    #[must_use]
    pub fn mount(at: &Path, kilobytes: u32) -> Option<Self> {
        let mounted = rustix::process::geteuid().is_root().then(|| {
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "test"])
                .arg(at)
                .stderr(Stdio::null())
                .status()
        });
        if matches!(mounted, Some(Ok(status)) if status.success()) {
            let path = at.to_owned();
            return Some(Self { path });
        }
        eprintln!("cannot mount a tmpfs: test skipped");
        None
    }

    /// Fills the file system up to `left` KiB of free space.
    ///
    /// # Panics
    /// If there is less free space already.
    pub fn fill(&self, left: u64) {
        let about = rustix::fs::statvfs(&self.path).unwrap();
        let free = about.f_bavail * about.f_frsize;
        let size = usize::try_from(free.checked_sub(left << 10).unwrap()).unwrap();
        match std::fs::write(self.filler(), vec![0; size]) {
            // Another process has written meanwhile: then the file system is full, too.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
            written => written.unwrap(),
        }
    }

    /// Removes what [`Self::fill`] has written.
    ///
    /// # Panics
    /// If the file system has not been filled.
    pub fn free_space(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount (`-l`), because a program may still have files open if the test has
        // failed.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
