//! `test-live proxy`: a plain port on this host for viewers that know no encryption. Each
//! connection is forwarded to the encrypted port of a relay.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::{Buf, BytesMut};
use daemon::checkup::listener::{Protocol, name_listener};
use daemon::connection_limit::{AdmittedConnection, ConnectionLimit};
use daemon::output::print_message;
use daemon::signals::StopSignals;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use transport::config::ALPN_LIVE;
use transport::socket::Socket;
use viewer::attach::connection::{connect_socket, enable_keep_alive};
use viewer::attach::target::{RelayTarget, Target};
use viewer::run::UsageError;
use viewer::with_sources;

use crate::cli::ProxyArguments;

/// Maximum number of connections at one time. A viewer has one or two. With more, those are closed
/// that are idle.
const MAX_CONNECTIONS: usize = 64;

/// Bytes that are buffered of each direction of a connection. Nothing more is read until they are
/// written.
const BUFFER_BYTES: usize = 64 << 10;

/// Timeout of name resolution, connecting and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time in which the viewer must take what the relay has sent last.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a failure to accept: descriptors may be exhausted.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Forwards connections until SIGINT or SIGTERM.
///
/// # Errors
/// If the target or the address does not fit, a certificate cannot be used, or the port is taken.
pub fn run(arguments: &ProxyArguments) -> anyhow::Result<()> {
    let target = checked_target(arguments)?;
    if !arguments.listen.ip().to_canonical().is_loopback() && !arguments.allow_remote {
        bail!(UsageError(format!(
            "{}: other hosts could view without encryption; give --allow-remote if they may",
            arguments.listen
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::catch().context("cannot handle signals")?;
        let listener = TcpListener::bind(arguments.listen)
            .await
            .map_err(|error| name_listener(error, Protocol::Tcp, arguments.listen))
            .with_context(|| format!("cannot listen on {}", arguments.listen))?;
        let address = listener.local_addr()?;
        print_message(format_args!(
            "test-live: forwarding {address} to {target}; for example:\n  \
             babeltrace2 --input-format=lttng-live net://{address}"
        ));
        tokio::select! {
            () = stop.wait() => {}
            () = accept(listener, target) => {}
        }
        Ok(())
    })
}

/// The relay of the command line, with certificates that can be used.
fn checked_target(arguments: &ProxyArguments) -> anyhow::Result<RelayTarget> {
    let usage = |why: &str| UsageError(format!("{}: {why}", arguments.target));
    let Target::Relay(target) = &arguments.target else {
        bail!(usage("a directory; expected nets://HOST[:PORT]"));
    };
    if !target.is_tls {
        bail!(usage("not encrypted; expected nets://HOST[:PORT]"));
    }
    if target.session.is_some() {
        bail!(usage(
            "a session; expected nets://HOST[:PORT], the viewer names the session"
        ));
    }
    let files = arguments
        .tls
        .files()
        .map_err(|error| usage(&error.to_string()))?;
    // Read again for each connection; the user is to know at once if they cannot be.
    files.config(&[ALPN_LIVE])?;
    Ok(RelayTarget {
        tls: Some(files),
        ..target.clone()
    })
}

async fn accept(listener: TcpListener, target: RelayTarget) {
    let target = Arc::new(target);
    let limit = ConnectionLimit::new(MAX_CONNECTIONS, Duration::ZERO);
    loop {
        let (viewer, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                print_message(format_args!(
                    "test-live: warning: connection not accepted: {error}; retrying"
                ));
                // Idle connections may be what has used up the descriptors.
                limit.make_room(Instant::now());
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        // Further viewers wait in the backlog of the system.
        let admitted = limit.admit().await;
        let target = Arc::clone(&target);
        tokio::spawn(async move {
            let served = tokio::select! {
                // An evicted connection must end even if bytes keep coming.
                biased;
                () = admitted.evicted() => Err("idle, and there are too many".to_owned()),
                served = serve(viewer, &target, &admitted) => served,
            };
            if let Err(why) = served {
                print_message(format_args!(
                    "test-live: warning: connection of {peer} closed: {why}"
                ));
            }
        });
    }
}

/// Serves one viewer. The error says why its connection was closed.
async fn serve(
    viewer: TcpStream,
    target: &RelayTarget,
    admitted: &AdmittedConnection,
) -> Result<(), String> {
    enable_keep_alive(&viewer);
    // Commands and replies are small, and each waits for the other.
    viewer
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let connected = timeout(CONNECT_TIMEOUT, connect_socket(target)).await;
    let connected = connected.map_err(|_| format!("cannot connect to {target}: timeout"))?;
    let relay = connected.map_err(|error| with_sources(&error))?;
    let forwarded = forward(Socket::Plain(viewer), relay, admitted).await;
    forwarded.map_err(|error| error.to_string())
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    buffer: BytesMut,
    has_ended: bool,
}

impl Direction {
    /// Moves bytes until the source has none or the destination takes none. Returns whether any
    /// were moved.
    fn advance(&mut self, source: &mut Socket, destination: &mut Socket) -> io::Result<bool> {
        let mut some = false;
        // Nothing is read before all has been written, so that memory stays bounded.
        if self.buffer.is_empty() && !self.has_ended {
            self.buffer.reserve(BUFFER_BYTES);
            if let Some(read) = or_nothing(source.try_read_buf(&mut self.buffer))? {
                self.has_ended = read == 0;
                some = true;
            }
        }
        while !self.buffer.is_empty() {
            let Some(written) = or_nothing(destination.try_write(&self.buffer))? else {
                break;
            };
            self.buffer.advance(written);
            some = true;
        }
        or_nothing(destination.try_flush())?;
        Ok(some)
    }

    fn is_drained(&self) -> bool {
        self.has_ended && self.buffer.is_empty()
    }
}

/// None if the socket has or takes nothing now.
fn or_nothing<T>(moved: io::Result<T>) -> io::Result<Option<T>> {
    match moved {
        Ok(moved) => Ok(Some(moved)),
        // A call that was interrupted is made again in the next round.
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Forwards both directions until one side ends the connection.
async fn forward(
    mut viewer: Socket,
    mut relay: Socket,
    admitted: &AdmittedConnection,
) -> io::Result<()> {
    let (mut commands, mut replies) = (Direction::default(), Direction::default());
    loop {
        // Two fast peers would otherwise keep all other connections of the thread waiting.
        tokio::task::consume_budget().await;
        let has_reply = replies.advance(&mut relay, &mut viewer)?;
        let has_moved = commands.advance(&mut viewer, &mut relay)? | has_reply;
        if has_reply {
            // A relay answers viewers only.
            admitted.set_active(Instant::now());
        }
        // The viewer waits for nothing any more; the relay has sent its last words.
        if commands.is_drained() || replies.is_drained() {
            return Ok(());
        }
        if has_moved {
            continue;
        }
        let of_viewer = interest(commands.buffer.is_empty(), !replies.buffer.is_empty());
        let of_relay = interest(
            replies.buffer.is_empty() && !replies.has_ended,
            !commands.buffer.is_empty(),
        );
        let ready = async {
            tokio::select! {
                ready = wait(&viewer, of_viewer) => ready,
                ready = wait(&relay, of_relay) => ready,
            }
        };
        // The relay is gone: the viewer only has to take what was sent before.
        if replies.has_ended {
            timeout(DRAIN_TIMEOUT, ready).await??;
        } else {
            ready.await?;
        }
    }
}

fn interest(reads: bool, writes: bool) -> Option<Interest> {
    match (reads, writes) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}

async fn wait(socket: &Socket, interest: Option<Interest>) -> io::Result<()> {
    match interest {
        Some(interest) => socket.ready(interest).await.map(drop),
        // TLS may hold bytes that have left the buffers of both directions.
        None if socket.has_unsent() => socket.ready(Interest::WRITABLE).await.map(drop),
        None => std::future::pending().await,
    }
}
