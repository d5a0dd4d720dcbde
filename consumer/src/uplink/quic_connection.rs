//! A QUIC connection to a relay: commands on a bidirectional stream, each packet on a
//! unidirectional stream of its own. Moves bytes; decides only which packet is sent next, and which
//! one is abandoned because it is late.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use quinn::{Connection, Endpoint, SendStream, StoppedError, VarInt, WriteError};
use tokio::time::timeout;
use transport::config::ALPN_CONTROL;
use transport::quic::{self, CLOSED, TOO_LATE};
use transport::quic_stream::QuicStream;

use super::connection_pair::read_certificates;
use super::error::UplinkError;
use super::relay_selector::SelectedRelay;
use super::send_queue::{PacketOrigin, QueuedPacket, SendQueue};
use super::target::RelayTarget;
use super::transit::Transit;
use crate::limits::QUIC_CLOSE_TIMEOUT;

/// Bytes of one read of replies; most replies have 4 bytes.
const READ_BYTES: usize = 4096;

/// A QUIC connection to a relay.
#[derive(Debug)]
pub(super) struct QuicConnection {
    endpoint: Endpoint,
    connection: Connection,
    control: QuicStream,
    /// Bytes of replies that have not been parsed yet.
    replies: BytesMut,
    deadline: Option<Duration>,
    transit: Transit<PacketSender>,
    /// Opens the stream of the next packet.
    opening: Option<Opening>,
    /// Whether a packet is being written to its stream. The next one waits for that.
    is_writing: bool,
    /// Packets that were abandoned.
    abandoned: Vec<PacketOrigin>,
}

/// A future that opens a stream.
struct Opening(Pin<Box<dyn Future<Output = Result<SendStream, quinn::ConnectionError>> + Send>>);

/// Sends one packet on its stream.
struct PacketSender {
    stream: SendStream,
    /// What is left to be written: header and packet.
    pieces: [Bytes; 2],
    /// Once everything has been written: completes when the relay's end has acknowledged the whole
    /// stream.
    acknowledged: Option<Acknowledged>,
}

type Acknowledged = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send>>;

impl QuicConnection {
    /// Connects to a relay of the target.
    pub(super) async fn connect(
        target: &RelayTarget,
        relay: &SelectedRelay,
    ) -> Result<Self, UplinkError> {
        let within = relay.connect_timeout;
        let tls = read_certificates(target.tls.clone(), ALPN_CONTROL).await?;
        let client = quic::client_config(tls, quic::transport_config());
        let client = client.map_err(|error| UplinkError::Certificates(Box::new(error)))?;
        let connected = timeout(within, connect_to(relay, client)).await;
        let timed_out = |_| UplinkError::ConnectTimeout {
            to: relay.control(),
            within,
        };
        let failed = |source| UplinkError::Connect {
            to: relay.control(),
            source,
        };
        let (endpoint, connection, control) = connected.map_err(timed_out)?.map_err(failed)?;
        Ok(Self {
            endpoint,
            connection,
            control,
            replies: BytesMut::new(),
            deadline: target.deadline,
            transit: Transit::default(),
            opening: None,
            is_writing: false,
            abandoned: Vec::new(),
        })
    }

    /// Sends as much of `out` as the connection takes now. Returns whether it took anything.
    pub(super) fn write(&mut self, out: &mut SendQueue) -> Result<bool, UplinkError> {
        // No waker is needed: the caller polls everything again in `wait_ready` before it sleeps.
        self.poll_write(&mut Context::from_waker(Waker::noop()), out)
    }

