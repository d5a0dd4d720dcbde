//! What a stream does while there is no space on the disk for it, or no file descriptor: it keeps what it
//! could not write, and takes nothing that would make that more. Whoever brought it waits, and reads no
//! further from its producer, who therefore waits too. Nothing is lost, and nothing that is half written
//! is seen.

use super::super::error::IngestError;
use super::{State, StreamWriter};
use crate::store::fault::FaultKind;

/// What is to be done when there is no space on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The producer waits until there is.
    #[default]
    Pause,
    /// The session ends.
    Close,
}

impl WhenFull {
    /// Whether a producer is paused until this fault has passed.
    ///
    /// A lack of file descriptors passes as soon as some connection or file is closed, without anybody
    /// making space: sessions are not ended for it.
    pub(in super::super) fn pauses_on(self, fault: FaultKind) -> bool {
        fault.is_transient() && (self == Self::Pause || fault == FaultKind::Descriptors)
    }
}

/// What a stream keeps while it waits for space.
#[derive(Debug)]
pub(super) struct Pause {
    when_full: WhenFull,
    is_paused: bool,
    /// Of the packet under way.
    unwritten: Option<Unwritten>,
    /// Why it waits, until somebody has been told.
    untold: Option<IngestError>,
}

/// What could not be written of a packet.
#[derive(Debug)]
struct Unwritten {
    /// A tracefile is to be begun for a packet of so many sent bytes.
    begins: Option<u32>,
    bytes: Vec<u8>,
    /// They are the last, and zeros follow them.
    padding: Option<u32>,
}

/// Whether a stream goes on that waited for space.
#[derive(Debug)]
pub enum Resumed {
    /// It does.
    Yes,
    /// It did not have to wait, or somebody else has seen to it.
    Already,
    /// There still is no space. The first who asks is told what could not be done.
    No(Option<IngestError>),
}

impl Pause {
    pub(super) fn new(when_full: WhenFull) -> Self {
        Self {
            when_full,
            is_paused: false,
            unwritten: None,
            untold: None,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }
}

impl StreamWriter {
    /// Whether this is no error but a reason to wait.
    pub(super) fn can_wait(&self, error: &IngestError) -> bool {
        let fault = error.fault_kind();
        fault.is_some_and(|fault| self.pause.when_full.pauses_on(fault))
    }

    /// Waits from now on.
    pub(super) fn wait(&mut self, why: IngestError) {
        if !self.pause.is_paused {
            self.pause.untold = Some(why);
        }
        self.pause.is_paused = true;
        self.tally.set_paused(true);
    }

    /// The same, if it can wait: else gives the error back.
    pub(super) fn or_wait(&mut self, done: Result<(), IngestError>) -> Result<(), IngestError> {
        match done {
            Err(error) if self.can_wait(&error) => {
                self.wait(error);
                Ok(())
            }
            done => done,
        }
    }

    /// Keeps what cannot be written of the packet under way, behind what is kept of it already.
    pub(super) fn keep_unwritten(
        &mut self,
        begins: Option<u32>,
        bytes: &[u8],
        padding: Option<u32>,
    ) {
        let kept = self.pause.unwritten.get_or_insert(Unwritten {
            begins,
            bytes: Vec::new(),
            padding: None,
        });
        kept.bytes.extend_from_slice(bytes);
        kept.padding = kept.padding.or(padding);
    }

    /// Whether something of the packet under way is kept, so that what follows must not be written.
    pub(super) fn has_unwritten(&self) -> bool {
        self.pause.unwritten.is_some()
    }

    /// The packet under way is dropped, with what is kept of it.
    pub(super) fn drop_unwritten(&mut self) {
        self.pause.unwritten = None;
    }

    /// Nothing is waited for any more.
    pub(super) fn end_pause(&mut self) {
        self.pause.is_paused = false;
        self.pause.untold = None;
        self.drop_unwritten();
        self.tally.set_paused(false);
    }

    /// Tries again to write what is kept. Gives whether the stream goes on.
    pub(in super::super) fn resume(&mut self) -> Result<Resumed, IngestError> {
        if !self.pause.is_paused {
            return Ok(Resumed::Already);
        }
        // Whatever fails for want of space sets it again.
        self.pause.is_paused = false;
        let done = self.write_kept();
        if self.pause.is_paused {
            done?;
            return Ok(Resumed::No(self.pause.untold.take()));
        }
        self.tally.set_paused(false);
        self.pause.untold = None;
        done?;
        if self.state != State::Closed {
            self.close_if_done();
        }
        Ok(Resumed::Yes)
    }

    fn write_kept(&mut self) -> Result<(), IngestError> {
        // Who waits is told once, not each time that it is tried in vain.
        let untold = self.pause.untold.take();
        let kept = self.pause.unwritten.take().zip(self.under_way);
        if let Some((kept, (seq, from))) = kept {
            if let Some(data_size) = kept.begins
                && let Err(error) = self.begin_file_for(data_size)
            {
                if self.can_wait(&error) {
                    self.keep_unwritten(kept.begins, &kept.bytes, kept.padding);
                    self.wait(error);
                    self.pause.untold = untold;
                    return Ok(());
                }
                return Err(error);
            }
            if !kept.bytes.is_empty() || kept.padding.is_some() {
                self.receive(seq, from, &kept.bytes, kept.padding)?;
            }
        }
        if !self.pause.is_paused {
            self.take_waiting()?;
            self.flush()?;
        }
        self.pause.untold = untold;
        Ok(())
    }
}
