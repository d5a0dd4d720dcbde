//! The temporary directory of one test, and commands that run in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// User and group that LTTng runs as when the tests run as root: the session daemon of root is one
/// for the whole machine, that of any other user one for each `LTTNG_HOME`.
const NOBODY: u32 = 65_534;

/// The temporary directory of one test, with an environment that keeps programs inside it. The
/// directory is removed when the value is dropped.
#[derive(Debug)]
pub struct Lab {
    directory: TempDir,
    is_root: bool,
}

impl Lab {
    /// Creates an empty directory.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// Creates an empty directory in `parent`, for what depends on the file system.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new_in(parent: &Path) -> Self {
        let builder = &mut tempfile::Builder::new();
        let directory = builder.prefix("lab-").tempdir_in(parent).unwrap();
        let is_root = rustix::process::getuid().is_root();
        let lab = Self { directory, is_root };
        lab.give_away(lab.path());
        // Programs of root and of `NOBODY` share these: whichever program started first would own
        // them.
        for shared in [".lttng", ".lttng/relayd"] {
            let _ = lab.directory(shared);
        }
        lab
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory on disk and returns its path.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Returns a copy of a program in the directory, which LTTng's user may run.
    ///
    /// # Panics
    /// If the program cannot be copied.
    #[must_use]
    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.path().join(name);
        if !copy.exists() {
            // By another process: a file that this one has open for writing is inherited by
            // children that other tests fork at that moment, and then executing it fails with
            // ETXTBSY.
            let copied = Command::new("cp").arg(program).arg(&copy).status();
            assert!(
                copied.is_ok_and(|status| status.success()),
                "{}",
                copy.display()
            );
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        }
        copy
    }

    /// Creates a subdirectory that LTTng's user may write to.
    ///
    /// # Panics
    /// If the subdirectory cannot be created.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(&path).unwrap();
        self.give_away(&path);
        path
    }

    /// Returns a command for a program of this project, in this environment.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("LTTNG_HOME", self.path())
            .env("LTTNG_RUNDIR", self.path().join(".lttng"))
            .env("TZ", "UTC")
            .env_remove("RUST_LOG");
        command
    }

    /// Returns a command for a program of LTTng, or for one that it traces, in this environment and
    /// as LTTng's user.
    #[must_use]
    pub fn traced_command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command(program);
        // A traced program waits until the session daemon has registered it, and blocks rather than
        // lose an event.
        command
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .env("LTTNG_UST_ALLOW_BLOCKING", "1");
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn give_away(&self, path: &Path) {
        if self.is_root {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}
