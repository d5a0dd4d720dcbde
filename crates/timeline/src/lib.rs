//! A live timeline in a browser: `test-live web`. The program calls [`run`] with the settings of
//! its command line, and gives it the sinks that write downloads; the page is in `web/src`.
//!
//! The main thread runs sources, a mux for each trace and `stage`, which turns events into rows of
//! a bounded `store`. Other threads serve pages from the store: a slow page delays neither events
//! nor other pages.
//!
//! Read in this order; each module uses only those before it: `row`, `client_clocks`, `locations`,
//! `packet_log`, `replay` and `matches` (the packets of the history, decoded again for single
//! events and filters), `row_file`, `block`, `track` and `view` (the rows of one track, and what is
//! seen of them), `histogram`, `arrows`, `span_log`, `store`, `thread_tracks`, `apply`, `sent`,
//! `kernel_class`, `kernel`, `stage_state` and `stage` (from events to rows), `trace_muxes`,
//! `archive` and `download` (files of a range), `search`, `span_graph` and `summary` (what a range
//! amounts to), `details` (of one event), `protocol`, `page_state`, `access`, `write_timeout`,
//! `server`.

mod access;
mod apply;
mod archive;
mod arrows;
mod block;
mod client_clocks;
mod details;
mod download;
mod histogram;
mod kernel;
mod kernel_class;
mod locations;
mod matches;
mod packet_log;
mod page_state;
mod protocol;
mod replay;
mod row;
mod row_file;
mod search;
mod sent;
mod server;
mod span_graph;
mod span_log;
mod stage;
mod stage_state;
mod store;
mod summary;
mod thread_tracks;
mod trace_muxes;
mod track;
mod view;
mod write_timeout;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use daemon::checkup::listener::{Protocol, name_listener};
use daemon::output::print_line;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use transport::config::{ALPN_HTTP, server_config};
use transport::identity::Identity;
use viewer::align::AlignBy;
use viewer::align::aligner::Aligner;
use viewer::attach::target::Target;
use viewer::attach::{MemoryBudget, SourceEvent};
use viewer::filter::Filter;
use viewer::interpret::debug_info::DebugInfo;
use viewer::mux::Report;
use viewer::run::{Outcome, Stop};
use viewer::sink::SinkError;
use viewer::sources::{self, EVENT_CAPACITY};
use viewer::turn::Turn;
use viewer_proto::session::Seek;

use self::access::{Access, Token};
pub use self::download::{Content, DownloadFormat};
use self::locations::Locations;
use self::packet_log::PacketLog;
use self::server::Shared;
use self::stage::{TimelineStage, write_message};
use self::store::Store;
use self::trace_muxes::TraceMuxes;

/// Bytes for the packets that are kept, for the fields of events and for filters.
const MAX_LOG_BYTES: usize = 256 << 20;
/// Threads that serve pages.
const SERVER_THREADS: usize = 2;
/// Largest number of frames that are made at the same time.
const MAX_FRAME_THREADS: usize = 4;
/// Time between two looks whether to stop, when all targets have ended.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// Time for the server to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// What is served, and to whom.
pub struct TimelineSettings {
    /// Relays, sessions and directories.
    pub targets: Vec<Target>,
    /// Where to begin in sessions that exist at the start.
    pub seek: Seek,
    /// The filter that events have to match.
    pub filter: Option<Filter>,
    /// By what times are corrected, if they are.
    pub align: Option<AlignBy>,
    /// Finds what addresses are. Absent without `--debug-info`.
    pub debug_info: Option<DebugInfo>,
    /// The number of rows of the history in memory. A row takes 32 bytes.
    pub history: usize,
    /// An empty file for rows that memory has no room for. Without it the oldest are dropped.
    pub history_file: Option<File>,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The file with the token of the URL. Absent for a new token, where one is needed.
    pub token: Option<PathBuf>,
    /// The time for which the token is accepted. Absent for ever.
    pub token_lifetime: Option<Duration>,
    /// The files of the certificate and of its private key. Absent if the page is not encrypted.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The files that the page offers.
    pub formats: Vec<DownloadFormat>,
}

