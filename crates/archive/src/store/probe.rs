//! Finds out whether a store keeps what the archive relies on: create-only puts with one winner,
//! reads and lists that show at once what was created.
//!
//! That a second create fails proves nothing: some stores check first and write then, and only
//! creates at the same time show it. A store that is wrong very rarely passes all the same.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::format::{FormatError, create_format};
use super::{RetryPolicy, Store, StoreError, StoreErrorKind, StoreReason};

/// Races, and creates in each of them. Stores that check first and write then let two creates
/// succeed in most races of 16.
const ROUNDS: usize = 8;
const RACERS: usize = 16;

/// Calls of each kind that are made one after another, to measure them.
const CALLS: usize = 8;

/// Bytes of the objects that are measured.
const OBJECT_SIZE: usize = 64 << 10;

/// Longest list of what the probe has created.
const MAX_LIST: usize = 1000;

/// How old the time of a file system may be, in seconds: a tick of the kernel.
const TICK: f64 = 0.01;

/// The prefix of all probes, and the most of them that may be left.
const PROBES: &str = "probe/";
const MAX_PROBES: usize = 100_000;

/// More bytes than an object has of those that are small.
const MAX_BODY: u64 = 1024;

/// The kind of the calls that race.
const RACING_CREATE: &str = "create, 16 at once";

/// Why a store is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The condition of create-only puts has no effect.
    #[error(
        "the store ignores create-only puts: {winners} of {RACERS} racing creates of one object \
         succeeded"
    )]
    Ignored {
        /// The creates that succeeded.
        winners: usize,
    },
    /// The condition is checked, but not together with the put.
    #[error(
        "create-only puts of the store are not atomic: {winners} of {RACERS} racing creates of one \
         object succeeded"
    )]
    NotAtomic {
        /// The creates that succeeded.
        winners: usize,
    },
    /// A call shows something else than what was created.
    #[error("the store is not consistent: {name}: {what}")]
    Inconsistent {
        /// The object or the list.
        name: String,
        /// What the call shows.
        what: &'static str,
    },
    /// A call failed that should not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The prefix belongs to something else.
    #[error(transparent)]
    Format(FormatError),
}

impl From<FormatError> for ProbeError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Store(error) => Self::Store(error),
            error => Self::Format(error),
        }
    }
}

/// How long the calls of one kind took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimes {
    /// The kind of call.
    pub call: &'static str,
    /// Number of calls that were timed.
    pub count: usize,
    /// The median of their durations.
    pub p50: Duration,
    /// The longest of their durations.
    pub max: Duration,
}

/// What the probe has found out about a store that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeReport {
    /// How long the calls took, one item for each kind.
    pub times: Vec<CallTimes>,
    /// By how many seconds the clock of the store is ahead of this host's: at least and at most.
    /// Absent if the store gave no time of what it created.
    pub clock_ahead: Option<(f64, f64)>,
    /// Why the store still has objects of the probe. They can stay.
    pub undeleted: Option<StoreReason>,
}

/// Probes a store, with objects below `probe/` that are deleted afterwards if that is allowed.
/// Makes an archive of the prefix if it is none.
///
/// # Errors
/// Why the store is refused, or what failed. Nothing is tried twice, except what marks the prefix.
pub async fn probe(store: &dyn Store) -> Result<ProbeReport, ProbeError> {
    let mut run = Run {
        store,
        // Probes of several relays at once do not meet.
        prefix: format!("probe/{:016x}/", fastrand::u64(..)),
        times: BTreeMap::new(),
        created: Vec::new(),
        clock_ahead: (f64::NEG_INFINITY, f64::INFINITY),
    };
    let examined = run.examine().await;
    // Also after a failure.
    let undeleted = run.delete_all().await;
    examined?;
    create_format(store, RetryPolicy::default()).await?;
    let (least, most) = run.clock_ahead;
    Ok(ProbeReport {
        times: run.times(),
        clock_ahead: (least.is_finite() && most.is_finite()).then_some((least, most)),
        undeleted: undeleted.map(|error| StoreReason::new(&error.to_string())),
    })
}

/// The state of a probe that runs.
struct Run<'a> {
    store: &'a dyn Store,
    /// The prefix of all objects of this probe, with a slash at its end.
    prefix: String,
    times: BTreeMap<&'static str, Vec<Duration>>,
    /// The names of the objects that exist.
    created: Vec<String>,
    clock_ahead: (f64, f64),
}

