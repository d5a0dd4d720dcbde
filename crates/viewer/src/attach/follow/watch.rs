//! Waits until something may have happened below a directory: by inotify, and by timeout where
//! inotify reports nothing (too many watches, a network file system).

use std::collections::HashMap;
use std::ffi::{CStr, OsString};
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

/// Largest number of bytes of events that are read at a time.
const EVENT_BYTES: usize = 16 << 10;

/// Wakes up the thread in [`DirectoryWatch::wait`], from another one.
#[derive(Debug, Clone)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Wakes the thread up now, or the next time that it waits.
    pub(super) fn wake(&self) {
        // A write fails only when the counter is full; then the eventfd is readable already.
        let _ = rustix::io::write(&*self.0, &[1; 8]);
    }
}

/// The changes that inotify has reported since the last wait.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    /// Files or directories have been created, removed or moved.
    pub(super) is_structure_changed: bool,
    /// The wait ended without a change.
    pub(super) is_timeout: bool,
    /// The index files of these streams have grown.
    pub(super) streams: Vec<StreamKey>,
}

/// Waits for changes below a directory, by inotify or by timeout.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    inotify: Option<OwnedFd>,
    waker: Waker,
    /// The streams of index files, by watch descriptor of the directory and file name.
    indexes: HashMap<(i32, OsString), StreamKey>,
}

impl DirectoryWatch {
    /// A watch of no directory yet.
    ///
    /// # Errors
    /// If the system has no file descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            // Inotify is limited for each user: without it everything is polled.
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

    /// Watches a directory for files and directories that are created, removed, moved or closed.
    pub(super) fn add_directory(&mut self, path: &Path) {
        self.add_watch(path, WatchFlags::CLOSE_WRITE);
    }

    /// Watches an index file for growth.
    pub(super) fn add_index(&mut self, index: &Path, stream: StreamKey) {
        let (Some(directory), Some(name)) = (index.parent(), index.file_name()) else {
            return;
        };
        if let Some(watch) = self.add_watch(directory, WatchFlags::MODIFY) {
            self.indexes.insert((watch, name.to_owned()), stream);
        }
    }

    /// Stops watching the index files of a stream.
    pub(super) fn forget_stream(&mut self, stream: StreamKey) {
        self.indexes.retain(|_, of| *of != stream);
    }

    /// Watches a directory for entries that are created, removed or moved, and for the events in
    /// `flags`.
    fn add_watch(&mut self, path: &Path, flags: WatchFlags) -> Option<i32> {
        let moves = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        // Another process may have put something else in place of the directory.
        let flags = flags | moves | WatchFlags::ONLYDIR;
        match inotify::add_watch(self.inotify.as_ref()?, path, flags) {
            Ok(watch) => Some(watch),
            Err(Errno::NOSPC | Errno::NOMEM) => {
                // The limit of inotify watches (`fs.inotify.max_user_watches`) is reached: poll
                // instead.
                self.inotify = None;
                None
            }
            // The directory has been removed since the scan, or does not exist yet.
            Err(_) => None,
        }
    }

    /// Waits until something has happened, but not longer than `max`.
    pub(super) fn wait(&mut self, max: Duration) -> WatchEvents {
        let mut fds = vec![PollFd::new(&*self.waker.0, PollFlags::IN)];
        fds.extend(
            self.inotify
                .iter()
                .map(|inotify| PollFd::new(inotify, PollFlags::IN)),
        );
        let changes = poll(&mut fds, Timespec::try_from(max).ok().as_ref());
        drop(fds);
        // Sets the counter back to 0. It fails if nobody has woken this thread.
        let _ = rustix::io::read(&*self.waker.0, &mut [0; 8]);
        let mut events = self.read_events();
        events.is_timeout |= changes == Ok(0);
        events
    }

    fn read_events(&mut self) -> WatchEvents {
        let mut changes = WatchEvents::default();
        let Some(inotify) = &self.inotify else {
            return changes;
        };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(inotify.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            let (watch, kind) = (event.wd(), event.events());
            if kind.contains(ReadFlags::IGNORED) {
                // The kernel has dropped the watch: the directory is gone.
                self.indexes.retain(|(of, _), _| *of != watch);
                continue;
            }
            let name = event.file_name().map_or(&[][..], CStr::to_bytes);
            let name = OsString::from_vec(name.to_vec());
            match self.indexes.get(&(watch, name)) {
                Some(stream) => changes.streams.push(*stream),
                // The index file belongs to a stream that is not read yet.
                None if kind.contains(ReadFlags::MODIFY) => {}
                // This includes QUEUE_OVERFLOW, after which anything may have changed.
                None => changes.is_structure_changed = true,
            }
        }
        changes
    }
}
