//! A directory that CodeTracer opens, kept current while the program that is recorded runs.
//!
//! An event becomes again the record that it came from ([`EventDecoder`]). [`ReplayFilter`] passes
//! on what a replay can handle, and `RecordingDirectory` shows it to readers: at once if nothing
//! was shown for a while, else at intervals.
//!
//! A producer that was killed and started again sends its recording from the begin, as another
//! trace of the same host and session. The sink goes on with that one, which must begin as the
//! first one did.

mod directory;
mod packet_context;

use std::collections::{BTreeSet, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use codetracer::events::{EventDecoder, FileChunk, Item, PREFIX};
use codetracer::output_form::OutputForm;
use codetracer::rules::ReplayFilter;
use ctf::decode::Event;
use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use daemon::output::print_message;
use memchr::memmem;
use thiserror::Error;
use viewer::attach::{TraceInfo, TraceKey};
use viewer::sink::{
    Ended, Finished, Loss, Needs, Next, OpenSink, Origin, PacketSink, Sink, SinkError,
};

pub use self::directory::DirectoryError;
use self::directory::{RecordingDirectory, RecordingId, SourceFileError, check_target};
use self::packet_context::PacketPosition;
use super::row::{Open, SinkRow};

/// A directory for CodeTracer. A recording is one stream, so that it needs no order: one whose
/// producer was killed must not hold back the same one that was sent again.
pub const ROW: SinkRow = SinkRow {
    name: "codetracer",
    help: "A recording that CodeTracer opens, also while it is written; begins at the beginning, ends with the session",
    needs: Needs {
        order: false,
        begin: true,
        whole: Some("writes whole recordings"),
        ..Needs::EVENTS
    },
    open: Open::Directory(|path, context| {
        let form = context.options.codetracer.codetracer_format;
        let sink = CodetracerSink::new(path, form, context.is_endless)?;
        Ok(OpenSink::Packets(Box::new(sink)))
    }),
    download: None,
};

/// The form of a CodeTracer recording.
#[derive(Debug, Clone, Args)]
pub struct CodetracerArguments {
    /// Write trace.json with --sink codetracer, which all versions of CodeTracer open, or a smaller
    /// trace.bin.
    #[arg(long, value_name = "json|bin", default_value = "json", value_parser = parse_form)]
    #[arg(help_heading = "Output")]
    pub codetracer_format: OutputForm,
}

fn parse_form(text: &str) -> Result<OutputForm, &'static str> {
    match text {
        "json" => Ok(OutputForm::Json),
        "bin" => Ok(OutputForm::Binary),
        _ => Err("expected json or bin"),
    }
}

/// Time between two publications.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// Publications take no more than one part in so many of the time.
const MIN_IDLE_RATIO: u32 = 4;
/// Bytes of records that wait for the next publication.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Time that a producer which has ended early has to send the recording again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(5);
/// Events between two looks at the clock.
const EVENTS_PER_CLOCK_CHECK: u32 = 256;

/// Why a recording cannot be written.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// Nothing in the target is a recording.
    #[error("no CodeTracer recording found: the target has no events ct:*; nothing written")]
    None,
    /// The target has more than one recording.
    #[error(
        "the target has several CodeTracer recordings, and a directory holds one: {names}; \
         choose one of them as TARGET"
    )]
    Several {
        /// The names of the recordings.
        names: String,
    },
    /// The directory cannot be written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl From<RecordingError> for SinkError {
    fn from(error: RecordingError) -> Self {
        Self::Sink(Box::new(error))
    }
}

/// Writes the directory of one recording.
#[derive(Debug)]
pub struct CodetracerSink {
    path: PathBuf,
    form: OutputForm,
    /// The traces that declare events of recordings.
    found: Vec<FoundTrace>,
    decoder: EventDecoder,
    filter: ReplayFilter,
    /// Present from the first event on.
    recording: Option<Recording>,
    /// Traces of the same recording that were sent before: their producer has ended early and was
    /// started again.
    superseded: HashSet<TraceKey>,
    /// Whether further traces may follow those that have ended.
    is_endless: bool,
    /// Source files that could not be copied.
    failed_files: u64,
    events_until_check: u32,
}

