//! File calls of viewers. What is in the page cache is read at once. What is not, and every open call,
//! takes as long as the disk likes: it is made off the event loop, which goes on with other viewers.
//!
//! Each such call takes a thread while it is in flight, so that their number is bounded, for each session
//! and in all. A viewer that has yet to begin waits in [`Capacity::wait`], which takes no thread.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::pool::PooledFile;

/// The type of tmpfs, as the system has it in `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

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
    /// Whether it is in memory, once that has been asked.
    is_in_memory: OnceLock<bool>,
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
            is_in_memory: OnceLock::new(),
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
        let (cached, is_supported) = read_cached(file, bytes, offset);
        let rest = match bytes.get_mut(cached..) {
            None | Some([]) => return Ok(()),
            Some(rest) => rest,
        };
        let offset = offset.saturating_add(cached as u64);
        if !is_supported && *self.is_in_memory.get_or_init(|| is_in_memory(file)) {
            return file.read_exact_at(rest, offset);
        }
        self.calls.run(|| file.read_exact_at(rest, offset))
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

/// Reads what can be had without waiting, and gives how much that is, which is less than there may be at
/// the end of the file; and whether the file system can tell at all.
fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> (usize, bool) {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(read as u64);
        match preadv2(
            file,
            &mut [IoSliceMut::new(rest)],
            at,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) => return (read, error != Errno::OPNOTSUPP),
        }
    }
    (read, true)
}

/// Whether the file has no disk to wait for, though its file system cannot tell what is cached.
fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|about| u64::try_from(about.f_type) == Ok(TMPFS_MAGIC))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::store::pool::Pool;

    /// Whether the viewer may go on now.
    fn turn(capacity: &Capacity) -> Option<Turn> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(capacity.wait()).poll(&mut context) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_session_whose_calls_hang_leaves_other_sessions_theirs() {
        let all = Arc::new(Semaphore::new(4));
        let [hung, other] = [(); 2].map(|()| Arc::new(Semaphore::new(2)));
        let calls = [&hung, &other, &hung].map(|session| FileCalls::new(session, &all));
        let viewers = calls.each_ref().map(|calls| {
            let capacity = Capacity::default();
            capacity.add(calls);
            capacity
        });
        let in_flight: Vec<_> = (0..2)
            .map(|_| (hung.try_acquire().unwrap(), all.try_acquire().unwrap()))
            .collect();
        assert!(turn(&viewers[0]).is_none() && turn(&viewers[2]).is_none());
        assert!(turn(&viewers[1]).is_some());
        let rest = all.try_acquire_many(2).unwrap();
        assert!(turn(&viewers[1]).is_none(), "all together have too many");
        drop(rest);
        // What the viewer has left is none of its concern.
        let [own, ..] = calls;
        drop(own);
        assert!(turn(&viewers[0]).is_some());
        drop(in_flight);
        assert!(turn(&viewers[2]).is_some());
    }

    #[test]
    fn a_viewer_that_waits_has_its_turn_before_those_that_come_later() {
        let (all, session) = (Arc::new(Semaphore::new(9)), Arc::new(Semaphore::new(1)));
        let calls = FileCalls::new(&session, &all);
        let viewers = [(); 2].map(|()| Capacity::default());
        viewers.iter().for_each(|capacity| capacity.add(&calls));
        let in_flight = session.try_acquire().unwrap();
        let mut first = pin!(viewers[0].wait());
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        drop(in_flight);
        assert!(turn(&viewers[1]).is_none());
        let Poll::Ready(held) = first.as_mut().poll(&mut context) else {
            panic!("it has waited for this");
        };
        assert!(turn(&viewers[1]).is_none());
        drop(held);
        assert!(turn(&viewers[1]).is_some());
    }

    #[test]
    fn bytes_are_the_same_whether_they_are_cached_or_not() {
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
    }
}
