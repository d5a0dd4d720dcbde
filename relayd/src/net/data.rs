//! One data connection: reads the bytes of packets from a socket, decodes them with `relay-proto`,
//! and hands each piece to the stream that it belongs to.
//!
//! # When a socket is read
//!
//! A socket is read when it is readable, up to [`DATA_READ_BYTES`] at once, unless the connection
//! is [paused](Pause). Producers wait for the replies to their commands, and not for their packets
//! to be read, so that commands come first:
//!
//! - After each read the worker handles the commands that have arrived, before it reads the next of
//!   several sockets ([`ReadTurns`]).
//! - A data connection that is alone on its worker ([`Activity`]) is read after the commands that
//!   have arrived. When a packet begins, the worker first polls the sockets for its index, for
//!   [`SPIN_DURATION`](crate::limits::SPIN_DURATION) at most ([`BusyPoll`]). A producer of LTTng
//!   sends a packet, then its index, and sleeps until the index is answered; the first bytes of the
//!   packet wake the worker up while the producer still sends. A packet after a silence is read at
//!   once: its producer does not make packets as fast as it can, and viewers get it sooner.
//! - Small packets in quick succession, of several data connections of a worker, are read once per
//!   [`COALESCE_INTERVAL`] ([`Coalescing`]): each wake-up would cost more than the packet.
//!
//! Each read is followed by another if it has brought a part of a packet only: producers of LTTng
//! leave Nagle's algorithm on, and the end of a packet may have waited for the beginning to be
//! read.

mod decoding;
mod spliced;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relay_proto::{DataDecoder, DataHeader};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};
use wire::Field;

use super::ProducerContext;
use super::accepted::Accepted;
use super::activity::Activity;
use super::admission::Handshake;
use super::busy_poll::BusyPoll;
use super::coalescing::Coalescing;
use super::error::{ConnectionError, Consequence};
use super::event_socket::EventSocket;
use super::pause::Pause;
use super::read_turn::{ReadTurns, handle_commands};
use super::viewer_throttle::ViewerThrottle;
use super::worker::WorkerId;
use crate::ingest::error::PositionedError;
use crate::limits::{COALESCE_INTERVAL, DATA_READ_BYTES, DRAIN_IDLE_TIMEOUT, MAX_COALESCED_PACKET};
use crate::producer::data_connection::DataConnection;

thread_local! {
    /// Read buffer of all data connections of a thread. Nothing is left in it between reads, so
    /// that an idle connection costs no memory, and the buffer often lies in the processor's cache.
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A data connection and its socket.
#[derive(Debug)]
struct DataTask {
    peer: SocketAddr,
    socket: EventSocket,
    /// The connection without its socket. None once it has ended.
    connection: Option<DataConnection>,
    decoder: DataDecoder,
    /// Whether large packets can be spliced: not with TLS, and no more after it has failed.
    can_splice: bool,
    /// Bytes that have been received and not decoded: an incomplete header; while the stream is
    /// paused, everything after the event that paused it.
    undecoded: Vec<u8>,
    /// Packets that were decoded and not handled, because the connection was paused: they become
    /// the first of `undecoded`. Empty except while bytes are decoded.
    held: Vec<u8>,
    /// Size of the last packet in bytes: the next one is probably as large.
    last_packet: usize,
    activity: Activity,
    /// Data connections of this worker that received packets when this one last did, itself
    /// included.
    active_connections: usize,
    coalescing: Coalescing,
    busy_poll: BusyPoll,
    viewer_throttle: Arc<ViewerThrottle>,
    /// Time for the next bytes of an incomplete header or packet.
    read_timeout: Duration,
    /// The disk is full, or packets are far ahead of their indexes: nothing is read, so that TCP
    /// slows the producer down.
    pause: Option<Pause>,
}

/// The state of the socket after bytes were received.
#[derive(Debug)]
enum SocketState {
    /// There may be more to read.
    HasMore,
    Drained,
    /// The peer has ended the connection, or it is lost.
    Ended(Result<(), ConnectionError>),
}

impl SocketState {
    fn is_drained(&self) -> bool {
        matches!(self, Self::Drained)
    }
}

impl From<io::Error> for SocketState {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Drained,
            io::ErrorKind::Interrupted => Self::HasMore,
            _ => Self::Ended(Err(error.into())),
        }
    }
}

