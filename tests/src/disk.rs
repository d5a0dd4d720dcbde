//! A disk of its own, small enough to be full soon.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system in memory, until it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// One of so many kilobytes, at this directory. None, and that is said, if this user may not.
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
        eprintln!("cannot mount: not tried");
        None
    }

    /// Fills it, but for so many kilobytes.
    ///
    /// # Panics
    /// If it cannot be filled, or has less left.
    pub fn fill(&self, left: u64) {
        let about = rustix::fs::statvfs(&self.path).unwrap();
        let free = about.f_bavail * about.f_frsize;
        let size = usize::try_from(free.checked_sub(left << 10).unwrap()).unwrap();
        match std::fs::write(self.filler(), vec![0; size]) {
            // Somebody has taken some of it meanwhile: then it is full.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
            written => written.unwrap(),
        }
    }

    /// Makes room again.
    ///
    /// # Panics
    /// If it has not been filled.
    pub fn free_space(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a program may still have files there, if a test has failed.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
