//! Files that hang. An `open` of a file on which another process holds a lease blocks until that
//! process releases it, as it would on a disk that does not respond. No privileges are needed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::{peers, wait_until};

/// A Perl program that takes a lease (`F_SETLEASE`, `F_WRLCK`), which neither the standard library
/// nor any crate here can, and ignores the signal by which the kernel asks for it back.
const HOLDER_SCRIPT: &str = r#"
    $SIG{IO} = "IGNORE"; $| = 1;
    open(my $file, "+<", $ARGV[0]) or die "$!"; fcntl($file, 1024, 1) or die "$!";
    print "held\n"; sleep 1 while 1;
"#;

/// A write lease on a file: any `open` of the file blocks until the value is dropped. The kernel
/// revokes the lease 45 seconds after the first such `open` (`/proc/sys/fs/lease-break-time`).
#[derive(Debug)]
pub struct FileLease {
    path: PathBuf,
    _holder: Process,
}

impl FileLease {
    /// Takes a lease. No process may have the file open.
    ///
    /// # Panics
    /// If the kernel refuses the lease.
    #[must_use]
    pub fn acquire(path: &Path) -> Self {
        let mut command = Command::new(peers::program("perl"));
        command
            .args(["-e", HOLDER_SCRIPT])
            .arg(path)
            .stdin(Stdio::null());
        let holder = Process::start(&mut command);
        wait_until("the lease is held", || !holder.stdout().is_empty());
        Self {
            path: path.to_owned(),
            _holder: holder,
        }
    }

    /// Whether an `open` call waits for the lease (`BREAKING` in `/proc/locks`).
    ///
    /// # Panics
    /// If the file is gone.
    #[must_use]
    pub fn is_break_pending(&self) -> bool {
        let inode = std::fs::metadata(&self.path).unwrap().ino();
        let file = format!(":{inode} ");
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut lines = locks.lines();
        lines.any(|line| line.contains("BREAKING") && line.contains(&file))
    }

    /// Waits until an `open` call waits for the lease.
    ///
    /// # Panics
    /// If no call does in time.
    pub fn wait_for_break(&self) {
        wait_until("an open call waits for the lease", || {
            self.is_break_pending()
        });
    }
}
