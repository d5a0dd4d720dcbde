//! Files that hang: whoever opens a file on which another process has a lease waits until that process
//! gives it back, as for a disk that does not answer. No privileges are needed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::{peers, wait_until};

/// Takes a lease (`F_SETLEASE`, `F_WRLCK`), which neither the standard library nor any crate here can,
/// and keeps it until its input ends.
const HOLDER_SCRIPT: &str = r#"
    $SIG{IO} = "IGNORE"; $| = 1;
    open(my $file, "+<", $ARGV[0]) or die "$!"; fcntl($file, 1024, 1) or die "$!";
    print "held\n"; sleep 1 while 1;
"#;

/// A file that cannot be opened, until this is dropped: any attempt blocks. The system ends the lease by
/// itself 45 seconds after the first.
#[derive(Debug)]
pub struct FileLease {
    path: PathBuf,
    _holder: Process,
}

impl FileLease {
    /// Takes it. Nobody may have the file open.
    ///
    /// # Panics
    /// If it cannot be taken.
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

    /// Whether an open call waits for it.
    ///
    /// # Panics
    /// If the system does not tell.
    #[must_use]
    pub fn is_break_pending(&self) -> bool {
        let inode = std::fs::metadata(&self.path).unwrap().ino();
        let file = format!(":{inode} ");
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut lines = locks.lines();
        lines.any(|line| line.contains("BREAKING") && line.contains(&file))
    }

    /// Waits until one does.
    ///
    /// # Panics
    /// If none does in time.
    pub fn wait_for_break(&self) {
        wait_until("an open call waits for the lease", || {
            self.is_break_pending()
        });
    }
}
