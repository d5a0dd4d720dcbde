//! Moves the logs of relays that are gone to parts, beside what the relay archives itself.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use archive::name::BootId;
use archive::orphans::{find_orphans, move_orphan};
use archive::store::Store;
use daemon::error_text::describe_error;
use tracing::{info, warn};

use super::ArchiveTimes;
use super::status::ArchiveStatus;
use crate::limits::{ARCHIVE_ORPHAN_AGES, MIN_ARCHIVE_ORPHAN_INTERVAL};

/// Looks for such logs now and then, until it is dropped.
pub(super) async fn move_orphans(
    store: Arc<dyn Store>,
    status: Arc<ArchiveStatus>,
    boot: BootId,
    times: ArchiveTimes,
) {
    let interval = times.part_age.max(MIN_ARCHIVE_ORPHAN_INTERVAL);
    loop {
        // Random, so that relays that were started together do not move the same log.
        tokio::time::sleep(interval.mul_f64(0.5 + fastrand::f64())).await;
        let age = times.part_age.saturating_mul(ARCHIVE_ORPHAN_AGES);
        move_older(&*store, &status, boot, age).await;
    }
}

/// Moves the logs that have not grown for this time. What fails is tried again in the next round.
async fn move_older(store: &dyn Store, status: &ArchiveStatus, boot: BootId, age: Duration) {
    let Some(since) = SystemTime::now().checked_sub(age) else {
        return;
    };
    let orphans = match find_orphans(store, boot, since).await {
        Ok(orphans) => orphans,
        Err(error) => {
            let error = describe_error(&error);
            return warn!(%error, "logs in the archive cannot be listed");
        }
    };
    for orphan in orphans {
        match move_orphan(store, orphan).await {
            Ok(moved) => {
                status.count_moved_log();
                let (parts, commits) = (moved.parts, moved.commits);
                info!(boot = %orphan, parts, commits, "log of a relay that is gone moved to parts");
            }
            Err(error) => {
                let error = describe_error(&error);
                warn!(boot = %orphan, %error, "log of a relay that is gone not moved to parts");
            }
        }
    }
}
