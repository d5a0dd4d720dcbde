//! Default paths of the socket and the traces (XDG base directories).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Where programs look for the daemon.
pub const KNOWN_SOCKET: &str = "/tmp/tldrs.socket";

/// The name of everything that is ours.
const NAME: &str = "tldrs";

/// Your own directory of traces. It ends in a slash, as the reference prints it.
///
/// # Errors
/// If neither `XDG_DATA_HOME` nor `HOME` tells.
pub fn own_directory() -> anyhow::Result<PathBuf> {
    let home = || Some(absolute("HOME")?.join(".local/share"));
    let data = absolute("XDG_DATA_HOME").or_else(home);
    let data = data.context("neither --dir, XDG_DATA_HOME nor HOME says where traces are")?;
    Ok(data.join(NAME).join(""))
}

/// Directories of traces that are not your own.
#[must_use]
pub fn other_directories() -> Vec<PathBuf> {
    let directories = env::var_os("XDG_DATA_DIRS").filter(|value| !value.is_empty());
    let directories = directories.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    let absolute = env::split_paths(&directories).filter(|path| path.is_absolute());
    absolute.map(|path| path.join(NAME)).collect()
}

/// Where the daemon listens, and where it does if it can.
#[must_use]
pub fn sockets() -> (PathBuf, Option<PathBuf>) {
    let known = PathBuf::from(KNOWN_SOCKET);
    match absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
        Some(runtime) => (runtime.join("tldrs.socket"), Some(known)),
        None => (known, None),
    }
}

/// A path that still is the same after a change of directory.
///
/// # Errors
/// If the present directory is not known.
pub fn fixed(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

/// The number of a user, given by number or by a name in `/etc/passwd`.
///
/// # Errors
/// If there is no such user.
pub fn user(text: &str) -> anyhow::Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(text);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    });
    match number {
        Some(number) => Ok(number),
        None => bail!("{text}: no such user in /etc/passwd; give the number"),
    }
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_parsed_as_number_or_name() {
        assert_eq!(user("1000").unwrap(), 1000);
        assert_eq!(user("root").unwrap(), 0);
        assert!(user("no such user").is_err());
    }
}
