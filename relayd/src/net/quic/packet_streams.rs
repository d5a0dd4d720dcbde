//! The packets of one QUIC connection: each arrives on a unidirectional stream of its own, in any
//! order. They are decoded with `relay-proto` and handed to their trace streams, which put them in
//! sequence.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::{ReadError, RecvStream};
use relay_proto::{DataDecoder, DataEvent};
use tokio_util::sync::ReusableBoxFuture;
use tracing::info;

use crate::http::QuicCounters;
use crate::ingest::error::PositionedError;
use crate::limits::{MAX_PACKET_STREAMS, QUIC_READ_BYTES, QUIC_TURN_BYTES};
use crate::net::data::end_connection;
use crate::net::error::ConnectionError;
use crate::net::pause::Pause;
use crate::producer::data_connection::{DataConnection, IncomingPacket};

thread_local! {
    /// Read buffer of all packet streams of a thread. Nothing is left in it between reads.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The packets that arrive on one QUIC connection.
#[derive(Debug)]
pub(super) struct PacketStreams {
    connection: quinn::Connection,
    counters: Arc<QuicCounters>,
    /// Address of the peer when it was last looked at. It may change: see RFC 9000, section 9.
    peer: SocketAddr,
    /// The data connection that takes the packets. None once it has ended.
    data: Option<DataConnection>,
    accept: ReusableBoxFuture<'static, Result<RecvStream, quinn::ConnectionError>>,
    /// The streams that are open, in the order in which the peer has opened them.
    streams: Vec<PacketStream>,
    /// The disk is full, or packets are far ahead of their indexes: nothing is read, so that flow
    /// control stops the producer.
    pause: Option<Pause>,
}

/// A packet that arrives.
#[derive(Debug)]
struct PacketStream {
    stream: RecvStream,
    decoder: DataDecoder,
    packet: IncomingPacket,
    /// Bytes that have been received and not decoded: an incomplete header; while paused,
    /// everything after the event that paused the connection.
    undecoded: Vec<u8>,
    /// All bytes of the packet have been handed on. Only the end of the stream may follow.
    is_complete: bool,
    /// Time at which bytes last arrived.
    last_read: Instant,
}

/// Reason for which [`PacketStreams::poll`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollOutcome {
    /// Everything that has arrived has been handled. The task is woken when more arrives.
    Drained,
    /// Other connections should have their turn.
    HasMore,
    /// A stream waits for space on the disk or for indexes: call [`PacketStreams::resume`] after
    /// [`PacketStreams::next_attempt`].
    Paused,
    /// No packet arrives any more.
    Ended,
}

/// The state of a stream after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    Open,
    Done,
}

impl PacketStreams {
    pub(super) fn new(
        connection: quinn::Connection,
        data: DataConnection,
        counters: Arc<QuicCounters>,
    ) -> Self {
        Self {
            peer: connection.remote_address(),
            accept: ReusableBoxFuture::new(accept_stream(connection.clone())),
            connection,
            counters,
            data: Some(data),
            streams: Vec::new(),
            pause: None,
        }
    }

