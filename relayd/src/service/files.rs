//! The pid file and the port files: small files with a number in them.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use super::ServiceError;

/// Permissions, before the umask: other programs trust the number, so no other user may write the
/// file.
const MODE: u32 = 0o644;

/// A file with a number in it. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct NumberFile {
    path: PathBuf,
    /// The file, open so that no other file gets its inode number.
    file: File,
}

impl NumberFile {
    /// Writes the file. A program that waits for it never sees a part of it.
    ///
    /// A file or symbolic link that has the name is replaced, and nothing is written to it: in a
    /// directory that several users write to, another user may have put them there.
    pub(super) fn create(path: &Path, number: u32) -> Result<Self, ServiceError> {
        let failed = || ServiceError::on("write", path);
        check_replaceable(path).map_err(failed())?;
        // Written under another name, and renamed when it is complete.
        let draft = draft_path(path).map_err(failed())?;
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&draft)
            .map_err(failed())?;
        let placed = writeln!(file, "{number}").and_then(|()| fs::rename(&draft, path));
        placed.map_err(|error| {
            let _ = fs::remove_file(&draft);
            failed()(error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }
}

impl Drop for NumberFile {
    fn drop(&mut self) {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let found = fs::symlink_metadata(&self.path).map(identity);
        let own = self.file.metadata().map(identity);
        // Another relay may have replaced the file by its own.
        if found.is_ok_and(|found| own.is_ok_and(|own| own == found)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that the path is free, or a file or symbolic link: a device, for example, is not
/// replaced.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() || found.is_symlink() => Ok(()),
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns a path in the same directory, with a name that cannot be guessed.
fn draft_path(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(random)));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn number_file_exists_until_it_is_dropped_or_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.port");
        let first = NumberFile::create(&path, 5342).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "5342\n");
        let second = NumberFile::create(&path, 17).unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(&path).unwrap(), "17\n");
        drop(second);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(NumberFile::create(&directory.path().join("no/where"), 1).is_err());
    }

    #[test]
    fn pid_file_replaces_a_symlink_and_does_not_write_where_it_leads() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("precious"), "do not lose me").unwrap();
        let path = at("pid");
        symlink("precious", &path).unwrap();
        // Names that can be guessed from the process id.
        symlink("precious", at(&format!("pid.{}", std::process::id()))).unwrap();
        let file = NumberFile::create(&path, 17).unwrap();
        let there = fs::symlink_metadata(&path).unwrap();
        assert!(there.is_file());
        assert_eq!(there.mode() & 0o022, 0, "only the owner may write it");
        assert_eq!(fs::read_to_string(&path).unwrap(), "17\n");
        assert_eq!(
            fs::read_to_string(at("precious")).unwrap(),
            "do not lose me"
        );
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn pid_file_does_not_replace_a_pipe_or_device_nor_remove_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let make_pipe = || mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        make_pipe();
        assert!(NumberFile::create(&path, 1).is_err());
        fs::remove_file(&path).unwrap();
        let file = NumberFile::create(&path, 1).unwrap();
        fs::remove_file(&path).unwrap();
        make_pipe();
        // Opening it to compare its owner would wait for a writer.
        drop(file);
        assert!(fs::symlink_metadata(&path).is_ok());
    }
}
