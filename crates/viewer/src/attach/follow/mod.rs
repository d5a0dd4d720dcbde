//! A directory that a relay is writing: its packets as they are written, found by the index files
//! beside them.
//!
//! Only packets that an index file names are read, under the shared lock that `doc/store.md` asks
//! for. A beacon after the entries lets the other streams continue. A stream ends with the relay's
//! lock on its tracefiles: when the lock is released and all entries have been read, nothing more
//! is written, whether the session was ended or the relay was killed.
//!
//! `lttng-relayd` takes no such locks and writes no beacons. A stream of a trace without locks that
//! has not grown for [`FollowOptions::idle`] is assumed to have no event earlier than what the
//! others had shown by then, which holds if the live timer is shorter. Such a trace ends when
//! nothing of it has grown for [`FollowOptions::silence`]. So does a trace that ended before the
//! viewer started.
//!
//! Files are identified by device, inode and birth time, and not by their paths: a rotation moves
//! them, and a ring of tracefiles makes new ones in place of the oldest. What was replaced before
//! it could be read shows as discarded packets, by the numbers of those that follow.
//!
//! Read in this order; each module uses only those before it:
//!
//! | module | what |
//! |---|---|
//! | `event_sender` | the way to the main thread |
//! | `scan` | which traces and tracefiles there are now |
//! | `watch` | inotify, or a timeout |
//! | `tracefile_reader`, `metadata` | reading one tracefile, one metadata file |
//! | `stream` | one stream: its tracefiles in order |
//! | `follower` | the state: all directories, traces and streams |
//! | `end` | when streams and traces have ended |
//! | `read` | index entries and packets of a stream |
//! | `join` | which directory is of which trace, which file of which stream |
//! | `run` | the event loop |

mod end;
mod event_sender;
mod follower;
mod join;
mod metadata;
mod read;
mod run;
mod scan;
mod stream;
#[cfg(test)]
mod tests;
mod tracefile_reader;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::mpsc::Sender;

use self::event_sender::EventSender;
use self::follower::DirectoryFollower;
use self::watch::DirectoryWatch;
use super::{MemoryBudget, SourceEvent, SourceHandle};

/// The options for following a directory.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// Whether to wait for further traces when all have ended.
    pub wait: bool,
    /// Packets of a stream that may wait to be decoded.
    pub backlog: usize,
    /// Time without new packets after which the other streams do not wait for a stream of a relay
    /// without beacons.
    pub idle: Duration,
    /// Time without new packets after which a trace of a relay without locks has ended. None: it
    /// never ends.
    pub silence: Option<Duration>,
    /// The memory that packets may take.
    pub memory: MemoryBudget,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            wait: false,
            backlog: 16,
            idle: Duration::from_secs(2),
            silence: Some(Duration::from_secs(10)),
            memory: MemoryBudget::default(),
        }
    }
}

/// Begins to follow all traces at or below `directory`. Ends with [`SourceEvent::Done`] or
/// [`SourceEvent::Failed`], or when the receiver has been dropped.
///
/// # Errors
/// If there are no file descriptors or threads left.
pub fn spawn(
    directory: PathBuf,
    options: FollowOptions,
    events: Sender<SourceEvent>,
) -> io::Result<SourceHandle> {
    let watch = DirectoryWatch::new()?;
    let stop = Arc::new(AtomicBool::new(false));
    let waker = watch.waker();
    let events = EventSender::new(events, Arc::clone(&stop));
    let mut follower = DirectoryFollower::new(directory, options, events, watch);
    let request_end = move || {
        stop.store(true, Ordering::Release);
        waker.wake();
    };
    SourceHandle::spawn("follow", request_end, move || follower.run())
}

/// Whether our relay is writing a trace at or below `directory`. That of LTTng does not say.
///
/// # Errors
/// If `directory` cannot be read.
pub fn is_live(directory: &Path) -> io::Result<bool> {
    let is_locked = |path: &Path| {
        regular_file::open(path, OFlags::RDONLY)
            .is_ok_and(|file| tracefile_reader::is_locked(&file))
    };
    Ok(scan::scan(directory)?.traces.iter().any(|trace| {
        is_locked(&trace.directory.join("metadata"))
            || trace.files.iter().any(|file| is_locked(&file.path))
    }))
}
