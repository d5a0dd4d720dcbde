//! Follows a session while relays archive it: what is new since the last look, also when it has
//! moved to another relay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::CatalogError;
use super::list::read_document;
use super::open::{MAX_OBJECTS, Reading, list_objects};
use super::request;
use crate::document::OwnerDocument;
use crate::name::{BootId, SessionKey, parse_commit};
use crate::session::{SessionBuilder, SessionUpdate};
use crate::store::Store;

/// Reads one session again and again.
#[derive(Debug)]
pub struct SessionFollower {
    session: SessionKey,
    builder: SessionBuilder,
    objects: Vec<Arc<str>>,
    /// The parts that were read.
    parts: BTreeSet<String>,
    /// The owners whose documents were read.
    owners: BTreeSet<u32>,
    /// The logs of the owners, each with the last commit object that was read.
    logs: BTreeMap<BootId, Option<String>>,
}

impl SessionFollower {
    /// Nothing of the session has been read.
    #[must_use]
    pub fn new(session: SessionKey) -> Self {
        Self {
            session,
            builder: SessionBuilder::new(session),
            objects: Vec::new(),
            parts: BTreeSet::new(),
            owners: BTreeSet::new(),
            logs: BTreeMap::new(),
        }
    }

    /// The names of the objects, by the numbers that updates have.
    #[must_use]
    pub fn objects(&self) -> &[Arc<str>] {
        &self.objects
    }

    /// Reads what is new. Objects that cannot be read are passed to `report_failure`: what is in no
    /// other object is missing.
    ///
    /// # Errors
    /// If the store fails, or the session has more objects than are read. The call can be repeated.
    pub async fn poll(
        &mut self,
        store: &dyn Store,
        mut report_failure: impl FnMut(CatalogError),
    ) -> Result<SessionUpdate, CatalogError> {
        let mut is_whole = self.read_parts(store, &mut report_failure).await?;
        is_whole &= self.read_logs(store, &mut report_failure).await?;
        if !is_whole {
            // Commit objects are deleted when parts have all of them. What was deleted before it
            // was read is in parts that were stored since they were listed.
            self.read_parts(store, &mut report_failure).await?;
        }
        Ok(self.builder.take_update())
    }

    /// Reads the parts and owners that are new. Returns false if the session is new to the reader.
    async fn read_parts(
        &mut self,
        store: &dyn Store,
        report_failure: &mut impl FnMut(CatalogError),
    ) -> Result<bool, CatalogError> {
        let is_first = self.owners.is_empty();
        let (mut parts, owners) = list_objects(store, self.session).await?;
        parts.retain(|part| !self.parts.contains(&part.name));
        let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
        let mut reading = self.reading(store);
        let read = reading.add_objects(parts).await;
        let failures = self.take(reading);
        read?;
        self.parts.extend(names);
        failures.into_iter().for_each(&mut *report_failure);
        for (number, owner) in owners {
            if self.owners.contains(&number) {
                continue;
            }
            let document: OwnerDocument = read_document(store, &owner.name).await?;
            match document.boot() {
                Ok(boot) => _ = self.logs.entry(boot).or_default(),
                Err(error) => report_failure(CatalogError::Document {
                    name: owner.name,
                    reason: error.to_string(),
                }),
            }
            self.owners.insert(number);
        }
        Ok(!is_first)
    }

    /// Reads the commit objects that are new. Returns whether none was missing.
    async fn read_logs(
        &mut self,
        store: &dyn Store,
        report_failure: &mut impl FnMut(CatalogError),
    ) -> Result<bool, CatalogError> {
        let mut is_whole = true;
        let boots: Vec<BootId> = self.logs.keys().copied().collect();
        for boot in boots {
            let last = self.logs.get(&boot).cloned().flatten();
            let prefix = boot.log_prefix();
            let listed = request::list_after(store, &prefix, last.as_deref(), MAX_OBJECTS);
            let mut commits = listed.await?;
            commits.retain(|commit| parse_commit(&commit.name).is_ok());
            let Some(newest) = commits.last().map(|commit| commit.name.clone()) else {
                continue;
            };
            let number = |name: &str| parse_commit(name).map_or(0, |(_, number)| number);
            let expected = last.as_deref().map_or(0, number) + 1;
            let begins_there = commits.first().map(|first| number(&first.name)) == Some(expected);
            is_whole &= last.is_some() && begins_there;
            let mut reading = self.reading(store);
            let read = reading.add_objects(commits).await;
            let mut failures = self.take(reading);
            read?;
            self.logs.insert(boot, Some(newest));
            is_whole &= !failures.iter().any(CatalogError::is_not_found);
            failures.retain(|failure| !failure.is_not_found());
            failures.into_iter().for_each(&mut *report_failure);
        }
        Ok(is_whole)
    }

    fn reading<'a>(&mut self, store: &'a dyn Store) -> Reading<'a> {
        let empty = SessionBuilder::new(self.session);
        Reading {
            store,
            builder: std::mem::replace(&mut self.builder, empty),
            objects: std::mem::take(&mut self.objects),
            failures: Vec::new(),
        }
    }

    fn take(&mut self, reading: Reading<'_>) -> Vec<CatalogError> {
        self.builder = reading.builder;
        self.objects = reading.objects;
        reading.failures
    }
}
