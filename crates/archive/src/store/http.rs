//! HTTP as `object_store` does it, with two changes: a response that leaves the outcome open
//! becomes a [`ServerFailure`], which can be told from other errors, and of the page that comes
//! with an error only a line is kept.

use std::pin::Pin;
use std::sync::Once;

use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use super::reason::StoreReason;

/// Longest page of an error that is read.
const MAX_ERROR_PAGE: usize = 64 << 10;

/// A response after which it is unknown whether the request has taken effect, or which asks to try
/// later.
#[derive(Debug, thiserror::Error)]
#[error("{status}: {reason}")]
pub(crate) struct ServerFailure {
    status: String,
    reason: StoreReason,
}

/// Makes clients whose failures [`ServerFailure`] describes.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        static PROVIDER: Once = Once::new();
        // Without a default, `reqwest` panics. That another part of the program has set it is fine.
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { inner }))
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
}

impl HttpService for Service {
    // The signature is that which `async_trait` makes of the trait's.
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let response = self.inner.execute(request).await?;
            let status = response.status();
            if !status.is_client_error() && !status.is_server_error() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let reason = error_line(body).await;
            // Too many requests, and a request that came too slowly.
            if status.is_server_error() || [429, 408].contains(&status.as_u16()) {
                let status = status.to_string();
                return Err(HttpError::new(
                    HttpErrorKind::Unknown,
                    ServerFailure { status, reason },
                ));
            }
            Ok(HttpResponse::from_parts(parts, reason.to_string().into()))
        })
    }
}

/// What the page of an error says: its code and message if it is one of S3 or Azure.
async fn error_line(body: HttpResponseBody) -> StoreReason {
    let Ok(page) = Limited::new(body, MAX_ERROR_PAGE).collect().await else {
        return StoreReason::new("");
    };
    let page = page.to_bytes();
    let page = String::from_utf8_lossy(&page);
    match (element(&page, "Code"), element(&page, "Message")) {
        (Some(code), Some(message)) => StoreReason::new(&format!("{code}: {message}")),
        (Some(code), None) => StoreReason::new(code),
        (None, _) => StoreReason::new(&page),
    }
}

