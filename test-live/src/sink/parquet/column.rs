//! A column of a table in memory: values, and the levels that tell nulls and lists.

use bytes::Bytes;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};

use super::schema::{ColumnShape, ColumnType};

/// Number of values that are passed to the encoder at a time: texts are copied for it.
const BATCH: usize = 8192;

/// A column of the rows that have not been written.
#[derive(Debug)]
pub(super) struct Column {
    shape: ColumnShape,
    values: Values,
    /// The definition level of each value, null or empty list. Empty if nothing can be absent.
    definitions: Vec<i16>,
    /// Likewise the repetition levels: 0 begins a row. Empty without lists.
    repetitions: Vec<i16>,
}

#[derive(Debug)]
enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Boolean(Vec<bool>),
    /// All bytes, and where each value ends.
    Bytes {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
}

/// A value of a column. Integers have the bits of their type, whether it has a sign or not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Bytes(&'a [u8]),
}

/// The value is not of the type of its column.
#[derive(Debug)]
pub(super) struct WrongType;

impl Column {
    pub(super) fn new(shape: ColumnShape) -> Self {
        let values = match shape.of {
            ColumnType::Unsigned(64) | ColumnType::Signed(64) => Values::Int64(Vec::new()),
            ColumnType::Unsigned(_) | ColumnType::Signed(_) => Values::Int32(Vec::new()),
            ColumnType::Float => Values::Float(Vec::new()),
            ColumnType::Double => Values::Double(Vec::new()),
            ColumnType::Boolean => Values::Boolean(Vec::new()),
            ColumnType::Text | ColumnType::Bytes => Values::Bytes {
                bytes: Vec::new(),
                ends: Vec::new(),
            },
        };
        Self {
            shape,
            values,
            definitions: Vec::new(),
            repetitions: Vec::new(),
        }
    }

    /// Appends a value. Returns the number of bytes that it takes.
    #[inline]
    pub(super) fn push(
        &mut self,
        value: Value<'_>,
        repetition: i16,
    ) -> std::result::Result<usize, WrongType> {
        let bytes = match (&mut self.values, value) {
            (Values::Int64(values), Value::Integer(value)) => {
                values.push(value);
                8
            }
            (Values::Int32(values), Value::Integer(value)) => {
                #[expect(clippy::cast_possible_truncation, reason = "it came from so few bits")]
                values.push(value as i32);
                4
            }
            (Values::Float(values), Value::Float(value)) => {
                #[expect(clippy::cast_possible_truncation, reason = "it came from 32 bits")]
                values.push(value as f32);
                4
            }
            (Values::Double(values), Value::Float(value)) => {
                values.push(value);
                8
            }
            (Values::Boolean(values), Value::Boolean(value)) => {
                values.push(value);
                1
            }
            (Values::Bytes { bytes, ends }, Value::Bytes(value)) => {
                match self.shape.of {
                    ColumnType::Text => push_lossy(value, bytes),
                    _ => bytes.extend_from_slice(value),
                }
                ends.push(bytes.len());
                value.len() + size_of::<usize>()
            }
            _ => return Err(WrongType),
        };
        Ok(bytes + self.push_levels(self.shape.max_definition, repetition))
    }

    /// Appends what is no value: a null or an empty list, as the definition level says. Returns the
    /// number of bytes that it takes.
    #[inline]
    pub(super) fn push_absent(&mut self, definition: i16, repetition: i16) -> usize {
        self.push_levels(definition, repetition)
    }

    #[inline]
    fn push_levels(&mut self, definition: i16, repetition: i16) -> usize {
        let mut bytes = 0;
        if self.shape.max_definition > 0 {
            self.definitions.push(definition);
            bytes += 2;
        }
        if self.shape.max_repetition > 0 {
            self.repetitions.push(repetition);
            bytes += 2;
        }
        bytes
    }

    /// Removes all that is of rows after the first `rows`. Takes time for all rows: called when an
    /// event turns out to be malformed only.
    pub(super) fn truncate(&mut self, rows: usize) {
        if self.shape.max_repetition > 0 {
            let mut begins = self.repetitions.iter().enumerate();
            let begin = begins.by_ref().filter(|(_, level)| **level == 0).nth(rows);
            if let Some((begin, _)) = begin {
                self.repetitions.truncate(begin);
                self.definitions.truncate(begin);
            }
        } else {
            self.definitions.truncate(rows);
        }
        let values = match self.shape.max_definition {
            0 => rows,
            max => self
                .definitions
                .iter()
                .filter(|level| **level == max)
                .count(),
        };
        match &mut self.values {
            Values::Int32(of) => of.truncate(values),
            Values::Int64(of) => of.truncate(values),
            Values::Float(of) => of.truncate(values),
            Values::Double(of) => of.truncate(values),
            Values::Boolean(of) => of.truncate(values),
            Values::Bytes { bytes, ends } => {
                ends.truncate(values);
                bytes.truncate(ends.last().copied().unwrap_or_default());
            }
        }
    }

