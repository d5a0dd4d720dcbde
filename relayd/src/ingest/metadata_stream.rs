//! A metadata stream. Metadata arrives on the control connection in pieces, each of which viewers
//! see whole or not at all.

use std::sync::Arc;

use parking_lot::Mutex;
use relay_proto::metadata::SendMetadata;
use tracing::warn;
use wire::{Bytes, StreamId, TracePath};

use super::error::{Consequence, DiskFullPolicy};
use super::stream_class_search::StreamClassSearch;
use crate::limits::MAX_METADATA_BYTES;
use crate::publish::published::PublishedMetadata;
use crate::store::StoreError;
use crate::store::chunk::Holding;
use crate::store::metadata::MetadataFile;
use crate::store::session_log::StreamLog;

/// The metadata of a trace.
#[derive(Debug)]
pub struct MetadataStream {
    id: StreamId,
    trace: TracePath,
    published: Arc<PublishedMetadata>,
    when_full: DiskFullPolicy,
    state: Mutex<MetadataState>,
}

#[derive(Debug)]
struct MetadataState {
    file: MetadataFile,
    /// Number of zeros at the end of the piece in flight.
    padding: u32,
    /// The first text that the disk had no space for, and all text after it. None: the stream is
    /// not paused.
    unwritten: Option<Unwritten>,
    /// Number by which the producer names the stream: metadata with another comes from a connection
    /// that was lost, and is dropped.
    wire_id: StreamId,
    /// The log of the session. None: the session is not resumable.
    log: Option<StreamLog>,
    /// Length of the file with a piece that is complete and has not been logged.
    unlogged: Option<Bytes>,
    /// The search for a stream class, as it was at the end of the last complete piece, and now.
    searched: StreamClassSearch,
    search: StreamClassSearch,
}

#[derive(Debug, Default)]
struct Unwritten {
    text: Vec<u8>,
    /// The piece is complete with this text.
    ends: bool,
}

impl MetadataStream {
    /// A stream that describes a trace and writes to `file`.
    #[must_use]
    pub fn new(
        id: StreamId,
        trace: TracePath,
        file: MetadataFile,
        when_full: DiskFullPolicy,
    ) -> Self {
        let published = Arc::new(PublishedMetadata::default());
        let state = MetadataState {
            file,
            padding: 0,
            unwritten: None,
            wire_id: id,
            log: None,
            unlogged: None,
            searched: StreamClassSearch::default(),
            search: StreamClassSearch::default(),
        };
        Self {
            id,
            trace,
            published,
            when_full,
            state: Mutex::new(state),
        }
    }

    /// Number of the stream, as the producer knows it.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Directory of the trace that the stream describes.
    #[must_use]
    pub fn trace(&self) -> &TracePath {
        &self.trace
    }

    /// The part that viewers may see.
    #[must_use]
    pub fn published(&self) -> &Arc<PublishedMetadata> {
        &self.published
    }

