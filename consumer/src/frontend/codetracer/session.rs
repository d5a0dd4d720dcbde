//! One session: turns the items of a recording into events, and these into packets.

use codetracer::events::{EventEncoder, FileChunk, Item, MAX_CHUNK_BYTES};
use codetracer::metadata::RecordingMetadata;
use codetracer::reader::{ReadError, RecordingReader};
use codetracer::record::Record;
use ctf::model::{EnvironmentValue, Uuid};
use ctf::write::{PacketSize, TraceDeclaration};
use relay_proto::session::TraceFormat;
use tokio::time::Instant;
use wire::Timestamp;

use super::{RecordingError, RecordingSettings};
use crate::frontend::replay::sanitize_session_name;
use crate::limits::{IDLE_BEACON_INTERVAL, MAX_RECORD_PACKET_BYTES};
use crate::packetize::{HostClock, PacketizeError, Packetizer};
use crate::queue::{
    Activity, SessionClosed, SessionDescription, SessionOpener, SessionOutcome, StreamKey,
};

/// Directory of the trace in its session, and the name of its only stream.
const PATH: &str = "codetracer";
const CHANNEL: &str = "records_0";
/// Id of the only stream class.
const STREAM_CLASS: u32 = 0;

/// The result of a recording.
#[derive(Debug, Default)]
pub struct RecordingSummary {
    /// Number of records that were queued.
    pub records: u64,
    /// Number of elements that are no records, and were dropped.
    pub malformed: u64,
    /// The reason for the first of those.
    pub first_malformed: Option<String>,
    /// Number of source files that were copied.
    pub files: u64,
    /// Whether the recording was stopped before its end.
    pub is_partial: bool,
    /// The reason why the recording was not read to its end.
    pub failure: Option<RecordingError>,
    /// The outcome of the session, as the uplink reports it.
    pub outcome: SessionOutcome,
}

/// A session to which items are appended.
pub(super) struct RecordingSession {
    name: String,
    packets: Packetizer,
    encoder: EventEncoder,
    stream: StreamKey,
    /// What an event borrows while it is appended.
    text: String,
    has_metadata: bool,
    workdir: String,
    /// Paths that records have defined since they were last taken.
    new_paths: Vec<String>,
    last_idle_flush: Instant,
    failure: Option<ReadError>,
    summary: RecordingSummary,
}

impl RecordingSession {
    /// Opens a session. `name` is the one it gets unless the settings have one.
    pub(super) async fn open(
        opener: &SessionOpener,
        settings: &RecordingSettings,
        name: Option<&str>,
        activity: Activity,
    ) -> Result<Self, SessionClosed> {
        let name = settings.name.as_deref().or(name).unwrap_or_default();
        let name = sanitize_session_name(name, "recording");
        let (tracefile_size, tracefile_count) = settings.tracefiles;
        let queue = opener.open_session(SessionDescription {
            name: name.clone(),
            host: settings.host.clone(),
            base_path: String::new(),
            live_timer: Some(settings.live_timer),
            trace_format: TraceFormat::Ctf1,
            tracefile_size,
            tracefile_count,
        })?;
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        let mut trace = TraceDeclaration::new(uuid, "codetracer");
        trace.clock = HostClock::measure().trace_clock();
        let text = |text: &str| EnvironmentValue::Text(text.into());
        trace.environment = vec![
            ("hostname".to_owned(), text(&settings.host)),
            ("trace_name".to_owned(), text(&name)),
        ];
        let mut packets = Packetizer::new(&trace, PATH, queue, activity).await?;
        let (class, encoder) = EventEncoder::declare(packets.metadata(), STREAM_CLASS)
            .expect("the first classes of the trace");
        let size = PacketSize::new(settings.packet_bytes, MAX_RECORD_PACKET_BYTES);
        let stream = packets.add_stream(&class, CHANNEL, size).await?;
        Ok(Self {
            name,
            packets,
            encoder,
            stream,
            text: String::new(),
            has_metadata: false,
            workdir: String::new(),
            new_paths: Vec::new(),
            last_idle_flush: Instant::now(),
            failure: None,
            summary: RecordingSummary::default(),
        })
    }

    /// Returns the name of the session.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the metadata has been appended.
    pub(super) fn has_metadata(&self) -> bool {
        self.has_metadata
    }

    /// Returns the directory in which the recorded program runs; empty if it is not known.
    pub(super) fn workdir(&self) -> &str {
        &self.workdir
    }

