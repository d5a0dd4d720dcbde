//! Writes the steps of sessions to a local directory, as a relay would: metadata, tracefiles and
//! indexes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::error;
use wire::{Bytes, PacketIndex};

use super::local_store::{INDEX, LocalStore, METADATA, StoredFile, index_path};
use crate::queue::{OpenedSession, SessionEnd, SessionOutcome, SessionReceiver, Step, StreamKey};

/// Longest run of zeros that is written at a time, in bytes.
const PADDING: [u8; 4096] = [0; 4096];

/// Writes all sessions until the last opener is dropped. Returns how many there were, and whether
/// all are complete.
pub(super) async fn write_sessions(
    mut sessions: mpsc::UnboundedReceiver<OpenedSession>,
    store: Arc<LocalStore>,
) -> (usize, bool) {
    let mut writing = JoinSet::new();
    let (mut written, mut is_complete) = (0, true);
    while let Some(session) = sessions.recv().await {
        written += 1;
        writing.spawn(write_session(session, Arc::clone(&store)));
        while let Some(ended) = writing.try_join_next() {
            is_complete &= ended.unwrap_or(false);
        }
    }
    while let Some(ended) = writing.join_next().await {
        is_complete &= ended.unwrap_or(false);
    }
    (written, is_complete)
}

/// Writes a session. Returns whether all of it is written.
async fn write_session(session: OpenedSession, store: Arc<LocalStore>) -> bool {
    let OpenedSession {
        description,
        identity,
        mut steps,
    } = session;
    let created = i64::try_from(identity.created).unwrap_or(0);
    let created = Timestamp::from_second(created).unwrap_or_default();
    let name = format!("{}-{}", description.name, created.strftime("%Y%m%d-%H%M%S"));
    let mut trace = LocalTrace {
        store,
        directory: PathBuf::new(),
        metadata: None,
        streams: Vec::new(),
        outcome: SessionOutcome::default(),
    };
    let written = match trace.store.create_session(&name) {
        Ok(directory) => {
            trace.directory.clone_from(&directory);
            let written = trace.write_steps(&mut steps).await;
            trace.close();
            trace.store.close_session(&directory);
            written
        }
        Err(error) => Err(error),
    };
    let mut outcome = trace.outcome;
    outcome.end = match written {
        Ok(()) => SessionEnd::Complete,
        Err(failure) => {
            error!(session = name, "session not recorded: {failure}");
            SessionEnd::Failed(failure.to_string())
        }
    };
    let is_complete = outcome.end == SessionEnd::Complete && outcome.lost == 0;
    steps.report_outcome(outcome);
    is_complete
}

/// The trace of a session.
#[derive(Debug)]
struct LocalTrace {
    store: Arc<LocalStore>,
    directory: PathBuf,
    metadata: Option<File>,
    streams: Vec<LocalStream>,
    outcome: SessionOutcome,
}

/// A stream with its tracefile.
#[derive(Debug)]
struct LocalStream {
    channel: String,
    /// Number of the next tracefile.
    next: u64,
    file: Option<OpenTracefile>,
}

#[derive(Debug)]
struct OpenTracefile {
    path: PathBuf,
    data: File,
    index: File,
    /// Size of the tracefile, in bytes.
    bytes: u64,
    /// Size of its index, in bytes.
    index_bytes: u64,
}

impl LocalTrace {
    async fn write_steps(&mut self, steps: &mut SessionReceiver) -> io::Result<()> {
        while let Some(queued) = steps.next_step().await {
            let mut is_written = true;
            match &queued.step {
                Step::AddTrace { path } => self.add_trace(path)?,
                Step::AddStream { channel, .. } => self.streams.push(LocalStream {
                    channel: channel.clone(),
                    next: 0,
                    file: None,
                }),
                Step::Metadata { bytes, .. } => {
                    if let Some(metadata) = &mut self.metadata {
                        self.store.add_bytes(bytes.len() as u64);
                        metadata.write_all(bytes)?;
                    }
                }
                Step::Packet {
                    stream,
                    bytes,
                    index,
                } => is_written = self.write_packet(*stream, bytes, index)?,
                Step::Beacon { .. } | Step::Gap { .. } | Step::CloseStream { .. } => {}
            }
            if matches!(queued.step, Step::Packet { .. }) {
                let outcome = &mut self.outcome;
                outcome.acknowledged += u64::from(is_written);
                outcome.lost += u64::from(!is_written);
            }
            // What is in a file outlives this process, so the rings may be released.
            queued.acknowledge();
        }
        Ok(())
    }

