//! File calls of viewers. Bytes in the page cache are read at once (`preadv2` with `RWF_NOWAIT`).
//! Other reads and all open calls may block for as long as the disk does: they are made off the
//! event loop, which meanwhile serves other viewers.
//!
//! A blocking call occupies a thread while it is in flight. Semaphores limit the calls of each
//! session and of all sessions. A viewer waits for both in [`FileCallLimits::acquire`], which
//! occupies no thread.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{fstatfs, sendfile};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::pool::PooledFile;

/// Type of a tmpfs in the reply of statfs(2): `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Permits for blocking file calls: those of one session's viewers, and those of all sessions.
#[derive(Debug)]
pub(super) struct FileCalls {
    session_permits: Arc<Semaphore>,
    all_permits: Arc<Semaphore>,
}

/// The limits that apply to one viewer: those of each session that it is attached to, and of all
/// sessions.
#[derive(Debug, Default)]
pub struct FileCallLimits(Mutex<Vec<Weak<FileCalls>>>);

/// The right of a viewer to make file calls. It is given up when the value is dropped.
#[derive(Debug, Default)]
pub struct FileCallPermits {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// A file that one viewer reads.
#[derive(Debug)]
pub(super) struct ReadFile {
    /// The open file. None only while the value is dropped.
    file: Option<Arc<PooledFile>>,
    calls: Arc<FileCalls>,
    /// Whether the file is on a tmpfs. Not set until that matters.
    is_in_memory: OnceLock<bool>,
}

impl FileCalls {
    /// File calls with the permits of a session, and those that all sessions share.
    pub(super) fn new(session: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            session_permits: Arc::clone(session),
            all_permits: Arc::clone(all),
        })
    }

    /// Makes a call that may block, off the event loop. Must be called on a worker of a
    /// multi-threaded runtime.
    pub(super) fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        // There may be no permit left, because several viewers can pass `FileCallLimits::acquire`
        // before the first of them makes its call. They are no more than worker threads: nothing is
        // awaited in between.
        let _permits = (
            self.session_permits.try_acquire(),
            self.all_permits.try_acquire(),
        );
        tokio::task::block_in_place(call)
    }
}

impl FileCallLimits {
    /// Adds the limits of a session that the viewer is attached to, until `calls` is dropped.
    pub(super) fn add_session(&self, calls: &Arc<FileCalls>) {
        let mut sessions = self.0.lock();
        sessions.retain(|calls| calls.strong_count() > 0);
        sessions.push(Arc::downgrade(calls));
    }

    /// Whether a file call would have to wait: one of the sessions, or all together, have the
    /// maximum of calls in flight.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        !self.exhausted().is_empty()
    }

    /// Waits until neither any of the sessions nor all together have the maximum of calls in
    /// flight.
    pub async fn acquire(&self) -> FileCallPermits {
        let mut waited: Option<(Arc<Semaphore>, OwnedSemaphorePermit)> = None;
        loop {
            let (mut permits, mut blocked) = (Vec::new(), None);
            for exhausted in self.exhausted() {
                let is_held = |(of, _): &(Arc<_>, _)| Arc::ptr_eq(of, &exhausted);
                if waited.as_ref().is_some_and(is_held) {
                    continue;
                }
                match Arc::clone(&exhausted).try_acquire_owned() {
                    Ok(permit) => permits.push(permit),
                    Err(_) => blocked = Some(exhausted),
                }
            }
            let Some(blocked) = blocked else {
                permits.extend(waited.map(|(_, permit)| permit));
                return FileCallPermits { _permits: permits };
            };
            // No permit is held while waiting: viewers of other sessions must not wait for this
            // session.
            drop((permits, waited.take()));
            let permit = Arc::clone(&blocked).acquire_owned().await;
            waited = permit.ok().map(|permit| (blocked, permit));
        }
    }

    /// The semaphores without permits.
    fn exhausted(&self) -> Vec<Arc<Semaphore>> {
        let sessions = self.0.lock();
        let calls = sessions.iter().filter_map(Weak::upgrade);
        let (mut exhausted, mut all) = (Vec::new(), None);
        for calls in calls {
            if calls.session_permits.available_permits() == 0 {
                exhausted.push(Arc::clone(&calls.session_permits));
            }
            if calls.all_permits.available_permits() == 0 {
                all = Some(Arc::clone(&calls.all_permits));
            }
        }
        exhausted.extend(all);
        exhausted
    }
}

impl ReadFile {
    pub(super) fn new(file: Arc<PooledFile>, calls: &Arc<FileCalls>) -> Self {
        Self {
            file: Some(file),
            calls: Arc::clone(calls),
            is_in_memory: OnceLock::new(),
        }
    }

    fn open(&self) -> io::Result<&Arc<PooledFile>> {
        self.file
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether the pool of open files is full, so that the next file evicts another.
    pub(super) fn is_pool_full(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.pool().is_full())
    }

    /// Whether the file is known to be on a tmpfs, which has been found out by reading from it.
    /// Sending it does not block.
    pub(super) fn is_in_memory(&self) -> bool {
        self.is_in_memory.get() == Some(&true)
    }

    /// Sends up to `len` bytes from byte `offset` of the file on. They are not copied: the socket
    /// holds the pages until they have been received. Returns how many bytes it has taken, 0 at the
    /// end of the file.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has no room; else the connection is lost, or the file cannot be
    /// read.
    pub(super) fn send(&self, socket: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let file = self.open()?;
        // With an offset of its own, sendfile(2) leaves that of the file, which others share.
        let mut offset = offset;
        Ok(sendfile(socket, &***file, Some(&mut offset), len)?)
    }

