//! The columns that are the same for all events of a stream: kept once, not once for each row.

use std::collections::HashMap;

use bytes::Bytes;
use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use viewer::attach::StreamKey;
use viewer::sink::Origin;

use super::schema::OriginColumn;

/// Number of rows that are passed to the encoder at a time.
const BATCH: usize = 8192;

/// A stream, and the number of entries of the environment: metadata that comes later may add to it.
type OriginKey = (StreamKey, usize);

/// The origins of the rows of a table.
#[derive(Debug, Default)]
pub(super) struct Origins {
    known: Vec<OriginValues>,
    numbers: HashMap<OriginKey, u32>,
    last: Option<(OriginKey, u32)>,
    /// The number of the origin of each row.
    rows: Vec<u32>,
}

#[derive(Debug)]
struct OriginValues {
    session: Option<ByteArray>,
    trace: Option<ByteArray>,
    stream: Option<ByteArray>,
    process_name: Option<ByteArray>,
    process: Option<i64>,
}

impl Origins {
    /// Appends the origin of a row. Returns the number of bytes that it takes.
    #[inline]
    pub(super) fn push(&mut self, trace: &Trace, origin: Origin<'_>) -> usize {
        let key = (origin.stream.key, trace.environment().len());
        let mut bytes = size_of::<u32>();
        let number = match self.last {
            Some((last, number)) if last == key => number,
            _ => match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let values = OriginValues::new(trace, origin);
                    bytes += values.bytes();
                    self.known.push(values);
                    // A table has fewer rows than 2^32.
                    let number = u32::try_from(self.known.len() - 1).unwrap_or_default();
                    self.numbers.insert(key, number);
                    number
                }
            },
        };
        self.last = Some((key, number));
        self.rows.push(number);
        bytes
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Writes one of the columns.
    pub(super) fn write(&self, column: OriginColumn, writer: &mut ColumnWriter<'_>) -> Result<()> {
        match writer {
            ColumnWriter::ByteArrayColumnWriter(writer) => self.for_each_batch(
                |origin| origin.text(column).cloned(),
                |values, levels| writer.write_batch(values, Some(levels), None),
            ),
            ColumnWriter::Int64ColumnWriter(writer) => self.for_each_batch(
                |origin| origin.process,
                |values, levels| writer.write_batch(values, Some(levels), None),
            ),
            _ => Err(ParquetError::General(
                "a column of a stream has another type".to_owned(),
            )),
        }
    }

    fn for_each_batch<T>(
        &self,
        value: impl Fn(&OriginValues) -> Option<T>,
        mut write: impl FnMut(&[T], &[i16]) -> Result<usize>,
    ) -> Result<()> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for rows in self.rows.chunks(BATCH) {
            values.clear();
            levels.clear();
            for row in rows {
                let origin = usize::try_from(*row)
                    .ok()
                    .and_then(|row| self.known.get(row));
                let value = origin.and_then(&value);
                levels.push(i16::from(value.is_some()));
                values.extend(value);
            }
            write(&values, &levels)?;
        }
        Ok(())
    }
}

impl OriginValues {
    fn new(trace: &Trace, origin: Origin<'_>) -> Self {
        let entry = |name| match trace.environment_value(name) {
            Some(EnvironmentValue::Text(text)) => Some(byte_array(text)),
            Some(EnvironmentValue::Integer(_)) | None => None,
        };
        Self {
            // LTTng names the session so.
            session: entry("trace_name"),
            trace: Some(byte_array(&origin.trace.name)),
            stream: Some(byte_array(&origin.stream.name)),
            process_name: entry("procname"),
            process: match trace.environment_value("vpid") {
                Some(EnvironmentValue::Integer(process)) => Some(*process),
                Some(EnvironmentValue::Text(_)) | None => None,
            },
        }
    }

    fn text(&self, column: OriginColumn) -> Option<&ByteArray> {
        match column {
            OriginColumn::Session => self.session.as_ref(),
            OriginColumn::Trace => self.trace.as_ref(),
            OriginColumn::Stream => self.stream.as_ref(),
            OriginColumn::ProcessName => self.process_name.as_ref(),
            OriginColumn::Process => None,
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.session, &self.trace, &self.stream, &self.process_name];
        let texts = texts.into_iter().flatten().map(ByteArray::len);
        // With the entry of the table of numbers.
        texts.sum::<usize>() + 2 * size_of::<Self>()
    }
}

fn byte_array(text: &str) -> ByteArray {
    ByteArray::from(Bytes::copy_from_slice(text.as_bytes()))
}