/// Serves the timeline of the targets until `stop` is requested.
///
/// # Errors
/// If nothing can be read, or the port cannot be opened.
pub fn run(settings: TimelineSettings, stop: &Stop) -> anyhow::Result<Outcome> {
    let token = token(&settings)?;
    let certificate = settings.certificate.as_ref();
    let load = |(certificate, key): &(PathBuf, PathBuf)| Identity::load(certificate, key);
    let identity = certificate.map(load).transpose()?;
    let config = |identity| server_config(identity, None, &[ALPN_HTTP]).map(TlsAcceptor::from);
    let acceptor = identity.as_ref().map(config).transpose()?;
    let store = Arc::new(Store::new(settings.history, settings.history_file));
    let locations = Arc::new(Locations::new(settings.debug_info));
    let log = Arc::new(PacketLog::new(MAX_LOG_BYTES, locations));
    let mut stage = TimelineStage::new(Arc::clone(&store), Arc::clone(&log), settings.filter);
    let runtime = Builder::new_multi_thread()
        .worker_threads(SERVER_THREADS)
        .max_blocking_threads(MAX_FRAME_THREADS)
        .thread_name("web")
        .enable_all()
        .build()?;
    // A write beyond the limit of file sizes fails then, instead of ending the process.
    let limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    let _ = runtime.block_on(async { signal(limit) })?;
    // Before targets are opened, because a port that is taken ends the program.
    let listener = runtime.block_on(TcpListener::bind(settings.listen));
    let cannot = || format!("cannot listen on {}", settings.listen);
    let listener = listener.map_err(|error| name_listener(error, Protocol::Tcp, settings.listen));
    let listener = listener.with_context(cannot)?;
    let address = listener.local_addr()?;
    let url = url(address, identity.as_ref(), token.as_ref());
    let access = Access {
        token,
        address,
        certificate_names: identity.as_ref().map(Identity::dns_names),
    };
    let shared = Arc::new(Shared::new(store, log, access, settings.formats));
    runtime.spawn(server::serve(listener, acceptor, shared));

    let memory = MemoryBudget::default();
    let (sender, source_events) = mpsc::channel(EVENT_CAPACITY);
    stop.set_waker(sender.downgrade());
    let (held_back, is_held_back) = watch::channel(false);

    let opened = sources::open(
        (&settings.targets, settings.seek, settings.align),
        &memory,
        &sender,
        &is_held_back,
        &mut stage,
    )?;
    // Who starts this by a program reads the URL from a pipe.
    print_line(format_args!("open {url}"))?;
    let aligner = opened.samples.as_ref().map(Aligner::new);
    let mut muxes = TraceMuxes::new(memory.clone(), aligner);
    for (key, trace) in opened.complete {
        let bytes = trace.streams.iter().map(|stream| stream.bytes()).sum();
        stage.add_recording_bytes(key, bytes);
        muxes.add_directory(key, trace, &mut stage)?;
    }
    // The channel ends with the last source, which has a sender of its own.
    drop(sender);
    let shown = show_events(&mut muxes, &mut stage, source_events, &held_back, stop);
    // What has been read is still to be looked at.
    while shown.is_ok() && stage.has_sessions() && !stop.is_requested() {
        // The channel has ended, so that a request to stop wakes nobody.
        std::thread::sleep(STOP_INTERVAL);
    }
    // All are asked before any is joined, so that they end at the same time.
    for source in &opened.running {
        source.stop();
    }
    // Pages and downloads may go on for long: they are not waited for.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    for source in opened.running {
        source.join();
    }
    let failures = shown? + stage.failures();
    if !stage.has_sessions() && !stop.is_requested() {
        bail!("no live session: there is nothing to show");
    }
    Ok(match failures {
        0 => Outcome::Whole,
        _ => Outcome::Partial,
    })
}

/// The token that requests need: one of a file or a new one, unless only this host can connect.
fn token(settings: &TimelineSettings) -> anyhow::Result<Option<Token>> {
    let expires = settings.token_lifetime;
    let expires = expires.and_then(|lifetime| Instant::now().checked_add(lifetime));
    if let Some(path) = &settings.token {
        let cannot = || format!("cannot read a token from {}", path.display());
        let text = std::fs::read_to_string(path).with_context(cannot)?;
        let token = Token::parse(&text, expires).with_context(cannot)?;
        return Ok(Some(token));
    }
    // A token with a lifetime is one that the user wants, on loopback too.
    if settings.listen.ip().is_loopback() && settings.token_lifetime.is_none() {
        return Ok(None);
    }
    match Token::random(expires) {
        Ok(token) => Ok(Some(token)),
        Err(_) => bail!("cannot make a token: the system gives no random numbers"),
    }
}

