//! The object `format`, which marks the prefix of a bucket as an archive and says how to read it.

use bytes::Bytes;

use super::{CreateError, RetryPolicy, Store, StoreError, StoreErrorKind, create_once};
use crate::name::FORMAT;

/// The version of all formats and names that this program reads and writes.
const VERSION: u64 = 1;

/// Longest object that is read, in bytes. A later version may say more than this one.
const MAX_FORMAT: u64 = 4096;

/// Why a prefix is no archive for this program.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The object `format` is missing.
    #[error("there is no archive here: the object {FORMAT} is missing")]
    Missing,
    /// The object `format` does not say a version.
    #[error("there is no archive here: the object {FORMAT} has other contents")]
    Malformed,
    /// The archive was written by another version of the programs.
    #[error("the archive has the format {version}; this program reads format {VERSION}")]
    Version {
        /// The version of the archive.
        version: u64,
    },
    /// The object `format` cannot be read or created.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks that the prefix is an archive that this program reads.
///
/// # Errors
/// If it is not, or the store fails.
pub async fn check_format(store: &dyn Store) -> Result<(), FormatError> {
    let text = match store.get(FORMAT, MAX_FORMAT).await {
        Ok(text) => text,
        Err(error) => {
            return Err(match error.kind {
                StoreErrorKind::NotFound => FormatError::Missing,
                StoreErrorKind::TooLarge => FormatError::Malformed,
                _ => error.into(),
            });
        }
    };
    let value: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
    match value.and_then(|value| value.get("version")?.as_u64()) {
        Some(VERSION) => Ok(()),
        Some(version) => Err(FormatError::Version { version }),
        None => Err(FormatError::Malformed),
    }
}

/// Makes an archive of the prefix, unless it is one already.
///
/// # Errors
/// If it is one that this program does not read, or the store fails.
pub async fn create_format(store: &dyn Store, policy: RetryPolicy) -> Result<(), FormatError> {
    let text = Bytes::from(format!("{{\"version\":{VERSION}}}\n"));
    match create_once(store, FORMAT, &text, policy).await {
        Ok(()) => Ok(()),
        Err(CreateError::Foreign { .. }) => check_format(store).await,
        Err(CreateError::Store(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_memory;
    use super::*;

    #[tokio::test]
    async fn an_archive_is_created_once_and_others_are_refused() {
        let policy = RetryPolicy::default();
        let store = in_memory();
        let missing = check_format(&*store).await;
        assert!(matches!(missing, Err(FormatError::Missing)));
        for _ in 0..2 {
            create_format(&*store, policy).await.unwrap();
            check_format(&*store).await.unwrap();
        }
        assert_eq!(store.get("format", 99).await.unwrap(), "{\"version\":1}\n");
        let long = " ".repeat(5000);
        for (text, want) in [
            ("{\"version\": 2, \"more\": 3}", "has the format 2; this"),
            ("{\"version\": -1}", "has other contents"),
            ("[1]", "has other contents"),
            ("a file of a user", "has other contents"),
            (&long, "has other contents"),
        ] {
            let store = in_memory();
            let bytes = Bytes::from(text.to_owned());
            store.create("format", bytes).await.unwrap();
            let error = create_format(&*store, policy).await.unwrap_err();
            assert!(error.to_string().contains(want), "{text}: {error}");
        }
        let store = in_memory();
        let other = Bytes::from_static(b"{ \"version\": 1, \"by\": \"a later release\" }");
        store.create("format", other).await.unwrap();
        create_format(&*store, policy).await.unwrap();
    }
}
