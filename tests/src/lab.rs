//! A place of its own for everything that a test starts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// User and group that LTTng runs as when the tests run as root: the session daemon of root is one
/// for the whole machine, that of any other user one for each `LTTNG_HOME`.
const NOBODY: u32 = 65_534;

/// A directory, and an environment in which programs keep to it.
#[derive(Debug)]
pub struct Lab {
    directory: TempDir,
    is_root: bool,
}

impl Lab {
    /// A new, empty one.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("lab-").tempdir().unwrap();
        let is_root = rustix::process::getuid().is_root();
        let lab = Self { directory, is_root };
        lab.give_away(lab.path());
        // Programs of either user share it, whoever comes first.
        for shared in [".lttng", ".lttng/relayd"] {
            let _ = lab.directory(shared);
        }
        lab
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves the directory where it is, and says where.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// A copy of a program, under this name, that LTTng's user may run. Another process makes it: what this
    /// one has open to be written, a child that is just being started for another test has open, too,
    /// and then it cannot be run.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.path().join(name);
        if !copy.exists() {
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

    /// A directory in it for traces.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(&path).unwrap();
        self.give_away(&path);
        path
    }

    /// A program of ours, in this environment.
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

    /// A program of LTTng, or one that it traces, in this environment.
    #[must_use]
    pub fn traced_command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command(program);
        // The program waits until the session daemon knows it, and rather than lose an event.
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
