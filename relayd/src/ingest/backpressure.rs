//! Backpressure while the disk has no space for a stream, or the process no file descriptor. The
//! stream keeps what it could not write, and its connection reads no further, so that TCP flow
//! control pauses the producer. Nothing is lost, and no reader sees anything partially written.

use super::error::{Consequence, DiskFullPolicy, IngestError};

/// The outcome of an attempt to resume a stream.
#[derive(Debug)]
pub enum Resumed {
    /// The stream was paused and continues.
    Yes {
        /// Whether the log has the pause: then it has its end, too.
        was_reported: bool,
    },
    /// The stream was not paused, or another connection has resumed it.
    Already,
    /// There is still no space. Only the first caller after a pause gets the error, so that a pause
    /// is logged once.
    No(Option<IngestError>),
}

/// Whether a stream is paused, and why.
#[derive(Debug)]
pub(super) struct Backpressure {
    when_full: DiskFullPolicy,
    state: PauseState,
    /// The error that paused the stream, until it has been reported.
    unreported: Option<IngestError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseState {
    Flowing,
    Paused,
    /// The kept bytes are being written: the next lack of space pauses the stream again.
    Retrying,
}

impl Backpressure {
    pub(super) fn new(when_full: DiskFullPolicy) -> Self {
        Self {
            when_full,
            state: PauseState::Flowing,
            unreported: None,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state == PauseState::Paused
    }

    /// Whether this error pauses the producer instead of ending its session.
    pub(super) fn pauses_on(&self, error: &IngestError) -> bool {
        error.consequence(self.when_full) == Consequence::PauseProducer
    }

    /// Pauses the stream. Only the first error of a pause is reported, however often it is retried.
    pub(super) fn pause(&mut self, why: IngestError) {
        if self.state == PauseState::Flowing {
            self.unreported = Some(why);
        }
        self.state = PauseState::Paused;
    }

    /// Begins an attempt to write the kept bytes.
    pub(super) fn begin_retry(&mut self) {
        self.state = PauseState::Retrying;
    }

    /// Ends the pause, because the stream continues or has ended. Returns whether it was reported.
    pub(super) fn end(&mut self) -> bool {
        self.state = PauseState::Flowing;
        self.unreported.take().is_none()
    }

    /// The error that paused the stream, unless it has been reported.
    pub(super) fn take_unreported(&mut self) -> Option<IngestError> {
        self.unreported.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;
    use wire::StreamId;

    use super::*;
    use crate::store::StoreError;

    fn error(errno: Errno) -> IngestError {
        IngestError::Store {
            stream: StreamId(1),
            source: StoreError {
                what: "write",
                path: "chan_0".into(),
                offset: None,
                source: io::Error::from(errno),
            },
        }
    }

    #[test]
    fn a_full_disk_pauses_or_closes_and_a_lack_of_descriptors_always_pauses() {
        for (when_full, errno, pauses) in [
            (DiskFullPolicy::Pause, Errno::NOSPC, true),
            (DiskFullPolicy::Pause, Errno::DQUOT, true),
            (DiskFullPolicy::Pause, Errno::IO, false),
            (DiskFullPolicy::Close, Errno::NOSPC, false),
            (DiskFullPolicy::Close, Errno::MFILE, true),
        ] {
            let backpressure = Backpressure::new(when_full);
            assert_eq!(backpressure.pauses_on(&error(errno)), pauses, "{errno}");
        }
        let unrelated = IngestError::UnknownStream(StreamId(1));
        assert!(!Backpressure::new(DiskFullPolicy::Pause).pauses_on(&unrelated));
    }

    #[test]
    fn a_pause_is_reported_once_however_often_it_is_retried() {
        let mut backpressure = Backpressure::new(DiskFullPolicy::Pause);
        backpressure.pause(error(Errno::NOSPC));
        for is_first in [true, false, false] {
            backpressure.begin_retry();
            assert!(!backpressure.is_paused());
            backpressure.pause(error(Errno::NOSPC));
            assert!(backpressure.is_paused());
            assert_eq!(backpressure.take_unreported().is_some(), is_first);
        }
        backpressure.begin_retry();
        assert!(backpressure.end());
        backpressure.pause(error(Errno::NOSPC));
        backpressure.begin_retry();
        assert!(!backpressure.end());
        backpressure.pause(error(Errno::NOSPC));
        assert!(backpressure.take_unreported().is_some());
    }
}
