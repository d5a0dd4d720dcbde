//! Traces on object storage: what a relay writes to a bucket or directory, and how it is read
//! again. `doc/archive.md` describes the objects byte for byte.
//!
//! Read in this order: [`name`] (names of objects), [`record`] (the records of a directory),
//! [`object`] (commit objects and parts: blocks, directory, footer), [`session`] (one session, from
//! the directories of many objects), [`commit`] (the log of one relay), which make no call. Then
//! [`document`] (the objects that are JSON), [`store`] (the calls to a bucket or directory),
//! [`catalog`], which reads an archive by them, and [`orphans`], which moves the logs of relays
//! that are gone to parts.

pub mod catalog;
pub mod commit;
pub mod document;
pub mod name;
pub mod object;
pub mod orphans;
pub mod record;
pub mod session;
pub mod store;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
