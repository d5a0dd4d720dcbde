//! Creates an object although answers get lost.
//!
//! After a timeout, or a response that says nothing, the object may exist or may come to exist
//! later. So the same name is tried again, with exponential backoff and full jitter; if the object
//! exists by then, its bytes tell whether this program has created it.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{Store, StoreError, StoreErrorKind};

/// When calls of unknown outcome are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The upper bound of the first delay; each further one is twice as long.
    pub first_delay: Duration,
    /// The upper bound of every delay.
    pub max_delay: Duration,
    /// How long after the first call another one may begin.
    pub timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
        }
    }
}

/// Why [`create_once`] has not created an object.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The object exists with other bytes: another program has created it.
    #[error("cannot create {name}: another object has this name")]
    Foreign {
        /// The name of the object.
        name: String,
    },
    /// A call failed. If the kind is [`StoreErrorKind::Unknown`], the timeout is over, and the
    /// object may exist or may come to exist.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The random delays between calls, until the timeout.
struct Backoff {
    policy: RetryPolicy,
    next: Duration,
    end: Instant,
}

impl Backoff {
    fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            next: policy.first_delay.min(policy.max_delay),
            end: Instant::now() + policy.timeout,
        }
    }

    /// Waits after a failed call. Returns false at once if there is no time for another one.
    async fn wait(&mut self) -> bool {
        let delay = self.next.mul_f64(fastrand::f64());
        if Instant::now() + delay > self.end {
            return false;
        }
        self.next = (self.next * 2).min(self.policy.max_delay);
        sleep(delay).await;
        true
    }
}

/// Creates an object unless one of this name exists with other bytes. If one exists with the same
/// bytes, a call before this one has created it, and that is success. The future may be dropped; a
/// later call with the same name and bytes takes up where it was.
///
/// # Errors
/// [`CreateError::Foreign`] if the object exists with other bytes; otherwise what the store says,
/// at once if repeating would not help, or after the timeout.
pub async fn create_once(
    store: &dyn Store,
    name: &str,
    bytes: &Bytes,
    policy: RetryPolicy,
) -> Result<(), CreateError> {
    let mut backoff = Backoff::new(policy);
    loop {
        let created = match store.create(name, bytes.clone()).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                compare(store, name, bytes, &mut backoff).await?
            }
            created => created,
        };
        match created {
            Ok(()) => return Ok(()),
            Err(error) if error.is_unknown() && backoff.wait().await => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Compares the object of this name with the bytes. The inner error is unknown if the object is
/// gone: it was deleted, or its creation, which was under way, has failed.
async fn compare(
    store: &dyn Store,
    name: &str,
    bytes: &Bytes,
    backoff: &mut Backoff,
) -> Result<Result<(), StoreError>, CreateError> {
    let foreign = || CreateError::Foreign {
        name: name.to_owned(),
    };
    loop {
        match store.get(name, bytes.len() as u64).await {
            Ok(found) if found == *bytes => return Ok(Ok(())),
            Ok(_) => return Err(foreign()),
            Err(error) if error.kind == StoreErrorKind::TooLarge => return Err(foreign()),
            Err(mut error) if error.kind == StoreErrorKind::NotFound => {
                error.kind = StoreErrorKind::Unknown;
                return Ok(Err(error.because("the object exists, and cannot be read")));
            }
            Err(error) if error.is_unknown() && backoff.wait().await => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fault::{Fault, FaultyStore};
    use super::super::in_memory;
    use super::*;

    const NAME: &str = "log/0123/0000000000";

    fn policy() -> RetryPolicy {
        RetryPolicy::default()
    }

    fn ours() -> Bytes {
        Bytes::from_static(b"ours")
    }

    /// The requests after each of which something goes wrong: more than any case below makes.
    const REQUESTS: u64 = 6;

    #[tokio::test(start_paused = true)]
    async fn an_object_is_created_whichever_requests_fail() {
        for fault in [Fault::Lost, Fault::AnswerLost] {
            for mask in 0..1_u64 << REQUESTS {
                let store = FaultyStore::new(in_memory());
                let failed = (0..REQUESTS).filter(|bit| mask >> bit & 1 == 1);
                failed.for_each(|request| store.fail(request, fault));
                let created = create_once(&store, NAME, &ours(), policy()).await;
                assert!(created.is_ok(), "{fault:?} {mask:b}: {created:?}");
                store.repair();
                let found = store.get(NAME, 100).await.unwrap();
                assert_eq!(found, ours(), "{fault:?} {mask:b}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_of_another_is_never_taken_for_ours() {
        for theirs in ["", "their", "others", "longer than ours"] {
            for fault in [Fault::Lost, Fault::AnswerLost] {
                for mask in 0..1_u64 << REQUESTS {
                    let inner = in_memory();
                    inner.create(NAME, theirs.into()).await.unwrap();
                    let store = FaultyStore::new(inner);
                    let failed = (0..REQUESTS).filter(|bit| mask >> bit & 1 == 1);
                    failed.for_each(|request| store.fail(request, fault));
                    let created = create_once(&store, NAME, &ours(), policy()).await;
                    let is_foreign = matches!(created, Err(CreateError::Foreign { .. }));
                    assert!(is_foreign, "{theirs} {fault:?} {mask:b}: {created:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_asked_until_the_timeout_and_no_longer() {
        let store = FaultyStore::new(in_memory());
        store.set_down(true);
        let began = Instant::now();
        let error = create_once(&store, NAME, &ours(), policy()).await;
        let Err(CreateError::Store(error)) = error else {
            panic!("{error:?}");
        };
        assert!(error.is_unknown(), "{error}");
        let took = began.elapsed();
        let RetryPolicy {
            timeout, max_delay, ..
        } = policy();
        assert!(timeout - max_delay <= took && took <= timeout, "{took:?}");
        // Half of `max_delay` on average, and each longer than nothing on average.
        assert!(
            (12..100).contains(&store.requests()),
            "{}",
            store.requests()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_created_when_the_store_is_back() {
        let store = Arc::new(FaultyStore::new(in_memory()));
        store.set_down(true);
        let creator = Arc::clone(&store);
        let created =
            tokio::spawn(async move { create_once(&*creator, NAME, &ours(), policy()).await });
        sleep(policy().timeout / 2).await;
        store.set_down(false);
        created.await.unwrap().unwrap();
        assert_eq!(store.get(NAME, 100).await.unwrap(), ours());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_reported_at_once() {
        let store = FaultyStore::new(in_memory());
        store.fail(0, Fault::Refused);
        let error = create_once(&store, NAME, &ours(), policy()).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "cannot create log/0123/0000000000: the store refuses it"
        );
        assert_eq!(store.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_can_be_taken_up_again() {
        let store = FaultyStore::new(in_memory());
        store.set_delay(Duration::from_secs(1));
        for dropped_after in [0, 500, 1000, 1500] {
            let name = format!("log/0123/{dropped_after:010}");
            let limit = Duration::from_millis(dropped_after);
            let bytes = ours();
            let first = create_once(&store, &name, &bytes, policy());
            let _ = tokio::time::timeout(limit, first).await;
            create_once(&store, &name, &ours(), policy()).await.unwrap();
        }
    }
}