    /// Fills `bytes` from byte `offset` of the file on.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub(super) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.open()?;
        if self.is_in_memory() {
            return file.read_exact_at(bytes, offset);
        }
        let (cached, is_supported) = read_cached(file, bytes, offset);
        let rest = match bytes.get_mut(cached..) {
            None | Some([]) => return Ok(()),
            Some(rest) => rest,
        };
        let offset = offset.saturating_add(cached as u64);
        // Asked only where `RWF_NOWAIT` is not supported, as on a tmpfs: it costs a call.
        if !is_supported && *self.is_in_memory.get_or_init(|| is_in_memory(file)) {
            return file.read_exact_at(rest, offset);
        }
        self.calls.run(|| file.read_exact_at(rest, offset))
    }
}

impl Drop for ReadFile {
    fn drop(&mut self) {
        // The last reference closes the file. On a network file system that may write and block.
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            self.calls.run(|| drop(file));
        }
    }
}

/// Reads without blocking. Returns the number of bytes read, which end where the page cache or the
/// file does; and whether the file system supports `RWF_NOWAIT`.
fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> (usize, bool) {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let (at, rest) = (offset.saturating_add(read as u64), IoSliceMut::new(rest));
        match preadv2(file, &mut [rest], at, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(more) => read += more,
            // The read that may block finds other errors again.
            Err(error) => return (read, error != Errno::OPNOTSUPP),
        }
    }
    (read, true)
}

/// Whether the file is on a tmpfs: it never blocks, but does not support `RWF_NOWAIT`.
fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|about| u64::try_from(about.f_type) == Ok(TMPFS_MAGIC))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::store::pool::Pool;

    /// Acquires permits if that needs no waiting.
    fn try_acquire(limits: &FileCallLimits) -> Option<FileCallPermits> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(limits.acquire()).poll(&mut context) {
            Poll::Ready(permits) => Some(permits),
            Poll::Pending => None,
        }
    }

    #[test]
    fn hung_file_calls_of_one_session_do_not_limit_other_sessions() {
        let all = Arc::new(Semaphore::new(4));
        let [hung, other] = [(); 2].map(|()| Arc::new(Semaphore::new(2)));
        let calls = [&hung, &other, &hung].map(|session| FileCalls::new(session, &all));
        let viewers = calls.each_ref().map(|calls| {
            let limits = FileCallLimits::default();
            limits.add_session(calls);
            limits
        });
        let in_flight: Vec<_> = (0..2)
            .map(|_| (hung.try_acquire().unwrap(), all.try_acquire().unwrap()))
            .collect();
        assert!(try_acquire(&viewers[0]).is_none() && try_acquire(&viewers[2]).is_none());
        assert!(try_acquire(&viewers[1]).is_some());
        let rest = all.try_acquire_many(2).unwrap();
        assert!(
            try_acquire(&viewers[1]).is_none(),
            "the limit of all sessions is reached"
        );
        drop(rest);
        // A session that the viewer has detached from no longer limits it.
        let [own, ..] = calls;
        drop(own);
        assert!(try_acquire(&viewers[0]).is_some());
        drop(in_flight);
        assert!(try_acquire(&viewers[2]).is_some());
    }

    #[test]
    fn waiting_viewers_acquire_file_call_permits_in_order() {
        let (all, session) = (Arc::new(Semaphore::new(9)), Arc::new(Semaphore::new(1)));
        let calls = FileCalls::new(&session, &all);
        let viewers = [(); 2].map(|()| FileCallLimits::default());
        viewers.iter().for_each(|limits| limits.add_session(&calls));
        let in_flight = session.try_acquire().unwrap();
        let mut first = pin!(viewers[0].acquire());
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        drop(in_flight);
        assert!(try_acquire(&viewers[1]).is_none());
        let Poll::Ready(held) = first.as_mut().poll(&mut context) else {
            panic!("a permit was released");
        };
        assert!(try_acquire(&viewers[1]).is_none());
        drop(held);
        assert!(try_acquire(&viewers[1]).is_some());
    }

    #[test]
    fn read_file_returns_the_same_bytes_whether_cached_or_not() {
        let pool = Pool::new(9);
        let file = pool.open(tempfile::tempfile).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let permits = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        let calls = FileCalls::new(&permits[0], &permits[1]);
        let file = ReadFile::new(file, &calls);
        let mut read = vec![0; 99_000];
        file.read_exact_at(&mut read, 1000).unwrap();
        assert!(read == bytes[1000..]);
        assert!(file.read_exact_at(&mut read, 1001).is_err());
        // Until a read has found out where a file is, it may be on a disk.
        assert!(!ReadFile::new(pool.open(memory_file).unwrap(), &calls).is_in_memory());
    }

    /// An empty file on a tmpfs.
    fn memory_file() -> io::Result<File> {
        Ok(memfd_create("tracefile", MemfdFlags::CLOEXEC)?.into())
    }

    #[test]
    fn file_in_memory_is_sent_up_to_its_end() {
        let pool = Pool::new(9);
        let file = pool.open(memory_file).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let permits = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        let calls = FileCalls::new(&permits[0], &permits[1]);
        let file = ReadFile::new(file, &calls);
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        assert!(file.is_in_memory());
        let (to, mut from) = UnixStream::pair().unwrap();
        assert_eq!(file.send(&to, 1000, 7000).unwrap(), 7000);
        assert_eq!(file.send(&to, 8000, 7000).unwrap(), 2000);
        assert_eq!(file.send(&to, 10_000, 7000).unwrap(), 0);
        drop(to);
        let mut sent = Vec::new();
        from.read_to_end(&mut sent).unwrap();
        assert!(sent == bytes[1000..]);
    }
}