fn url(address: SocketAddr, identity: Option<&Identity>, token: Option<&Token>) -> String {
    let token = token.map_or_else(String::new, |token| format!("?token={}", token.text()));
    let names = identity.map(Identity::dns_names).unwrap_or_default();
    // A browser compares the name in the URL with those of the certificate.
    if let Some(name) = names.iter().find(|name| !name.contains('*')) {
        return format!("https://{name}:{}/{token}", address.port());
    }
    let scheme = identity.map_or("http", |_| "https");
    // No browser connects to the address that stands for all.
    let host = match address.ip() {
        ip if ip.is_unspecified() => reachable_address(ip),
        ip => ip,
    };
    let address = SocketAddr::new(host, address.port());
    format!("{scheme}://{address}/{token}")
}

/// Returns the address by which other hosts reach this one if it listens on all: that from which
/// packets to them leave. Loopback if there is no route to others.
fn reachable_address(unspecified: IpAddr) -> IpAddr {
    // Connecting sends no packet. Both addresses are those of documents (RFC 5737, RFC 3849).
    let source = |local: IpAddr, remote: SocketAddr| {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(remote)?;
        socket.local_addr().map(|address| address.ip())
    };
    let (any, any_v6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    let v4 = source(any, (Ipv4Addr::new(203, 0, 113, 1), 9).into());
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    match unspecified.is_ipv6() {
        false => v4.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        // A socket of IPv6 takes connections of both.
        true => source(any_v6, (v6, 9).into())
            .or(v4)
            .unwrap_or(Ipv6Addr::LOCALHOST.into()),
    }
}

/// Shows events until all sources have ended, or `stop` is requested. Returns the number of
/// failures of sources.
fn show_events(
    muxes: &mut TraceMuxes,
    stage: &mut TimelineStage,
    mut source_events: Receiver<SourceEvent>,
    held_back: &watch::Sender<bool>,
    stop: &Stop,
) -> Result<u64, SinkError> {
    let mut failures = 0;
    while !stop.is_requested() {
        let turn = Turn::begin();
        while let Some(event) = turn.next_event(&mut source_events) {
            failures += handle_event(muxes, stage, event)?;
        }
        muxes.run(stage, &|| stop.is_requested())?;
        let holds_back = muxes.holds_back();
        // Most turns change nothing, and only a change shall wake the sources.
        held_back.send_if_modified(|known| std::mem::replace(known, holds_back) != holds_back);
        if stop.is_requested() {
            break;
        }
        let Some(event) = source_events.blocking_recv() else {
            muxes.run(stage, &|| stop.is_requested())?;
            break;
        };
        failures += handle_event(muxes, stage, event)?;
    }
    Ok(failures)
}

/// Handles what a source reports. Returns 1 for a failure, else 0.
fn handle_event(
    muxes: &mut TraceMuxes,
    stage: &mut TimelineStage,
    event: SourceEvent,
) -> Result<u64, SinkError> {
    sources::announce_trace(&event, stage);
    Ok(match muxes.handle(event, stage)? {
        None => 0,
        Some(Report::Notice(text)) => {
            write_message("", &text);
            0
        }
        Some(Report::Missing(text) | Report::Failed(text)) => {
            write_message("error: ", &text);
            1
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_an_address_that_a_browser_can_open() {
        let url_of = |address: &str| url(address.parse().unwrap(), None, None);
        assert_eq!(url_of("10.0.0.1:82"), "http://10.0.0.1:82/");
        for any in ["0.0.0.0:80", "[::]:80"] {
            let listen: SocketAddr = any.parse().unwrap();
            let host = reachable_address(listen.ip());
            assert!(!host.is_unspecified());
            // An address of this host, which it can listen on.
            UdpSocket::bind((host, 0)).unwrap();
            let shown = SocketAddr::new(host, 80);
            assert_eq!(url_of(any), format!("http://{shown}/"));
        }
    }
}
