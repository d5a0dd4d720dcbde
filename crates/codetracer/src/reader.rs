//! The bytes of a recording, in any form, -> its items, as the bytes arrive.
//!
//! The form is known by the first bytes: a JSON array (`trace.json`), JSON on lines, or one of the
//! binary forms (`trace.bin`). What has no form of its own, such as copies of files, is not read
//! here. A reader may be fed from a file that is still growing: it returns what is complete so far.

use std::ops::Range;

use serde::Deserialize;
use thiserror::Error;

use crate::capnp::{EventList, Unpacker};
use crate::cbor::CborItem;
use crate::compressed::CompressedReader;
use crate::events::Item;
use crate::json::{ElementSplitter, Layout};
use crate::metadata::RecordingMetadata;
use crate::record::Record;

/// The first bytes of a binary file; a byte for its form and two zeros follow.
const BINARY_MAGIC: [u8; 5] = [0xc0, 0xde, 0x72, 0xac, 0xe2];

/// Bytes of the header of a binary file.
const BINARY_HEADER_BYTES: usize = 8;

/// Largest message of the binary form 0, unpacked: it has to be in memory as a whole.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Something in the input that is no item.
#[derive(Debug, Error)]
pub enum ReadError {
    /// An element is not what the format says. What follows can be read.
    #[error("{reason}: {begin}")]
    Element {
        /// The fault of the element.
        reason: String,
        /// The begin of the element; empty if it is not known.
        begin: String,
        /// The definition that takes the place of the element, so that later ones keep their
        /// numbers.
        placeholder: Option<Record<'static>>,
    },
    /// The input is a CodeTracer container, which holds recordings in another way.
    #[error(
        "this is a CodeTracer container (*.ct, version {0}), which is not supported: record to a directory with \
         trace.json, or convert the container with CodeTracer's tools"
    )]
    Container(u8),
    /// The binary file cannot be read on.
    #[error("cannot read the binary recording: {0}")]
    Binary(String),
}

impl ReadError {
    /// Whether nothing after it can be read.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Element { .. })
    }

    fn element(reason: impl ToString, text: &str, placeholder: Option<Record<'static>>) -> Self {
        /// The number of characters that fit on a line of the log.
        const SHOWN: usize = 80;
        Self::Element {
            reason: reason.to_string(),
            begin: text.chars().take(SHOWN).collect(),
            placeholder,
        }
    }
}

/// Reads one recording. Memory is bounded by the limit on elements and what is [pushed](Self::push)
/// at once; for the binary form 0, by the limit on its messages.
#[derive(Debug)]
pub struct RecordingReader {
    max_element_bytes: usize,
    form: Form,
    /// Whether no element has been read yet: the metadata may be the first.
    is_first: bool,
    has_ended: bool,
}

#[derive(Debug)]
enum Form {
    /// Too few bytes to know the form.
    Unknown(Vec<u8>),
    Json(ElementSplitter),
    Compressed(Box<CompressedReader>),
    Message(Unpacker),
    Events(Box<EventList>),
    Unreadable,
}

/// Where the JSON text of the next element is.
enum NextElement {
    Buffered(Range<usize>),
    Converted,
}

impl RecordingReader {
    /// A reader for elements of up to this number of bytes.
    #[must_use]
    pub fn new(max_element_bytes: usize) -> Self {
        Self {
            max_element_bytes,
            form: Form::Unknown(Vec::new()),
            is_first: true,
            has_ended: false,
        }
    }

    /// A reader for JSON on lines only: for input of untrusted programs, because the binary forms
    /// take more memory.
    #[must_use]
    pub fn for_lines(max_element_bytes: usize) -> Self {
        let splitter = ElementSplitter::new(Layout::Lines, max_element_bytes);
        Self {
            form: Form::Json(splitter),
            ..Self::new(max_element_bytes)
        }
    }

