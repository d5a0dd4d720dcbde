//! The HTTP server: the page, and the WebSocket of each page.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, Request as HttpRequest, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use daemon::connection_limit::{AdmittedConnection, ConnectionLimit};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};
use viewer::attach::connection::enable_keep_alive;
use viewer::filter::Filter;

use super::access::{Access, Refusal};
use super::download::{self, DownloadFormat, Refused, Selected};
use super::packet_log::PacketLog;
use super::page_state::PageState;
use super::protocol::{MAX_REQUEST_BYTES, Reply, Request};
use super::store::Store;
use super::write_timeout::WriteTimeout;

/// Largest number of connections at a time, besides those of pages. A page has a few while it is
/// loaded.
const MAX_CONNECTIONS: usize = 128;
/// Largest number of pages at a time.
const MAX_PAGES: usize = 32;
/// Largest number of files that are written at the same time. Each takes memory for its packets.
const MAX_DOWNLOADS: usize = 2;
/// Largest number of summaries that are made at the same time. Each takes memory for the rows of a
/// track.
const MAX_SUMMARIES: usize = 1;
/// Largest head of an HTTP request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a message or a part of a response to leave. A peer that takes nothing for so long is
/// closed.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two frames, at least.
const FRAME_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two messages about everything but rows, at least.
const STATE_INTERVAL: Duration = Duration::from_millis(200);
/// The part of the time that is spent on the frames of one page, at most: a quarter, and half while
/// its user moves.
const FRAME_COST_FACTOR: u32 = 4;
const MOVED_FRAME_COST_FACTOR: u32 = 2;
/// Time to wait when no connection can be accepted, for example because of too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Files of the page, by path: type and content.
const FILES: [(&str, &str, &str); 4] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../web/src/index.html"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("../web/dist/page.js"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("../web/dist/page.css"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("../web/src/icon.svg"),
    ),
];

/// What every response says about what the page may do: scripts and styles of this server only,
/// connections to it only, and no page around it.
const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
];

/// What all requests share.
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) log: Arc<PacketLog>,
    pub(super) access: Access,
    formats: Vec<DownloadFormat>,
    pages: AtomicUsize,
    downloads: Arc<Semaphore>,
    summaries: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(
        store: Arc<Store>,
        log: Arc<PacketLog>,
        access: Access,
        formats: Vec<DownloadFormat>,
    ) -> Self {
        Self {
            store,
            log,
            access,
            formats,
            pages: AtomicUsize::new(0),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            summaries: Arc::new(Semaphore::new(MAX_SUMMARIES)),
        }
    }
}

/// The query of a download.
#[derive(Debug, Deserialize)]
struct DownloadQuery {
    token: Option<String>,
    format: String,
    /// The first time, in nanoseconds.
    from: i64,
    to: i64,
    #[serde(default)]
    filter: String,
}

/// The part of a query that all requests have.
#[derive(Debug, Deserialize)]
struct Credentials {
    token: Option<String>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (StatusCode::FORBIDDEN, format!("403 Forbidden: {self}\n")).into_response()
    }
}

/// Serves pages until the runtime is shut down; encrypted, if there is a TLS acceptor.
pub(super) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let router = router(shared);
    let limit = ConnectionLimit::new(MAX_CONNECTIONS, Duration::ZERO);
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection; waiting");
                // Idle connections may be what has used up the descriptors.
                limit.make_room(Instant::now());
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = Arc::new(limit.admit().await);
        // Frames are small, and late if they wait for more.
        let _ = socket.set_nodelay(true);
        enable_keep_alive(&socket);
        let tls = tls.clone();
        let router = router.clone().layer(Extension(Arc::clone(&admitted)));
        tokio::spawn(async move {
            tokio::select! {
                // An evicted connection must end even if its peer goes on sending.
                biased;
                () = admitted.evicted() => debug!(%peer, "evicted: there are too many connections"),
                () = serve_socket(socket, peer, tls, router) => {}
            }
        });
    }
}

async fn serve_socket(
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
) {
    let socket = WriteTimeout::new(socket, SEND_TIMEOUT);
    match tls {
        None => serve_connection(socket, peer, router).await,
        Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)).await {
            Ok(Ok(stream)) => serve_connection(stream, peer, router).await,
            Ok(Err(error)) => debug!(%peer, %error, "no TLS handshake"),
            Err(_) => debug!(%peer, "TLS handshake takes too long"),
        },
    }
}

