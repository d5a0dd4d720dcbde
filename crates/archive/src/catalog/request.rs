//! Calls to the store that are made again when it has not answered. Reads have no effect, so that
//! this needs no care.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use super::{CatalogError, MAX_REQUESTS};
use crate::store::{self, Listed, Store};

/// Delays before the next attempts.
const DELAYS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(1000),
    Duration::from_millis(3000),
];

/// Awaits the call that `call` makes, again if its outcome is unknown.
async fn repeat<T, E, F>(mut call: impl FnMut() -> F) -> Result<T, CatalogError>
where
    E: Into<CatalogError>,
    F: Future<Output = Result<T, E>>,
{
    for delay in DELAYS {
        match call().await.map_err(Into::into) {
            Err(error) if error.is_unknown() => tokio::time::sleep(delay).await,
            answer => return answer,
        }
    }
    call().await.map_err(Into::into)
}

/// Makes sure that there is an archive, which this version can read.
///
/// # Errors
/// If there is none, or another version has written it.
pub async fn check_format(store: &dyn Store) -> Result<(), CatalogError> {
    repeat(|| store::check_format(store)).await
}

pub(super) async fn get(store: &dyn Store, name: &str, limit: u64) -> Result<Bytes, CatalogError> {
    repeat(|| store.get(name, limit)).await
}

/// Reads a range, and checks that all of it has come.
pub(super) async fn get_range(
    store: &dyn Store,
    name: &str,
    range: Range<u64>,
) -> Result<Bytes, CatalogError> {
    let bytes = repeat(|| store.get_range(name, range.clone())).await?;
    if bytes.len() as u64 == range.end.saturating_sub(range.start) {
        return Ok(bytes);
    }
    Err(CatalogError::Document {
        name: name.to_owned(),
        reason: format!("the store has returned {} other bytes", bytes.len()),
    })
}

pub(super) async fn list(
    store: &dyn Store,
    prefix: &str,
    limit: usize,
) -> Result<Vec<Listed>, CatalogError> {
    list_after(store, prefix, None, limit).await
}

/// Lists the objects with greater names than `after`.
pub(super) async fn list_after(
    store: &dyn Store,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Listed>, CatalogError> {
    repeat(|| store.list(prefix, after, limit)).await
}

pub(super) async fn list_prefixes(
    store: &dyn Store,
    prefix: &str,
    limit: usize,
) -> Result<Vec<String>, CatalogError> {
    repeat(|| store.list_prefixes(prefix, limit)).await
}

/// Awaits all futures, some at a time. The results have their order.
pub(super) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let futures = stream::iter(futures).buffered(MAX_REQUESTS);
    futures.collect().await
}
