//! Logs whether a relay can be reached while there is no session that would: an agent may wait for
//! hours until something is traced, and a wrong address would show only then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::backoff::{Backoff, random_u32};
use super::greeting::greet;
use super::relay_selector::RelaySelector;
use super::reported_failures::ReportedFailures;
use super::session::UplinkContext;
use crate::limits::FIRST_CONTACT_DELAY;

/// Greets the relays of the target until one of them answers, or there is a session. Each failure
/// is logged once.
pub(super) async fn report_first_contact(
    context: Arc<UplinkContext>,
    has_session: CancellationToken,
) {
    let target = &context.target;
    let mut selector = RelaySelector::new(target);
    let mut backoff = Backoff::default();
    let mut reported = ReportedFailures::default();
    let mut pause = FIRST_CONTACT_DELAY;
    while has_session
        .run_until_cancelled(sleep(pause))
        .await
        .is_some()
    {
        while let Some(selected) = selector.select_next(target).await {
            // Not cancelled: a relay warns of a connection that is lost.
            let (relay, greeted) = match selected {
                Ok(relay) => (relay.to_string(), greet(target, &relay).await),
                Err(error) => (target.to_string(), Err(error)),
            };
            if has_session.is_cancelled() {
                return;
            }
            match greeted {
                // A warning, like the failures before it: a log at the default level shows both.
                Ok(_) if context.is_missed.swap(false, Ordering::Relaxed) => {
                    return warn!(%relay, "the relay answers");
                }
                Ok(_) => return info!(%relay, "the relay answers"),
                Err(error) => {
                    if reported.add(&relay, &error) {
                        warn!(%relay, "relay not reached: {error}; trying until it succeeds");
                        context.is_missed.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        pause = backoff.next_delay(random_u32());
    }
}
