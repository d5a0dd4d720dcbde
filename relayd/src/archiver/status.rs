//! How the archive of a relay is doing, for metrics, readiness and the log.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use archive::store::StoreError;
use daemon::error_text::describe_error;
use parking_lot::Mutex;
use tracing::{error, info, warn};

/// State and counters of an archive. The archiver and the copies for viewers write them, scrapes
/// read them.
#[derive(Debug, Default)]
pub struct ArchiveStatus {
    objects: AtomicU64,
    bytes: AtomicU64,
    parts: AtomicU64,
    taken_over: AtomicU64,
    logs_moved: AtomicU64,
    copies: AtomicUsize,
    copied_bytes: AtomicU64,
    copy_failures: AtomicU64,
    list_failures: AtomicU64,
    requests: [AtomicU64; RequestResult::ALL.len()],
    /// Sum of the times that stored objects have taken, in microseconds.
    store_micros: AtomicU64,
    state: Mutex<ArchiveState>,
    has_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct ArchiveState {
    /// Time since which something waits to be archived. None: nothing does.
    behind_since: Option<Instant>,
    /// The failure because of which objects are tried again. None: the last request succeeded.
    failure: Option<String>,
}

/// The result of a request to the store, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestResult {
    /// The request succeeded.
    Success,
    /// The store has refused it: credentials, permissions, no such bucket.
    Refused,
    /// There was no answer, or one that says nothing: the request may have taken effect.
    Unknown,
}

impl RequestResult {
    /// All results, for metrics.
    pub const ALL: [Self; 3] = [Self::Success, Self::Refused, Self::Unknown];

    /// Label of the result in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

impl ArchiveStatus {
    fn counter(&self, result: RequestResult) -> &AtomicU64 {
        let [success, refused, unknown] = &self.requests;
        match result {
            RequestResult::Success => success,
            RequestResult::Refused => refused,
            RequestResult::Unknown => unknown,
        }
    }

    /// Counts a stored object.
    pub(super) fn count_stored(&self, bytes: u64, is_part: bool, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.parts.fetch_add(u64::from(is_part), Ordering::Relaxed);
        self.store_micros.fetch_add(micros, Ordering::Relaxed);
        self.counter(RequestResult::Success)
            .fetch_add(1, Ordering::Relaxed);
        if self.state.lock().failure.take().is_some() {
            info!("archive available again");
        }
    }

    /// Counts a session that another relay has begun.
    pub(super) fn count_taken_over(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a log of a relay that is gone, which was moved to parts.
    pub(super) fn count_moved_log(&self) {
        self.logs_moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of sessions that are copied for viewers.
    pub(crate) fn set_copies(&self, copies: usize) {
        self.copies.store(copies, Ordering::Relaxed);
    }

    /// Counts bytes of packets that were copied for viewers.
    pub(crate) fn count_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a copy that cannot be made, or not further.
    pub(crate) fn count_copy_failure(&self) {
        self.copy_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt to list the sessions of the archive that has failed.
    pub(crate) fn count_list_failure(&self) {
        self.list_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed request, which is tried again.
    pub(super) fn count_failure(&self, result: RequestResult, why: &StoreError) {
        self.counter(result).fetch_add(1, Ordering::Relaxed);
        let before = self.state.lock().failure.replace(why.to_string());
        if before.is_none() {
            let error = describe_error(why);
            warn!(%error, "archive not available: nothing is acknowledged until it is; it is tried again");
        }
    }

    /// Records that nothing is archived any more, for this reason.
    pub(super) fn set_stopped(&self, why: &str) {
        if !self.has_stopped.swap(true, Ordering::Relaxed) {
            error!("archive stopped: {why}; nothing is acknowledged any more. Restart the relay");
        }
    }

    /// Sets the time since which something waits to be archived.
    pub(super) fn set_behind_since(&self, since: Option<Instant>) {
        self.state.lock().behind_since = since;
    }

    /// Time for which the oldest data waits to be archived. Zero: nothing waits.
    #[must_use]
    pub fn behind(&self, now: Instant) -> Duration {
        let since = self.state.lock().behind_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The failure because of which objects are tried again. None: the last request succeeded.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    /// Whether nothing is archived any more: only a restart helps.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    /// Number of objects that are stored.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Number of parts among them.
    #[must_use]
    pub fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Number of sessions that were taken over from other relays.
    #[must_use]
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Number of logs of relays that are gone that were moved to parts.
    #[must_use]
    pub fn logs_moved(&self) -> u64 {
        self.logs_moved.load(Ordering::Relaxed)
    }

    /// Number of sessions that are copied for viewers.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// Bytes of packets that were copied for viewers.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// Number of copies that could not be made, or not further.
    #[must_use]
    pub fn copy_failures(&self) -> u64 {
        self.copy_failures.load(Ordering::Relaxed)
    }

    /// Number of failed attempts to list the sessions of the archive.
    #[must_use]
    pub fn list_failures(&self) -> u64 {
        self.list_failures.load(Ordering::Relaxed)
    }

    /// Bytes of the objects that are stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sum of the times that stored objects have taken.
    #[must_use]
    pub fn store_time(&self) -> Duration {
        Duration::from_micros(self.store_micros.load(Ordering::Relaxed))
    }

    /// Number of requests with this result.
    #[must_use]
    pub fn requests(&self, result: RequestResult) -> u64 {
        self.counter(result).load(Ordering::Relaxed)
    }
}
