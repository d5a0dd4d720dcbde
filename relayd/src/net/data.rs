//! One data connection: moves bytes from a socket to the streams that they are for.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relay_proto::{DataDecoder, DataEvent, DataHeader};
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use wire::Field;

use super::coalescing::Coalescing;
use super::receive::ReceiveError;
use super::session_affinity::SessionAffinity;
use super::watched::Socket;
use super::worker_pool::WorkerId;
use crate::config::Timeouts;
use crate::ingest::error::At;
use crate::limits::{
    COALESCE_INTERVAL, DRAIN_IDLE_TIMEOUT, MAX_RECEIVED_BYTES, MIN_RECEIVED_BYTES,
    SPACE_RETRY_INTERVAL,
};
use crate::producer::data_connection::DataConnection;
use crate::registry::Registry;

thread_local! {
    /// What is received on a thread, by one connection after the other: between reads nothing is
    /// left in it, so that a connection costs no memory, and what is read often lies in the cache.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A data connection.
#[derive(Debug)]
struct Flow {
    peer: SocketAddr,
    socket: Socket,
    /// None when it has ended.
    connection: Option<DataConnection>,
    decoder: DataDecoder,
    /// The beginning of a header; or, while there is no space on the disk, all that waits for it.
    begun: Vec<u8>,
    coalescing: Coalescing,
    /// How long the rest of what has begun is waited for.
    timeout: Duration,
    /// There is no space on the disk: nothing more is read.
    is_paused: bool,
}

/// What a look at a connection has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// There may be more.
    More,
    /// That was all for now.
    All,
    /// It has ended.
    Ended,
}

pub(super) async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    worker_id: WorkerId,
    registry: Arc<Registry>,
    session_affinity: Arc<SessionAffinity>,
    timeouts: Timeouts,
    stop: CancellationToken,
) {
    let mut flow = Flow {
        peer,
        socket: Socket::Watched(socket),
        connection: Some(DataConnection::new(registry, peer.ip().to_canonical())),
        decoder: DataDecoder::default(),
        begun: Vec::new(),
        coalescing: Coalescing::default(),
        timeout: timeouts.producer_read,
        is_paused: false,
    };
    let session = |flow: &Flow| flow.connection.as_ref().and_then(DataConnection::session);
    flow.run(&stop, |flow| session(flow).is_some()).await;
    if flow.connection.is_none() {
        return;
    }
    // None: its producer is gone already.
    let worker = session(&flow).and_then(|session| session_affinity.of(session));
    if let Err(error) = flow.socket.ignore() {
        return flow.end(Some(error.into()));
    }
    // Cancelled too when the relay stops.
    let connections = flow
        .connection
        .as_ref()
        .and_then(DataConnection::connections);
    let stop = connections.unwrap_or(stop);
    let rest = async move { flow.run(&stop, |_| false).await };
    match worker {
        Some(worker) if worker != worker_id => {
            session_affinity.pool().spawn(worker, rest).end().await
        }
        _ => rest.await,
    }
}

impl Flow {
    /// Takes what comes until the connection ends, or until `is_enough`.
    async fn run(&mut self, stop: &CancellationToken, is_enough: impl Fn(&Self) -> bool) {
        let mut stopped = pin!(stop.cancelled());
        loop {
            match self.look() {
                Look::Ended => return,
                _ if is_enough(self) => return,
                Look::More => {
                    // Others have their turn.
                    tokio::task::yield_now().await;
                    continue;
                }
                Look::All => {}
            }
            let is_stopping = stop.is_cancelled();
            if self.is_paused {
                // The producer notices that nothing is taken, and waits too.
                if is_stopping {
                    return self.end(None);
                }
                let _ = tokio::time::timeout(SPACE_RETRY_INTERVAL, &mut stopped).await;
                self.resume();
                continue;
            }
            if self.coalescing.should_coalesce(Instant::now()) && !is_stopping {
                if let Err(error) = self.socket.ignore() {
                    return self.end(Some(error.into()));
                }
                let _ = tokio::time::timeout(COALESCE_INTERVAL, &mut stopped).await;
                continue;
            }
            let is_inside = self.is_inside();
            let came = async {
                tokio::select! {
                    biased;
                    readable = self.socket.readable() => readable,
                    () = &mut stopped, if !is_stopping => Ok(()),
                }
            };
            let timeout = if is_stopping {
                DRAIN_IDLE_TIMEOUT
            } else {
                self.timeout
            };
            let came = if is_stopping || is_inside {
                tokio::time::timeout(timeout, came).await
            } else {
                Ok(came.await)
            };
            match came {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return self.end(Some(error.into())),
                // What had been sent before the relay was stopped has been taken.
                Err(_) if is_stopping => return self.end(None),
                Err(_) => return self.end(Some(ReceiveError::Stalled(timeout))),
            }
        }
    }