    /// Handles the packets, and parts of packets, that have arrived.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> PollOutcome {
        self.count_path_change();
        let mut bytes = 0;
        loop {
            if self.data.is_none() {
                return PollOutcome::Ended;
            }
            if self.pause.is_some() {
                return PollOutcome::Paused;
            }
            let is_lost = self.accept_streams(context);
            let before = (bytes, self.streams.len());
            READ_BUFFER.with_borrow_mut(|buffer| {
                if buffer.is_empty() {
                    *buffer = vec![0; QUIC_READ_BYTES];
                }
                self.read_streams(context, buffer, &mut bytes);
            });
            self.write_ready_entries();
            if (bytes, self.streams.len()) == before && self.pause.is_none() {
                return match is_lost {
                    true => PollOutcome::Ended,
                    false => PollOutcome::Drained,
                };
            }
            if bytes >= QUIC_TURN_BYTES {
                return PollOutcome::HasMore;
            }
        }
    }

    /// Handles everything that has arrived, unless the connection is paused. To be called before
    /// commands that refer to packets which the peer has sent before them.
    pub(super) fn drain(&mut self, context: &mut Context<'_>) {
        while self.poll(context) == PollOutcome::HasMore {}
    }

    /// The time until the next attempt to end the pause. The connection ends if indexes do not
    /// arrive within `timeout`.
    pub(super) fn next_attempt(&mut self, timeout: Duration) -> Duration {
        let Some(pause) = &mut self.pause else {
            return Duration::ZERO;
        };
        let interval = pause.next_interval();
        if !(self.data.as_ref()).is_some_and(DataConnection::awaits_indexes) {
            pause.restart_timeout();
        }
        if pause.exceeds(timeout) {
            self.end(Err(ConnectionError::no_indexes(timeout)));
        }
        interval
    }

    /// Tries to end the pause, and if that succeeds decodes what was received before it.
    pub(super) fn resume(&mut self) {
        let Some(data) = &mut self.data else { return };
        let resumed = data.resume();
        if !data.is_paused() {
            self.pause = None;
        }
        self.pause_or_end(resumed);
        let mut at = 0;
        while let Some(stream) = self.streams.get_mut(at)
            && self.pause.is_none()
        {
            let undecoded = std::mem::take(&mut stream.undecoded);
            self.decode(at, &undecoded);
            at += 1;
        }
    }

    /// Time at which the next bytes of some incomplete packet must have arrived. None: no packet is
    /// incomplete.
    pub(super) fn read_deadline(&self, timeout: Duration) -> Option<Instant> {
        let first = self.streams.iter().map(|stream| stream.last_read).min()?;
        self.pause.is_none().then(|| first + timeout)
    }

    /// Ends the data connection. Incomplete packets are dropped.
    pub(super) fn end(&mut self, ended: Result<(), ConnectionError>) {
        let Some(mut data) = self.data.take() else {
            return;
        };
        for stream in self.streams.drain(..) {
            data.drop_packet(stream.packet);
        }
        end_connection(data, self.peer, ended);
    }

    /// Accepts the streams that the peer has opened. Returns whether the connection is lost.
    fn accept_streams(&mut self, context: &mut Context<'_>) -> bool {
        while self.streams.len() < MAX_PACKET_STREAMS as usize
            && let Poll::Ready(accepted) = self.accept.poll(context)
        {
            // A future gives one stream, so that the next one needs another.
            self.accept.set(accept_stream(self.connection.clone()));
            let Ok(stream) = accepted else { return true };
            self.streams.push(PacketStream {
                stream,
                decoder: DataDecoder::default(),
                packet: IncomingPacket::default(),
                undecoded: Vec::new(),
                is_complete: false,
                last_read: Instant::now(),
            });
        }
        false
    }

    /// Reads what has arrived on all streams.
    fn read_streams(&mut self, context: &mut Context<'_>, buffer: &mut [u8], bytes: &mut usize) {
        let mut at = 0;
        while at < self.streams.len() && self.pause.is_none() && *bytes < QUIC_TURN_BYTES {
            match self.read_stream(at, context, buffer, bytes) {
                ReadOutcome::Open => at += 1,
                // Not `swap_remove`: what was opened first is to be read first.
                ReadOutcome::Done if at < self.streams.len() => drop(self.streams.remove(at)),
                // The connection has ended, and all streams with it.
                ReadOutcome::Done => return,
            }
        }
    }

    fn read_stream(
        &mut self,
        at: usize,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        bytes: &mut usize,
    ) -> ReadOutcome {
        while let Some(stream) = self.streams.get_mut(at)
            && self.pause.is_none()
            && *bytes < QUIC_TURN_BYTES
        {
            let Poll::Ready(read) = stream.stream.poll_read(context, buffer) else {
                return ReadOutcome::Open;
            };
            match read {
                Ok(0) => {
                    if !stream.is_complete {
                        let what = "it ends before its packet";
                        self.end(Err(ConnectionError::PacketStream(what)));
                    }
                    return ReadOutcome::Done;
                }
                Ok(read) => {
                    *bytes += read;
                    stream.last_read = Instant::now();
                    self.decode(at, buffer.get(..read).unwrap_or_default());
                }
                Err(ReadError::Reset(_)) => {
                    let packet = std::mem::take(&mut stream.packet);
                    self.counters.count_reset();
                    if let Some(data) = &mut self.data {
                        let given_up = data.give_up_packet(packet);
                        self.pause_or_end(given_up);
                    }
                    return ReadOutcome::Done;
                }
                // The connection is lost. The packet arrives again on the next one.
                Err(_) => {
                    let packet = std::mem::take(&mut stream.packet);
                    if let Some(data) = &mut self.data {
                        data.drop_packet(packet);
                    }
                    return ReadOutcome::Done;
                }
            }
        }
        match self.data {
            Some(_) => ReadOutcome::Open,
            None => ReadOutcome::Done,
        }
    }

    /// Decodes bytes of a stream and hands the events on.
    fn decode(&mut self, at: usize, input: &[u8]) {
        let (Some(stream), Some(data)) = (self.streams.get_mut(at), &mut self.data) else {
            return;
        };
        let mut kept = std::mem::take(&mut stream.undecoded);
        let mut input = if kept.is_empty() {
            input
        } else {
            kept.extend_from_slice(input);
            &kept[..]
        };
        let mut handled = Ok(());
        while handled.is_ok()
            && !data.is_paused()
            && !stream.is_complete
            && let Some(event) = stream.decoder.next(&mut input)
        {
            stream.is_complete = matches!(event, DataEvent::Payload { last: true, .. });
            handled = data.handle_event_of(&mut stream.packet, event);
        }
        let has_more = stream.is_complete && !input.is_empty();
        stream.undecoded = input.to_vec();
        self.pause_or_end(handled);
        if has_more {
            let what = "bytes follow its packet";
            self.end(Err(ConnectionError::PacketStream(what)));
        }
    }

    fn write_ready_entries(&mut self) {
        if let Some(data) = &mut self.data {
            let written = data.write_ready_entries();
            self.pause_or_end(written);
        }
    }

    /// Pauses the connection if a trace stream has to wait, or ends it after an error.
    fn pause_or_end(&mut self, handled: Result<(), PositionedError>) {
        match (handled, &self.data) {
            (Err(error), _) => self.end(Err(error.into())),
            (Ok(()), Some(data)) if data.is_paused() => {
                self.pause.get_or_insert_with(Pause::begin);
            }
            (Ok(()), _) => {}
        }
    }

    fn count_path_change(&mut self) {
        let peer = self.connection.remote_address();
        if peer != self.peer {
            self.counters.count_path_change();
            let session = self.data.as_ref().and_then(DataConnection::session_name);
            info!(before = %self.peer, now = %peer, session, "address of a producer changed");
            self.peer = peer;
        }
    }
}

async fn accept_stream(
    connection: quinn::Connection,
) -> Result<RecvStream, quinn::ConnectionError> {
    connection.accept_uni().await
}
