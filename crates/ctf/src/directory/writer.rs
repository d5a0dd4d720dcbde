//! Writes a trace to a directory: metadata, data files and index files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use wire::{Bytes, Timestamp};

use crate::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
use crate::model::Uuid;
use crate::write::{
    Appended, DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord,
    FieldType, MetadataText, PacketError, PacketSize, StreamWriter, TraceDeclaration, Value,
};

/// The size of a packet in bytes, unless one event is longer: what a reader must have in memory for
/// each stream.
const USUAL_PACKET_BYTES: usize = 64 << 10;
/// Largest size of a packet, and so of an event, in bytes.
const MAX_PACKET_BYTES: usize = 16 << 20;

/// Writes a trace of one or more streams to a new directory. Readers may open the directory at any
/// time: the declarations are written before the packets that need them, and an index entry after
/// its packet.
///
/// Events are kept in memory, at most a packet for each stream, until [`flush`](Self::flush) or
/// [`finish`](Self::finish). Dropping the writer writes them as well, but ignores errors.
#[derive(Debug)]
pub struct TraceWriter {
    directory: PathBuf,
    metadata: MetadataText,
    metadata_file: File,
    /// The number of bytes of the metadata that are in its file.
    metadata_written: usize,
    class: DeclaredStreamClass,
    next_event_id: u32,
    streams: Vec<StreamFile>,
}

/// A stream of a [`TraceWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamHandle(usize);

impl StreamHandle {
    /// The stream that each trace has.
    pub const FIRST: Self = Self(0);
}

