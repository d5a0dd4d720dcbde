//! Where finished files go: to a directory, or to a bucket.
//!
//! A file has a temporary name until it is whole, in the directory in which it will be. For a
//! bucket it is written to a temporary directory of this host, and put by a thread of its own:
//! nothing else waits for the bucket, unless it is slower than the files come.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use archive::store::{CreateError, OpenError, RetryPolicy, Store, create_once};
use tempfile::{NamedTempFile, TempDir};
use tokio::runtime::{Builder, Runtime};

/// Number of finished files that wait until the bucket has taken those before them.
const MAX_WAITING_FILES: usize = 4;

/// Why a finished file is not where it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum DestinationError {
    #[error("cannot write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot open the bucket")]
    Open(#[from] OpenError),
    #[error("cannot put a file into the bucket")]
    Put(#[from] CreateError),
    #[error("cannot put files into the bucket")]
    Thread(#[source] io::Error),
}

/// The place of the files of all tables.
#[derive(Debug)]
pub(super) enum Destination {
    Directory(PathBuf),
    Bucket(Uploader),
}

/// A finished file, and the name of the object that it becomes.
type Upload = (NamedTempFile, String);

/// Puts files into a bucket, on a thread of its own.
#[derive(Debug)]
pub(super) struct Uploader {
    /// The files that are written, and those that wait. Removed when it is dropped.
    directory: TempDir,
    /// None when no further file comes.
    files: Option<SyncSender<Upload>>,
    thread: Option<JoinHandle<Result<(), DestinationError>>>,
}

impl Destination {
    /// Opens `output`: the URL of a bucket, else a directory, which is made. `endpoint` is that of
    /// the bucket, unless the environment says it.
    pub(super) fn open(output: &Path, endpoint: Option<&str>) -> Result<Self, DestinationError> {
        let url = output.to_str().filter(|text| {
            let scheme = text.split_once("://").map(|(scheme, _)| scheme);
            scheme.is_some_and(|scheme| ["s3", "gs", "az"].contains(&scheme))
        });
        match url {
            Some(url) => Ok(Self::Bucket(Uploader::start(archive::store::open(
                url, endpoint,
            )?)?)),
            None => {
                fs::create_dir_all(output).map_err(|source| failed(output, source))?;
                Ok(Self::Directory(output.to_owned()))
            }
        }
    }

    /// Creates a file with a temporary name, which will be in `partition`.
    pub(super) fn create(&self, partition: &Path) -> Result<NamedTempFile, DestinationError> {
        let directory = match self {
            Self::Directory(root) => root.join(partition),
            Self::Bucket(uploader) => uploader.directory.path().to_owned(),
        };
        let created = fs::create_dir_all(&directory).and_then(|()| {
            // Readers of Hive's partitions pass over names with a dot in front, and those that look
            // for `*.parquet` over the end.
            let mut builder = tempfile::Builder::new();
            let builder = builder.prefix(".").suffix(".tmp");
            // As any program's files: of these bits the umask takes some away.
            builder
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(&directory)
        });
        created.map_err(|source| failed(&directory, source))
    }

    /// Gives a file that is whole its name in `partition`.
    pub(super) fn publish(
        &mut self,
        mut file: NamedTempFile,
        partition: &Path,
        name: &str,
    ) -> Result<(), DestinationError> {
        let relative = partition.join(name);
        match self {
            Self::Directory(root) => {
                let path = root.join(relative);
                // Before it has its name: after a crash there is no empty file of this name.
                let synced = file.flush().and_then(|()| file.as_file().sync_data());
                synced.map_err(|source| failed(&path, source))?;
                let persisted = file.persist_noclobber(&path);
                persisted
                    .map(drop)
                    .map_err(|error| failed(&path, error.error))
            }
            Self::Bucket(uploader) => {
                uploader.upload((file, relative.to_string_lossy().into_owned()))
            }
        }
    }

    /// Waits until all files are where they should be.
    pub(super) fn finish(&mut self) -> Result<(), DestinationError> {
        match self {
            Self::Directory(_) => Ok(()),
            Self::Bucket(uploader) => uploader.finish(),
        }
    }
}

impl Uploader {
    /// Starts to put files into a bucket.
    pub(super) fn start(store: Arc<dyn Store>) -> Result<Self, DestinationError> {
        let directory = tempfile::Builder::new()
            .prefix("test-live-parquet-")
            .tempdir();
        let directory = directory.map_err(DestinationError::Thread)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(DestinationError::Thread)?;
        let (files, waiting) = sync_channel(MAX_WAITING_FILES);
        let thread = thread::Builder::new().name("upload".to_owned());
        let thread = thread.spawn(move || put_all(&runtime, &*store, &waiting));
        Ok(Self {
            directory,
            files: Some(files),
            thread: Some(thread.map_err(DestinationError::Thread)?),
        })
    }

    fn upload(&mut self, upload: Upload) -> Result<(), DestinationError> {
        let files = self.files.as_ref();
        if files.is_some_and(|files| files.send(upload).is_ok()) {
            return Ok(());
        }
        // The thread has ended before: it says why.
        self.finish()?;
        Err(DestinationError::Thread(io::Error::other(
            "the thread has ended",
        )))
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        self.files = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(DestinationError::Thread(io::Error::other(
                "the thread has panicked",
            ))),
        }
    }
}

/// Puts all files into the bucket in their order, until one fails.
fn put_all(
    runtime: &Runtime,
    store: &dyn Store,
    waiting: &Receiver<Upload>,
) -> Result<(), DestinationError> {
    for (file, name) in waiting {
        let read = || -> io::Result<Vec<u8>> { fs::read(file.path()) };
        let bytes = read().map_err(|source| failed(file.path(), source))?;
        runtime.block_on(create_once(
            store,
            &name,
            &bytes.into(),
            RetryPolicy::default(),
        ))?;
        // Removed here, so that the disk holds only what waits.
        drop::<NamedTempFile<File>>(file);
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> DestinationError {
    DestinationError::File {
        path: path.to_owned(),
        source,
    }
}
