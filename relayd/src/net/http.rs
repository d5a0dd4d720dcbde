//! The port of the status endpoint: passes HTTP requests to [`StatusApi`]. hyper implements HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::http::StatusApi;
use crate::limits::{HTTP_HEAD_TIMEOUT, MAX_HTTP_HEAD};

pub(super) async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    status: Arc<StatusApi>,
    stop: CancellationToken,
) {
    let service = service_fn(|request| {
        let response = respond(&status, &request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEAD_TIMEOUT)
        .max_buf_size(MAX_HTTP_HEAD)
        .serve_connection(TokioIo::new(socket), service);
    let served = tokio::select! {
        served = connection => served,
        () = stop.cancelled() => return,
    };
    if let Err(error) = served {
        debug!(%peer, %error, "HTTP connection closed");
    }
}

/// Answers a request from its method and path. Its body is not read: no request has a meaningful
/// one.
fn respond(status: &StatusApi, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut rejected = Response::new(Full::default());
        *rejected.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        let allowed = HeaderValue::from_static("GET, HEAD");
        rejected.headers_mut().insert(ALLOW, allowed);
        return rejected;
    }
    let reply = status.reply(request.uri().path(), Instant::now());
    let mut response = Response::new(Full::from(reply.body));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = HeaderValue::from_static(reply.content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
