//! Opens traces: reads their metadata, and joins directories that are pieces of one trace.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::DirectoryError;
use super::find::find;
use super::streams::{StreamFiles, streams_in};
use crate::metadata::Metadata;
use crate::model::EnvironmentValue;

/// A trace on disk, in one or more directories.
#[derive(Debug)]
pub struct TraceDirectory {
    /// The name for users: the host, if the metadata names one, and the path below the directory
    /// where the search began.
    pub name: String,
    /// The directories of the trace: several if their metadata has the same
    /// [identity](crate::metadata::Trace::identity).
    pub paths: Vec<PathBuf>,
    /// The parsed metadata; of several directories that with the most stream classes and event
    /// classes, or the first of them. Its clock counts for all of them: a clock that is set between
    /// two pieces does not change their distance.
    pub metadata: Metadata,
    /// The bytes of the metadata file.
    pub metadata_bytes: Vec<u8>,
    /// The data streams, by id of the class and number in the class.
    pub streams: Vec<StreamFiles>,
}

/// The traces that have been opened, and the errors of the others.
#[derive(Debug, Default)]
pub struct OpenedTraces {
    /// The traces, those with the same identity joined.
    pub traces: Vec<TraceDirectory>,
    /// Errors of what cannot be read: directories that cannot be searched, and traces whose
    /// metadata is malformed or cut.
    pub unreadable: Vec<DirectoryError>,
}

/// Opens all traces at or below `roots`. One that cannot be opened does not keep the others from
/// being read.
///
/// # Errors
/// If there is none below one of them. What is wrong with a data file is found when its packets are
/// read.
pub fn open<P: AsRef<Path>>(roots: &[P]) -> Result<OpenedTraces, DirectoryError> {
    let mut opened = OpenedTraces::default();
    for root in roots {
        let root = root.as_ref();
        let failed = |source| DirectoryError::Read {
            path: root.to_owned(),
            source,
        };
        let root = fs::canonicalize(root).map_err(failed)?;
        let found = find(&root).map_err(failed)?;
        // A directory that cannot be read may hold a trace: its error says more.
        if found.traces.is_empty() && found.unreadable.is_empty() {
            return Err(DirectoryError::NoTrace { path: root });
        }
        opened.unreadable.extend(found.unreadable);
        for path in found.traces {
            match read_metadata(&root, path) {
                Ok(trace) => opened.add(trace),
                Err(error) => opened.unreadable.push(error),
            }
        }
    }
    for trace in &mut opened.traces {
        let declared = trace.metadata.trace();
        trace.streams = streams_in(declared, &trace.paths, &mut opened.unreadable);
    }
    Ok(opened)
}

impl OpenedTraces {
    fn add(&mut self, trace: TraceDirectory) {
        let identity = trace.metadata.trace().identity();
        let known = self
            .traces
            .iter_mut()
            .find(|known| identity.is_some() && known.metadata.trace().identity() == identity);
        match known {
            Some(known) => known.join(trace),
            None => self.traces.push(trace),
        }
    }
}

impl TraceDirectory {
    /// Adds another piece of the same trace. Metadata only grows, so that the larger one describes
    /// the packets of both.
    fn join(&mut self, other: Self) {
        let size = |trace: &Self| {
            let streams = trace.metadata.trace().streams();
            let events: usize = streams.map(|stream| stream.events().len()).sum();
            (trace.metadata.trace().streams().count(), events)
        };
        self.paths.extend(other.paths.iter().cloned());
        if size(&other) > size(self) {
            self.metadata = other.metadata;
            self.metadata_bytes = other.metadata_bytes;
        }
    }
}

fn read_metadata(root: &Path, path: PathBuf) -> Result<TraceDirectory, DirectoryError> {
    let file = path.join("metadata");
    let metadata_bytes = fs::read(&file).map_err(|source| DirectoryError::Read {
        path: file.clone(),
        source,
    })?;
    let metadata = Metadata::read(&metadata_bytes)
        .map_err(|source| DirectoryError::Metadata { path: file, source })?;
    let below = path.strip_prefix(root).unwrap_or(&path);
    let mut name = match metadata.trace().environment_value("hostname") {
        Some(EnvironmentValue::Text(host)) => host.to_string(),
        _ => String::new(),
    };
    if !below.as_os_str().is_empty() {
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&below.to_string_lossy());
    }
    Ok(TraceDirectory {
        name,
        paths: vec![path],
        metadata,
        metadata_bytes,
        streams: Vec::new(),
    })
}
