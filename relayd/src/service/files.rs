//! Small files that tell others a number: the process, a port.

use std::fs;
use std::path::{Path, PathBuf};

use super::ServiceError;

/// A file with a number in it, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    text: String,
}

impl OwnFile {
    /// Writes it. Others look for it again and again, and never see half of it.
    pub(super) fn number(path: &Path, number: u32) -> Result<Self, ServiceError> {
        let failed = || ServiceError::on("write", path);
        let text = format!("{number}\n");
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let draft = path.with_file_name(name);
        fs::write(&draft, &text).map_err(failed())?;
        fs::rename(&draft, path).map_err(|error| {
            let _ = fs::remove_file(&draft);
            failed()(error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Another relay may have put its own in the place.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_there_for_as_long_as_it_is_true() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.port");
        let first = OwnFile::number(&path, 5342).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "5342\n");
        let second = OwnFile::number(&path, 17).unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(&path).unwrap(), "17\n");
        drop(second);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(OwnFile::number(&directory.path().join("no/where"), 1).is_err());
    }
}
