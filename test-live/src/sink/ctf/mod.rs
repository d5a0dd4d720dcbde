//! Records what is watched: a directory that every CTF reader takes, with the packets as they came.
//!
//! One directory for each trace, with a file `metadata` and a file for each stream; several if its
//! packets are of several stream classes, because most readers refuse that within a file. No name
//! from outside leads out of the target directory, and no file that was there is written to.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ctf::decode::Event;
use thiserror::Error;
use timeline::{Content, DownloadFormat};
use viewer::attach::{StreamKey, TraceInfo, TraceKey};
use viewer::sink::{
    Ended, Finished, Loss, Needs, Next, OpenSink, Origin, PacketSink, Sink, SinkError,
};
use viewer::trace_tree::{self, Tree};

use super::row::{Open, SinkRow};

/// Largest number of files that are open at a time: well below what a process may have.
const MAX_OPEN_FILES: usize = 200;

/// A copy of packets and metadata.
pub const ROW: SinkRow = SinkRow {
    name: "ctf",
    help: "A copy of the trace for any CTF reader",
    needs: Needs {
        // Packets are copied as they are: their events need not be decoded.
        events: false,
        whole: Some("copies whole packets"),
        ..Needs::EVENTS
    },
    open: Open::Directory(|path, _| Ok(OpenSink::Packets(Box::new(Recorder::new(path)?)))),
    download: Some(DownloadFormat {
        name: "ctf",
        file: "traces.tar",
        media_type: "application/x-tar",
        content: Content::Packets,
    }),
};

/// Why a recording cannot begin.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The target has something in it.
    #[error("cannot record to {}: the directory is not empty", path.display())]
    NotEmpty {
        /// The directory of the copy.
        path: PathBuf,
    },
    /// The target cannot be made or looked into.
    #[error("cannot record to {}", path.display())]
    Directory {
        /// The directory of the copy.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Copies metadata and packets into files, untouched.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    traces: HashMap<TraceKey, Recording>,
    /// The file of each stream class of a stream.
    streams: HashMap<StreamKey, HashMap<u64, Growing>>,
    open: usize,
}

/// The copy of one trace.
#[derive(Debug)]
struct Recording {
    directory: PathBuf,
    metadata: Growing,
}

/// A file that grows, and that may be closed meanwhile.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    file: Option<File>,
}

impl Recorder {
    /// A recorder into the directory `root`, which is made unless it is there and empty.
    ///
    /// # Errors
    /// If the directory is not empty, or if it cannot be made.
    pub fn new(root: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError::Directory {
            path: root.to_owned(),
            source,
        };
        fs::create_dir_all(root).map_err(failed)?;
        // What is there must not be mixed with the copy.
        if fs::read_dir(root).map_err(failed)?.next().is_some() {
            let path = root.to_owned();
            return Err(RecordError::NotEmpty { path });
        }
        Ok(Self {
            root: root.to_owned(),
            traces: HashMap::new(),
            streams: HashMap::new(),
            open: 0,
        })
    }

    fn recording(&mut self, trace: &TraceInfo) -> io::Result<&mut Recording> {
        if !self.traces.contains_key(&trace.key) {
            let directory = trace_tree::create_trace(&mut Disk, &self.root, &trace.name)?;
            let path = directory.join("metadata");
            let file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(&path)?;
            self.open += 1;
            let metadata = Growing {
                path,
                file: Some(file),
            };
            let recording = Recording {
                directory,
                metadata,
            };
            self.traces.insert(trace.key, recording);
        }
        let known = self.traces.get_mut(&trace.key);
        // It was added above: only a defect leads here.
        known.ok_or_else(|| io::Error::other("a trace vanished"))
    }

    fn stream(&mut self, origin: Origin<'_>) -> io::Result<&mut Growing> {
        let (key, class) = (origin.stream.key, origin.stream.class);
        let files = self.streams.get(&key);
        if !files.is_some_and(|files| files.contains_key(&class)) {
            let directory = &self.recording(origin.trace)?.directory;
            let (path, file) =
                trace_tree::create_stream(&mut Disk, directory, &origin.stream.name)?;
            self.open += 1;
            let file = Some(file);
            let files = self.streams.entry(key).or_default();
            files.insert(class, Growing { path, file });
        }
        let files = self.streams.get_mut(&key);
        let known = files.and_then(|files| files.get_mut(&class));
        // It was added above: only a defect leads here.
        known.ok_or_else(|| io::Error::other("a stream vanished"))
    }

    /// Closes all files if there are too many; each is opened again when it is needed.
    fn close_some(&mut self) {
        // All at once: this needs no order of use, and happens once in many packets.
        if self.open >= MAX_OPEN_FILES {
            let metadata = self.traces.values_mut().map(|trace| &mut trace.metadata);
            let streams = self.streams.values_mut().flat_map(HashMap::values_mut);
            for copy in metadata.chain(streams) {
                copy.file = None;
            }
            self.open = 0;
        }
    }
}

impl Growing {
    /// Appends bytes. Returns whether the file had to be opened.
    fn append(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let opened = self.file.is_none();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().append(true).open(&self.path)?),
        };
        file.write_all(bytes)?;
        Ok(opened)
    }
}

/// Directories and files of the file system.
struct Disk;

impl Tree for Disk {
    type File = File;

    fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        // A symbolic link is no directory here: it might lead out of the target.
        fs::symlink_metadata(path).map(|there| there.is_dir())
    }

    fn create_file(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create_new(true).open(path)
    }
}

