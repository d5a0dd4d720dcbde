//! The run folder, in which the programs of LTTng find each other.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tracing::warn;

use super::ServiceError;

/// The run folder of root.
const SYSTEM: &str = "/var/run/lttng";

/// The run folder of other users, below their home directory.
const USER: &str = ".lttng";

/// The relay's directory in the run folder.
const OWN: &str = "relayd";

/// Permissions, as with the reference: of the run folder of root and of other users, and of the
/// relay's directory.
const SYSTEM_MODE: u32 = 0o755;
const USER_MODE: u32 = 0o700;
const OWN_MODE: u32 = 0o755;

/// The default group, whose members may trace.
const TRACING: &str = "tracing";

/// Returns the path of the run folder; none if there is no home directory for it.
pub fn path(env: &dyn Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(given) = env("LTTNG_RUNDIR") {
        return Some(given.into());
    }
    if geteuid().is_root() {
        return Some(SYSTEM.into());
    }
    home.map(|home| home.join(USER))
}

/// Id of the group that may use the files of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(u32);

/// Returns the group that may use the run folder and the health socket; none unless the relay runs
/// as root, which alone can change the group of its files.
pub(super) fn find_group(named: Option<&str>) -> Option<Group> {
    if !geteuid().is_root() {
        return None;
    }
    let name = named.unwrap_or(TRACING);
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Some(Group(group.gid.as_raw())),
        Ok(None) => {
            // A missing default group is not worth a warning.
            if named.is_some() {
                warn!(
                    group = name,
                    "no such group; only root can query the health socket"
                );
            }
            None
        }
        Err(error) => {
            let error = io::Error::from(error);
            warn!(group = name, %error, "group not found; only root can query the health socket");
            None
        }
    }
}

/// Changes the group of a file or directory.
pub(super) fn change_group(path: &Path, to: Option<Group>) -> Result<(), ServiceError> {
    match to {
        Some(Group(id)) => {
            lchown(path, None, Some(id)).map_err(ServiceError::on("change the group of", path))
        }
        None => Ok(()),
    }
}

/// Makes the run folder and the relay's directory in it, unless they exist. Returns the path of
/// that directory.
pub(super) fn create(run_folder: &Path, group: Option<Group>) -> Result<PathBuf, ServiceError> {
    let mode = if geteuid().is_root() {
        SYSTEM_MODE
    } else {
        USER_MODE
    };
    create_directory(run_folder, mode, group)?;
    let own = run_folder.join(OWN);
    create_directory(&own, OWN_MODE, group)?;
    Ok(own)
}

/// Makes a directory with exactly these permissions, whatever the umask is. An existing one is not
/// changed.
fn create_directory(path: &Path, mode: u32, group: Option<Group>) -> Result<(), ServiceError> {
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
            // `mkdir` has applied the umask.
            std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed())?;
            change_group(path, group)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed()(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_folder_is_where_the_programs_of_lttng_look() {
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
    fn run_folder_is_made_with_its_parent_directories() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("a/b");
        for _ in 0..2 {
            let folder = create(&at, None).unwrap();
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(&folder) & 0o777, OWN_MODE);
            let usual = if geteuid().is_root() {
                SYSTEM_MODE
            } else {
                USER_MODE
            };
            assert_eq!(mode(&at) & 0o777, usual);
        }
        assert!(create(Path::new("/proc/nowhere"), None).is_err());
    }
}
