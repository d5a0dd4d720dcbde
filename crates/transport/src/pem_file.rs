//! Files of certificates and keys: read with a limit, written once.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::TransportError;

/// Longest file that is read, in bytes: a bundle of some hundred certificates.
pub(crate) const MAX_PEM_BYTES: usize = 1 << 20;

/// Permissions of a private key: its owner may read and write it.
pub(crate) const KEY_MODE: u32 = 0o600;

/// Permissions of a certificate, which is public.
pub(crate) const CERTIFICATE_MODE: u32 = 0o644;

/// Reads a whole file of at most [`MAX_PEM_BYTES`].
pub(crate) fn read_pem(path: &Path) -> Result<Vec<u8>, TransportError> {
    let failed = |source| TransportError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    // One byte more than is allowed shows that the file is too long.
    let limit = MAX_PEM_BYTES as u64 + 1;
    let file = File::open(path).map_err(failed)?;
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_PEM_BYTES {
        let (path, max) = (path.to_owned(), MAX_PEM_BYTES);
        return Err(TransportError::TooLong { path, max });
    }
    Ok(bytes)
}

/// Writes a new file. One that exists is replaced only if `overwrite`; its permissions are not
/// kept.
pub(crate) fn write_pem(
    path: PathBuf,
    pem: &str,
    mode: u32,
    overwrite: bool,
) -> Result<(), TransportError> {
    if overwrite {
        // Not truncated, because a key must not get into a file that others may read, or have open.
        match remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(TransportError::Write { path, source });
            }
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(mode);
    let written = options
        .open(&path)
        .and_then(|mut file| file.write_all(pem.as_bytes()));
    written.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => TransportError::Exists { path },
        _ => TransportError::Write { path, source },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_private_and_is_replaced_only_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        write_pem(path.clone(), "first", KEY_MODE, false).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = write_pem(path.clone(), "second", KEY_MODE, false);
        assert!(matches!(again, Err(TransportError::Exists { .. })));
        assert_eq!(read_pem(&path).unwrap(), b"first");
        write_pem(path.clone(), "second", KEY_MODE, true).unwrap();
        assert_eq!(read_pem(&path).unwrap(), b"second");
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long.pem");
        fs::write(&path, vec![b'a'; MAX_PEM_BYTES]).unwrap();
        assert_eq!(read_pem(&path).unwrap().len(), MAX_PEM_BYTES);
        fs::write(&path, vec![b'a'; MAX_PEM_BYTES + 1]).unwrap();
        assert!(matches!(
            read_pem(&path),
            Err(TransportError::TooLong { .. })
        ));
    }
}
