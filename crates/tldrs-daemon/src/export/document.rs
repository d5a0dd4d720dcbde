//! Writes lines of events as one JSON document.

use std::io::{self, Read, Write};

use memchr::{memchr_iter, memrchr};
use tef::Record;
use tef::document::Records;

use crate::limits::{MAX_LINE_BYTES, READ_BYTES};
use crate::line_validator::{LinePart, LineValidator, Lines};

/// The form of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DocumentForm {
    /// An array of events, as the reference writes it.
    #[default]
    Array,
    /// An object with the array in its member `traceEvents`, as Perfetto reads it best: in order of
    /// time, with times since the first event, and with changes to what it would misread
    /// ([`tef::perfetto`]).
    Perfetto,
}

/// The counts of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportCounts {
    /// Number of events in the document.
    pub events: u64,
    /// Number of lines that are not events, and are left out.
    pub dropped: u64,
}

/// Writes a document with all events of `from`. Every line is validated, and repaired if necessary:
/// other daemons than this one store invalid lines too.
///
/// # Errors
/// If reading or writing fails.
pub fn write_document(
    from: &mut impl Read,
    to: &mut impl Write,
    form: DocumentForm,
) -> io::Result<ExportCounts> {
    let mut document = Document {
        to,
        validator: LineValidator::new(MAX_LINE_BYTES),
        out: DocumentText {
            records: (form == DocumentForm::Perfetto).then(|| Records::new(true)),
            text: Vec::with_capacity(READ_BYTES * 2),
            written: ExportCounts::default(),
        },
    };
    if form == DocumentForm::Array {
        document.out.text.push(b'[');
    }
    let mut buffer = vec![0; READ_BYTES];
    let mut lines = Vec::new();
    loop {
        let read = match from.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let new = buffer.get(..read).unwrap_or_default();
        if new.is_empty() {
            break;
        }
        let Some(end) = memrchr(b'\n', new) else {
            lines.extend_from_slice(new);
            continue;
        };
        let (whole, rest) = new.split_at(end + 1);
        if lines.is_empty() {
            document.add_lines(whole)?;
        } else {
            lines.extend_from_slice(whole);
            document.add_lines(&lines)?;
            lines.clear();
        }
        lines.extend_from_slice(rest);
    }
    if !lines.is_empty() {
        lines.push(b'\n');
        document.add_lines(&lines)?;
    }
    document.out.finish();
    document.flush()?;
    Ok(document.out.written)
}

struct Document<'a, W> {
    to: &'a mut W,
    validator: LineValidator,
    out: DocumentText,
}

/// The text of a document, as far as it has not been written.
struct DocumentText {
    /// The records for Perfetto. Absent if lines are written as they are.
    records: Option<Records>,
    /// Text that is to be written.
    text: Vec<u8>,
    written: ExportCounts,
}

impl<W: Write> Document<'_, W> {
    fn add_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut lines = Lines::new(lines);
        while let Some(part) = self.validator.next_part(&mut lines) {
            match part {
                // Only other daemons store such a line.
                LinePart::Command(_) => self.out.written.dropped += 1,
                LinePart::Refused => {}
                LinePart::Events { text, .. } => {
                    let mut begin = 0;
                    for end in memchr_iter(b'\n', text) {
                        let event = text.get(begin..end).unwrap_or_default();
                        self.out.add_event(event);
                        begin = end + 1;
                    }
                }
            }
            self.count_refused();
        }
        self.count_refused();
        if self.out.text.len() >= READ_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn count_refused(&mut self) {
        let found = self.validator.take_findings();
        self.out.written.dropped += found.map_or(0, |found| found.refused);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.out.text)?;
        self.out.text.clear();
        Ok(())
    }
}

impl DocumentText {
    /// Adds a valid line.
    fn add_event(&mut self, event: &[u8]) {
        let Some(records) = &mut self.records else {
            if self.written.events > 0 {
                self.text.extend_from_slice(b",\n");
            }
            self.text.extend_from_slice(event);
            self.written.events += 1;
            return;
        };
        let parsed = std::str::from_utf8(event).map(Record::parse);
        let is_written = match parsed {
            Ok(Ok(record)) => records.add_record(record),
            _ => false,
        };
        match is_written {
            true => self.written.events += 1,
            false => self.written.dropped += 1,
        }
        self.text.append(&mut records.buffer);
    }

    fn finish(&mut self) {
        match &mut self.records {
            None => self.text.extend_from_slice(b"]\n"),
            Some(records) => {
                records.finish();
                self.text.append(&mut records.buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns a few bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let some = self.0.len().min(3);
            let (now, later) = self.0.split_at(some);
            buffer[..some].copy_from_slice(now);
            self.0 = later;
            Ok(some)
        }
    }

    fn document(lines: &str, form: DocumentForm) -> (String, ExportCounts) {
        let mut out = Vec::new();
        let written = write_document(&mut lines.as_bytes(), &mut out, form).unwrap();
        let mut slowly = Vec::new();
        let again = write_document(&mut Slow(lines.as_bytes()), &mut slowly, form).unwrap();
        assert_eq!((&out, written), (&slowly, again));
        (String::from_utf8(out).unwrap(), written)
    }

    #[test]
    fn events_become_an_array_as_the_reference_writes_it() {
        let (text, written) = document("{\"a\":1}\n\n{\"b\":2}\n{\"c\":3}", DocumentForm::Array);
        assert_eq!(text, "[{\"a\":1},\n{\"b\":2},\n{\"c\":3}]\n");
        assert_eq!((written.events, written.dropped), (3, 0));
    }

    #[test]
    fn empty_trace_is_a_valid_document() {
        assert_eq!(document("", DocumentForm::Array).0, "[]\n");
        assert_eq!(
            document("\n", DocumentForm::Perfetto).0,
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n],\"metadata\":{\"ts_origin_us\":0}}\n"
        );
    }

    #[test]
    fn lines_of_other_daemons_leave_the_document_valid() {
        let lines = "{not json}\n{\"a\":1}{}\nDIE\n{\"v\":nan}\n{\"cut\":\n";
        let (text, written) = document(lines, DocumentForm::Array);
        assert_eq!(text, "[{\"v\":\"nan\"}]\n");
        assert_eq!((written.events, written.dropped), (1, 4));
    }
}