    /// Takes the paths that records have defined since the last call.
    pub(super) fn take_new_paths(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new_paths)
    }

    /// Appends all items that a reader has. Elements that are no items are counted.
    pub(super) async fn append_all(
        &mut self,
        reader: &mut RecordingReader,
    ) -> Result<(), SessionClosed> {
        while let Some(item) = reader.next_item() {
            self.append_read(item).await?;
        }
        Ok(())
    }

    /// Appends an item that a reader has returned, or counts the element that is none.
    pub(super) async fn append_read(
        &mut self,
        item: Result<Item<'_>, ReadError>,
    ) -> Result<(), SessionClosed> {
        match item {
            Ok(Item::Metadata(metadata)) => self.append_metadata(metadata).await,
            Ok(item) => self.append(&item).await,
            Err(error) => self.handle_error(error).await,
        }
    }

    /// Appends the metadata, unless there was some before.
    pub(super) async fn append_metadata(
        &mut self,
        metadata: RecordingMetadata,
    ) -> Result<(), SessionClosed> {
        if self.has_metadata {
            return Ok(());
        }
        self.has_metadata = true;
        self.workdir.clone_from(&metadata.workdir);
        self.append(&Item::Metadata(metadata)).await
    }

    /// Appends the copy of a source file. `path` is where it lies below `files/`.
    pub(super) async fn append_file(
        &mut self,
        path: &str,
        content: &[u8],
    ) -> Result<(), SessionClosed> {
        let hash = ring::digest::digest(&ring::digest::SHA256, content);
        let hash: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let size = content.len() as u64;
        let mut rest = content;
        loop {
            let (part, after) = rest.split_at(rest.len().min(MAX_CHUNK_BYTES));
            let offset = size - rest.len() as u64;
            rest = after;
            let sha256 = if rest.is_empty() { &*hash } else { "" };
            let chunk = FileChunk {
                path: path.into(),
                size,
                offset,
                content: part.into(),
                sha256: sha256.into(),
            };
            self.append(&Item::FileChunk(chunk)).await?;
            if rest.is_empty() {
                self.summary.files += 1;
                return Ok(());
            }
        }
    }

    /// Counts an element that is no item, and keeps its place if it is a definition.
    async fn handle_error(&mut self, error: ReadError) -> Result<(), SessionClosed> {
        if error.is_fatal() {
            self.fail(error);
            return Ok(());
        }
        self.count_malformed(&error.to_string());
        if let ReadError::Element {
            placeholder: Some(record),
            ..
        } = error
        {
            self.append(&Item::Record(record)).await?;
        }
        Ok(())
    }

    /// Counts an element that was dropped.
    pub(super) fn count_malformed(&mut self, reason: &str) {
        self.summary.malformed += 1;
        let first = &mut self.summary.first_malformed;
        first.get_or_insert_with(|| reason.to_owned());
    }

    /// Says that nothing more can be read.
    pub(super) fn fail(&mut self, error: ReadError) {
        self.failure.get_or_insert(error);
    }

    /// Whether nothing more can be read.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Takes the reason why nothing more can be read.
    pub(super) fn take_failure(&mut self) -> Option<ReadError> {
        self.failure.take()
    }

    async fn append(&mut self, item: &Item<'_>) -> Result<(), SessionClosed> {
        let context = self.encoder.packet_context();
        // Before each event, since any of them may be the first of a packet.
        self.packets.set_packet_context(self.stream, &context);
        let encoded = self.encoder.encode(item, &mut self.text);
        let event = encoded.at(HostClock::now());
        match self
            .packets
            .append(self.stream, encoded.class(), event)
            .await
        {
            Ok(()) => {}
            Err(PacketizeError::SessionClosed(gone)) => return Err(gone),
            Err(PacketizeError::Event(error)) => {
                self.count_malformed(&error.to_string());
                return Ok(());
            }
        }
        if let Item::Record(record) = item {
            self.encoder.count_record(record);
            if let Record::Path(path) = record {
                self.new_paths.push(path.clone().into_owned());
            }
        }
        Ok(())
    }

    /// Sends the pending events as a packet, or a beacon if there are none.
    pub(super) async fn flush(&mut self) -> Result<(), SessionClosed> {
        let even_if_idle = self.last_idle_flush.elapsed() >= IDLE_BEACON_INTERVAL;
        if even_if_idle {
            self.last_idle_flush = Instant::now();
        }
        self.packets.flush(HostClock::now(), even_if_idle).await
    }

    /// Appends the end of the recording, ends the session, and waits until the relay has
    /// acknowledged everything or the session is given up.
    pub(super) async fn finish(mut self) -> RecordingSummary {
        let records = self.encoder.records();
        // The outcome of a session that is closed already says so.
        let _ = self.append(&Item::End { records }).await;
        let now: Timestamp = HostClock::now();
        RecordingSummary {
            records,
            outcome: self.packets.finish(now).await,
            ..self.summary
        }
    }
}