    /// Reads the replies that have arrived. Returns whether there were any.
    pub(super) fn read(&mut self) -> Result<bool, UplinkError> {
        let mut some = false;
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.control.try_read(&mut buffer) {
                // What the relay has replied before it closed the connection comes first.
                Ok(0) if some => return Ok(true),
                Ok(0) => {
                    let connection = "QUIC";
                    return Err(UplinkError::ConnectionClosed { connection });
                }
                Ok(read) => {
                    let read = buffer.get(..read).unwrap_or_default();
                    self.replies.extend_from_slice(read);
                    some = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(some),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the replies that have been read and not parsed.
    pub(super) fn replies(&mut self) -> &mut BytesMut {
        &mut self.replies
    }

    /// Waits until there are replies to read, or until something of `out` was sent, has arrived or
    /// was abandoned.
    pub(super) async fn wait_ready(&mut self, out: &mut SendQueue) -> Result<(), UplinkError> {
        poll_fn(|context| {
            if self.poll_write(context, out)? {
                return Poll::Ready(Ok(()));
            }
            self.control
                .poll_read_ready(context)
                .map_err(UplinkError::from)
        })
        .await
    }

    /// Returns when the next packet in transit or in `out` is late. Absent if none can be.
    pub(super) fn next_late(&self, out: &SendQueue) -> Option<Instant> {
        let deadline = self.abandon_after()?;
        let queued = out
            .data
            .front()
            .map(|packet| packet.origin.cut_at + deadline);
        queued
            .into_iter()
            .chain(self.transit.next_late(deadline))
            .min()
    }

    /// Returns the time after which a packet is abandoned. Before its deadline, so that the relay
    /// knows of it then, even if that has to be sent twice. Absent if no packet is.
    fn abandon_after(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        let notice = (2 * self.connection.rtt()).min(deadline / 2);
        Some(deadline - notice)
    }

    /// Sends all packets, however late they are. Returns whether there was a deadline.
    pub(super) fn remove_deadline(&mut self) -> bool {
        self.deadline.take().is_some()
    }

    /// Takes the packets that were abandoned because they were late, in no particular order.
    pub(super) fn take_abandoned(&mut self) -> Vec<PacketOrigin> {
        std::mem::take(&mut self.abandoned)
    }

    /// Ends the connection, and waits until the relay should know.
    pub(super) async fn close(self) {
        self.connection.close(CLOSED, b"");
        // Without an answer the relay notices it by its idle timeout.
        let _ = timeout(QUIC_CLOSE_TIMEOUT, self.endpoint.wait_idle()).await;
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        out: &mut SendQueue,
    ) -> Result<bool, UplinkError> {
        let mut some = self.abandon_late_packets(out);
        // Packets first: the relay can use an index only when its packet has arrived.
        loop {
            let mut is_writing = false;
            some |= self.transit.remove_arrived(|sender| {
                let has_arrived = sender.poll(context)?;
                is_writing |= sender.acknowledged.is_none();
                Ok::<_, UplinkError>(has_arrived)
            })?;
            self.is_writing = is_writing;
            if is_writing || !self.poll_next_packet(context, out)? {
                break;
            }
            some = true;
        }
        while !out.control.is_empty()
            && let Poll::Ready(written) = self.control.poll_write(context, &out.control)
        {
            out.control.advance(written?);
            some = true;
        }
        Ok(some)
    }

    /// Opens a stream for the next packet of `out`, if it may be sent. Returns whether it is in
    /// transit.
    fn poll_next_packet(
        &mut self,
        context: &mut Context<'_>,
        out: &mut SendQueue,
    ) -> Result<bool, UplinkError> {
        let Some(next) = out.data.front() else {
            return Ok(false);
        };
        if !self.transit.has_room(next.header.stream, next.bytes.len()) {
            return Ok(false);
        }
        let connection = &self.connection;
        let opening = self.opening.get_or_insert_with(|| {
            // A handle, which the future has to own.
            let connection = connection.clone();
            Opening(Box::pin(async move { connection.open_uni().await }))
        });
        let Poll::Ready(opened) = opening.0.as_mut().poll(context) else {
            return Ok(false);
        };
        self.opening = None;
        let stream = opened.map_err(io::Error::from)?;
        if let Some(packet) = out.data.pop_front() {
            let QueuedPacket {
                header,
                head,
                bytes,
                origin,
            } = packet;
            let len = bytes.len();
            let sender = PacketSender {
                stream,
                pieces: [head, bytes],
                acknowledged: None,
            };
            self.transit.add(header.stream, len, origin, sender);
        }
        Ok(true)
    }

    /// Abandons the packets that were cut longer ago than the deadline. Returns whether there are
    /// any.
    fn abandon_late_packets(&mut self, out: &mut SendQueue) -> bool {
        let Some(limit) = self
            .abandon_after()
            .and_then(|deadline| Instant::now().checked_sub(deadline))
        else {
            return false;
        };
        let Self {
            transit, abandoned, ..
        } = self;
        transit.remove_late(limit, |origin, mut sender| {
            // Fails only if the stream is closed, so that the packet has arrived after all: the
            // relay keeps it then.
            let _ = sender.stream.reset(TOO_LATE);
            abandoned.push(origin);
        });
        while out
            .data
            .front()
            .is_some_and(|packet| packet.origin.cut_at <= limit)
        {
            let late = out.data.pop_front();
            abandoned.extend(late.map(|packet| packet.origin));
        }
        !abandoned.is_empty()
    }
}

impl PacketSender {
    /// Writes what is left, and returns whether the relay's end has acknowledged all of it.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<bool, UplinkError> {
        while self.acknowledged.is_none() {
            if self.pieces.iter().all(Bytes::is_empty) {
                // Fails only if the stream is closed; the acknowledgement tells.
                let _ = self.stream.finish();
                self.acknowledged = Some(Box::pin(self.stream.stopped()));
                break;
            }
            let written = pin!(self.stream.write_chunks(&mut self.pieces)).poll(context);
            match written {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(lost(error)),
            }
        }
        let Some(acknowledged) = &mut self.acknowledged else {
            return Ok(false);
        };
        match acknowledged.as_mut().poll(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(None)) => Ok(true),
            Poll::Ready(Ok(Some(code))) => Err(lost(WriteError::Stopped(code))),
            Poll::Ready(Err(error)) => Err(lost(error.into())),
        }
    }
}

/// Connects to the relay, and opens the stream of commands.
async fn connect_to(
    relay: &SelectedRelay,
    client: quinn::ClientConfig,
) -> io::Result<(Endpoint, Connection, QuicStream)> {
    let host = &relay.ports.control.host;
    let (endpoint, connection) = quic::connect(relay.address, host, client).await?;
    let ends = connection.open_bi().await?;
    let control = QuicStream::new(connection.clone(), ends);
    // Commands are short, and the relay can publish no packet without them.
    control.prefer();
    Ok((endpoint, connection, control))
}

fn lost(error: WriteError) -> UplinkError {
    UplinkError::Lost(error.into())
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opening")
    }
}

impl std::fmt::Debug for PacketSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PacketSender").field(&self.stream).finish()
    }
}