#[derive(Debug)]
struct FoundTrace {
    key: TraceKey,
    name: String,
    /// The end of the metadata so far: the name of a class may be cut.
    metadata_end: Vec<u8>,
    has_recording: bool,
    has_ended: bool,
}

#[derive(Debug)]
struct Recording {
    trace: TraceKey,
    name: String,
    directory: RecordingDirectory,
    packet: u64,
    /// The time from which more may be published.
    next_publication: Instant,
    has_news: bool,
    /// Whether the end of the recording has come.
    is_whole: bool,
    /// When the trace of the recording ended. Absent before.
    ended: Option<Instant>,
}

impl CodetracerSink {
    /// A sink that writes to the directory `path`, which is made with the first event. `is_endless`
    /// says that traces may follow when all have ended.
    ///
    /// # Errors
    /// If the directory has something else than a recording of this sink.
    pub fn new(path: &Path, form: OutputForm, is_endless: bool) -> Result<Self, RecordingError> {
        check_target(path)?;
        Ok(Self {
            path: path.to_owned(),
            form,
            found: Vec::new(),
            decoder: EventDecoder::default(),
            filter: ReplayFilter::new(form),
            recording: None,
            superseded: HashSet::new(),
            is_endless,
            failed_files: 0,
            events_until_check: EVENTS_PER_CLOCK_CHECK,
        })
    }

    /// Fails if there is more than one recording.
    fn check_single(&self) -> Result<(), RecordingError> {
        let with_recording = self.found.iter().filter(|trace| trace.has_recording);
        let names: BTreeSet<_> = with_recording
            .map(|trace| without_times(&trace.name))
            .collect();
        if names.len() < 2 {
            return Ok(());
        }
        Err(several(names))
    }

    /// Begins the recording of an event's trace: the only one, or the same one sent again from its
    /// begin.
    fn open(&mut self, event: &Event<'_>, trace: &TraceInfo) -> Result<(), RecordingError> {
        let name = recording_name(event.trace(), trace);
        if let Some(before) = self.recording.take() {
            if before.name != name {
                return Err(several(BTreeSet::from([before.name, name])));
            }
            // What is left of the old trace must not be taken for a recording of its own.
            self.superseded.insert(before.trace);
            // The recording comes again from its begin, and its records are counted anew.
            self.filter = ReplayFilter::new(self.form);
        }
        let uuid = trace.uuid.map(|uuid| uuid.to_string());
        let id = RecordingId {
            id: uuid.unwrap_or_else(|| trace.name.clone()),
            name: name.clone(),
        };
        self.recording = Some(Recording {
            trace: trace.key,
            name,
            directory: RecordingDirectory::open(&self.path, self.form, &id)?,
            packet: 0,
            next_publication: Instant::now(),
            has_news: false,
            is_whole: false,
            ended: None,
        });
        Ok(())
    }

    fn add_trace(&mut self, trace: &TraceInfo) -> usize {
        self.found.push(FoundTrace {
            key: trace.key,
            name: trace.name.clone(),
            metadata_end: Vec::new(),
            has_recording: false,
            has_ended: false,
        });
        self.found.len() - 1
    }

    fn publish_if_due(&mut self) -> Result<(), RecordingError> {
        let Some(recording) = &mut self.recording else {
            return Ok(());
        };
        let is_full = self.filter.certain().len() >= MAX_WAITING_BYTES;
        if !is_full && (!recording.has_news || Instant::now() < recording.next_publication) {
            return Ok(());
        }
        self.publish()
    }

    fn publish(&mut self) -> Result<(), RecordingError> {
        let Some(recording) = &mut self.recording else {
            return Ok(());
        };
        let begun = Instant::now();
        recording.directory.add_paths(&self.filter.take_paths());
        // Copied, because the records that are certain are borrowed to be taken out.
        let uncertain = self.filter.uncertain().to_vec();
        let certain = self.filter.certain();
        recording.directory.publish(certain, &uncertain)?;
        recording.has_news = false;
        let interval = PUBLISH_INTERVAL.max(begun.elapsed() * MIN_IDLE_RATIO);
        recording.next_publication = begun + interval;
        Ok(())
    }

