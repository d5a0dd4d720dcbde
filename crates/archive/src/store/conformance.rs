//! What each implementation of [`Store`] must do, for tests, beyond what the probe examines.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;

use super::{Store, StoreError, StoreErrorKind};

/// A name with every kind of character that names of the archive have.
const NAME: &str = "days/2026-11-27/host%2Fa%25b/my%20trace/00ff-1.end";

async fn kind<T>(call: impl Future<Output = Result<T, StoreError>>) -> Option<StoreErrorKind> {
    call.await.err().map(|error| error.kind)
}

/// Checks a store that is empty.
///
/// # Panics
/// If the store does something else than [`Store`] says.
#[expect(clippy::unwrap_used, reason = "a failure of the store fails the test")]
pub async fn check_conformance(store: &dyn Store) {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(store.list("days/", None, 10).await.unwrap(), []);
    assert!(store.list_prefixes("days/", 10).await.unwrap().is_empty());
    assert_eq!(
        kind(store.get(NAME, 10)).await,
        Some(StoreErrorKind::NotFound)
    );
    store.create(NAME, bytes("0123456789")).await.unwrap();
    for other in ["", "0123456789", "longer than what is there"] {
        let again = store.create(NAME, bytes(other));
        assert_eq!(kind(again).await, Some(StoreErrorKind::AlreadyExists));
    }
    assert_eq!(store.get(NAME, 10).await.unwrap(), "0123456789");
    assert_eq!(
        kind(store.get(NAME, 9)).await,
        Some(StoreErrorKind::TooLarge)
    );
    let range = |range: Range<u64>| store.get_range(NAME, range);
    assert_eq!(range(0..10).await.unwrap(), "0123456789");
    assert_eq!(range(3..5).await.unwrap(), "34");
    assert_eq!(range(5..5).await.unwrap(), "");
    for beyond in [9..11, 10..11, 100..200] {
        assert!(range(beyond.clone()).await.is_err(), "{beyond:?}");
    }
    store.create("days/empty", Bytes::new()).await.unwrap();
    assert_eq!(store.get("days/empty", 0).await.unwrap(), "");
    check_lists(store).await;
    for wrong in ["", "/", "a//b", "/a", "a/../b", "."] {
        let created = kind(store.create(wrong, bytes("x"))).await;
        assert_eq!(created, Some(StoreErrorKind::Other), "{wrong}");
    }
    store.delete(NAME).await.unwrap();
    assert_eq!(
        kind(store.get(NAME, 10)).await,
        Some(StoreErrorKind::NotFound)
    );
    store.create(NAME, bytes("again")).await.unwrap();
}

#[expect(clippy::unwrap_used, reason = "a failure of the store fails the test")]
async fn check_lists(store: &dyn Store) {
    let mut names = vec!["days/empty".to_owned(), NAME.to_owned()];
    // Not in the order of their names, and more than one directory.
    for number in [7, 3, 5, 1, 9] {
        let name = format!("days/2026-11-2{number}/a");
        store
            .create(&name, Bytes::from(name.clone()))
            .await
            .unwrap();
        names.push(name);
    }
    // Not below the prefix, although its name begins as the prefix does.
    store.create("days2/x", Bytes::new()).await.unwrap();
    names.sort_unstable();
    let count = names.len();
    let listed = store.list("days/", None, count).await.unwrap();
    let found: Vec<_> = listed.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(found, names);
    let of_name = listed.iter().find(|listed| listed.name == NAME).unwrap();
    assert_eq!(of_name.bytes, 10);
    for (place, name) in names.iter().enumerate() {
        let rest = store.list("days/", Some(name), count).await.unwrap();
        assert!(
            rest.iter()
                .map(|listed| &listed.name)
                .eq(names.iter().skip(place + 1)),
            "{name}"
        );
    }
    let days = ["days/2026-11-21", "days/2026-11-23", "days/2026-11-25"];
    let later = ["days/2026-11-27", "days/2026-11-29"];
    let days = [&days[..], &later].concat();
    assert_eq!(store.list_prefixes("days/", 5).await.unwrap(), days);
    let hosts = store.list_prefixes("days/2026-11-27/", 5).await.unwrap();
    assert_eq!(hosts, ["days/2026-11-27/host%2Fa%25b"]);
    for (call, name) in [
        (kind(store.list("days/", None, count - 1)).await, "list"),
        (kind(store.list_prefixes("days/", 4)).await, "prefixes"),
    ] {
        assert_eq!(call, Some(StoreErrorKind::TooLarge), "{name}");
    }
}