impl Sink for Recorder {
    fn event(&mut self, _event: &Event<'_>, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    /// Closes the files of what has ended. Each packet is written at once.
    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for stream in &ended.streams {
            for file in self.streams.remove(stream).unwrap_or_default().values() {
                self.open -= usize::from(file.file.is_some());
            }
        }
        for trace in &ended.traces {
            if let Some(trace) = self.traces.remove(trace) {
                self.open -= usize::from(trace.metadata.file.is_some());
            }
        }
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        Ok(Finished::default())
    }
}

impl PacketSink for Recorder {
    fn packet(&mut self, bytes: &[u8], origin: Origin<'_>) -> Result<(), SinkError> {
        self.close_some();
        let opened = self.stream(origin)?.append(bytes)?;
        self.open += usize::from(opened);
        Ok(())
    }

    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        self.close_some();
        let opened = self.recording(trace)?.metadata.append(bytes)?;
        self.open += usize::from(opened);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::test_support::TestOrigin;

    fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut left = vec![root.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    let name = path
                        .strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned();
                    found.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }

    fn named(files: &[(String, Vec<u8>)]) -> Vec<(&str, &[u8])> {
        files
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
            .collect()
    }

    #[test]
    fn recorded_packets_and_metadata_are_the_bytes_received() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(root.path()).unwrap();
        let place = TestOrigin::new("host/session/ust", "ust/uid/chan_0");
        let other = TestOrigin {
            trace: place.trace.clone(),
            ..TestOrigin::new("", "elsewhere/chan_0")
        };
        recorder.metadata(b"meta", &place.trace).unwrap();
        recorder.packet(b"one", place.origin()).unwrap();
        recorder.packet(b"other", other.origin()).unwrap();
        recorder.metadata(b"data", &place.trace).unwrap();
        recorder.packet(b"two", place.origin()).unwrap();
        recorder.finish(true).unwrap();
        assert_eq!(
            named(&files(root.path())),
            [
                ("host/session/ust/chan_0", &b"onetwo"[..]),
                ("host/session/ust/chan_0-2", b"other"),
                ("host/session/ust/metadata", b"metadata"),
            ]
        );
    }

    #[test]
    fn packets_of_two_stream_classes_in_one_stream_are_recorded_in_two_files() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(root.path()).unwrap();
        let mut place = TestOrigin::new("t", "data");
        for (class, packet) in [(0, "a"), (1, "b"), (0, "c"), (1, "d")] {
            place.stream.class = class;
            recorder.packet(packet.as_bytes(), place.origin()).unwrap();
        }
        let ended = Ended {
            traces: Vec::new(),
            ..place.ended()
        };
        recorder.flush(&ended).unwrap();
        assert_eq!(recorder.open, 1);
        assert_eq!(
            named(&files(root.path())),
            [
                ("t/data", &b"ac"[..]),
                ("t/data-2", b"bd"),
                ("t/metadata", b"")
            ]
        );
    }

    #[test]
    fn recorded_names_stay_inside_the_directory_and_are_unique() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        let mut recorder = Recorder::new(&inner).unwrap();
        for (trace, stream) in [
            ("../../etc", "../.."),
            ("/etc//passwd", "metadata"),
            ("", ""),
            ("..", "\0\n"),
            ("a", "b"),
            ("a/b", "c"),
            ("a/b/x", "index"),
        ] {
            let place = TestOrigin::new(trace, stream);
            recorder.metadata(b"m", &place.trace).unwrap();
            recorder.packet(b"p", place.origin()).unwrap();
        }
        let all = files(root.path());
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "inner/_.-2/__",
                "inner/_.-2/metadata",
                "inner/_./_./etc/_.",
                "inner/_./_./etc/metadata",
                "inner/a/b",
                "inner/a/b-2/c",
                "inner/a/b-2/metadata",
                "inner/a/b-2/x/index_",
                "inner/a/b-2/x/metadata",
                "inner/a/metadata",
                "inner/etc/passwd/metadata",
                "inner/etc/passwd/metadata_",
                "inner/trace/metadata",
                "inner/trace/stream",
            ]
        );
    }

    #[test]
    fn more_streams_than_the_open_file_limit_are_recorded_completely() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(root.path()).unwrap();
        let first = TestOrigin::new("t", "s");
        let places: Vec<TestOrigin> = (0..MAX_OPEN_FILES + 5)
            .map(|_| TestOrigin {
                trace: first.trace.clone(),
                ..TestOrigin::new("", "s")
            })
            .collect();
        for _ in 0..2 {
            for place in &places {
                recorder.packet(b"pq", place.origin()).unwrap();
                assert!(recorder.open <= MAX_OPEN_FILES + 1);
            }
        }
        let all = files(root.path());
        assert_eq!(all.len(), places.len() + 1);
        assert!(
            all.iter()
                .all(|(name, bytes)| name == "t/metadata" || bytes == b"pqpq")
        );
    }

    #[test]
    fn files_of_ended_streams_and_traces_are_closed() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(root.path()).unwrap();
        for _ in 0..MAX_OPEN_FILES {
            let place = TestOrigin::new("t", "s");
            recorder.metadata(b"m", &place.trace).unwrap();
            recorder.packet(b"p", place.origin()).unwrap();
            assert_eq!(recorder.open, 2);
            recorder.flush(&place.ended()).unwrap();
            assert_eq!(recorder.open, 0);
        }
        assert!(recorder.streams.is_empty() && recorder.traces.is_empty());
        assert_eq!(files(root.path()).len(), 2 * MAX_OPEN_FILES);
    }

    #[test]
    fn a_non_empty_output_directory_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("x"), "").unwrap();
        let refused = Recorder::new(root.path()).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
    }
}