    /// Remembers that a trace has ended.
    fn end_trace(&mut self, trace: TraceKey) {
        for found in self.found.iter_mut().filter(|found| found.key == trace) {
            found.has_ended = true;
        }
        let is_endless = self.is_endless;
        // Where sessions come and go without end, traces without a recording would pile up.
        self.found
            .retain(|found| found.has_recording || !(is_endless && found.has_ended));
        if let Some(recording) = &mut self.recording
            && recording.trace == trace
        {
            recording.ended = Some(Instant::now());
        }
    }

    /// What is waited for: events, the next publication, or the producer to come again.
    fn next(&self) -> Next {
        let Some(recording) = &self.recording else {
            let have_ended = self.found.iter().all(|found| found.has_ended);
            return match !self.is_endless && !self.found.is_empty() && have_ended {
                true => Next::Finish,
                false => Next::Event,
            };
        };
        let given_up = recording.ended.map(|ended| ended + RESTART_TIMEOUT);
        if given_up.is_some_and(|at| recording.is_whole || Instant::now() >= at) {
            return Next::Finish;
        }
        let publication = recording.has_news.then_some(recording.next_publication);
        let deadline = publication.into_iter().chain(given_up).min();
        deadline.map_or(Next::Event, Next::FlushAt)
    }

    fn summary(&self) -> Option<String> {
        let recording = self.recording.as_ref()?;
        let counts = self.filter.counts();
        let mut text = format!(
            "CodeTracer recording {} in {}: {} records, {counts}",
            recording.name,
            self.path.display(),
            counts.records
        );
        if self.failed_files > 0 {
            text.push_str(&format!(", {} source files not copied", self.failed_files));
        }
        if recording.ended.is_none() {
            text.push_str("; the recording has not ended");
        } else if !recording.is_whole {
            text.push_str("; its producer has ended before the recording did");
        }
        Some(text)
    }
}

fn several(names: BTreeSet<String>) -> RecordingError {
    let names: Vec<_> = names.into_iter().collect();
    let names = names.join(", ");
    RecordingError::Several { names }
}

/// The host and the session of a recording, as its metadata says; else the name of the trace.
fn recording_name(declared: &Trace, trace: &TraceInfo) -> String {
    let text = |name| match declared.environment_value(name) {
        Some(EnvironmentValue::Text(text)) => Some(text),
        _ => None,
    };
    match (text("hostname"), text("trace_name")) {
        (Some(host), Some(session)) => format!("{host}/{session}"),
        _ => trace.name.clone(),
    }
}

/// The name of a trace without the times that relays append to the names of sessions, and without
/// the place of an earlier session whose directory was taken by a later one of the same name.
fn without_times(name: &str) -> String {
    let without_time = |part: &str| {
        let digits = |text: &str, length| {
            text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let mut words = part.rsplitn(3, '-');
        match (words.next(), words.next(), words.next()) {
            (Some(time), Some(date), Some(name)) if digits(time, 6) && digits(date, 8) => {
                name.to_owned()
            }
            _ => part.to_owned(),
        }
    };
    let mut parts = Vec::new();
    let mut all = name.split('/');
    while let Some(part) = all.next() {
        if part == "archives" {
            // The next part is the name of the archive.
            all.next();
        } else {
            parts.push(without_time(part));
        }
    }
    parts.join("/")
}

/// Copies a part of a source file. A file that cannot be copied is reported, and the recording goes
/// on without it.
fn write_chunk(
    recording: &mut Recording,
    chunk: &FileChunk<'_>,
    failed_files: &mut u64,
) -> io::Result<()> {
    let is_full = |error: &io::Error| {
        matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        )
    };
    match recording.directory.write_chunk(chunk) {
        Ok(()) => Ok(()),
        // On a full disk the recording cannot go on either: the user must learn it.
        Err(SourceFileError::Io(error)) if is_full(&error) => Err(error),
        Err(error) => {
            *failed_files += 1;
            let path = &chunk.path;
            print_message(format_args!(
                "test-live: warning: cannot copy a source file: {path:?}: {error}; \
                 the recording has no copy of it"
            ));
            Ok(())
        }
    }
}