impl Run<'_> {
    async fn examine(&mut self) -> Result<(), ProbeError> {
        for round in 0..ROUNDS {
            self.race(round).await?;
        }
        for call in 0..CALLS {
            self.examine_object(call).await?;
        }
        self.examine_lists().await
    }

    /// Lets creates of one object race.
    async fn race(&mut self, round: usize) -> Result<(), ProbeError> {
        let name = format!("{}race-{round}", self.prefix);
        let bodies: Vec<_> = (0..RACERS).map(|racer| format!("racer {racer}")).collect();
        self.created.push(name.clone());
        let store = self.store;
        let racers = bodies.iter().map(|body| {
            let create = store.create(&name, Bytes::from(body.clone()));
            async {
                let began = Instant::now();
                (create.await, began.elapsed())
            }
        });
        let mut winners = Vec::new();
        let mut unknown = Vec::new();
        for ((created, took), body) in join_all(racers).await.into_iter().zip(&bodies) {
            self.times.entry(RACING_CREATE).or_default().push(took);
            match created {
                Ok(()) => winners.push(body),
                Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
                Err(error) if error.is_unknown() => unknown.push((body, error)),
                Err(error) => return Err(error.into()),
            }
        }
        // Whatever is there now: some stores lose the object in such a race.
        match winners.len() {
            0 | 1 => {}
            count if count + unknown.len() == RACERS => {
                return Err(ProbeError::Ignored { winners: count });
            }
            count => return Err(ProbeError::NotAtomic { winners: count }),
        }
        let found = self.store.get(&name, MAX_BODY).await;
        let found = match (found, unknown.pop()) {
            // The store was away: that says more than that it has no object.
            (Err(error), Some((_, first))) if error.kind == StoreErrorKind::NotFound => {
                return Err(first.into());
            }
            (found, last) => {
                unknown.extend(last);
                found?
            }
        };
        // One whose answer was lost has won if its bytes are there.
        let lost = unknown.iter().map(|(body, _)| *body);
        winners.extend(lost.filter(|body| found == body.as_bytes()));
        match winners.as_slice() {
            [winner] if found == winner.as_bytes() => Ok(()),
            [_] => Err(inconsistent(
                name,
                "has other bytes than the create that succeeded",
            )),
            [] => Err(inconsistent(
                name,
                "is there, and no create of it succeeded",
            )),
            all if all.len() == RACERS => Err(ProbeError::Ignored { winners: all.len() }),
            all => Err(ProbeError::NotAtomic { winners: all.len() }),
        }
    }

    /// Creates an object, and reads it in every way.
    async fn examine_object(&mut self, call: usize) -> Result<(), ProbeError> {
        let name = format!("{}object-{call}", self.prefix);
        let store = self.store;
        match store.get(&name, MAX_BODY).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(inconsistent(name, "is there before it is created")),
        }
        let mut bytes = vec![0; OBJECT_SIZE];
        fastrand::Rng::new().fill(&mut bytes);
        let bytes = Bytes::from(bytes);
        self.created.push(name.clone());
        let before = SystemTime::now();
        self.timed("create", store.create(&name, bytes.clone()))
            .await?;
        let after = SystemTime::now();
        let whole = self
            .timed("read", store.get(&name, OBJECT_SIZE as u64))
            .await?;
        if whole != bytes {
            return Err(inconsistent(
                name,
                "does not have the bytes that were created",
            ));
        }
        let range = 1..OBJECT_SIZE as u64 / 2;
        let half = bytes.slice(1..OBJECT_SIZE / 2);
        let read = self
            .timed("read a range", store.get_range(&name, range))
            .await?;
        if read != half {
            return Err(inconsistent(name, "does not have the bytes of the range"));
        }
        match store.create(&name, Bytes::from_static(b"again")).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
            Ok(()) => return Err(ProbeError::Ignored { winners: 2 }),
        }
        let prefix = self.prefix.clone();
        let listed = self
            .timed("list", store.list(&prefix, None, MAX_LIST))
            .await?;
        let Some(listed) = listed.into_iter().find(|listed| listed.name == name) else {
            return Err(inconsistent(name, "is not listed after its creation"));
        };
        if listed.bytes != OBJECT_SIZE as u64 {
            return Err(inconsistent(name, "is listed with another size"));
        }
        self.add_time(listed.modified, before, after);
        Ok(())
    }

    /// Narrows down how the clock of the store goes, by an object created between two times of
    /// this host.
    fn add_time(&mut self, modified: SystemTime, before: SystemTime, after: SystemTime) {
        let is_rounded = seconds(modified).fract() == 0.0;
        let rounding = if is_rounded { 1.0 } else { TICK };
        let (least, most) = &mut self.clock_ahead;
        *least = least.max(seconds(modified) - seconds(after));
        *most = most.min(seconds(modified) + rounding - seconds(before));
    }

    /// Lists what was created, all of it and a part.
    async fn examine_lists(&mut self) -> Result<(), ProbeError> {
        self.created.sort_unstable();
        let listed = self.store.list(&self.prefix, None, MAX_LIST).await?;
        let names: Vec<_> = listed.into_iter().map(|listed| listed.name).collect();
        if names != self.created {
            let prefix = self.prefix.clone();
            return Err(inconsistent(
                prefix,
                "lists other objects than those created",
            ));
        }
        let (before, rest) = names.split_at(names.len() / 2);
        let after = before.last().map(String::as_str);
        let listed = self.store.list(&self.prefix, after, MAX_LIST).await?;
        if !listed.iter().map(|listed| &listed.name).eq(rest) {
            let prefix = self.prefix.clone();
            return Err(inconsistent(
                prefix,
                "lists other objects after a name than those",
            ));
        }
        let prefixes = self.store.list_prefixes(PROBES, MAX_PROBES).await?;
        if !prefixes
            .iter()
            .any(|prefix| self.prefix == format!("{prefix}/"))
        {
            let prefix = self.prefix.clone();
            return Err(inconsistent(prefix, "is not listed as a directory"));
        }
        Ok(())
    }

    /// Deletes what the probe has created. Returns the first error, after which it stops.
    async fn delete_all(&mut self) -> Option<StoreError> {
        for name in std::mem::take(&mut self.created) {
            match self.timed("delete", self.store.delete(&name)).await {
                Err(error) if error.kind != StoreErrorKind::NotFound => return Some(error),
                _ => {}
            }
        }
        None
    }

    /// Makes a call, and adds the time that it takes.
    async fn timed<T>(&mut self, call: &'static str, made: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let result = made.await;
        self.times.entry(call).or_default().push(began.elapsed());
        result
    }

    fn times(&self) -> Vec<CallTimes> {
        let times = self.times.iter().map(|(call, times)| {
            let mut times = times.clone();
            times.sort_unstable();
            CallTimes {
                call,
                count: times.len(),
                p50: times.get(times.len() / 2).copied().unwrap_or_default(),
                max: times.last().copied().unwrap_or_default(),
            }
        });
        times.collect()
    }
}

