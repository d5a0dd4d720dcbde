//! Files on their way into packages, handled by tools that every Debian has, or that come with its
//! compilers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::stage;

/// Mode of programs, scripts and directories.
pub(super) const PROGRAM: u32 = 0o755;

/// Mode of all other files.
pub(super) const DATA: u32 = 0o644;

/// Reads a text, whose path an error names.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file and the directories above it.
pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let written = fs::write(path, bytes)
        // Whatever the umask of this process is.
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file, and creates the directories above the copy.
pub(super) fn install(source: &Path, path: &Path, mode: u32) -> anyhow::Result<()> {
    let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
    write(path, bytes, mode)
}

/// Copies all files of a tree; programs stay programs.
pub(super) fn install_tree(source: &Path, target: &Path) -> anyhow::Result<()> {
    for file in list(source)? {
        let from = source.join(&file);
        let is_program = fs::metadata(&from)?.permissions().mode() & 0o100 != 0;
        install(
            &from,
            &target.join(file),
            if is_program { PROGRAM } else { DATA },
        )?;
    }
    Ok(())
}

/// The files of a tree, relative to its root, sorted.
pub(super) fn list(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut next = vec![root.to_owned()];
    while let Some(directory) = next.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                next.push(path);
            } else {
                found.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    // A directory has no order, but equal sources are to give equal packages.
    found.sort();
    Ok(found)
}

/// Replaces a file by what gzip makes of it, with the suffix `.gz`. The level is 1 to 9.
pub(super) fn compress(path: &Path, level: u8) -> anyhow::Result<()> {
    let options = [format!("-{level}n"), "--force".to_owned()];
    stage::run(Command::new("gzip").args(options).arg(path))
}

/// Gives all files of a tree one time, and all directories one mode, whatever the umask of this
/// process.
pub(super) fn normalize(root: &Path, epoch: u64) -> anyhow::Result<()> {
    let mut find = Command::new("find");
    find.arg(root)
        .args(["-type", "d", "-exec", "chmod", "755", "{}", "+"]);
    stage::run(&mut find)?;
    let mut find = Command::new("find");
    find.arg(root)
        .args(["-exec", "touch", "--no-dereference"])
        .arg(format!("--date=@{epoch}"));
    stage::run(find.args(["{}", "+"]))
}

/// Adds entries of a directory to an archive, sorted, with one time and one owner.
pub(super) fn append_tar(
    archive: &Path,
    directory: &Path,
    entries: &[&str],
    owner: u32,
    epoch: u64,
) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--append", "--format=gnu", "--sort=name", "--numeric-owner"])
        .args([format!("--owner={owner}"), format!("--group={owner}")])
        .arg(format!("--mtime=@{epoch}"))
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(directory)
        .args(entries);
    stage::run(&mut tar)
}

/// The SHA-256 of a file, in hexadecimal.
pub(super) fn sha256(path: &Path) -> anyhow::Result<String> {
    let line = output(Command::new("sha256sum").arg("--").arg(path))?;
    let digest = line.split(' ').next().unwrap_or_default();
    // sha256sum begins a line with a backslash if it has to escape the name.
    Ok(digest.trim_start_matches('\\').to_owned())
}

/// Writes SHA256SUMS: the digests of all files in a directory, as `sha256sum --check` reads them.
pub(super) fn write_checksums(directory: &Path) -> anyhow::Result<()> {
    const NAME: &str = "SHA256SUMS";
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != NAME {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let mut lines = String::new();
    for name in names {
        let digest = sha256(&directory.join(&name))?;
        lines.push_str(&format!("{digest}  {}\n", name.to_string_lossy()));
    }
    write(&directory.join(NAME), lines, DATA)
}

/// Runs a command, and returns what it prints.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} prints no text"))
}
