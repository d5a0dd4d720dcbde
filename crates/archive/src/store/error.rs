//! What can go wrong with a call to a store, reduced to what its callers tell apart.

use std::error::Error;
use std::fmt;
use std::io;

use object_store::client::HttpError;

use super::http::ServerFailure;
use super::reason::StoreReason;

/// Why a call failed, as far as callers act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// There is no object of this name.
    NotFound,
    /// There is an object of this name.
    AlreadyExists,
    /// The credentials are wrong or lack a permission, or there is no such bucket. Only a change by
    /// an operator helps.
    Refused,
    /// No answer, or one that says nothing: the call may have taken effect. It can be repeated.
    Unknown,
    /// The object, or the list, is larger than the limit.
    TooLarge,
    /// Anything else, which the same call would meet again.
    Other,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "there is no such object",
            Self::AlreadyExists => "the object exists already",
            Self::Refused => "the store refuses it",
            Self::Unknown => "no answer, it may have taken effect",
            Self::TooLarge => "larger than the limit",
            Self::Other => "the call failed",
        })
    }
}

/// A call to a store that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {kind}", name.escape_debug())]
pub struct StoreError {
    /// The call, as a verb: "create", "read", "list", "delete".
    pub what: &'static str,
    /// The name of the object, or the prefix of the list.
    pub name: String,
    /// Why, as far as callers act on it.
    pub kind: StoreErrorKind,
    /// Why, in the words of the store or of the system.
    pub source: Option<StoreReason>,
}

impl StoreError {
    /// An error that this package finds, not the store.
    pub(crate) fn new(what: &'static str, name: &str, kind: StoreErrorKind) -> Self {
        Self {
            what,
            name: name.to_owned(),
            kind,
            source: None,
        }
    }

    /// The same error with a reason.
    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.source = Some(StoreReason::new(reason));
        self
    }

    /// The error for one of `object_store`.
    pub(crate) fn classify(what: &'static str, name: &str, error: &object_store::Error) -> Self {
        let reason = describe(error);
        let kind = kind_of(what, error, &reason);
        let error = Self::new(what, name, kind);
        match kind {
            StoreErrorKind::NotFound | StoreErrorKind::AlreadyExists => error,
            _ => error.because(&reason),
        }
    }

    /// Whether the call may have taken effect, and can be repeated.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == StoreErrorKind::Unknown
    }
}

fn kind_of(what: &str, error: &object_store::Error, reason: &str) -> StoreErrorKind {
    use object_store::Error as Cause;
    let is_create = what == "create";
    match error {
        // S3, Google and Azure, in this order.
        Cause::NotFound { .. }
            if is_create
                || what == "list"
                || ["NoSuchBucket", "bucket does not exist", "ContainerNotFound"]
                    .iter()
                    .any(|code| reason.contains(code)) =>
        {
            StoreErrorKind::Refused
        }
        Cause::NotFound { .. } => StoreErrorKind::NotFound,
        // S3 answers 409 while another request for the name is under way: that one may fail yet.
        Cause::AlreadyExists { .. }
            if is_create && reason.contains("ConditionalRequestConflict") =>
        {
            StoreErrorKind::Unknown
        }
        Cause::AlreadyExists { .. } if is_create => StoreErrorKind::AlreadyExists,
        Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => StoreErrorKind::Refused,
        Cause::JoinError { .. } => StoreErrorKind::Unknown,
        Cause::Generic { .. } => generic_kind(error, is_create, reason),
        _ => StoreErrorKind::Other,
    }
}

/// The kind of an error that `object_store` does not classify: a response with an unusual status, a
/// failure of the connection, or one of a file call.
fn generic_kind(error: &object_store::Error, is_create: bool, reason: &str) -> StoreErrorKind {
    if find::<HttpError>(error).is_some() {
        return StoreErrorKind::Unknown;
    }
    // The status of a list is not classified.
    if let Some(status) = status(reason) {
        return match status {
            "401" | "403" | "404" => StoreErrorKind::Refused,
            _ => StoreErrorKind::Other,
        };
    }
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            StoreErrorKind::Refused
        }
        // A full disk may have room later, and a file that could not be synced may have its name.
        Some(_) if is_create => StoreErrorKind::Unknown,
        _ => StoreErrorKind::Other,
    }
}

/// The number of the HTTP status with which a reason begins.
fn status(reason: &str) -> Option<&str> {
    let number = reason.get(..3)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && reason.get(3..4) == Some(" ")).then_some(number)
}

/// What is wrong, without the layers of `object_store`, each of which repeats those below.
fn describe(error: &object_store::Error) -> String {
    if let Some(failure) = find::<ServerFailure>(error) {
        return failure.to_string();
    }
    if let Some(http) = find::<HttpError>(error) {
        let mut text = String::new();
        let mut cause = http.source();
        while let Some(error) = cause {
            let part = error.to_string();
            if !text.contains(&part) {
                if !text.is_empty() {
                    text.push_str(": ");
                }
                text.push_str(&part);
            }
            cause = error.source();
        }
        return text;
    }
    let is_file = find::<io::Error>(error).is_some();
    let first = error.source().unwrap_or(error);
    let mut last = first;
    // An error of a file names the file, which its cause does not.
    while !is_file && let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    let text = text.strip_prefix("Server returned non-2xx status code: ");
    text.map_or_else(|| last.to_string(), str::to_owned)
}

/// The first error of this type among an error and its causes.
fn find<E: Error + 'static>(error: &object_store::Error) -> Option<&E> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