    /// Adds bytes of the input. All items so far should have been [taken](Self::next_item) before.
    ///
    /// # Errors
    /// If the input cannot be read: then there are no more items.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        let pushed = match &mut self.form {
            Form::Unknown(begin) => {
                begin.extend_from_slice(bytes);
                self.find_form()
            }
            Form::Json(splitter) => {
                splitter.push(bytes);
                Ok(())
            }
            Form::Compressed(reader) => {
                reader.push(bytes);
                Ok(())
            }
            Form::Message(unpacker) => unpacker.push(bytes).map_err(binary),
            Form::Events(_) | Form::Unreadable => Ok(()),
        };
        pushed
            .and_then(|()| self.open_message())
            .inspect_err(|_| self.form = Form::Unreadable)
    }

    /// Says that the input has ended: what is incomplete is an error from now on.
    pub fn end(&mut self) {
        self.has_ended = true;
        if let Form::Json(splitter) = &mut self.form {
            splitter.end();
        }
    }

    /// Whether the input says that it is complete: the array is closed, or the binary file has all
    /// its parts. Lines never say so.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match &self.form {
            Form::Json(splitter) => splitter.is_complete(),
            Form::Compressed(reader) => reader.is_complete(),
            Form::Events(_) => true,
            Form::Unknown(_) | Form::Message(_) | Form::Unreadable => false,
        }
    }

    /// Whether the recording is on lines, which end with the input.
    #[must_use]
    pub fn is_lines(&self) -> bool {
        matches!(&self.form, Form::Json(splitter) if splitter.layout() == Layout::Lines)
    }

    /// Bytes of an element that is not complete yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        match &self.form {
            Form::Json(splitter) => splitter.pending_bytes(),
            _ => 0,
        }
    }

    /// Drops the element that is not complete yet: for a caller that has no more memory for it.
    pub fn drop_pending_element(&mut self) {
        if let Form::Json(splitter) = &mut self.form {
            splitter.drop_element();
        }
    }

    /// Returns the next item. `None` if more bytes are needed, or there are no more items.
    pub fn next_item(&mut self) -> Option<Result<Item<'_>, ReadError>> {
        let element = match self.next_element()? {
            Ok(element) => element,
            Err(error) => {
                if error.is_fatal() {
                    self.form = Form::Unreadable;
                }
                return Some(Err(error));
            }
        };
        let is_first = std::mem::take(&mut self.is_first);
        let bytes = match (&self.form, element) {
            (Form::Json(splitter), NextElement::Buffered(range)) => splitter.bytes(range),
            (Form::Compressed(reader), _) => reader.json(),
            (Form::Events(events), _) => events.json().as_bytes(),
            _ => return None,
        };
        Some(match std::str::from_utf8(bytes) {
            Ok(text) => parse_element(text, is_first),
            Err(error) => {
                let text = String::from_utf8_lossy(bytes);
                // Later records refer to definitions by position, so that a name that is not UTF-8
                // takes its place too.
                let definition = Record::parse(&text)
                    .ok()
                    .filter(|record| record.definition().is_some());
                Err(ReadError::element(
                    error,
                    &text,
                    definition.map(Record::into_owned),
                ))
            }
        })
    }

    fn next_element(&mut self) -> Option<Result<NextElement, ReadError>> {
        let no_json = |reason: &str| Err(ReadError::element(reason, "", None));
        match &mut self.form {
            Form::Json(splitter) => {
                let element = splitter.next_element()?;
                Some(
                    element
                        .map(NextElement::Buffered)
                        .map_err(|error| ReadError::element(error, "", None)),
                )
            }
            Form::Compressed(reader) => Some(match reader.next_item() {
                Ok(Some(CborItem::Json)) => Ok(NextElement::Converted),
                Ok(Some(CborItem::NoJson)) => no_json("a CBOR item that has no JSON"),
                Ok(Some(CborItem::TooLong)) => no_json("the element is too long"),
                Ok(None) if self.has_ended && reader.is_cut() => {
                    Err(binary("the file ends before its seek table"))
                }
                Ok(None) => return None,
                Err(error) => Err(binary(error)),
            }),
            Form::Events(events) => Some(match events.next_event()? {
                Ok(()) => Ok(NextElement::Converted),
                Err(error) => no_json(&error.to_string()),
            }),
            Form::Message(_) if self.has_ended => Some(Err(binary("the file is incomplete"))),
            Form::Unknown(begin) if self.has_ended && !begin.is_empty() => {
                let text = String::from_utf8_lossy(begin).into_owned();
                self.form = Form::Unreadable;
                Some(Err(ReadError::element(
                    "the recording is incomplete",
                    &text,
                    None,
                )))
            }
            Form::Unknown(_) | Form::Message(_) | Form::Unreadable => None,
        }
    }

    /// Finds the form by the first bytes, if there are enough.
    fn find_form(&mut self) -> Result<(), ReadError> {
        let Form::Unknown(begin) = &mut self.form else {
            return Ok(());
        };
        let begin = std::mem::take(begin);
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let first = begin.iter().find(|byte| !is_space(byte)).copied();
        // No JSON begins with this byte.
        let is_binary = begin.first() == BINARY_MAGIC.first();
        self.form = match (first, begin.split_at_checked(BINARY_HEADER_BYTES)) {
            (None, _) => Form::Unknown(Vec::new()),
            (Some(_), None) if is_binary => Form::Unknown(begin),
            (Some(_), Some((header, body))) if is_binary => {
                if !header.starts_with(&BINARY_MAGIC) {
                    return Err(binary("the file has another magic number"));
                }
                let version = header.get(BINARY_MAGIC.len()).copied().unwrap_or_default();
                match version {
                    0 => {
                        let mut unpacker = Unpacker::new(MAX_MESSAGE_BYTES);
                        unpacker.push(body).map_err(binary)?;
                        Form::Message(unpacker)
                    }
                    1 => {
                        let reader = CompressedReader::new(self.max_element_bytes);
                        let mut reader = reader.map_err(binary)?;
                        reader.push(body);
                        Form::Compressed(Box::new(reader))
                    }
                    version => return Err(ReadError::Container(version)),
                }
            }
            (Some(first), _) => {
                let is_array = first == b'[';
                let layout = if is_array {
                    Layout::Array
                } else {
                    Layout::Lines
                };
                let mut splitter = ElementSplitter::new(layout, self.max_element_bytes);
                splitter.push(&begin);
                Form::Json(splitter)
            }
        };
        Ok(())
    }

    /// Opens the message of the binary form 0 when it is there as a whole.
    fn open_message(&mut self) -> Result<(), ReadError> {
        if !matches!(&self.form, Form::Message(unpacker) if unpacker.is_complete()) {
            return Ok(());
        }
        // Without a message that can be opened nothing is left to read.
        if let Form::Message(unpacker) = std::mem::replace(&mut self.form, Form::Unreadable) {
            let events = unpacker
                .finish()
                .and_then(EventList::open)
                .map_err(binary)?;
            self.form = Form::Events(Box::new(events));
        }
        Ok(())
    }
}

fn binary(error: impl ToString) -> ReadError {
    ReadError::Binary(error.to_string())
}

fn parse_element(text: &str, is_first: bool) -> Result<Item<'_>, ReadError> {
    if is_first && let Some(metadata) = parse_metadata(text) {
        return Ok(Item::Metadata(metadata));
    }
    Record::parse(text).map(Item::Record).map_err(|error| {
        let placeholder = Record::placeholder(text);
        ReadError::element(error, text, placeholder)
    })
}

/// The metadata, if this is the object with it and not a record.
fn parse_metadata(text: &str) -> Option<RecordingMetadata> {
    #[derive(Deserialize)]
    // A record is an object of one member, its kind: it has neither of these.
    struct Members {
        program: Option<String>,
        workdir: Option<String>,
    }
    let members: Members = serde_json::from_str(text).ok()?;
    if members.program.is_none() && members.workdir.is_none() {
        return None;
    }
    RecordingMetadata::parse(text).ok()
}

#[cfg(test)]
mod tests;