    /// Takes what is there, by one read.
    fn look(&mut self) -> Look {
        if self.connection.is_none() {
            return Look::Ended;
        }
        if self.is_paused {
            return Look::All;
        }
        RECEIVED.with_borrow_mut(|buffer| {
            buffer.resize(MAX_RECEIVED_BYTES + DataHeader::SIZE, 0);
            self.read(buffer)
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Look {
        let left = self.decoder.left() as usize + DataHeader::SIZE;
        let room = left.clamp(MIN_RECEIVED_BYTES, MAX_RECEIVED_BYTES);
        // Less than a header, for which there is room too.
        let kept = self.begun.len();
        let (begun, free) = buffer.split_at_mut(kept);
        begun.copy_from_slice(&self.begun);
        let free = free.get_mut(..room).unwrap_or_default();
        let socket = self.socket.fd();
        let read = socket.and_then(|socket| Ok(recv(socket, free, RecvFlags::DONTWAIT)?));
        let read = match read {
            Ok((_, 0)) => {
                self.end(None);
                return Look::Ended;
            }
            Ok((_, read)) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::All,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Err(error) => {
                self.end(Some(error.into()));
                return Look::Ended;
            }
        };
        self.take(buffer.get(..kept + read).unwrap_or_default());
        match self.connection {
            None => Look::Ended,
            Some(_) if read < room => Look::All,
            Some(_) => Look::More,
        }
    }

    /// Takes bytes to their streams.
    fn take(&mut self, mut input: &[u8]) {
        while let Some(connection) = &mut self.connection
            && let Some(event) = self.decoder.next(&mut input)
        {
            if let DataEvent::Begin(header) = event {
                self.coalescing.packet(header.data_size);
            }
            let taken = connection.take(event).map(|()| !connection.is_paused());
            self.heed(taken);
            if self.is_paused {
                break;
            }
        }
        if let Some(connection) = &mut self.connection {
            let settled = connection.settle().map(|()| !connection.is_paused());
            self.heed(settled);
        }
        self.begun.clear();
        self.begun.extend_from_slice(input);
    }

    /// Looks whether there is space on the disk again, and goes on with what waits for it.
    fn resume(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let goes_on = connection.resume();
        self.is_paused = false;
        self.heed(goes_on);
        if !self.is_paused {
            let waiting = std::mem::take(&mut self.begun);
            self.take(&waiting);
        }
    }

    /// Whether the connection goes on.
    fn heed(&mut self, goes_on: Result<bool, At>) {
        match goes_on {
            Ok(goes_on) => self.is_paused |= !goes_on,
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &At) {
        if let Some(connection) = self.connection.take() {
            warn!(peer = %self.peer, "data connection failed");
            connection.fail(error);
        }
    }

    fn is_inside(&self) -> bool {
        self.decoder.in_packet() || !self.begun.is_empty()
    }

    fn end(&mut self, why: Option<ReceiveError>) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let peer = self.peer;
        match why {
            None => debug!(%peer, "data connection ended"),
            Some(error) => warn!(%peer, %error, "data connection closed"),
        }
        connection.end();
    }
}