    /// Whether a piece of this size fits within [`MAX_METADATA_BYTES`].
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let received = self.state.lock().file.received();
        received.0.saturating_add(bytes) <= MAX_METADATA_BYTES
    }

    /// Begins a piece. Returns whether the stream has a file for it.
    #[must_use]
    pub fn begin_piece(&self, metadata: &SendMetadata) -> bool {
        let mut state = self.state.lock();
        // A late piece from a lost connection is dropped. Its producer has done nothing wrong.
        if state.wire_id != metadata.stream {
            return true;
        }
        state.padding = metadata.padding;
        // Without what was read of a piece that was never completed.
        state.search = state.searched;
        state.search.begin_piece();
        state.file.chunk().is_some() && !self.published.is_over()
    }

    /// Writes some text of the piece that was begun for stream `named`, as the producer names it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append_text(&self, named: StreamId, text: &[u8]) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.wire_id != named {
            return Ok(());
        }
        state.search.read(text);
        if let Some(kept) = &mut state.unwritten {
            // Written now, it would overtake the text that is kept.
            kept.text.extend_from_slice(text);
            return Ok(());
        }
        let written = state.file.append_text(text);
        self.or_pause(&mut state, written, text, false)
    }

    /// Ends the piece that was begun for stream `named`, and publishes it to viewers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end_piece(&self, named: StreamId) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.wire_id != named {
            return Ok(());
        }
        if let Some(kept) = &mut state.unwritten {
            kept.ends = true;
            return Ok(());
        }
        let ended = self.finish_piece(&mut state);
        self.or_pause(&mut state, ended, &[], true)
    }

    fn finish_piece(&self, state: &mut MetadataState) -> Result<(), StoreError> {
        let received = match state.unlogged {
            Some(received) => received,
            None => state.file.finish_piece(state.padding)?,
        };
        // The piece must not be finished twice if only the log cannot be written.
        state.unlogged = Some(received);
        if let Some(log) = &state.log {
            log.set_metadata_bytes(received.0)?;
        }
        state.unlogged = None;
        state.searched = state.search;
        if let Some(source) = state.file.source() {
            self.published.set_received(source, received);
        }
        Ok(())
    }

    /// Keeps the text if the error pauses the producer. Returns any other error.
    fn or_pause(
        &self,
        state: &mut MetadataState,
        written: Result<(), StoreError>,
        text: &[u8],
        ends: bool,
    ) -> Result<(), StoreError> {
        let Err(error) = written else { return Ok(()) };
        state.file.pool().faults().count(&error);
        if self.when_full.consequence(error.kind()) == Consequence::Reject {
            return Err(error);
        }
        warn!(stream = %self.id, %error, "producer paused");
        let text = text.to_vec();
        state.unwritten = Some(Unwritten { text, ends });
        Ok(())
    }

    /// Whether the complete pieces are packets, of which none declares a stream class: viewers
    /// cannot begin to read the trace.
    #[must_use]
    pub fn awaits_stream_class(&self) -> bool {
        self.state.lock().searched.is_pending()
    }

    /// Whether the stream is paused until there is space on the disk.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.state.lock().unwritten.is_some()
    }

    /// Retries to write what the disk had no space for. Returns whether the stream continues.
    ///
    /// # Errors
    /// If it cannot be written for another reason than before.
    pub fn resume(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let Some(mut kept) = state.unwritten.take() else {
            return Ok(true);
        };
        let mut written = state.file.append_text(&kept.text);
        if written.is_ok() {
            // The text is in the file now, and another attempt must not write it again.
            kept.text.clear();
            if kept.ends {
                written = self.finish_piece(&mut state);
            }
        }
        match written {
            Err(error)
                if self.when_full.consequence(error.kind()) == Consequence::PauseProducer =>
            {
                state.unwritten = Some(kept);
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    /// Restarts the metadata in an empty file (`lttng regenerate metadata`).
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn restart(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(chunk) = state.file.chunk().cloned() else {
            return Ok(());
        };
        self.published.restart();
        state.searched = StreamClassSearch::default();
        state.file.enter_chunk(chunk)
    }

    /// Enters another chunk, or leaves the current one for none, at once.
    ///
    /// # Errors
    /// If the file in the other chunk cannot be created.
    pub fn rotate(&self, target: Option<Holding>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        match target {
            Some(chunk) => {
                self.published.restart();
                state.searched = StreamClassSearch::default();
                state.file.enter_chunk(chunk)
            }
            None => {
                state.file.leave_chunk();
                Ok(())
            }
        }
    }

    /// Makes the stream one of a resumable session, whose changes are logged. Publishes what the
    /// file has already.
    pub fn make_resumable(&self, log: StreamLog) {
        let mut state = self.state.lock();
        state.log = Some(log);
        let received = state.file.received();
        if let Some(source) = state.file.source().filter(|_| received > Bytes(0)) {
            self.published.set_received(source, received);
        }
    }

    /// Length of the complete pieces.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.state.lock().file.received()
    }

    /// Drops an incomplete piece, because the connections of the producer are lost: it will be sent
    /// again.
    ///
    /// # Errors
    /// If the file cannot be reopened, or the log cannot be written.
    pub fn rewind(&self) -> Result<Bytes, StoreError> {
        let mut state = self.state.lock();
        state.unwritten = None;
        state.file.drop_piece()?;
        // The text of that piece is whole. Only the log does not have it yet.
        if state.unlogged.is_some() {
            self.finish_piece(&mut state)?;
        }
        Ok(state.file.received())
    }

    /// Drops an incomplete piece as [`rewind`](Self::rewind) does, for a producer that continues
    /// the stream and names it by `wire_id` from now on.
    pub fn reopen(&self, wire_id: StreamId) -> Result<Bytes, StoreError> {
        self.state.lock().wire_id = wire_id;
        self.rewind()
    }

    /// Number by which the producer names the stream.
    #[must_use]
    pub fn wire_id(&self) -> StreamId {
        self.state.lock().wire_id
    }

    /// Completes the file for a relay that ends: the next one continues the stream. Viewers are not
    /// told that it has ended.
    pub fn suspend(&self) {
        let mut state = self.state.lock();
        // Nothing that happens from now on may reach the next relay.
        state.log = None;
        self.drop_piece(&mut state);
    }

    /// Closes a stream that was restored for viewers only: its producer has closed it, as the log
    /// says already.
    pub fn close_restored(&self) {
        self.state.lock().log = None;
        self.close();
    }

    /// Closes the stream and drops an incomplete piece. The file stays locked until the stream is
    /// dropped. In a resumable session, whose producer may be killed before it has any metadata, an
    /// empty file is removed; other producers expect what `lttng-relayd` leaves.
    pub fn close(&self) {
        let mut state = self.state.lock();
        self.drop_piece(&mut state);
        let log = state.log.take();
        if log.is_some()
            && let Err(error) = state.file.remove_empty()
        {
            warn!(stream = %self.id, %error, "empty metadata file not removed");
        }
        let received = state.file.received().0;
        let logged = log.map_or(Ok(()), |log| log.close(received));
        if let Err(error) = logged {
            warn!(stream = %self.id, %error, "end of the metadata not logged");
        }
        self.published.end();
    }

    fn drop_piece(&self, state: &mut MetadataState) {
        if state.unwritten.take().is_some() {
            warn!(stream = %self.id, "metadata lost: there was no space on the disk for it until the stream closed");
        }
        if let Err(error) = state.file.drop_piece() {
            warn!(stream = %self.id, %error, "incomplete piece of metadata not removed from its file");
        }
    }

    /// Whether the stream is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.published.is_over()
    }
}
