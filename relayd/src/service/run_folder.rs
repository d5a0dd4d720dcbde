//! The folder in which the programs of LTTng find each other.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tracing::warn;

use super::ServiceError;

/// That of root.
const SYSTEM: &str = "/var/run/lttng";

/// That of other users, below their home.
const USER: &str = ".lttng";

/// The relay's own, in it.
const OWN: &str = "relayd";

/// Permissions that the reference gives: of the folder, of root and of others, and of the relay's own.
const SYSTEM_MODE: u32 = 0o755;
const USER_MODE: u32 = 0o700;
const OWN_MODE: u32 = 0o755;

/// The group whose members may trace, unless another is named.
const TRACING: &str = "tracing";

/// Where the run folder is. None: there is no home that it could be in.
pub fn path(env: &dyn Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(given) = env("LTTNG_RUNDIR") {
        return Some(given.into());
    }
    if geteuid().is_root() {
        return Some(SYSTEM.into());
    }
    home.map(|home| home.join(USER))
}

/// A group, as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(u32);

/// The group that may ask how the relay is. Only root can give it what is root's.
pub(super) fn group(named: Option<&str>) -> Option<Group> {
    if !geteuid().is_root() {
        return None;
    }
    let name = named.unwrap_or(TRACING);
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Some(Group(group.gid.as_raw())),
        found => {
            // Not every host has the usual one.
            if named.is_some() {
                let error = found.err().map(io::Error::from);
                warn!(group = name, ?error, "no such group");
            }
            None
        }
    }
}

/// Lets a group have a file or folder.
pub(super) fn give(path: &Path, to: Option<Group>) -> Result<(), ServiceError> {
    match to {
        Some(Group(id)) => {
            lchown(path, None, Some(id)).map_err(ServiceError::on("change the group of", path))
        }
        None => Ok(()),
    }
}

/// The relay's own folder.
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes it, unless it is there.
    pub(super) fn make(run_folder: &Path, group: Option<Group>) -> Result<Self, ServiceError> {
        let mode = if geteuid().is_root() {
            SYSTEM_MODE
        } else {
            USER_MODE
        };
        make(run_folder, mode, group)?;
        let own = run_folder.join(OWN);
        make(&own, OWN_MODE, group)?;
        Ok(Self(own))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Makes a folder with just these permissions, whatever the umask. One that is there stays as it is.
fn make(path: &Path, mode: u32, group: Option<Group>) -> Result<(), ServiceError> {
    let failed = || ServiceError::on("make the run folder", path);
    let create = || DirBuilder::new().mode(mode).create(path);
    let created = match (create(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(parent).map_err(failed())?;
            create()
        }
        (created, _) => created,
    };
    match created {
        Ok(()) => {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed())?;
            give(path, group)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed()(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_where_the_programs_of_lttng_look() {
        let given = path(&|_| Some("/given".into()), None);
        assert_eq!(given, Some(PathBuf::from("/given")));
        let usual = path(&|_| None, Some(Path::new("/home/me")));
        let want = if geteuid().is_root() {
            "/var/run/lttng"
        } else {
            "/home/me/.lttng"
        };
        assert_eq!(usual, Some(PathBuf::from(want)));
    }

    #[test]
    fn it_is_made_with_the_folders_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("a/b");
        for _ in 0..2 {
            let folder = RunFolder::make(&at, None).unwrap();
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(folder.path()) & 0o777, OWN_MODE);
            let usual = if geteuid().is_root() {
                SYSTEM_MODE
            } else {
                USER_MODE
            };
            assert_eq!(mode(&at) & 0o777, usual);
        }
        assert!(RunFolder::make(Path::new("/proc/nowhere"), None).is_err());
    }
}
