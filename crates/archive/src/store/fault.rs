//! A store whose calls fail on demand, for tests.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::{BoxFuture, Listed, Store, StoreError, StoreErrorKind};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request does not arrive: nothing is done, and the outcome is unknown.
    Lost,
    /// The request has taken effect, and the outcome is unknown.
    AnswerLost,
    /// The outcome is unknown, and the request takes effect so much later.
    Late(Duration),
    /// The credentials do not allow it.
    Refused,
}

/// Decides which requests fail while they are made.
pub trait FaultSource: Debug + Send + Sync {
    /// Waits for as long as a request is on its way. Returns how it fails.
    fn next_fault(&self) -> BoxFuture<'_, Option<Fault>>;
}

/// What fails from now on.
#[derive(Debug, Default)]
struct Plan {
    requests: u64,
    faults: BTreeMap<u64, Fault>,
    is_down: bool,
    delay: Duration,
}

/// A store that passes calls on to another one, except those that are to fail.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    source: Option<Arc<dyn FaultSource>>,
}

impl FaultyStore {
    /// A store without faults yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            plan: Mutex::default(),
            source: None,
        }
    }

    /// A store whose requests also fail as this source decides.
    #[must_use]
    pub fn with_source(inner: Arc<dyn Store>, source: Arc<dyn FaultSource>) -> Self {
        Self {
            source: Some(source),
            ..Self::new(inner)
        }
    }

    /// Makes a request fail. Requests of all kinds are counted together, from 0.
    pub fn fail(&self, request: u64, fault: Fault) {
        self.with_plan(|plan| plan.faults.insert(request, fault));
    }

    /// While the store is down, no request arrives.
    pub fn set_down(&self, is_down: bool) {
        self.with_plan(|plan| plan.is_down = is_down);
    }

    /// How long each request takes before it arrives.
    pub fn set_delay(&self, delay: Duration) {
        self.with_plan(|plan| plan.delay = delay);
    }

    /// Forgets all faults, also those that have not happened yet.
    pub fn repair(&self) {
        self.with_plan(|plan| {
            plan.faults.clear();
            plan.is_down = false;
            plan.delay = Duration::ZERO;
        });
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.with_plan(|plan| plan.requests)
    }

    fn with_plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a call of the other store, unless it is to fail.
    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        name: &str,
        call: impl FnOnce(Arc<dyn Store>, String) -> BoxFuture<'static, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (mut fault, delay) = self.with_plan(|plan| {
            let planned = plan.faults.remove(&plan.requests);
            plan.requests += 1;
            let is_lost = plan.is_down.then_some(Fault::Lost);
            (is_lost.or(planned), plan.delay)
        });
        let call = call(Arc::clone(&self.inner), name.to_owned());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(source) = &self.source {
            fault = fault.or(source.next_fault().await);
        }
        let kind = match fault {
            None => return call.await,
            Some(Fault::Lost) => StoreErrorKind::Unknown,
            Some(Fault::AnswerLost) => {
                let _ = call.await;
                StoreErrorKind::Unknown
            }
            Some(Fault::Late(after)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = call.await;
                });
                StoreErrorKind::Unknown
            }
            Some(Fault::Refused) => StoreErrorKind::Refused,
        };
        Err(StoreError::new(what, name, kind))
    }
}

impl Store for FaultyStore {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call("create", name, |store, name| {
            Box::pin(async move { store.create(&name, bytes).await })
        }))
    }

    fn get<'a>(&'a self, name: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, StoreError>> {
        Box::pin(self.call("read", name, move |store, name| {
            Box::pin(async move { store.get(&name, limit).await })
        }))
    }

    fn get_range<'a>(
        &'a self,
        name: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, StoreError>> {
        Box::pin(self.call("read", name, |store, name| {
            Box::pin(async move { store.get_range(&name, range).await })
        }))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        let after = after.map(str::to_owned);
        Box::pin(self.call("list", prefix, move |store, prefix| {
            Box::pin(async move { store.list(&prefix, after.as_deref(), limit).await })
        }))
    }

    fn list_prefixes<'a>(
        &'a self,
        prefix: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(self.call("list", prefix, move |store, prefix| {
            Box::pin(async move { store.list_prefixes(&prefix, limit).await })
        }))
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call("delete", name, |store, name| {
            Box::pin(async move { store.delete(&name).await })
        }))
    }
}
