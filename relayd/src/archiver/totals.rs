//! How much the archive has of sessions that were at several relays. Thousands may end at the same
//! time: those that wait are counted together, because the logs are read for each count.

use std::collections::{BTreeMap, BTreeSet};

use archive::catalog::{SessionTotal, count_sessions};
use archive::name::SessionKey;
use archive::store::Store;
use daemon::error_text::describe_error;
use parking_lot::Mutex;
use tracing::warn;

use crate::limits::ARCHIVE_REFUSED_INTERVAL;

/// The sessions that are to be counted, and those that have been.
#[derive(Debug, Default)]
pub(super) struct Totals {
    waiting: Mutex<BTreeSet<SessionKey>>,
    /// Locked while sessions are counted.
    counted: tokio::sync::Mutex<BTreeMap<SessionKey, SessionTotal>>,
}

impl Totals {
    /// Has a session counted with others. [`count`](Self::count) or [`forget`](Self::forget) must
    /// follow.
    pub(super) fn announce(&self, session: SessionKey) {
        self.waiting.lock().insert(session);
    }

    pub(super) async fn forget(&self, session: SessionKey) {
        self.waiting.lock().remove(&session);
        self.counted.lock().await.remove(&session);
    }

    /// Counts a session, however often it takes. None: it has more than can be counted.
    pub(super) async fn count(
        &self,
        store: &dyn Store,
        session: SessionKey,
    ) -> Option<SessionTotal> {
        let mut counted = self.counted.lock().await;
        if let Some(total) = counted.remove(&session) {
            return Some(total);
        }
        let mut sessions = std::mem::take(&mut *self.waiting.lock());
        sessions.insert(session);
        loop {
            match count_sessions(store, &sessions).await {
                Ok(totals) => {
                    counted.extend(totals);
                    return counted.remove(&session);
                }
                Err(error) if error.is_of_store() => {
                    let error = describe_error(&error);
                    warn!(%error, "sessions not counted in the archive: it is tried again");
                    tokio::time::sleep(ARCHIVE_REFUSED_INTERVAL).await;
                }
                // Too much together: each by itself.
                Err(_) if sessions.len() > 1 => {
                    sessions.remove(&session);
                    self.waiting.lock().extend(sessions);
                    sessions = [session].into();
                }
                Err(error) => {
                    let error = describe_error(&error);
                    warn!(%session, %error, "session not counted in the archive");
                    return None;
                }
            }
        }
    }
}
