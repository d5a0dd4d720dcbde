//! Calls one after another, over HTTP.

use archive::store::{StoreErrorKind, check_conformance, open_with_keys};
use tests::lab::Lab;
use tokio::runtime::Runtime;

use crate::servers::{BUCKET, KEYS, S3sServer};

#[test]
fn a_store_over_http_does_what_a_store_does() {
    let lab = Lab::new();
    let server = S3sServer::start(&lab);
    let store = open_with_keys(BUCKET, &server.url(), KEYS).unwrap();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(check_conformance(&*store));
}

#[test]
fn wrong_keys_are_refused() {
    let lab = Lab::new();
    let server = S3sServer::start(&lab);
    let runtime = Runtime::new().unwrap();
    for (keys, want) in [
        (("nobody", KEYS.1), "403 Forbidden: "),
        ((KEYS.0, "wrong"), "403 Forbidden: SignatureDoesNotMatch"),
    ] {
        let store = open_with_keys(BUCKET, &server.url(), keys).unwrap();
        let created = runtime.block_on(store.create("a", "bytes".into()));
        let error = created.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error:?}");
        let reason = error.source.unwrap().to_string();
        assert!(reason.starts_with(want), "{reason}");
    }
}