/// Outcome of one read of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    /// There may be more to read.
    HasMore,
    /// The socket is empty, or the connection is paused.
    Drained,
    /// The connection has ended.
    Ended,
}

pub(super) async fn serve(
    accepted: Accepted,
    peer: SocketAddr,
    worker_id: WorkerId,
    context: ProducerContext,
    mut handshake: Handshake,
) {
    let (affinity, stop) = (context.session_affinity, context.stop);
    let address = peer.ip().to_canonical();
    let mut task = DataTask {
        peer,
        can_splice: accepted.tls.is_none(),
        socket: EventSocket::new(accepted.socket, accepted.tls),
        connection: Some(DataConnection::new(context.registry, address)),
        decoder: DataDecoder::default(),
        undecoded: Vec::new(),
        held: Vec::new(),
        last_packet: 0,
        activity: Activity::default(),
        active_connections: 1,
        coalescing: Coalescing::default(),
        busy_poll: BusyPoll::default(),
        viewer_throttle: context.viewer_throttle,
        read_timeout: context.timeouts.producer_read,
        pause: None,
    };
    let session = |task: &DataTask| task.connection.as_ref().and_then(DataConnection::session);
    task.run(&stop, |task| session(task).is_some()).await;
    // Before anything is waited for: the task of an evicted connection is dropped there.
    if !handshake.complete() {
        return task.end(Ok(()));
    }
    if task.connection.is_none() {
        return;
    }
    // None: the control connection of the session has ended already.
    let worker = session(&task).and_then(|session| affinity.of(session));
    if let Err(error) = task.socket.deregister() {
        return task.end(Err(error.into()));
    }
    // The session's token is also cancelled when the relay stops.
    let connection = task.connection.as_ref();
    let connections = connection.and_then(DataConnection::connections);
    let stop = connections.unwrap_or(stop);
    let rest = async move { task.run(&stop, |_| false).await };
    match worker {
        Some(worker) if worker != worker_id => {
            // This task stays until the other ends: the listener counts the connection as open, and
            // shutdown waits for it. An error means that the other worker has ended, and the task
            // with it.
            let _ = affinity.pool().spawn(worker, rest).await;
        }
        _ => rest.await,
    }
}

impl DataTask {
    /// Reads packets until the connection ends, or until `is_enough`.
    async fn run(&mut self, stop: &CancellationToken, is_enough: impl Fn(&Self) -> bool) {
        let mut stopped = pin!(stop.cancelled());
        let turns = ReadTurns::of_this_worker();
        loop {
            let turn = turns.take().await;
            match self.read() {
                ReadOutcome::Ended => return,
                _ if is_enough(self) => return,
                ReadOutcome::HasMore => {
                    turn.end_after_commands().await;
                    continue;
                }
                ReadOutcome::Drained if self.active_connections > 1 => {
                    turn.end_after_commands().await;
                }
                // A connection that is alone lets commands go first when it wakes up.
                ReadOutcome::Drained => drop(turn),
            }
            let is_stopping = stop.is_cancelled();
            if let Some(pause) = &mut self.pause {
                // Backpressure: the producer finds its send buffer full.
                let awaits_indexes =
                    (self.connection.as_ref()).is_some_and(DataConnection::awaits_indexes);
                if is_stopping && (!awaits_indexes || pause.exceeds(DRAIN_IDLE_TIMEOUT)) {
                    return self.end(Ok(()));
                }
                // The producer is not to blame for a disk that is full.
                if !awaits_indexes {
                    pause.restart_timeout();
                }
                if pause.exceeds(self.read_timeout) {
                    return self.end(Err(ConnectionError::no_indexes(self.read_timeout)));
                }
                let interval = pause.next_interval();
                // The token is cancelled already, so that a wait for it would end at once.
                if is_stopping {
                    tokio::time::sleep(interval).await;
                } else {
                    let _ = tokio::time::timeout(interval, &mut stopped).await;
                }
                self.resume();
                continue;
            }
            let now = Instant::now();
            self.active_connections = self.activity.record(now);
            let is_alone = self.active_connections == 1;
            if self.coalescing.should_coalesce(now, is_alone) && !is_stopping {
                // A registered socket would still wake the thread for each packet.
                if let Err(error) = self.socket.deregister() {
                    return self.end(Err(error.into()));
                }
                let _ = tokio::time::timeout(COALESCE_INTERVAL, &mut stopped).await;
                continue;
            }
            let timeout = if is_stopping {
                DRAIN_IDLE_TIMEOUT
            } else {
                self.read_timeout
            };
            // Between packets a connection may be silent for days, so that only an incomplete
            // packet has a timeout.
            let has_timeout = is_stopping || self.is_incomplete();
            let readable = tokio::select! {
                // Bytes that have arrived are read before the stop is noticed.
                biased;
                readable = self.socket.readable() => Some(readable),
                () = &mut stopped, if !is_stopping => Some(Ok(())),
                () = tokio::time::sleep(timeout), if has_timeout => None,
            };
            match readable {
                Some(Ok(())) => self.handle_commands_first().await,
                Some(Err(error)) => return self.end(Err(error.into())),
                // Everything that was sent before the relay was stopped has been read.
                None if is_stopping => return self.end(Ok(())),
                None => {
                    let name = "read";
                    return self.end(Err(ConnectionError::ReadTimeout { name, timeout }));
                }
            }
        }
    }