async fn serve_connection<S>(stream: S, peer: SocketAddr, router: Router)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        // A WebSocket takes over the connection of its request.
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%peer, %error, "HTTP connection closed");
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/socket", get(open_socket))
        .route("/download", get(download));
    for (path, content_type, content) in FILES {
        let file = move |State(shared): State<Arc<Shared>>,
                         headers: HeaderMap,
                         Query(query): Query<Credentials>| async move {
            let token = query.token.as_deref();
            // Scripts and styles are the same for all and need no token; nor has the page one to
            // give.
            let checked = match path {
                "/" => shared.access.check(&headers, token, Instant::now()),
                _ => Ok(()),
            };
            checked.map(|()| ([(header::CONTENT_TYPE, content_type)], content))
        };
        router = router.route(path, get(file));
    }
    router
        .layer(middleware::from_fn(add_security_headers))
        .with_state(shared)
}

async fn add_security_headers(request: HttpRequest<Body>, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in SECURITY_HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn download(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Arc<AdmittedConnection>>,
    headers: HeaderMap,
    Query(query): Query<DownloadQuery>,
) -> Response {
    let (token, now) = (query.token.as_deref(), Instant::now());
    if let Err(refusal) = shared.access.check_origin(&headers, token, now) {
        return refusal.into_response();
    }
    let filter = match query.filter.trim() {
        "" => None,
        text => match Filter::parse(text) {
            Ok(filter) => Some(filter),
            Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        },
    };
    let mut formats = shared.formats.iter();
    let Some(format) = formats.find(|format| format.name == query.format) else {
        let text = "400 Bad Request: unknown format\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    if filter.is_some() && !format.has_filter() {
        let text = "400 Bad Request: packets are whole; a download in CTF has no filter\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let Ok(permit) = Arc::clone(&shared.downloads).try_acquire_owned() else {
        let text = "503 Service Unavailable: other downloads are running; try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (name, content_type) = (format.file, format.media_type);
    let selected = Selected {
        format: *format,
        from: query.from,
        to: query.to,
        filter,
    };
    match download::start(selected, &shared.log, permit) {
        Ok(body) => {
            // Whatever else connects: they are few, and each has to take what it is sent.
            connection.keep();
            let disposition = format!("attachment; filename=\"{name}\"");
            let headers = [
                (header::CONTENT_TYPE, content_type.to_owned()),
                (header::CONTENT_DISPOSITION, disposition),
            ];
            (headers, body).into_response()
        }
        Err(error) => {
            let status = match error {
                Refused::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
                Refused::Dropped { .. } => StatusCode::GONE,
            };
            (status, format!("{error}\n")).into_response()
        }
    }
}

async fn open_socket(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(query): Query<Credentials>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let (token, now) = (query.token.as_deref(), Instant::now());
    if let Err(refusal) = shared.access.check_origin(&headers, token, now) {
        return refusal.into_response();
    }
    // Counted before it is checked: of two pages at the same time, only one may be the last.
    if shared.pages.fetch_add(1, Ordering::Relaxed) >= MAX_PAGES {
        shared.pages.fetch_sub(1, Ordering::Relaxed);
        let text = "503 Service Unavailable: too many pages are open\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    let page = OpenPage(Arc::clone(&shared));
    upgrade
        .max_message_size(MAX_REQUEST_BYTES)
        // The size is checked before memory is taken for a message.
        .max_frame_size(MAX_REQUEST_BYTES)
        .on_upgrade(move |socket| async move {
            let lifetime = page.0.access.token.as_ref();
            let lifetime = lifetime.and_then(|token| token.remaining(Instant::now()));
            let serving = serve_page(socket, Arc::clone(&page.0));
            match lifetime {
                // An expired token shows nothing more.
                Some(lifetime) => drop(timeout(lifetime, serving).await),
                None => serving.await,
            }
            drop(page);
        })
}

/// Counts a page for as long as it is open.
struct OpenPage(Arc<Shared>);

impl Drop for OpenPage {
    fn drop(&mut self) {
        self.0.pages.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers one page until it is closed. Nothing is queued for it: what is sent is made when the
/// message before has left.
async fn serve_page(mut socket: WebSocket, shared: Arc<Shared>) {
    let mut page = PageState::default();
    let mut ticks = interval(FRAME_INTERVAL);
    // After a slow frame, the ticks that were missed must not come all at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_state = Instant::now();
    let mut next_frame = Instant::now();
    let mut summary: Option<PendingReply> = None;
    loop {
        let received = tokio::select! {
            received = socket.recv() => Some(received),
            _ = ticks.tick() => None,
            reply = wait_for(&mut summary) => {
                let Some(reply) = reply else { return };
                if !send_json(&mut socket, &reply).await {
                    return;
                }
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        let message = match received {
            None => {
                if next_state <= Instant::now() {
                    let begun = Instant::now();
                    let Some(told) = send_state(page, &mut socket, &shared.store).await else {
                        return;
                    };
                    page = told;
                    next_state = begun + STATE_INTERVAL.max(begun.elapsed() * FRAME_COST_FACTOR);
                }
                if Instant::now() < next_frame {
                    continue;
                }
                let begun = Instant::now();
                let factor = match page.needs_frame() {
                    true => MOVED_FRAME_COST_FACTOR,
                    false => FRAME_COST_FACTOR,
                };
                let made = run_blocking(page, move |page| {
                    page.next_frame(&shared.store, unix_time())
                });
                let Some((made, frame)) = made.await else {
                    return;
                };
                page = made;
                next_frame = begun + begun.elapsed() * factor;
                frame.map(|frame| Message::Binary(frame.into()))
            }
            Some(Some(Ok(Message::Text(text)))) => {
                let request = match Request::parse(&text) {
                    Ok(request) => request,
                    Err(error) => {
                        warn!(%error, "page closed");
                        return;
                    }
                };
                if let Request::Summary { number, from, to } = request {
                    let store = Arc::clone(&shared.store);
                    let made = page.summary((number, from, to), store, unix_time());
                    // The one before is no longer asked for.
                    summary = Some(Box::pin(run_in_turn(Arc::clone(&shared), made)));
                    continue;
                }
                let answered = run_blocking(page, move |page| {
                    page.handle(request, &shared.store, &shared.log)
                });
                let Some((answered, reply)) = answered.await else {
                    return;
                };
                page = answered;
                if page.needs_frame() {
                    // What the user has moved to is shown at once.
                    ticks.reset_immediately();
                }
                let reply = reply.map(|reply| serde_json::to_string(&reply));
                let Ok(text) = reply.transpose() else { return };
                text.map(|text| Message::Text(text.into()))
            }
            Some(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => None,
            // The page has gone, or has sent bytes, which none of ours does.
            Some(_) => return,
        };
        if let Some(message) = message
            && !send(&mut socket, message).await
        {
            return;
        }
    }
}

/// Tells a page what has changed; `None` if it has gone.
async fn send_state(
    page: PageState,
    socket: &mut WebSocket,
    store: &Arc<Store>,
) -> Option<PageState> {
    let store = Arc::clone(store);
    let made = run_blocking(page, move |page| page.state_message(&store, unix_time()));
    let (page, state) = made.await?;
    send_json(socket, &state).await.then_some(page)
}

/// Does work for a page that takes longer than an event loop may wait.
async fn run_blocking<T: Send + 'static>(
    mut page: PageState,
    work: impl FnOnce(&mut PageState) -> T + Send + 'static,
) -> Option<(PageState, T)> {
    let work = tokio::task::spawn_blocking(move || {
        let done = work(&mut page);
        (page, done)
    });
    // A panic has taken the state of the page with it: its connection is closed.
    work.await.ok()
}

/// An answer that takes long to make.
type PendingReply = Pin<Box<dyn Future<Output = Option<Reply>> + Send>>;

/// Makes an answer when it is its turn; `None` if that fails.
async fn run_in_turn(
    shared: Arc<Shared>,
    make: impl FnOnce() -> Reply + Send + 'static,
) -> Option<Reply> {
    // Nobody has a turn who has gone while waiting.
    let permit = Arc::clone(&shared.summaries).acquire_owned().await.ok()?;
    let made = tokio::task::spawn_blocking(move || {
        let reply = make();
        drop(permit);
        reply
    });
    made.await.ok()
}

/// Waits for an answer, if there is one to wait for.
async fn wait_for(pending: &mut Option<PendingReply>) -> Option<Reply> {
    match pending {
        Some(reply) => {
            let made = reply.await;
            *pending = None;
            made
        }
        None => std::future::pending().await,
    }
}

async fn send_json(socket: &mut WebSocket, message: &impl serde::Serialize) -> bool {
    match serde_json::to_string(message) {
        Ok(text) => send(socket, Message::Text(text.into())).await,
        Err(_) => false,
    }
}

/// Sends a message. Returns false if the page has gone, or takes nothing.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(
        timeout(SEND_TIMEOUT, socket.send(message)).await,
        Ok(Ok(()))
    )
}

/// Returns the current time, in nanoseconds since 1970.
fn unix_time() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
