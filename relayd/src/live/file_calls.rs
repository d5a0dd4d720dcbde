//! File calls of viewers. What is in the page cache is read at once. What is not, and every open call,
//! takes as long as the disk likes: it is made off the event loop, which goes on with other viewers.
//!
//! Each such call takes a thread while it is in flight, so that their number is bounded, for each session
//! and in all. A viewer that has yet to begin waits in [`Capacity::wait`], which takes no thread.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::pool::PooledFile;

/// The file calls that the viewers of one session may have in flight, and those of all sessions.
#[derive(Debug)]
pub(super) struct FileCalls {
    of_session: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
}

/// The sessions that a viewer reads files of.
#[derive(Debug, Default)]
pub struct Capacity(Mutex<Vec<Weak<FileCalls>>>);

/// The right to make file calls, of a viewer that has waited for it.
#[derive(Debug)]
pub struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// A file as one viewer reads it.
#[derive(Debug)]
pub(super) struct ReadFile {
    /// None: it has been dropped.
    file: Option<Arc<PooledFile>>,
    calls: Arc<FileCalls>,
}

impl FileCalls {
    /// Of a session with so many permits left; `of_all` is shared by all sessions.
    pub(super) fn new(of_session: &Arc<Semaphore>, of_all: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            of_session: Arc::clone(of_session),
            of_all: Arc::clone(of_all),
        })
    }

    /// Makes a call that may block, off the event loop.
    pub(super) fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        // There may be no permit left: several viewers can pass `Capacity::wait` before the first of
        // them is here. No more than there are worker threads, since nothing is awaited in between.
        let _permits = (self.of_session.try_acquire(), self.of_all.try_acquire());
        tokio::task::block_in_place(call)
    }
}

impl Capacity {
    /// The viewer reads files of one more session, until `calls` is dropped.
    pub(super) fn add(&self, calls: &Arc<FileCalls>) {
        let mut sessions = self.0.lock();
        sessions.retain(|calls| calls.strong_count() > 0);
        sessions.push(Arc::downgrade(calls));
    }

    /// Waits until none of the sessions has as many calls in flight as it may, and neither have all
    /// together.
    pub async fn wait(&self) -> Turn {
        let mut waited: Option<(Arc<Semaphore>, OwnedSemaphorePermit)> = None;
        loop {
            let (mut permits, mut blocked) = (Vec::new(), None);
            for exhausted in self.exhausted() {
                if waited
                    .as_ref()
                    .is_some_and(|(of, _)| Arc::ptr_eq(of, &exhausted))
                {
                    continue;
                }
                match Arc::clone(&exhausted).try_acquire_owned() {
                    Ok(permit) => permits.push(permit),
                    Err(_) => blocked = Some(exhausted),
                }
            }
            let Some(blocked) = blocked else {
                permits.extend(waited.map(|(_, permit)| permit));
                return Turn { _permits: permits };
            };
            // Nothing is held meanwhile: viewers of other sessions are not to wait for this one.
            drop((permits, waited.take()));
            let permit = Arc::clone(&blocked).acquire_owned().await;
            waited = permit.ok().map(|permit| (blocked, permit));
        }
    }

    fn exhausted(&self) -> Vec<Arc<Semaphore>> {
        let sessions = self.0.lock();
        let calls = sessions.iter().filter_map(Weak::upgrade);
        let (mut of_sessions, mut of_all) = (Vec::new(), None);
        for calls in calls {
            if calls.of_session.available_permits() == 0 {
                of_sessions.push(Arc::clone(&calls.of_session));
            }
            if calls.of_all.available_permits() == 0 {
                of_all = Some(Arc::clone(&calls.of_all));
            }
        }
        of_sessions.extend(of_all);
        of_sessions
    }
}

impl ReadFile {
    pub(super) fn new(file: Arc<PooledFile>, calls: &Arc<FileCalls>) -> Self {
        Self {
            file: Some(file),
            calls: Arc::clone(calls),
        }
    }

    fn open(&self) -> io::Result<&Arc<PooledFile>> {
        self.file
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether so many files are open that the next takes the place of another.
    pub(super) fn is_pool_full(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.pool().is_full())
    }

    /// Fills `bytes` from this position on.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub(super) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.open()?;
        let cached = read_cached(file, bytes, offset);
        match bytes.get_mut(cached..) {
            None | Some([]) => Ok(()),
            Some(rest) => {
                let offset = offset.saturating_add(cached as u64);
                self.calls.run(|| file.read_exact_at(rest, offset))
            }
        }
    }
}

impl Drop for ReadFile {
    fn drop(&mut self) {
        // The last to have it closes it, and a network file system may then write what it still has.
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            self.calls.run(|| drop(file));
        }
    }
}

/// Reads what can be had without waiting, and gives how much that is. A file system that cannot tell, or
/// a file that ends, gives less than there may be.
fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> usize {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(read as u64);
        match preadv2(
            file,
            &mut [IoSliceMut::new(rest)],
            at,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    read
}
