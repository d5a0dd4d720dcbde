//! Write leases: whether any other process, or another descriptor of this one, has a file open.
#![allow(
    unsafe_code,
    reason = "neither the standard library nor rustix or nix has F_SETLEASE; the calls pass integers only"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{F_SETLEASE, F_UNLCK, F_WRLCK, SIGURG};

/// Sets the signal that announces a waiting `open`. (`fcntl.h`; not in libc)
const F_SETSIG: libc::c_int = 10;

/// A write lease on a file. As long as it is held, no other descriptor of the file exists, and an
/// `open` of it waits. The kernel takes the lease away when an `open` has waited for 45 seconds
/// (`/proc/sys/fs/lease-break-time`).
#[derive(Debug)]
pub(super) struct WriteLease {
    file: Arc<File>,
}

impl WriteLease {
    /// Takes a lease. `None` if the file is open elsewhere, if the file system has no leases, or if
    /// the file belongs to another user.
    pub(super) fn acquire(file: &Arc<File>) -> Option<Self> {
        // An `open` that waits is announced by SIGIO, which ends the process; SIGURG is ignored by
        // default.
        set(file, F_SETSIG, SIGURG).ok()?;
        set(file, F_SETLEASE, F_WRLCK).ok()?;
        let file = Arc::clone(file);
        Some(Self { file })
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        // It is released with the descriptor at the latest.
        let _ = set(&self.file, F_SETLEASE, F_UNLCK);
    }
}

fn set(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is, and both commands take an integer.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_lease_is_refused_while_a_reader_has_the_file_open() {
        let temporary = tempfile::NamedTempFile::new().unwrap();
        let file = &Arc::new(temporary.reopen().unwrap());
        assert!(WriteLease::acquire(file).is_none());
        let path = temporary.into_temp_path();
        drop(WriteLease::acquire(file).unwrap());
        let reader = File::open(&path).unwrap();
        assert!(WriteLease::acquire(file).is_none());
        drop(reader);
        assert!(WriteLease::acquire(file).is_some());
    }

    #[test]
    fn an_open_call_waits_until_the_lease_is_released() {
        let temporary = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(temporary.reopen().unwrap());
        let path = temporary.into_temp_path();
        let lease = WriteLease::acquire(&file).unwrap();
        let reader_path = path.to_path_buf();
        let reader = std::thread::spawn(move || std::fs::read(reader_path).unwrap());
        file.write_all_at(b"whole", 0).unwrap();
        drop(lease);
        assert_eq!(reader.join().unwrap(), b"whole");
    }
}