    /// Lets the worker handle commands before a read, if the producer waits for replies: the index
    /// of a large packet often comes with its last bytes, which take longer to read and write than
    /// the producer needs to make the next packet.
    async fn handle_commands_first(&mut self) {
        let connection = self.connection.as_ref();
        let Some(arrivals) = connection.and_then(DataConnection::arrivals) else {
            return;
        };
        let is_new_packet = !self.is_incomplete();
        if self.active_connections > 1
            || arrivals.is_pipelined()
            || (is_new_packet && self.activity.is_after_silence(Instant::now()))
        {
            return;
        }
        let ahead = || arrivals.indexes_ahead();
        let slot = is_new_packet
            .then(|| self.busy_poll.begin(ahead()))
            .flatten();
        match slot {
            Some(slot) => self.busy_poll.poll(slot, ahead).await,
            None => handle_commands().await,
        }
    }

    /// Reads the socket, and hands on what was read.
    fn read(&mut self) -> ReadOutcome {
        if self.connection.is_none() {
            return ReadOutcome::Ended;
        }
        if self.pause.is_some() {
            return ReadOutcome::Drained;
        }
        self.active_connections = self.activity.record(Instant::now());
        match self.take_pipe() {
            Some(pipe) => self.read_spliced(pipe),
            None => self.read_buffered(),
        }
    }

    fn read_buffered(&mut self) -> ReadOutcome {
        let (mut buffer, kept) = self.take_buffer();
        let free = buffer.get_mut(kept..).unwrap_or_default();
        let (read, then) = self.receive(free.get_mut(..DATA_READ_BYTES).unwrap_or_default());
        self.decode_buffer(buffer, kept + read);
        self.finish_read(then)
    }

    /// The read buffer, and how many bytes it begins with that have been received already.
    fn take_buffer(&self) -> (Vec<u8>, usize) {
        let mut buffer = READ_BUFFER.take();
        if buffer.is_empty() {
            buffer = vec![0; DATA_READ_BYTES + DataHeader::SIZE];
        }
        // Less than a header, for which the buffer has room besides `DATA_READ_BYTES`.
        let kept = self.undecoded.len();
        let (undecoded, _) = buffer.split_at_mut(kept);
        undecoded.copy_from_slice(&self.undecoded);
        (buffer, kept)
    }

    /// Ends the connection if its socket has ended, after what was read has been handled.
    fn finish_read(&mut self, then: SocketState) -> ReadOutcome {
        let is_drained = then.is_drained();
        if let SocketState::Ended(ended) = then
            // Else what was received is not decoded yet.
            && self.pause.is_none()
        {
            self.end(ended);
        }
        self.outcome(is_drained)
    }

