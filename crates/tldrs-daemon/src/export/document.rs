//! Writes lines of events as one document: JSON, or Perfetto's own format.

use std::io::{self, Read, Write};

use memchr::{memchr_iter, memrchr};
use perfetto::canvas::Canvas;
use perfetto::sent::SentEvents;
use perfetto::tracks::Host;
use tef::Record;
use tef::document::Records;
use tef::perfetto::round_times;

use crate::limits::{MAX_LINE_BYTES, READ_BYTES};
use crate::line_validator::{LinePart, LineValidator, Lines};

/// The form of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DocumentForm<'a> {
    /// An array of events, as the reference writes it.
    #[default]
    Array,
    /// An object with the array in its member `traceEvents`, as Perfetto reads it best: in order of
    /// time, with times since the first event, and with changes to what it would misread
    /// ([`tef::perfetto`]).
    Perfetto,
    /// A trace of this name in Perfetto's own format, which is not text.
    Protobuf(&'a str),
}

/// The host of all events, which need not be told from another one.
const HOST: Host<'static> = Host::OfTrace(0);

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
    form: DocumentForm<'_>,
) -> io::Result<ExportCounts> {
    let mut document = Document {
        to,
        validator: LineValidator::new(MAX_LINE_BYTES),
        out: DocumentContent::new(form),
    };
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
    out: DocumentContent<'a>,
}

/// The content of a document, as far as it has not been written.
struct DocumentContent<'a> {
    events: Events<'a>,
    /// Bytes that are to be written.
    bytes: Vec<u8>,
    written: ExportCounts,
}

/// The events that are held back, to be put in order.
enum Events<'a> {
    /// Lines are written as they are.
    None,
    Json(Box<Records>),
    Protobuf(Box<Drawing<'a>>),
}

/// A trace in Perfetto's own format.
struct Drawing<'a> {
    trace: &'a str,
    canvas: Canvas,
    sent: SentEvents,
    /// The time of the event before, in nanoseconds.
    now: i64,
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
        if self.out.bytes.len() >= READ_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn count_refused(&mut self) {
        let found = self.validator.take_findings();
        self.out.written.dropped += found.map_or(0, |found| found.refused);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.out.bytes)?;
        self.out.bytes.clear();
        Ok(())
    }
}

impl<'a> DocumentContent<'a> {
    fn new(form: DocumentForm<'a>) -> Self {
        let mut bytes = Vec::with_capacity(READ_BYTES * 2);
        let events = match form {
            DocumentForm::Array => {
                bytes.push(b'[');
                Events::None
            }
            DocumentForm::Perfetto => Events::Json(Box::new(Records::new(true))),
            DocumentForm::Protobuf(trace) => Events::Protobuf(Box::new(Drawing {
                trace,
                canvas: Canvas::default(),
                sent: SentEvents::default(),
                now: 0,
            })),
        };
        Self {
            events,
            bytes,
            written: ExportCounts::default(),
        }
    }

    /// Adds a valid line.
    fn add_event(&mut self, event: &[u8]) {
        let parsed = || str::from_utf8(event).ok().map(Record::parse)?.ok();
        let is_written = match &mut self.events {
            Events::None => {
                if self.written.events > 0 {
                    self.bytes.extend_from_slice(b",\n");
                }
                self.bytes.extend_from_slice(event);
                true
            }
            Events::Json(records) => {
                let is_written = parsed().is_some_and(|record| records.add_record(record));
                self.bytes.append(&mut records.buffer);
                is_written
            }
            Events::Protobuf(drawing) => {
                let is_written = parsed().is_some_and(|record| drawing.draw(record));
                if drawing.canvas.encoder.is_full() {
                    drawing.canvas.encoder.take(&mut self.bytes);
                }
                is_written
            }
        };
        match is_written {
            true => self.written.events += 1,
            false => self.written.dropped += 1,
        }
    }

    fn finish(&mut self) {
        match &mut self.events {
            Events::None => self.bytes.extend_from_slice(b"]\n"),
            Events::Json(records) => {
                records.finish();
                self.bytes.append(&mut records.buffer);
            }
            Events::Protobuf(drawing) => {
                drawing.canvas.draw_open();
                drawing.canvas.encoder.finish(&mut self.bytes);
            }
        }
    }
}

impl Drawing<'_> {
    /// Draws a record. Returns false if it is no event.
    fn draw(&mut self, record: Record<'_>) -> bool {
        let Record::Event(mut sent) = record else {
            return false;
        };
        round_times(&mut sent);
        // An event without a time is shown where the one before it was.
        self.now = sent.ts.unwrap_or(self.now);
        let of = (HOST, self.trace);
        self.sent.draw(&sent, self.now, of, &mut self.canvas);
        true
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