    fn add_trace(&mut self, path: &str) -> io::Result<()> {
        self.directory.push(path);
        fs::create_dir_all(self.directory.join(INDEX))?;
        self.metadata = Some(File::create_new(self.directory.join(METADATA))?);
        Ok(())
    }

    /// Writes a packet, then its index entry. Returns false if the quota has no room for it.
    fn write_packet(
        &mut self,
        stream: StreamKey,
        bytes: &[u8],
        index: &PacketIndex,
    ) -> io::Result<bool> {
        // The bytes of the step lack the zeros at the end of the packet.
        let size = index.packet_size.0 / 8;
        let entry_size = IndexFormat::V1_1.entry_len() as u64;
        if !self.store.take_space(size + entry_size) {
            return Ok(false);
        }
        let Some(stream) = self.streams.get_mut(stream.0 as usize) else {
            return Ok(false);
        };
        let file = stream.file_for(size, &self.directory, &self.store)?;
        file.data.write_all(bytes)?;
        let mut padding = usize::try_from(size)
            .unwrap_or(0)
            .saturating_sub(bytes.len());
        while padding > 0 {
            let zeros = PADDING
                .get(..padding.min(PADDING.len()))
                .unwrap_or_default();
            file.data.write_all(zeros)?;
            padding -= zeros.len();
        }
        let entry = Entry {
            offset: Bytes(file.bytes),
            packet: *index,
        };
        file.bytes += size;
        file.index_bytes += entry_size;
        let mut buffer = [0; MAX_ENTRY_BYTES];
        file.index
            .write_all(IndexFormat::V1_1.encode(&entry, &mut buffer))?;
        Ok(true)
    }

    fn close(&mut self) {
        for stream in &mut self.streams {
            stream.close_file(&self.store);
        }
    }
}

impl LocalStream {
    /// Returns the tracefile for a packet of `size` bytes: the next one, if the limits say so.
    fn file_for(
        &mut self,
        size: u64,
        directory: &Path,
        store: &LocalStore,
    ) -> io::Result<&mut OpenTracefile> {
        let limit = store.limits().file_bytes;
        let is_full = |file: &OpenTracefile| limit > 0 && file.bytes + size > limit;
        if self.file.as_ref().is_some_and(is_full) {
            self.close_file(store);
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let number = self.next;
                self.next += 1;
                let kept = store.limits().files;
                if kept > 0 && number >= kept {
                    store.remove_complete(&self.path(directory, number - kept, limit));
                }
                let file = OpenTracefile::create(self.path(directory, number, limit))?;
                store.add_bytes(file.index_bytes);
                file
            }
        };
        Ok(self.file.insert(file))
    }

    fn path(&self, directory: &Path, number: u64, limit: u64) -> PathBuf {
        let channel = &self.channel;
        match limit {
            0 => directory.join(channel),
            _ => directory.join(format!("{channel}_{number}")),
        }
    }

    fn close_file(&mut self, store: &LocalStore) {
        if let Some(file) = self.file.take() {
            store.add_complete(StoredFile {
                path: file.path,
                bytes: file.bytes + file.index_bytes,
            });
        }
    }
}

impl OpenTracefile {
    fn create(path: PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        let data = options.open(&path)?;
        let mut index = options.open(index_path(&path))?;
        let header = IndexFormat::V1_1.header_bytes();
        index.write_all(&header)?;
        Ok(Self {
            path,
            data,
            index,
            bytes: 0,
            index_bytes: header.len() as u64,
        })
    }
}
