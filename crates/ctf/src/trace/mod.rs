//! Reads all traces of a directory as one sequence of events: [`Trace`], [`Events`].

mod error;
mod events;
mod stream;

use std::path::Path;
use std::sync::Arc;

pub use self::error::Error;
pub use self::events::Events;
pub use self::stream::LossCount;
use crate::directory::{self, DirectoryError, TraceDirectory};
use crate::metadata::Warning;

/// A trace on disk: a directory with a file `metadata`, or all traces at or below a directory, read
/// as one.
///
/// ```no_run
/// for event in ctf::Trace::open("/srv/traces/my-session")?.events() {
///     let event = event?;
///     println!("{:?} {event}", event.time);
/// }
/// # Ok::<(), ctf::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Trace {
    directories: Arc<[TraceDirectory]>,
    unreadable: Arc<[Arc<DirectoryError>]>,
    warnings: Arc<[Warning]>,
}

impl Trace {
    /// Opens all traces at or below `path`. What is written to them later is not seen.
    ///
    /// # Errors
    /// If there is none whose metadata can be read. What is wrong with one of several traces, or
    /// with a data file, is an error among the [`events`](Self::events).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let opened = directory::open(&[path]).map_err(Arc::new)?;
        let (mut directories, unreadable) = (opened.traces, opened.unreadable);
        let unreadable: Vec<_> = unreadable.into_iter().map(Arc::new).collect();
        // Without any trace there is no sequence of events in which the error could come.
        if let (true, Some(first)) = (directories.is_empty(), unreadable.first()) {
            return Err(Arc::clone(first).into());
        }
        let mut warnings = Vec::new();
        for trace in &mut directories {
            let found = trace.metadata.take_warnings();
            let name = &trace.name;
            warnings.extend(found.into_iter().map(|warning| warning.in_trace(name)));
        }
        if !are_clocks_comparable(&directories) {
            warnings.push(Warning::of_traces(
                "clocks of the streams cannot be compared; the order of events between streams is arbitrary",
            ));
        }
        Ok(Self {
            directories: directories.into(),
            unreadable: unreadable.into(),
            warnings: warnings.into(),
        })
    }

    /// The traces with their metadata and streams. Directories that are pieces of one trace are
    /// joined.
    #[must_use]
    pub fn directories(&self) -> &[TraceDirectory] {
        &self.directories
    }

    /// Warnings of what is unusual about the metadata, and one if the clocks of the streams cannot
    /// be compared.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The events of all streams in order of time, from the first. Events at the same time have the
    /// order in which `babeltrace2` prints them. Before them are the errors of traces that cannot
    /// be read.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(Arc::clone(&self.directories), &self.unreadable)
    }
}

fn are_clocks_comparable(traces: &[TraceDirectory]) -> bool {
    let mut origins = traces.iter().flat_map(|trace| {
        let declared = trace.metadata.trace();
        let classes = trace
            .streams
            .iter()
            .filter_map(|s| declared.stream(s.class));
        classes.filter_map(|class| declared.clock_origin(class))
    });
    let first = origins.next();
    origins.all(|origin| Some(origin) == first)
}
