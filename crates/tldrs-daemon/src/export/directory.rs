//! Opens the directory of a path without following symbolic links of other users.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use thiserror::Error;

/// Symbolic links that one path may lead through. The limit of Linux.
const MAX_SYMLINKS: u32 = 40;

/// The user id of root, whose symbolic links are part of the system.
pub(super) const ROOT: u32 = 0;

/// A directory cannot be opened.
#[derive(Debug, Error)]
pub(super) enum DirectoryError {
    #[error("a symbolic link in the path belongs to user {owner}")]
    LinkOfOther { owner: u32 },
    #[error(transparent)]
    Open(#[from] Errno),
}

/// Opens the directory at this absolute path for the user `uid`.
///
/// A symbolic link of anyone but `uid` and root is not followed: in a directory that several users
/// write to, its owner could lead the path to a directory in which `uid` may write and the owner
/// may not. The descriptor stays with the directory, whatever is renamed afterwards.
pub(super) fn open_directory(path: &Path, uid: u32) -> Result<OwnedFd, DirectoryError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || openat(CWD, "/", flags, Mode::empty());
    let mut directory = root()?;
    let mut rest = Vec::new();
    push_components(&mut rest, path);
    let mut symlinks = 0;
    while let Some(name) = rest.pop() {
        match openat(&directory, &name, flags, Mode::empty()) {
            Ok(next) => directory = next,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                symlinks += 1;
                if symlinks > MAX_SYMLINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = read_link(&directory, &name, uid)?;
                let target = Path::new(&target);
                if target.is_absolute() {
                    directory = root()?;
                }
                push_components(&mut rest, target);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(directory)
}

/// Pushes the components of `path` onto the stack `rest`, so that its first component is popped
/// next.
fn push_components(rest: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    rest.extend(names);
}

/// Returns the target of a symbolic link, if `uid` or root owns it.
fn read_link(parent: &OwnedFd, name: &OsStr, uid: u32) -> Result<OsString, DirectoryError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Owner and target are those of one link, even if another takes its name meanwhile.
    let link = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&link)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Err(Errno::NOTDIR.into());
    }
    if ![ROOT, uid].contains(&stat.st_uid) {
        let owner = stat.st_uid;
        return Err(DirectoryError::LinkOfOther { owner });
    }
    let target = readlinkat(&link, "", Vec::new())?;
    Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    use super::*;

    const OTHER: u32 = 65_534;

    fn inode(directory: &OwnedFd) -> u64 {
        fstat(directory).unwrap().st_ino
    }

    #[test]
    fn symlinks_of_the_user_and_dot_dot_lead_where_the_system_leads_them() {
        let scene = tempfile::tempdir().unwrap();
        let at = |name: &str| scene.path().join(name);
        let uid = rustix::process::geteuid().as_raw();
        fs::create_dir_all(at("a/b")).unwrap();
        symlink("a/b", at("relative")).unwrap();
        symlink(at("a"), at("absolute")).unwrap();
        symlink("../../relative", at("a/b/up")).unwrap();
        for path in ["a/b", "relative", "absolute/b", "a/b/up", "a/../relative/."] {
            let opened = open_directory(&at(path), uid).unwrap();
            assert_eq!(inode(&opened), at(path).metadata().unwrap().ino(), "{path}");
        }
        symlink("loop", at("loop")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (path, want) in [
            ("loop", Errno::LOOP),
            ("file", Errno::NOTDIR),
            ("file/x", Errno::NOTDIR),
            ("missing", Errno::NOENT),
        ] {
            let error = open_directory(&at(path), uid).unwrap_err();
            assert!(
                matches!(error, DirectoryError::Open(error) if error == want),
                "{path}"
            );
        }
    }

    #[test]
    fn symlink_of_another_user_is_not_followed() {
        let scene = tempfile::tempdir().unwrap();
        let link = scene.path().join("link");
        symlink("/etc", &link).unwrap();
        let mut uid = rustix::process::geteuid().as_raw();
        if uid == ROOT {
            lchown(&link, Some(OTHER), None).unwrap();
        } else {
            // Only root can make a link of another user: so the request comes from another user.
            uid += 1;
        }
        for path in [link.clone(), link.join("..")] {
            let error = open_directory(&path, uid).unwrap_err();
            assert!(
                matches!(error, DirectoryError::LinkOfOther { .. }),
                "{error}"
            );
        }
    }
}