fn inconsistent(name: String, what: &'static str) -> ProbeError {
    ProbeError::Inconsistent { name, what }
}

/// Seconds since 1970. As a float, it is exact to a microsecond.
fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fault::{Fault, FaultyStore};
    use super::super::{check_format, in_memory, open};
    use super::*;

    /// The calls of a probe that finds nothing wrong: races, then objects, lists, deletion, format.
    const REQUESTS: u64 = (ROUNDS * (RACERS + 1) + CALLS * 6 + 3 + ROUNDS + CALLS + 1) as u64;

    async fn passes(store: &dyn Store) {
        for _ in 0..2 {
            let report = probe(store).await.unwrap();
            assert_eq!(report.undeleted, None);
            let calls: Vec<_> = report.times.iter().map(|times| times.call).collect();
            let all = [
                RACING_CREATE,
                "create",
                "delete",
                "list",
                "read",
                "read a range",
            ];
            for call in all {
                assert!(calls.contains(&call), "{calls:?}");
            }
            let (least, most) = report.clock_ahead.unwrap();
            assert!(least <= 0.0 && 0.0 <= most, "{least} {most}");
        }
        check_format(store).await.unwrap();
        assert_eq!(store.list(PROBES, None, 10).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_store_in_memory_passes() {
        passes(&*in_memory()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_store_in_a_directory_passes() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}/new/archive", directory.path().display());
        passes(&*open(&url, None).unwrap()).await;
    }

    #[tokio::test]
    async fn a_probe_that_fails_anywhere_says_so_and_deletes_what_it_can() {
        for request in 0..REQUESTS {
            for fault in [Fault::Lost, Fault::AnswerLost, Fault::Refused] {
                let inner = in_memory();
                let store = FaultyStore::new(Arc::clone(&inner));
                store.fail(request, fault);
                let probed = probe(&store).await;
                let left = inner.list(PROBES, None, MAX_LIST).await.unwrap();
                match probed {
                    // One of the racers, or a deletion.
                    Ok(report) => assert!(
                        report.undeleted.is_some() || left.is_empty(),
                        "{request} {fault:?}: {report:?} {left:?}"
                    ),
                    Err(error) => {
                        let is_of_call = error.to_string().starts_with("cannot ");
                        assert!(is_of_call, "{request} {fault:?}: {error}");
                        assert_eq!(left, [], "{request} {fault:?}: {error}");
                    }
                }
            }
        }
        let store = FaultyStore::new(in_memory());
        probe(&store).await.unwrap();
        assert_eq!(store.requests(), REQUESTS);
    }
}