    /// Receives bytes. Returns how many, and what is known about the socket then.
    fn receive(&mut self, free: &mut [u8]) -> (usize, SocketState) {
        let room = free.len();
        let (read, then) = self.receive_with(room, |socket, read| {
            socket.recv(free.get_mut(read..).unwrap_or_default())
        });
        // A read that leaves room has emptied the socket.
        let state = match read < room {
            true => SocketState::Drained,
            false => SocketState::HasMore,
        };
        (read, then.unwrap_or(state))
    }

    /// Receives up to `room` bytes by one or two calls, which are told how many have been received.
    /// Returns how many, and what is known about the socket then. None: nothing yet, as the last
    /// call has received bytes.
    fn receive_with(
        &mut self,
        room: usize,
        mut receive: impl FnMut(&mut EventSocket, usize) -> io::Result<usize>,
    ) -> (usize, Option<SocketState>) {
        // Bytes that came while an index was polled for are received now, and must not end the next
        // wait.
        self.socket.clear_readable();
        let mut read = 0;
        let expected = match self.decoder.left() as usize {
            0 => self.last_packet,
            left => left,
        };
        let expected = (expected + DataHeader::SIZE).min(room);
        // Twice for an incomplete packet: producers of LTTng leave Nagle's algorithm on, and the
        // end of a packet may have waited for the beginning to be read, and arrives at once then.
        for _ in 0..2 {
            match receive(&mut self.socket, read) {
                Ok(0) => return (read, Some(SocketState::Ended(Ok(())))),
                Ok(more) => read += more,
                Err(error) => return (read, Some(error.into())),
            }
            if read >= expected {
                // Packets that are coalesced wait on purpose.
                if read > expected.max(MAX_COALESCED_PACKET as usize) {
                    self.viewer_throttle.record_backlog(Instant::now());
                }
                break;
            }
        }
        (read, None)
    }

    fn outcome(&self, is_drained: bool) -> ReadOutcome {
        match self.connection {
            None => ReadOutcome::Ended,
            Some(_) if self.pause.is_some() => ReadOutcome::Drained,
            Some(_) if is_drained => ReadOutcome::Drained,
            Some(_) => ReadOutcome::HasMore,
        }
    }

    fn write_ready_entries(&mut self) {
        if let Some(connection) = &mut self.connection {
            let written = connection.write_ready_entries();
            self.pause_or_end(written);
        }
    }

    /// Tries to end the pause, and if that succeeds decodes what was received before it.
    fn resume(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let resumed = connection.resume();
        if !connection.is_paused() {
            self.pause = None;
            // A full disk has stopped it.
            self.can_splice = !self.socket.is_encrypted();
        }
        self.pause_or_end(resumed);
        if self.pause.is_none() {
            let undecoded = std::mem::take(&mut self.undecoded);
            let left = self.decode(&undecoded);
            self.keep_undecoded(undecoded.get(undecoded.len() - left..).unwrap_or_default());
        }
    }

    /// Pauses the connection if one of its streams has to wait, or ends it after an error.
    fn pause_or_end(&mut self, handled: Result<(), PositionedError>) {
        match (handled, &self.connection) {
            (Err(error), _) => self.end(Err(error.into())),
            (Ok(()), Some(connection)) if connection.is_paused() => {
                self.pause.get_or_insert_with(Pause::begin);
            }
            (Ok(()), _) => {}
        }
    }

    /// Whether the rest of a header or packet is still to arrive.
    fn is_incomplete(&self) -> bool {
        self.decoder.in_packet() || !self.undecoded.is_empty()
    }

    fn end(&mut self, ended: Result<(), ConnectionError>) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        end_connection(connection, self.peer, ended);
    }
}

/// Ends a data connection, and its session if the connection has failed with that consequence.
pub(super) fn end_connection(
    connection: DataConnection,
    peer: SocketAddr,
    ended: Result<(), ConnectionError>,
) {
    let session = connection.session_name();
    let Err(error) = ended else {
        debug!(%peer, session, "data connection ended");
        return connection.end();
    };
    match error.consequence() {
        Consequence::AbortSession => {
            if connection.abort_session() {
                error!(%peer, session, %error, "data connection closed; session aborted");
            } else {
                warn!(%peer, session, %error, "data connection closed");
            }
        }
        Consequence::Close | Consequence::ReplyAndClose => {
            warn!(%peer, session, %error, "data connection closed");
            connection.end();
        }
    }
}
