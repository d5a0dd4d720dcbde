//! Waits until something may have happened below a directory: by inotify, and by the clock where
//! there is none (too many watches, a network file system).

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::attach::StreamKey;

/// Bytes of events that are read at a time.
const EVENT_BYTES: usize = 16 << 10;

/// Wakes up the thread in [`DirectoryWatch::wait`], from another one.
#[derive(Debug, Clone)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Wakes it up now, or the next time that it waits.
    pub(super) fn wake(&self) {
        // It only fails if the eventfd is readable already.
        let _ = rustix::io::write(&*self.0, &[1; 8]);
    }
}

/// The changes that inotify has reported since the last wait.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    /// Files or directories have come, gone or moved.
    pub(super) structure: bool,
    /// Anything may have.
    pub(super) all: bool,
    /// The index files of these streams have grown.
    pub(super) streams: Vec<StreamKey>,
}

/// Waits for changes below a directory, by inotify or by timeout.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    inotify: Option<OwnedFd>,
    waker: Waker,
    /// Index files, by directory and name, and whose they are.
    indexes: HashMap<(i32, OsString), StreamKey>,
}

impl DirectoryWatch {
    /// Watches nothing.
    ///
    /// # Errors
    /// If the system has no file descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            inotify: inotify::init(flags).ok(),
            waker: Waker(Arc::new(waker)),
            indexes: HashMap::new(),
        })
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether nothing that is watched can be missed on this file system.
    pub(super) fn is_complete(&self) -> bool {
        self.inotify.is_some()
    }

    /// Watches a directory for files and directories that come, go or are closed.
    pub(super) fn directory(&mut self, path: &Path) {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        self.add(path, flags);
    }

    /// Watches an index file for growth.
    pub(super) fn index(&mut self, index: &Path, stream: StreamKey) {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        let (Some(directory), Some(name)) = (index.parent(), index.file_name()) else {
            return;
        };
        if let Some(watch) = self.add(directory, flags) {
            self.indexes.insert((watch, name.to_owned()), stream);
        }
    }

    /// Forgets the index files of a stream.
    pub(super) fn forget(&mut self, stream: StreamKey) {
        self.indexes.retain(|_, of| *of != stream);
    }

    fn add(&mut self, path: &Path, flags: WatchFlags) -> Option<i32> {
        match inotify::add_watch(self.inotify.as_ref()?, path, flags) {
            Ok(watch) => Some(watch),
            Err(Errno::NOSPC | Errno::NOMEM) => {
                // Then by the clock alone.
                self.inotify = None;
                None
            }
            // It has been removed meanwhile, or is not there yet.
            Err(_) => None,
        }
    }

    /// Waits until something has happened, but not longer than `most`.
    pub(super) fn wait(&mut self, most: Duration) -> WatchEvents {
        let mut fds = vec![PollFd::new(&*self.waker.0, PollFlags::IN)];
        if let Some(inotify) = &self.inotify {
            fds.push(PollFd::new(inotify, PollFlags::IN));
        }
        let most = Timespec::try_from(most).ok();
        let changes = poll(&mut fds, most.as_ref());
        drop(fds);
        let _ = rustix::io::read(&*self.waker.0, &mut [0; 8]);
        match changes {
            Ok(0) => WatchEvents {
                all: true,
                ..WatchEvents::default()
            },
            _ => self.events(),
        }
    }

    fn events(&mut self) -> WatchEvents {
        let mut changes = WatchEvents::default();
        let Some(inotify) = &self.inotify else {
            return changes;
        };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(inotify.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                (changes.all, changes.structure) = (true, true);
                continue;
            }
            if event.events().contains(ReadFlags::IGNORED) {
                let gone = event.wd();
                self.indexes.retain(|(watch, _), _| *watch != gone);
                continue;
            }
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            let name = OsString::from_vec(name.unwrap_or_default());
            match self.indexes.get(&(event.wd(), name)) {
                Some(stream) => changes.streams.push(*stream),
                // Of an index file that nobody reads yet.
                None if event.events().contains(ReadFlags::MODIFY) => {}
                None => changes.structure = true,
            }
        }
        changes
    }
}
