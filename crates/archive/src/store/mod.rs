//! The few calls to a store of objects that the archive needs: create, read, list and delete.
//!
//! `open` makes a [`Store`] of a URL, `bucket` is the one implementation, over the crate
//! `object_store`, with `http` and `credentials`. `create` creates an object although answers get
//! lost, `probe` finds out whether a store can be relied on. `fault` has a store that fails,
//! `conformance` what every store must do, both for tests. Nothing here knows what the objects
//! contain, except `format`, which marks an archive.

mod bucket;
#[cfg(any(test, feature = "test-support"))]
mod conformance;
mod create;
mod credentials;
mod error;
#[cfg(any(test, feature = "test-support"))]
mod fault;
mod format;
mod http;
mod open;
mod probe;
mod reason;

use std::fmt::Debug;
use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
pub use futures_util::future::BoxFuture;

#[cfg(any(test, feature = "test-support"))]
pub use self::conformance::check_conformance;
pub use self::create::{CreateError, RetryPolicy, create_once};
pub use self::error::{StoreError, StoreErrorKind};
#[cfg(any(test, feature = "test-support"))]
pub use self::fault::{Fault, FaultSource, FaultyStore};
pub use self::format::{FormatError, check_format, create_format};
#[cfg(any(test, feature = "test-support"))]
pub use self::open::open_with_keys;
pub use self::open::{OpenError, in_memory, open};
pub use self::probe::{CallTimes, ProbeError, ProbeReport, probe};
pub use self::reason::StoreReason;

/// An object, as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name below the archive's prefix.
    pub name: String,
    /// The size of the object.
    pub bytes: u64,
    /// When the object was created, by the clock of the store; some stores round it to seconds.
    pub modified: SystemTime,
}

/// A place for immutable objects, strongly consistent: what was created is read and listed at
/// once by everyone.
///
/// Names are relative to the prefix of the archive's URL. A future may be dropped; whether its call
/// then takes effect is unknown, as after an error of [`StoreErrorKind::Unknown`].
pub trait Store: Debug + Send + Sync {
    /// Creates an object, which is durable when the call returns.
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] if the object exists, whatever it contains.
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Reads a whole object.
    ///
    /// # Errors
    /// [`StoreErrorKind::TooLarge`] if the object has more bytes than `limit`, before they are
    /// read.
    fn get<'a>(&'a self, name: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, StoreError>>;

    /// Reads these bytes of an object.
    ///
    /// # Errors
    /// If the object has not all of them.
    fn get_range<'a>(
        &'a self,
        name: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, StoreError>>;

    /// Lists the objects below a prefix that ends with a slash, such as `sessions/S/`, at any depth
    /// and in the order of their names; with `after`, only those with greater names.
    ///
    /// # Errors
    /// [`StoreErrorKind::TooLarge`] if there are more than `limit`.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>>;

    /// Lists the directories directly below a prefix, in order, as whole names without a slash at
    /// the end: `days/2026-11-27` below `days/`.
    ///
    /// # Errors
    /// [`StoreErrorKind::TooLarge`] if there are more than `limit`.
    fn list_prefixes<'a>(
        &'a self,
        prefix: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// Deletes an object. Some stores report success if there is none.
    ///
    /// # Errors
    /// [`StoreErrorKind::Refused`] if the credentials do not allow it.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}
