//! One table: the rows that have not been written, and the file that is being written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use ctf::decode::{Event, FieldError};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use tempfile::NamedTempFile;
use viewer::sink::{Origin, SinkError};

use super::column::{Column, Value};
use super::destination::{Destination, DestinationError};
use super::origins::Origins;
use super::row::{RowBuffers, RowWriter};
use super::schema::{LEADING, Leading, TableSchema};

/// Estimate of the bytes that a column takes without any row, and in the list of row groups that is
/// kept until the file ends.
const COLUMN_BYTES: usize = 256;
/// Likewise of a table without its columns.
const TABLE_BYTES: usize = 2048;

/// Why a table cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    #[error(transparent)]
    Destination(#[from] DestinationError),
    #[error("cannot write a file in {}", partition.display())]
    Write {
        partition: PathBuf,
        source: ParquetError,
    },
    #[error("the fields of an event are not those of its class")]
    Shape,
}

impl From<TableError> for SinkError {
    fn from(error: TableError) -> Self {
        Self::Sink(Box::new(error))
    }
}

/// How the values of all tables are written.
static PROPERTIES: LazyLock<WriterPropertiesPtr> = LazyLock::new(|| {
    let time = ColumnPath::from("ts");
    let properties = WriterProperties::builder()
        .set_created_by(concat!("test-live ", env!("CARGO_PKG_VERSION")).to_owned())
        // The lowest level: higher ones take several times as long for a tenth less.
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Times grow by little, and none comes twice: no dictionary is as small.
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED);
    Arc::new(properties.build())
});

/// The rows of the events of one name, day, host and schema.
#[derive(Debug)]
pub(super) struct Table {
    schema: Arc<TableSchema>,
    partition: PathBuf,
    columns: Vec<Column>,
    origins: Origins,
    file: Option<SerializedFileWriter<NamedTempFile>>,
    /// When the first row came.
    pub(super) begun: Instant,
    /// The bytes of memory that the table takes.
    pub(super) bytes: usize,
    /// The number of the last row group, by which the file that was written longest ago is found.
    pub(super) written: u64,
}

impl Table {
    pub(super) fn new(schema: Arc<TableSchema>, partition: PathBuf, begun: Instant) -> Self {
        let mut table = Self {
            columns: Vec::new(),
            origins: Origins::default(),
            file: None,
            begun,
            bytes: 0,
            written: 0,
            schema,
            partition,
        };
        table.clear_rows();
        table
    }

    /// Whether rows have not been written.
    pub(super) fn has_rows(&self) -> bool {
        self.origins.rows() > 0
    }

    /// The number of rows that have not been written.
    pub(super) fn rows(&self) -> usize {
        self.origins.rows()
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// The bytes that have been written to the file.
    pub(super) fn file_bytes(&self) -> usize {
        self.file
            .as_ref()
            .map_or(0, SerializedFileWriter::bytes_written)
    }

    /// Appends an event as a row.
    pub(super) fn append(
        &mut self,
        (event, origin): (&Event<'_>, Origin<'_>),
        time: Option<i64>,
        buffers: &mut RowBuffers,
    ) -> Result<(), SinkError> {
        let rows = self.rows();
        let appended = self.append_columns(event, time, buffers);
        match appended {
            Ok(bytes) => {
                self.bytes += bytes + self.origins.push(event.trace(), origin);
                Ok(())
            }
            Err(error) => {
                // What an event has begun to write must not precede the next row.
                for column in &mut self.columns {
                    column.truncate(rows);
                }
                Err(error)
            }
        }
    }

    fn append_columns(
        &mut self,
        event: &Event<'_>,
        time: Option<i64>,
        buffers: &mut RowBuffers,
    ) -> Result<usize, SinkError> {
        let mut row = RowWriter::new(&self.schema, &mut self.columns, buffers);
        event
            .visit(&mut row)
            .map_err(|error: FieldError| SinkError::from(error))?;
        let row = row.finish().ok_or(TableError::Shape)?;
        let level = event.class().log_level().map(|level| i64::from(level.0));
        let error = event.time_error();
        let error = error.map(|error| i64::try_from(error).unwrap_or(i64::MAX));
        let mut bytes = row.bytes;
        for (column, (.., content)) in self.columns.iter_mut().zip(LEADING) {
            let value = match content {
                Leading::Time => time,
                Leading::TimeError => error,
                Leading::Cpu => row.cpu,
                Leading::LogLevel => level,
                // Kept once, not for each row.
                Leading::OfStream(_) => continue,
            };
            bytes += match value {
                Some(value) => {
                    let pushed = column.push(Value::Integer(value), 0);
                    pushed.map_err(|_| TableError::Shape)?
                }
                None => column.push_absent(0, 0),
            };
        }
        Ok(bytes)
    }

    /// Opens the file, if there is none.
    pub(super) fn open_file(&mut self, destination: &Destination) -> Result<(), TableError> {
        if self.file.is_none() {
            let file = destination.create(&self.partition)?;
            let root = Arc::clone(&self.schema.root);
            let file = SerializedFileWriter::new(file, root, Arc::clone(&PROPERTIES));
            self.file = Some(file.map_err(|error| failed(&self.partition, error))?);
        }
        Ok(())
    }

    /// Writes the rows as a row group, and forgets them. The file must be open.
    pub(super) fn write_rows(&mut self) -> Result<(), TableError> {
        let written = self.write_row_group();
        let groups = self
            .file
            .as_ref()
            .map_or(0, |file| file.flushed_row_groups().len());
        self.clear_rows();
        self.bytes += groups * self.columns.len() * COLUMN_BYTES;
        written.map_err(|error| failed(&self.partition, error))
    }

    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        let Some(file) = &mut self.file else {
            return Err(ParquetError::General("no file is open".to_owned()));
        };
        let mut group = file.next_row_group()?;
        for (place, column) in self.columns.iter_mut().enumerate() {
            let Some(mut writer) = group.next_column()? else {
                return Err(ParquetError::General("a column is missing".to_owned()));
            };
            match LEADING.get(place) {
                Some((.., Leading::OfStream(of))) => self.origins.write(*of, writer.untyped())?,
                _ => column.write(writer.untyped())?,
            }
            writer.close()?;
        }
        group.close().map(drop)
    }

    fn clear_rows(&mut self) {
        let columns = self.schema.columns.iter();
        self.columns = columns.map(|shape| Column::new(*shape)).collect();
        self.origins = Origins::default();
        self.bytes = TABLE_BYTES + self.columns.len() * COLUMN_BYTES;
    }

    /// Ends the file, if there is one, and gives it its name.
    pub(super) fn finish_file(
        &mut self,
        destination: &mut Destination,
        name: &str,
    ) -> Result<(), TableError> {
        if let Some(writer) = self.file.take() {
            let file = writer
                .into_inner()
                .map_err(|error| failed(&self.partition, error))?;
            destination.publish(file, &self.partition, name)?;
        }
        Ok(())
    }
}

fn failed(partition: &Path, source: ParquetError) -> TableError {
    TableError::Write {
        partition: partition.to_owned(),
        source,
    }
}
