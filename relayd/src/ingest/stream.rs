//! One stream, as the connections know it that its packets and indexes come on: what each of them
//! may do to it, one at a time.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use relay_proto::DataHeader;
use relay_proto::index::SendIndex;
use wire::{PacketSeqNum, SeqNum, StreamId};

use super::backpressure::{Resumed, WhenFull};
use super::error::IngestError;
use super::reorder::{EarlyPacket, Window};
use super::stream_writer::StreamWriter;
use crate::publish::published::Published;
use crate::publish::tally::Tally;
use crate::store::StoreError;
use crate::store::chunk::Holding;
use crate::store::pool::Evictable;
use crate::store::stream_files::StreamFiles;

/// A data connection, as the streams that it carries know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// One stream of packets.
#[derive(Debug)]
pub struct DataStream {
    id: StreamId,
    published: Arc<Published>,
    tally: Arc<Tally>,
    stream_writer: Mutex<StreamWriter>,
}

/// What becomes of a packet that begins to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Its bytes go to the file as they come: give them to [`DataStream::receive`].
    Direct,
    /// Its turn has not come: keep the bytes for [`DataStream::receive_early`].
    Early,
    /// It has been given up: drop the bytes.
    Late,
}

impl DataStream {
    /// A stream that writes to `files`. Without indexes, bytes alone make a packet.
    #[must_use]
    pub fn new(
        id: StreamId,
        files: StreamFiles,
        window: Window,
        has_indexes: bool,
        when_full: WhenFull,
    ) -> Arc<Self> {
        let published = Arc::new(Published::default());
        let slot = Arc::clone(files.slot());
        let tally = Arc::<Tally>::default();
        let told = (Arc::clone(&published), Arc::clone(&tally));
        let stream_writer = StreamWriter::new(id, told, files, window, has_indexes, when_full);
        let stream = Arc::new(Self {
            id,
            published,
            tally,
            stream_writer: Mutex::new(stream_writer),
        });
        let weak: Weak<dyn Evictable> = Arc::<Self>::downgrade(&stream);
        slot.set_owner(weak);
        stream
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// What viewers may see of it.
    #[must_use]
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// What is counted of it.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    // From data connections.

    /// A packet begins to arrive.
    ///
    /// # Errors
    /// If it cannot be one of this stream.
    pub fn begin(&self, packet: &DataHeader, from: ConnectionId) -> Result<Arrival, IngestError> {
        self.stream_writer.lock().begin_packet(packet, from)
    }

    /// Some bytes of the packet that is received directly. With `padding`, the last, and zeros that
    /// follow them.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn receive(
        &self,
        seq: SeqNum,
        from: ConnectionId,
        bytes: &[u8],
        padding: Option<u32>,
    ) -> Result<(), IngestError> {
        self.stream_writer
            .lock()
            .write_payload(seq, from, bytes, padding)
    }

    /// Whether a packet that is received early, with so many bytes there, still has to wait. What is
    /// missing before it is given up when the window is full.
    ///
    /// # Errors
    /// If packets that waited cannot be written.
    pub fn has_to_wait(
        &self,
        packet: &DataHeader,
        from: ConnectionId,
        bytes: usize,
    ) -> Result<Arrival, IngestError> {
        self.stream_writer
            .lock()
            .recheck_early_packet(packet, from, bytes)
    }

    /// A packet that is received early can wait no longer: what is missing before it is given up. It
    /// still waits while there is no space on the disk.
    ///
    /// # Errors
    /// If packets that waited cannot be written.
    pub fn stop_waiting(
        &self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        self.stream_writer.lock().hasten_early_packet(packet, from)
    }

    /// Gives up what is missing, so that the packets that wait are written, unless there is no space on
    /// the disk.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn give_up_missing(&self) -> Result<(), IngestError> {
        self.stream_writer.lock().give_up_missing()
    }

    /// A packet that came early is all there.
    ///
    /// # Errors
    /// If it or packets that waited cannot be written.
    pub fn receive_early(&self, early: EarlyPacket) -> Result<(), IngestError> {
        self.stream_writer.lock().add_early_packet(early)
    }

    /// A connection is done with what it has received: writes the entries that have become due.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn settle(&self) -> Result<(), IngestError> {
        self.stream_writer.lock().flush_entries()
    }

    /// The connection has ended in the middle of a packet.
    pub fn abandon(&self, from: ConnectionId) {
        self.stream_writer.lock().drop_packet_from(from);
    }

    /// Whether it waits for space on the disk: nothing more is to be brought to it.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.tally.is_paused()
    }

    /// Tries again to write what it could not.
    ///
    /// # Errors
    /// If it cannot for another reason than before.
    pub fn resume(&self) -> Result<Resumed, IngestError> {
        self.stream_writer.lock().resume()
    }

    /// No data connection is left: what is missing will not come.
    ///
    /// # Errors
    /// If packets that waited cannot be written.
    pub fn data_ended(&self) -> Result<(), IngestError> {
        self.stream_writer.lock().end_data()
    }

    // From the control connection.

    /// An index or a beacon. Its entry is written by [`settle`](Self::settle) at the latest.
    ///
    /// # Errors
    /// If it cannot be one of this stream.
    pub fn index(&self, index: &SendIndex) -> Result<(), IngestError> {
        self.stream_writer.lock().add_index(index)
    }

    /// From the packet `at` on, by the tracer's count, goes over to another chunk, or to none.
    ///
    /// # Errors
    /// If it is on its way already, or the files there cannot be made.
    pub fn rotate(&self, at: PacketSeqNum, target: Option<Holding>) -> Result<(), IngestError> {
        self.stream_writer.lock().begin_rotation(at, target)
    }

    /// The chunk that it leaves is to be deleted: goes over at once if it has nothing there.
    ///
    /// # Errors
    /// If the files in the other chunk cannot be made.
    pub fn leave_deleted(&self) -> Result<(), IngestError> {
        self.stream_writer.lock().leave_deleted_chunk()
    }

    /// Whether something up to `last` is under way.
    #[must_use]
    pub fn is_pending(&self, last: Option<SeqNum>) -> bool {
        self.stream_writer.lock().is_pending(last)
    }

    /// No packet after `last` will come, and no index at all.
    ///
    /// # Errors
    /// If index entries that are due cannot be written. The stream stays open then.
    pub fn close(&self, last: Option<SeqNum>) -> Result<(), IngestError> {
        self.stream_writer.lock().close_after(last)
    }

    // From the session.

    /// Puts the last beacon on disk, unless it is there, or the stream is being written to at this
    /// moment: a file call of its worker that hangs is not waited for.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_beacon(&self) -> Result<(), StoreError> {
        let stream_writer = self.stream_writer.try_lock();
        stream_writer.map_or(Ok(()), |mut stream_writer| stream_writer.write_beacon())
    }

    /// A connection of its session has failed: nothing is waited for.
    pub fn abort(&self) {
        self.stream_writer.lock().close_now();
    }

    /// Whether it takes nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.published.is_over()
    }
}

impl Evictable for DataStream {
    fn close_files(&self, _is_needed: bool) -> bool {
        let stream_writer = self.stream_writer.try_lock();
        stream_writer.is_some_and(|mut stream_writer| stream_writer.close_files())
    }
}
