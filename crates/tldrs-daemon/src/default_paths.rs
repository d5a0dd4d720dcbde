//! Default paths of the socket and the traces (XDG base directories).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The path of the socket at which programs look for the daemon.
pub const KNOWN_SOCKET: &str = "/tmp/tldrs.socket";

/// Name of the directory of traces, below the data directories.
const NAME: &str = "tldrs";

/// Returns the user's own directory of traces. It ends in a slash, as the reference prints it.
///
/// # Errors
/// If neither `XDG_DATA_HOME` nor `HOME` is an absolute path.
pub fn own_directory() -> anyhow::Result<PathBuf> {
    let home = || Some(absolute_variable("HOME")?.join(".local/share"));
    let data = absolute_variable("XDG_DATA_HOME").or_else(home);
    let data =
        data.context("no directory of traces: neither --dir, XDG_DATA_HOME nor HOME is set")?;
    Ok(data.join(NAME).join(""))
}

/// Returns the directories of traces of the whole system (`XDG_DATA_DIRS`).
#[must_use]
pub fn other_directories() -> Vec<PathBuf> {
    let directories = env::var_os("XDG_DATA_DIRS").filter(|value| !value.is_empty());
    let directories = directories.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    let absolute = env::split_paths(&directories).filter(|path| path.is_absolute());
    absolute.map(|path| path.join(NAME)).collect()
}

/// Returns the path at which the daemon listens, and a further one at which it listens if it is
/// free.
#[must_use]
pub fn default_sockets() -> (PathBuf, Option<PathBuf>) {
    let known = PathBuf::from(KNOWN_SOCKET);
    match absolute_variable("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
        Some(runtime) => (runtime.join("tldrs.socket"), Some(known)),
        None => (known, None),
    }
}

/// Makes a path absolute, so that it stays valid after a change of directory.
///
/// # Errors
/// If the current directory is not known.
pub fn absolute_path(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

/// Returns the id of a user that is given by id or by its name in `/etc/passwd`.
///
/// # Errors
/// If there is no such user.
pub fn parse_user(text: &str) -> anyhow::Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    // Users of other sources, such as LDAP, are not found: they are named by number.
    let users = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(text);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    });
    match number {
        Some(number) => Ok(number),
        None => bail!("{text}: no such user in /etc/passwd; use the number"),
    }
}

fn absolute_variable(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_parsed_as_number_or_name() {
        assert_eq!(parse_user("1000").unwrap(), 1000);
        assert_eq!(parse_user("root").unwrap(), 0);
        assert!(parse_user("no such user").is_err());
    }
}