/// The reason why a trace cannot be written. Nothing of a refused event or declaration is in the
/// trace.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The directory has something in it.
    #[error("cannot write a trace to {}: the directory is not empty", path.display())]
    NotEmpty {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The file system refuses to make or write a file or directory. The events of a packet that
    /// could not be written are lost.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// An event class cannot be declared.
    #[error("cannot declare an event class")]
    Declare(#[from] DeclareError),
    /// An event cannot be written: its values do not fit its class, or its time is before that of
    /// the last event of its stream.
    #[error("cannot write an event")]
    Event(#[from] PacketError),
    /// The stream is one of another trace.
    #[error("cannot write an event: the trace has no stream {0}")]
    NoStream(usize),
}

impl TraceWriter {
    /// Begins a trace in `directory`, which is made unless it is there and empty. The times of its
    /// events are nanoseconds since 1970, its UUID is random.
    ///
    /// # Errors
    /// If the directory is not empty, or if a file cannot be made.
    pub fn create(directory: impl AsRef<Path>) -> Result<Self, WriteError> {
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        Self::create_with(directory, &TraceDeclaration::new(uuid, "ctf"))
    }

    /// Begins a trace with this declaration. Readers join directories whose traces have the same
    /// UUID.
    ///
    /// # Errors
    /// If the directory is not empty, or if a file cannot be made.
    pub fn create_with(
        directory: impl AsRef<Path>,
        declaration: &TraceDeclaration,
    ) -> Result<Self, WriteError> {
        let directory = directory.as_ref().to_owned();
        fs::create_dir_all(&directory).map_err(failed(&directory))?;
        let mut entries = fs::read_dir(&directory).map_err(failed(&directory))?;
        if entries.next().is_some() {
            return Err(WriteError::NotEmpty { path: directory });
        }
        let mut metadata = MetadataText::new(declaration);
        let class = metadata.stream(0)?;
        let mut writer = Self {
            metadata_file: create(&directory.join("metadata"))?,
            directory,
            metadata,
            metadata_written: 0,
            streams: vec![StreamFile::new(&class, 0)],
            class,
            next_event_id: 1,
        };
        writer.write_metadata()?;
        Ok(writer)
    }

    /// Declares an event class with these fields. Its id is chosen.
    ///
    /// # Errors
    /// If the fields cannot be declared.
    pub fn event_class(
        &mut self,
        name: &str,
        fields: &[(&str, FieldType)],
    ) -> Result<DeclaredEventClass, WriteError> {
        let owned = |(name, of): &(&str, FieldType)| ((*name).to_owned(), of.clone());
        self.declare(&EventDeclaration {
            fields: fields.iter().map(owned).collect(),
            ..EventDeclaration::new(self.next_event_id, name)
        })
    }

    /// Declares an event class.
    ///
    /// # Errors
    /// If the class is refused.
    pub fn declare(&mut self, event: &EventDeclaration) -> Result<DeclaredEventClass, WriteError> {
        let declared = self.metadata.event(&self.class, event)?;
        self.next_event_id = self.next_event_id.max(event.id.saturating_add(1));
        Ok(declared)
    }

    /// Adds a stream: a sequence of events whose times never decrease, such as those of one thread.
    pub fn add_stream(&mut self) -> StreamHandle {
        let number = self.streams.len();
        self.streams
            .push(StreamFile::new(&self.class, number as u64));
        StreamHandle(number)
    }

    /// Writes an event of this process to the [first stream](StreamHandle::FIRST), with a value for
    /// each field of its class.
    ///
    /// # Errors
    /// If the event is refused, or if a packet cannot be written.
    pub fn write(
        &mut self,
        class: &DeclaredEventClass,
        time: Timestamp,
        values: &[Value<'_>],
    ) -> Result<(), WriteError> {
        // Linux has at most 2^22 processes: the number fits.
        let process = i32::try_from(std::process::id()).unwrap_or(0);
        let event = EventRecord {
            time,
            process,
            thread: process,
            values,
        };
        self.write_to(StreamHandle::FIRST, class, &event)
    }

    /// Writes an event to a stream.
    ///
    /// # Errors
    /// If the event is refused, or if a packet cannot be written.
    pub fn write_to(
        &mut self,
        stream: StreamHandle,
        class: &DeclaredEventClass,
        event: &EventRecord<'_>,
    ) -> Result<(), WriteError> {
        let file = self.stream(stream)?;
        if !file.writer.is_open() {
            file.open_packet(event.time)?;
        }
        if file.writer.append(class, event)? == Appended::Full {
            self.write_packet(stream)?;
            let file = self.stream(stream)?;
            file.open_packet(event.time)?;
            // Into an empty packet an event fits, or is an error.
            let _ = file.writer.append(class, event)?;
        }
        self.stream(stream)?.last = event.time;
        Ok(())
    }

    /// Counts events of a stream that have been lost since the last call; readers report them.
    ///
    /// # Errors
    /// If the stream is one of another trace.
    pub fn discard(&mut self, stream: StreamHandle, events: u64) -> Result<(), WriteError> {
        self.stream(stream)?.writer.discard(events);
        Ok(())
    }

    /// Writes all declarations, and the events of each stream as a packet, so that readers see
    /// them.
    ///
    /// # Errors
    /// If a file cannot be written. The other streams are written all the same.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let mut result = self.write_metadata();
        for number in 0..self.streams.len() {
            let is_open = |file: &StreamFile| file.writer.is_open();
            if self.streams.get(number).is_some_and(is_open) {
                // The argument of `and` is evaluated also after an error.
                result = result.and(self.write_packet(StreamHandle(number)));
            }
        }
        result
    }

    /// Writes what is left, and ends the trace.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.flush()
    }

    fn stream(&mut self, stream: StreamHandle) -> Result<&mut StreamFile, WriteError> {
        let StreamHandle(number) = stream;
        let found = self.streams.get_mut(number);
        found.ok_or(WriteError::NoStream(number))
    }

    fn write_metadata(&mut self) -> Result<(), WriteError> {
        let text = self.metadata.as_str().as_bytes();
        let new = text.get(self.metadata_written..).unwrap_or_default();
        // At its place and not at the end, so that the next call overwrites what an error left half
        // written.
        let written = self
            .metadata_file
            .write_all_at(new, self.metadata_written as u64);
        written.map_err(|source| failed(&self.directory.join("metadata"))(source))?;
        self.metadata_written = text.len();
        Ok(())
    }

    /// Closes the packet of a stream and writes it.
    fn write_packet(&mut self, stream: StreamHandle) -> Result<(), WriteError> {
        // The packet may need declarations that are not in the file yet.
        self.write_metadata()?;
        let directory = self.directory.clone();
        self.stream(stream)?.write_packet(&directory)
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // Nothing is left after `finish`.
        let _ = self.flush();
    }
}

/// A stream and its files, which are made with the first packet.
#[derive(Debug)]
struct StreamFile {
    number: u64,
    writer: StreamWriter,
    /// The time of the event that was written last, or of the open packet's begin.
    last: Timestamp,
    files: Option<[File; 2]>,
    /// The sizes of the data file and of the index file in bytes. What is after them is part of a
    /// packet that could not be written.
    sizes: [u64; 2],
}

impl StreamFile {
    fn new(class: &DeclaredStreamClass, number: u64) -> Self {
        let size = PacketSize::new(USUAL_PACKET_BYTES, MAX_PACKET_BYTES);
        let cpu = u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            number,
            writer: StreamWriter::new(class, number, cpu, size),
            last: Timestamp(0),
            files: None,
            sizes: [0; 2],
        }
    }

    fn open_packet(&mut self, begin: Timestamp) -> Result<(), WriteError> {
        self.writer.open(begin)?;
        self.last = begin;
        Ok(())
    }

    fn write_packet(&mut self, directory: &Path) -> Result<(), WriteError> {
        let packet = self.writer.close(self.last)?;
        let data_path = directory.join(format!("stream_{}", self.number));
        let index_directory = directory.join("index");
        let index_path = index_directory.join(format!("stream_{}.idx", self.number));
        let [data_size, index_size] = &mut self.sizes;
        let [data, index] = match &mut self.files {
            Some(files) => files,
            none => {
                fs::create_dir_all(&index_directory).map_err(failed(&index_directory))?;
                none.insert([create(&data_path)?, create(&index_path)?])
            }
        };
        // Not where the file is made: a header that failed is written again with the next packet.
        if *index_size == 0 {
            let header = IndexFormat::V1_1.header_bytes();
            index
                .write_all_at(&header, 0)
                .map_err(failed(&index_path))?;
            *index_size = header.len() as u64;
        }
        // The packet before its entry, so that the index never points past the data.
        let written = data.write_all_at(packet.bytes, *data_size);
        written.map_err(failed(&data_path))?;
        let entry = Entry {
            offset: Bytes(*data_size),
            packet: packet.index,
        };
        // Before the entry is written: also without one the packet is in the file.
        *data_size += packet.bytes.len() as u64;
        let mut bytes = [0; MAX_ENTRY_BYTES];
        let entry = IndexFormat::V1_1.encode(&entry, &mut bytes);
        let written = index.write_all_at(entry, *index_size);
        written.map_err(failed(&index_path))?;
        *index_size += entry.len() as u64;
        Ok(())
    }
}

/// Makes a file that does not exist.
fn create(path: &Path) -> Result<File, WriteError> {
    File::create_new(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Write {
        path: path.clone(),
        source,
    }
}