/// The text of the first element of this name.
fn element<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::{RetryPolicy, Store, StoreErrorKind, create_once, open_with_keys};

    /// A server that gives the same answer to each request, whatever that asks, and closes the
    /// connection. Returns its URL.
    async fn server_that_answers(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = listener.accept().await {
                // A body, if there is one, is sent with the head.
                let mut request = [0; 8192];
                let _ = peer.read(&mut request).await;
                let _ = peer.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    fn answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    }

    fn page(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>so it is</Message></Error>"
        )
    }

    fn store(url: &str) -> std::sync::Arc<dyn Store> {
        open_with_keys("bucket", url, ("key", "secret")).unwrap()
    }

    #[tokio::test]
    async fn each_answer_of_a_server_is_the_kind_of_error_that_it_means() {
        use StoreErrorKind::{AlreadyExists, NotFound, Other, Refused, Unknown};
        for (status, code, created, read, listed) in [
            ("404 Not Found", "NoSuchBucket", Refused, Refused, Refused),
            ("404 Not Found", "NoSuchKey", Refused, NotFound, Refused),
            ("403 Forbidden", "AccessDenied", Refused, Refused, Refused),
            ("401 Unauthorized", "No", Refused, Refused, Refused),
            (
                "412 Precondition Failed",
                "PreconditionFailed",
                AlreadyExists,
                Other,
                Other,
            ),
            (
                "409 Conflict",
                "ConditionalRequestConflict",
                Unknown,
                Other,
                Other,
            ),
            (
                "500 Internal Server Error",
                "InternalError",
                Unknown,
                Unknown,
                Unknown,
            ),
            ("503 Slow Down", "SlowDown", Unknown, Unknown, Unknown),
            (
                "429 Too Many Requests",
                "Throttled",
                Unknown,
                Unknown,
                Unknown,
            ),
            ("400 Bad Request", "InvalidRequest", Other, Other, Other),
            (
                "301 Moved Permanently",
                "PermanentRedirect",
                Other,
                Other,
                Other,
            ),
        ] {
            let url = server_that_answers(answer(status, &page(code))).await;
            let store = store(&url);
            let errors = [
                (
                    store.create("a", "bytes".into()).await.unwrap_err(),
                    created,
                ),
                (store.get("a", 100).await.unwrap_err(), read),
                (store.list("a/", None, 100).await.unwrap_err(), listed),
            ];
            for (error, want) in errors {
                assert_eq!(error.kind, want, "{status} {code}: {error:?}");
                if ![AlreadyExists, NotFound].contains(&want) && !status.starts_with("301") {
                    let reason = error.source.unwrap().to_string();
                    let number = status.split(' ').next().unwrap();
                    assert!(reason.starts_with(number), "{reason}");
                    assert!(reason.ends_with(&format!("{code}: so it is")), "{reason}");
                }
            }
        }
    }

    #[tokio::test]
    async fn connections_that_break_leave_the_outcome_unknown() {
        let whole = answer("200 OK", "0123456789");
        let cut = &whole[..whole.len() - 1];
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let urls = [
            server_that_answers(String::new()).await,
            server_that_answers("HTTP/1.1 2".to_owned()).await,
            server_that_answers("SSH-2.0-OpenSSH\r\n".to_owned()).await,
            nobody,
        ];
        for url in urls {
            for url in [url.clone(), url.replace("http:", "https:")] {
                let created = store(&url).create("a", "bytes".into()).await.unwrap_err();
                assert_eq!(created.kind, StoreErrorKind::Unknown, "{url}: {created:?}");
                assert!(!created.source.unwrap().to_string().is_empty(), "{url}");
            }
        }
        // What is needed of an object beside its bytes.
        let dated = |text: &str| {
            text.replacen(
                "\r\n",
                "\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\netag: \"1\"\r\n",
                1,
            )
        };
        let read = store(&server_that_answers(dated(&whole)).await);
        assert_eq!(read.get("a", 10).await.unwrap(), "0123456789");
        let too_large = read.get("a", 9).await.unwrap_err();
        assert_eq!(too_large.kind, StoreErrorKind::TooLarge);
        let read = store(&server_that_answers(dated(cut)).await);
        let error = read.get("a", 10).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unknown, "{error:?}");
    }

    #[tokio::test]
    async fn hostile_answers_are_neither_kept_nor_believed() {
        let endless = "\u{7}\u{1b}[31m".repeat(1 << 16);
        let url = server_that_answers(answer("403 Forbidden", &endless)).await;
        let error = store(&url).create("a", "bytes".into()).await.unwrap_err();
        let reason = error.source.unwrap().to_string();
        assert!(reason.len() < 400 && !reason.contains('\u{1b}'), "{reason}");
        let list = "<ListBucketResult><Contents><Key>other/key</Key><Size>1</Size>\
                    <LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>";
        let url = server_that_answers(answer("200 OK", list)).await;
        let error = store(&url).list("a/", None, 10).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Other, "{error:?}");
        let huge = "HTTP/1.1 200 OK\r\ncontent-length: 9000000000000000000\r\netag: \"1\"\r\n\
                    last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\nx";
        let url = server_that_answers(huge.to_owned()).await;
        let error = store(&url).get("a", 100).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TooLarge);
        let error = store(&url).get("a", u64::MAX).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unknown);
        let error = store(&url).get_range("a", 0..5).await.unwrap_err();
        assert_eq!(
            error.kind,
            StoreErrorKind::Other,
            "a server that ignores ranges"
        );
    }

    #[tokio::test]
    async fn a_create_is_tried_again_while_the_server_fails() {
        let url = server_that_answers(answer("503 Slow Down", &page("SlowDown"))).await;
        let policy = RetryPolicy {
            first_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(2),
            timeout: Duration::from_millis(200),
        };
        let created = create_once(&*store(&url), "a", &"bytes".into(), policy).await;
        let error = created.unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot create a: no answer, it may have taken effect"
        );
    }
}