    /// Writes all values, and forgets them.
    pub(super) fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<()> {
        let (values, shape) = (&mut self.values, self.shape);
        let levels = Levels {
            definitions: (shape.max_definition > 0).then(|| std::mem::take(&mut self.definitions)),
            repetitions: (shape.max_repetition > 0).then(|| std::mem::take(&mut self.repetitions)),
            max_definition: shape.max_definition,
        };
        // What is taken here is freed: tables that get few events keep no memory.
        match (values, writer) {
            (Values::Int32(values), ColumnWriter::Int32ColumnWriter(writer)) => {
                let values = std::mem::take(values);
                levels.for_each_batch(values.len(), |range, definitions, repetitions| {
                    let values = values.get(range).unwrap_or_default();
                    writer.write_batch(values, definitions, repetitions)
                })
            }
            (Values::Int64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                let values = std::mem::take(values);
                levels.for_each_batch(values.len(), |range, definitions, repetitions| {
                    let values = values.get(range).unwrap_or_default();
                    writer.write_batch(values, definitions, repetitions)
                })
            }
            (Values::Float(values), ColumnWriter::FloatColumnWriter(writer)) => {
                let values = std::mem::take(values);
                levels.for_each_batch(values.len(), |range, definitions, repetitions| {
                    let values = values.get(range).unwrap_or_default();
                    writer.write_batch(values, definitions, repetitions)
                })
            }
            (Values::Double(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                let values = std::mem::take(values);
                levels.for_each_batch(values.len(), |range, definitions, repetitions| {
                    let values = values.get(range).unwrap_or_default();
                    writer.write_batch(values, definitions, repetitions)
                })
            }
            (Values::Boolean(values), ColumnWriter::BoolColumnWriter(writer)) => {
                let values = std::mem::take(values);
                levels.for_each_batch(values.len(), |range, definitions, repetitions| {
                    let values = values.get(range).unwrap_or_default();
                    writer.write_batch(values, definitions, repetitions)
                })
            }
            (Values::Bytes { bytes, ends }, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let bytes = Bytes::from(std::mem::take(bytes));
                let ends = std::mem::take(ends);
                levels.for_each_batch(ends.len(), |range, definitions, repetitions| {
                    let mut begin = match range.start.checked_sub(1) {
                        Some(before) => ends.get(before).copied().unwrap_or_default(),
                        None => 0,
                    };
                    let batch = ends.get(range).unwrap_or_default().iter().map(|end| {
                        let value = bytes.slice(begin..*end);
                        begin = *end;
                        ByteArray::from(value)
                    });
                    let batch: Vec<_> = batch.collect();
                    writer.write_batch(&batch, definitions, repetitions)
                })
            }
            // Both are made of the same type of column.
            _ => Err(ParquetError::General(
                "a column has another type".to_owned(),
            )),
        }
    }
}

/// The levels of a column while it is written.
struct Levels {
    definitions: Option<Vec<i16>>,
    repetitions: Option<Vec<i16>>,
    max_definition: i16,
}

impl Levels {
    /// Calls `write` with the range of the values and with the levels of some rows, until all
    /// `values` have been written.
    fn for_each_batch(
        self,
        values: usize,
        mut write: impl FnMut(std::ops::Range<usize>, Option<&[i16]>, Option<&[i16]>) -> Result<usize>,
    ) -> Result<()> {
        let total = self.definitions.as_ref().map_or(values, Vec::len);
        let (mut begin, mut value) = (0, 0);
        while begin < total {
            let mut end = total.min(begin + BATCH);
            // A batch begins with a row: what follows of the last row belongs to it.
            if let Some(levels) = &self.repetitions {
                let rest = levels.get(end..).unwrap_or_default();
                end += rest
                    .iter()
                    .position(|level| *level == 0)
                    .unwrap_or(rest.len());
            }
            let slice = |levels: &Option<Vec<i16>>| {
                levels
                    .as_ref()
                    .map(|levels| levels.get(begin..end).unwrap_or_default().to_vec())
            };
            let (definitions, repetitions) = (slice(&self.definitions), slice(&self.repetitions));
            let count = match &definitions {
                Some(levels) => levels
                    .iter()
                    .filter(|level| **level == self.max_definition)
                    .count(),
                None => end - begin,
            };
            let range = value..value + count;
            write(range, definitions.as_deref(), repetitions.as_deref())?;
            (begin, value) = (end, value + count);
        }
        Ok(())
    }
}

/// Appends a text; what is no UTF-8 becomes U+FFFD, as in JSON.
fn push_lossy(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}
