//! The end of a stream, and whether data is pending before it.

use tracing::warn;
use wire::SeqNum;

use super::StreamWriter;
use crate::ingest::error::IngestError;
use crate::ingest::index_joiner::IndexJoiner;
use crate::ingest::rotation::is_at_or_past;

impl StreamWriter {
    /// Whether data up to packet `last` is pending. An index that was accepted and is not yet in
    /// its file is pending too, even if no entry has been written before.
    #[must_use]
    pub fn is_pending(&mut self, last: Option<SeqNum>) -> bool {
        // Entries wait for their batch, but the producer asks whether everything is on disk.
        if let Err(error) = self.flush_entries() {
            warn!(stream = %self.id, %error, "index entries not written: reported as pending");
        }
        let number = last.map_or(u64::MAX, |seq| seq.0);
        let first_unwritten = self.joiner.as_ref().and_then(IndexJoiner::first_index);
        first_unwritten.is_some_and(|seq| is_at_or_past(number, seq.0))
            || self.lifecycle.is_pending(last, self.joiner.is_some())
    }

    /// Gives up the missing packets, because no data connection is left on which they could arrive.
    ///
    /// # Errors
    /// If early packets cannot be written.
    pub fn end_data(&mut self) -> Result<(), IngestError> {
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        self.give_up_missing()?;
        // A stream that is closing waited for nothing but the missing packets.
        if !self.lifecycle.is_open() && !self.backpressure.is_paused() {
            self.close_now();
        }
        Ok(())
    }

    /// Begins to close the stream: no packet after `last` will arrive, and no index at all.
    ///
    /// # Errors
    /// If ready entries cannot be written. The stream stays open then.
    pub fn close_after(&mut self, last: Option<SeqNum>) -> Result<(), IngestError> {
        if self.lifecycle.is_open() {
            self.flush_entries()?;
            self.lifecycle.begin_closing(last);
            self.close_if_done();
        }
        Ok(())
    }

    pub(super) fn close_if_done(&mut self) {
        // Not while the stream is paused: the kept bytes must be written first.
        if self.lifecycle.has_last_packet()
            && !self.backpressure.is_paused()
            && !self
                .joiner
                .as_ref()
                .is_some_and(IndexJoiner::awaits_packets)
        {
            self.close_now();
        }
    }

    /// Closes the stream without waiting for anything.
    pub fn close_now(&mut self) {
        if self.end_writing() {
            self.published.end();
        }
    }

    /// Writes what has arrived and closes the files. Viewers are not told. Returns false if that
    /// has been done before.
    pub(super) fn end_writing(&mut self) -> bool {
        // Before the writes below, which would close the stream again when they are done.
        if !self.lifecycle.close() {
            return false;
        }
        // Asked first, because `end_pause` drops the kept bytes.
        let is_cut = self.packets.has_unwritten();
        self.end_pause();
        self.drop_in_flight();
        // A last attempt: the disk may have space by now.
        if let Err(error) = self.write_the_rest() {
            warn!(stream = %self.id, %error, "packets not written at the end of the stream: they are lost");
        }
        if is_cut || self.backpressure.is_paused() {
            warn!(stream = %self.id, "stream closed while there is no space on the disk: what waited is lost");
        }
        // The last attempt may have paused the stream again.
        self.end_pause();
        self.log_close();
        // Otherwise their tracefiles would stay open for indexes that never arrive.
        let unindexed = self.packets.files.give_up_indexes();
        if unindexed > 0 {
            warn!(stream = %self.id, unindexed, "packets at the end have no index");
        }
        self.packets.files.leave_chunk();
        true
    }

    /// Writes everything that waits only for packets and indexes that will not arrive any more.
    fn write_the_rest(&mut self) -> Result<(), IngestError> {
        self.write_ready_packets()?;
        self.give_up_missing_while(None, |_| true)?;
        if let Some(joiner) = &mut self.joiner {
            joiner.drop_unindexed();
        }
        self.flush_entries()
    }
}
