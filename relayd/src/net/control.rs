//! One control connection: moves bytes between a socket and `relay-proto`'s state machine, and
//! decides nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use relay_proto::command::CommandCode;
use relay_proto::error::ControlError;
use relay_proto::relay::Refusal;
use relay_proto::server::{Connection, Progress};
use rustix::net::sockopt::set_tcp_quickack;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use transport::fault::is_handshake;
use transport::socket::Socket;
use wire::{Field, SessionId};

use super::ProducerContext;
use super::accepted::Accepted;
use super::admission::Handshake;
use super::error::{ConnectionError, Consequence};
use super::pause::Pause;
use super::receive::Received;
use super::send::{send, send_last};
use super::timeouts::CommandTimeouts;
use super::worker::WorkerId;
use crate::config::Timeouts;
use crate::limits::{DRAIN_IDLE_TIMEOUT, MAX_REFUSALS, REPLY_BYTES, SPACE_RETRY_INTERVAL};
use crate::producer::Producer;

/// Maximum number of bytes of commands that are read at once. Commands are short, and metadata is
/// passed on in pieces.
const MAX_COMMAND_READ: usize = 64 << 10;

pub(super) async fn serve(
    accepted: Accepted,
    peer: SocketAddr,
    worker_id: WorkerId,
    context: ProducerContext,
    handshake: Handshake,
) {
    serve_socket(accepted.into_socket(), peer, worker_id, context, handshake).await;
}

/// Serves a control connection until it ends.
pub(super) async fn serve_socket(
    mut socket: Socket,
    peer: SocketAddr,
    worker_id: WorkerId,
    context: ProducerContext,
    mut handshake: Handshake,
) {
    let affinity = &context.session_affinity;
    // Also cancelled when another session takes the place of this producer's.
    let stop = context.stop.child_token();
    let address = peer.ip().to_canonical();
    let mut producer = Producer::new(context.registry, address, stop.clone());
    let set_worker = |session| {
        affinity.add(session, worker_id);
        if let Some(opened) = &context.session {
            // A connection opens one session, so that nothing is set before.
            let _ = opened.set(session);
        }
    };
    let (socket, timeouts) = (&mut socket, context.timeouts);
    let stops = Stops {
        connection: &stop,
        relay: &context.stop,
        commands: &context.commands_stop,
    };
    let greeted = || handshake.complete_producer();
    let served = serve_commands(
        socket,
        peer,
        &mut producer,
        greeted,
        set_worker,
        timeouts,
        stops,
    )
    .await;
    if let Some(session) = producer.session() {
        affinity.remove(session, worker_id);
    }
    let session = producer.session_name();
    match &served {
        Ok(()) => debug!(%peer, session, "control connection ended"),
        Err(error) if error.is_handshake_timeout() => {
            debug!(%peer, %error, "control connection closed");
        }
        Err(error) => warn!(%peer, session, %error, "control connection closed"),
    }
    producer.end(served.is_err(), std::time::Instant::now());
}

/// The tokens whose cancellation ends a control connection.
#[derive(Clone, Copy)]
struct Stops<'a> {
    /// Token of the connection: cancelled with that of the relay, and when the session loses its
    /// connections.
    connection: &'a CancellationToken,
    relay: &'a CancellationToken,
    /// Token that is cancelled some time after `relay`: then no more commands are handled.
    commands: &'a CancellationToken,
}

impl Stops<'_> {
    /// Whether the connection ends even if the producer never stops sending. A relay that stops
    /// waits for a while until it is silent.
    fn ends_now(self) -> bool {
        self.is_session_lost() || self.commands.is_cancelled()
    }

    /// Whether the session has lost its connections, because of an error or to another producer.
    fn is_session_lost(self) -> bool {
        self.connection.is_cancelled() && !self.relay.is_cancelled()
    }
}

/// The state of one control connection, without its socket.
struct Commands {
    peer: SocketAddr,
    connection: Connection,
    received: Received,
    replies: BytesMut,
    timeouts: CommandTimeouts,
    refusals: usize,
}

