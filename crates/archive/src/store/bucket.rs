//! A [`Store`] over the crate `object_store`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use tokio::time::timeout;

use super::{BoxFuture, Listed, Store, StoreError, StoreErrorKind};

/// Most bytes for which space is taken because a store announces them; further ones, only as they
/// arrive.
const MAX_ANNOUNCED: u64 = 8 << 20;

/// The objects below a prefix of a bucket, or of a directory.
#[derive(Debug)]
pub(crate) struct Bucket {
    objects: Arc<dyn ObjectStore>,
    /// The same objects as files, if they are files.
    files: Option<Arc<LocalFileSystem>>,
    prefix: Path,
}

/// How long the creation of an object of so many bytes may take: small ones are answered at once,
/// large ones need time on a slow link. An outage is noticed that much later.
pub(super) fn create_timeout(bytes: u64) -> Duration {
    const ANSWER: Duration = Duration::from_secs(10);
    const BYTES_PER_SECOND: u64 = 512 << 10;
    ANSWER + Duration::from_secs(bytes / BYTES_PER_SECOND)
}

impl Bucket {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self {
            objects,
            files: None,
            prefix,
        }
    }

    /// The files of a directory. What `files` creates must be synced.
    pub(crate) fn of_files(files: LocalFileSystem) -> Self {
        let files = Arc::new(files);
        Self {
            objects: Arc::<LocalFileSystem>::clone(&files),
            files: Some(files),
            prefix: Path::default(),
        }
    }

    /// The path of an object, or of a prefix with or without a slash at its end.
    fn path(&self, what: &'static str, name: &str) -> Result<Path, StoreError> {
        let fail =
            |reason: &str| StoreError::new(what, name, StoreErrorKind::Other).because(reason);
        let relative = name.strip_suffix('/').unwrap_or(name);
        if relative.split('/').any(str::is_empty) {
            return Err(fail("a part of the name is empty"));
        }
        let whole = match self.prefix.as_ref() {
            "" => relative.to_owned(),
            prefix => format!("{prefix}/{relative}"),
        };
        Path::parse(whole).map_err(|error| fail(&error.to_string()))
    }

    /// The name below the prefix of the archive. Fails if the store lists what was not asked for.
    fn name(&self, prefix: &str, path: &Path) -> Result<String, StoreError> {
        let whole = path.as_ref();
        let relative = match self.prefix.as_ref() {
            "" => Some(whole),
            own => whole
                .strip_prefix(own)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        let relative = relative.filter(|name| name.starts_with(prefix));
        let relative = relative.ok_or_else(|| {
            let error = StoreError::new("list", prefix, StoreErrorKind::Other);
            error.because(&format!("the store lists {whole}"))
        })?;
        Ok(relative.to_owned())
    }

    async fn create_object(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        let path = self.path("create", name)?;
        let len = bytes.len() as u64;
        let payload = PutPayload::from_bytes(bytes);
        let options = PutOptions::from(PutMode::Create);
        let created = self.objects.put_opts(&path, payload, options);
        let Ok(created) = timeout(create_timeout(len), created).await else {
            let error = StoreError::new("create", name, StoreErrorKind::Unknown);
            return Err(error.because("no answer in time"));
        };
        let Err(error) = created else { return Ok(()) };
        let error = StoreError::classify("create", name, &error);
        if error.kind == StoreErrorKind::AlreadyExists {
            self.sync_existing(name, &path).await?;
        }
        Err(error)
    }

    /// Syncs a file that exists: its creator may have been stopped, or have failed, before it was
    /// durable.
    async fn sync_existing(&self, name: &str, path: &Path) -> Result<(), StoreError> {
        let Some(files) = &self.files else {
            return Ok(());
        };
        let unknown =
            |reason: &str| StoreError::new("create", name, StoreErrorKind::Unknown).because(reason);
        let file = files
            .path_to_filesystem(path)
            .map_err(|error| StoreError::classify("create", name, &error))?;
        let synced = tokio::task::spawn_blocking(move || sync_with_directory(file)).await;
        match synced {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(error) => Err(unknown(&error.to_string())),
        }
    }

    async fn read(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        limit: u64,
    ) -> Result<Bytes, StoreError> {
        let path = self.path("read", name)?;
        let fail = |error| StoreError::classify("read", name, &error);
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let found = self.objects.get_opts(&path, options).await.map_err(fail)?;
        let GetResult { range: given, .. } = &found;
        if range.as_ref().is_some_and(|asked| asked != given) {
            let error = StoreError::new("read", name, StoreErrorKind::Other);
            return Err(error.because("the object ends before the range"));
        }
        let too_large = || StoreError::new("read", name, StoreErrorKind::TooLarge);
        let announced = given.end.saturating_sub(given.start);
        if announced > limit {
            return Err(too_large());
        }
        let capacity = usize::try_from(announced.min(MAX_ANNOUNCED)).unwrap_or_default();
        let mut bytes = BytesMut::with_capacity(capacity);
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(fail)?;
            if (bytes.len() + chunk.len()) as u64 > announced {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        if bytes.len() as u64 != announced {
            let error = StoreError::new("read", name, StoreErrorKind::Unknown);
            return Err(error.because("the response is cut"));
        }
        Ok(bytes.freeze())
    }

    async fn list_objects(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let path = self.path("list", prefix)?;
        let mut found: BoxStream<'_, object_store::Result<ObjectMeta>> = match after {
            Some(after) => {
                let after = self.path("list", after)?;
                self.objects.list_with_offset(Some(&path), &after)
            }
            None => self.objects.list(Some(&path)),
        };
        let mut listed = Vec::new();
        while let Some(meta) = found.next().await {
            let meta = meta.map_err(|error| StoreError::classify("list", prefix, &error))?;
            if listed.len() == limit {
                return Err(StoreError::new("list", prefix, StoreErrorKind::TooLarge));
            }
            listed.push(Listed {
                name: self.name(prefix, &meta.location)?,
                bytes: meta.size,
                modified: meta.last_modified.into(),
            });
        }
        // Directories are listed in no order.
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    async fn list_directories(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let path = self.path("list", prefix)?;
        let found = self.objects.list_with_delimiter(Some(&path)).await;
        let found = found.map_err(|error| StoreError::classify("list", prefix, &error))?;
        if found.common_prefixes.len() > limit {
            return Err(StoreError::new("list", prefix, StoreErrorKind::TooLarge));
        }
        let names = found.common_prefixes.iter();
        let names: Result<Vec<_>, _> = names.map(|path| self.name(prefix, path)).collect();
        let mut names = names?;
        names.sort_unstable();
        Ok(names)
    }
}

impl Store for Bucket {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.create_object(name, bytes))
    }

    fn get<'a>(&'a self, name: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, StoreError>> {
        Box::pin(self.read(name, None, limit))
    }

    fn get_range<'a>(
        &'a self,
        name: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, StoreError>> {
        Box::pin(async move {
            // HTTP has no range of no bytes.
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            self.read(name, Some(range), u64::MAX).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        Box::pin(self.list_objects(prefix, after, limit))
    }

    fn list_prefixes<'a>(
        &'a self,
        prefix: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(self.list_directories(prefix, limit))
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let path = self.path("delete", name)?;
            let deleted = self.objects.delete(&path).await;
            deleted.map_err(|error| StoreError::classify("delete", name, &error))
        })
    }
}

/// Syncs a file and its entry in the directory.
fn sync_with_directory(path: PathBuf) -> io::Result<()> {
    File::open(&path)?.sync_all()?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