impl Sink for CodetracerSink {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let class = event.class().name().unwrap_or_default();
        // The prefix first: events of other traces fail it without a search in a table.
        if !class.starts_with(PREFIX) || !EventDecoder::is_known_class(class) {
            return Ok(());
        }
        let is_own = |recording: &Recording| recording.trace == origin.trace.key;
        if !self.recording.as_ref().is_some_and(is_own) {
            if self.superseded.contains(&origin.trace.key) {
                return Ok(());
            }
            self.check_single()?;
            self.open(event, origin.trace)?;
        }
        let Some(recording) = &mut self.recording else {
            return Ok(());
        };
        if recording.packet != event.packet() {
            recording.packet = event.packet();
            let mut position = PacketPosition::default();
            event.visit_packet_context(&mut position)?;
            if let Some((first_record, depth)) = position.found() {
                self.filter.begin_packet(first_record, depth);
            }
        }
        self.decoder.clear();
        event.visit_fields(&mut self.decoder)?;
        match self.decoder.decode(class) {
            Some(Item::Record(record)) => self.filter.push(&record, self.decoder.position()),
            Some(Item::Metadata(metadata)) => recording.directory.set_metadata(&metadata),
            Some(Item::FileChunk(chunk)) => {
                write_chunk(recording, &chunk, &mut self.failed_files)?;
            }
            Some(Item::End { records }) => {
                self.filter.end(records);
                recording.is_whole = true;
            }
            None => self.filter.count_unreadable(),
        }
        recording.has_news = true;
        // To read the clock for each event would take longer than to write most of them.
        match self.events_until_check.checked_sub(1) {
            Some(left) => {
                self.events_until_check = left;
                Ok(())
            }
            None => {
                self.events_until_check = EVENTS_PER_CLOCK_CHECK;
                Ok(self.publish_if_due()?)
            }
        }
    }

    /// Does nothing: what is missing of a recording is seen by its records.
    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            self.end_trace(*trace);
        }
        self.check_single()?;
        self.publish_if_due()?;
        Ok(self.next())
    }

    fn finish(&mut self, is_whole: bool) -> Result<Finished, SinkError> {
        self.check_single()?;
        let Some(recording) = &mut self.recording else {
            return Err(RecordingError::None.into());
        };
        let has_ended = recording.ended.is_some();
        // Without an end, the records that are not certain may still be completed.
        if has_ended {
            self.filter.finish();
        }
        if has_ended && is_whole {
            // Paths come before the records that name them by number.
            recording.directory.add_paths(&self.filter.take_paths());
            let finished = recording.directory.finish(self.filter.certain());
            finished.map_err(RecordingError::from)?;
        } else {
            self.publish()?;
        }
        Ok(Finished {
            summary: self.summary(),
            ..Finished::default()
        })
    }
}

impl PacketSink for CodetracerSink {
    /// Does nothing: a recording is made of events.
    fn packet(&mut self, _bytes: &[u8], _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        let known = self.found.iter().position(|found| found.key == trace.key);
        let known = known.unwrap_or_else(|| self.add_trace(trace));
        let Some(found) = self
            .found
            .get_mut(known)
            .filter(|found| !found.has_recording)
        else {
            return Ok(());
        };
        // All recordings declare this class. The metadata is searched as text: it is not parsed
        // here.
        let name = b"\"ct:step\"";
        found.metadata_end.extend_from_slice(bytes);
        found.has_recording = memmem::find(&found.metadata_end, name).is_some();
        let surplus = found.metadata_end.len().saturating_sub(name.len());
        found.metadata_end.drain(..surplus);
        Ok(())
    }
}