async fn serve_commands(
    socket: &mut Socket,
    peer: SocketAddr,
    producer: &mut Producer,
    mut greeted: impl FnMut() -> bool,
    set_worker: impl Fn(SessionId),
    timeouts: Timeouts,
    stops: Stops<'_>,
) -> Result<(), ConnectionError> {
    let stop = stops.connection;
    let mut commands = Commands {
        peer,
        connection: Connection::default(),
        received: Received::new(MAX_COMMAND_READ),
        replies: BytesMut::new(),
        timeouts: CommandTimeouts::new(timeouts.producer_read),
        refusals: 0,
    };
    let mut has_worker = false;
    loop {
        if !commands.connection.is_greeted() && is_handshake(commands.received.bytes()) {
            return Err(ConnectionError::EncryptedPeer);
        }
        let mut handled = match commands.handle_received(producer) {
            Err(error) if error.consequence() == Consequence::Close => return Err(error),
            handled => handled,
        };
        // Before anything is waited for: the task of an evicted connection is dropped there.
        if commands.connection.is_greeted() && !greeted() {
            return Ok(());
        }
        if let Err(refusal) = producer.write_ready_entries() {
            // Some of the replies acknowledge indexes that are not written.
            handled = Err(commands.refuse_all(refusal));
        }
        // Replies leave only after what they acknowledge is written.
        if !producer.resume() {
            if !wait_for_space(producer, stop).await {
                return Ok(());
            }
            commands.timeouts.restart_read_timeout();
        }
        let has_replies = !commands.replies.is_empty();
        if has_replies && let Some(ticket) = producer.request_sync() {
            // Even while the relay stops: the replies guarantee it.
            ticket.wait().await;
            commands.timeouts.restart_read_timeout();
            if let Err(refusal) = producer.check_synced() {
                handled = Err(commands.refuse_all(refusal));
            }
        }
        // Before the reply names the session: a data connection looks for its worker only once.
        if !has_worker && let Some(session) = producer.session() {
            has_worker = true;
            set_worker(session);
        }
        let needs_more = match handled {
            Ok(needs_more) => needs_more,
            Err(error) => {
                let replies = &mut commands.replies;
                return Err(send_last(socket, replies, timeouts.write, error).await);
            }
        };
        send(socket, &mut commands.replies, timeouts.write).await?;
        if stops.ends_now() {
            return Ok(());
        }
        if producer.awaits_packets() {
            if !wait_for_packets(producer, timeouts.producer_read, stops).await? {
                return Ok(());
            }
            commands.timeouts.restart_read_timeout();
        }
        if !needs_more {
            continue;
        }
        if !has_replies {
            // Producers of LTTng leave Nagle's algorithm on: the rest of a command may wait for
            // this acknowledgement. A reply carries it anyway.
            let _ = socket.tcp().map(|socket| set_tcp_quickack(socket, true));
        }
        let deadline = commands.timeouts.next_deadline(
            commands.connection.is_greeted(),
            commands.connection.in_command(commands.received.bytes()),
        );
        if !commands.received.read_more(socket, deadline, stop).await? {
            return Ok(());
        }
    }
}

/// Waits until entries can be written for which the disk had no space. Returns false if the relay
/// stops.
async fn wait_for_space(producer: &mut Producer, stop: &CancellationToken) -> bool {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SPACE_RETRY_INTERVAL) => {}
            () = stop.cancelled() => return false,
        }
        if producer.resume() {
            return true;
        }
    }
}

/// Waits for packets of a stream that has too many indexes without them. A producer sends a packet
/// before its index, but on another connection. Returns false if none is to be expected any more
/// because the connection or the relay stops.
async fn wait_for_packets(
    producer: &mut Producer,
    timeout: Duration,
    stops: Stops<'_>,
) -> Result<bool, ConnectionError> {
    let mut pause = Pause::begin();
    while producer.awaits_packets() {
        if producer.awaits_space() {
            pause.restart_timeout();
        }
        if pause.exceeds(timeout) {
            return Err(ConnectionError::no_packets(timeout));
        }
        let is_stopped = stops.connection.is_cancelled() && pause.exceeds(DRAIN_IDLE_TIMEOUT);
        if is_stopped || stops.is_session_lost() {
            return Ok(false);
        }
        tokio::time::sleep(pause.next_interval()).await;
    }
    Ok(true)
}

impl Commands {
    /// Replies an error in place of everything that was to be replied.
    fn refuse_all(&mut self, refusal: Refusal) -> ConnectionError {
        self.replies.clear();
        refusal.code.write(&mut self.replies);
        let command = CommandCode::SendIndex;
        ControlError::Refused { command, refusal }.into()
    }

    /// Handles the commands that have been received, until the replies are to be sent. Returns
    /// whether more bytes are needed to continue.
    fn handle_received(&mut self, producer: &mut Producer) -> Result<bool, ConnectionError> {
        let mut input = self.received.bytes();
        let mut handled = Ok(false);
        let indexes = producer.indexes();
        // More indexes would only have to wait for their packets as well.
        while matches!(handled, Ok(false))
            && self.replies.len() < REPLY_BYTES
            && !producer.awaits_packets()
        {
            match self
                .connection
                .advance(&mut input, producer, &mut self.replies)
            {
                Ok(Progress::Advanced) => self.timeouts.restart_read_timeout(),
                Ok(Progress::Refused(command, refusal)) => {
                    let peer = self.peer;
                    warn!(%peer, ?command, %refusal, "command rejected");
                    self.timeouts.restart_read_timeout();
                    self.refusals += 1;
                    if self.refusals > MAX_REFUSALS {
                        handled = Err(ConnectionError::TooManyRefusals);
                    }
                }
                Ok(Progress::NeedsMore) => handled = Ok(true),
                Err(error) => handled = Err(error.into()),
            }
        }
        producer.record_batch(producer.indexes() - indexes);
        let left = input.len();
        self.received.consume_all_but(left);
        handled
    }
}
