//! Metadata: the declarations of a trace, parsed from bytes that may arrive in chunks of any size.
//!
//! [`Metadata`] reads and owns it; [`Trace`] is what has been declared so far, with its
//! [`StreamClass`]es and their [`EventClass`]es. What fields are made of is in
//! [`model`](crate::model).
//!
//! Bytes are taken out of their packets (`packets`), parsed as text of CTF 1.8 (`tsdl`) or as JSON
//! of CTF 2 (`json`), and what was parsed is made ready for decoding (`resolve`): references to
//! lengths and selections become numbered places, and each class gets the plan by which it is
//! decoded. The first byte of the text shows which of the two versions it is, the first four bytes
//! whether it is in packets.
//!
//! A declaration is valid as soon as it is complete, and never changes afterwards. Event classes
//! before their stream class are pending until that is declared.

mod classes;
mod clock_origin;
mod decoder_fields;
mod hidden;
mod identity;
mod json;
mod packets;
mod resolve;
mod trace;
mod tsdl;
mod warning;

pub use classes::{EventClass, StreamClass};
pub use clock_origin::ClockOrigin;
pub use identity::TraceIdentity;
pub(crate) use resolve::STREAM_SLOTS_END;
pub use trace::Trace;
pub use warning::{Deviation, Warning};

use std::collections::BTreeMap;
use std::sync::Arc;

use self::packets::Unpacker;
use crate::clock::TimeCorrections;
use crate::error::MetadataError;
use crate::model::{Declaration, EventDraft, Position};

/// The first byte of JSON text sequences (RFC 7464), which no TSDL text begins with.
const RECORD_SEPARATOR: u8 = 0x1E;
/// Largest number of event classes whose stream class has not been declared yet.
const MAX_PENDING_EVENT_CLASSES: usize = 1 << 16;

/// The metadata of one trace, as far as it has been read.
///
/// ```
/// let mut metadata = ctf::Metadata::new();
/// metadata.extend(b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };")?;
/// metadata.extend(b"stream { id = 0; event.header := struct { integer { size = 8; } id; }; };")?;
/// metadata.extend(b"event { id = 7; stream_id = 0; name = \"tick\"; };")?;
/// let stream = metadata.trace().stream(0).unwrap();
/// assert_eq!(stream.event(7).unwrap().name(), Some("tick"));
/// # Ok::<(), ctf::MetadataError>(())
/// ```
pub struct Metadata {
    unpacker: Unpacker,
    form: Option<Form>,
    trace: Trace,
    /// The event classes of stream classes that have not been declared; those of `None` belong to
    /// the first stream class that will be.
    pending: BTreeMap<Option<u64>, Vec<EventDraft>>,
    pending_count: usize,
    text: Vec<u8>,
}

enum Form {
    Tsdl(Box<tsdl::Parser>),
    Json(Box<json::Parser>),
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Metadata").field(&self.trace).finish()
    }
}

impl Default for Metadata {
    fn default() -> Self {
        Self::new()
    }
}

impl Metadata {
    /// Metadata of which nothing has been read.
    #[must_use]
    pub fn new() -> Self {
        Self {
            unpacker: Unpacker::new(),
            form: None,
            trace: Trace::default(),
            pending: BTreeMap::new(),
            pending_count: 0,
            text: Vec::new(),
        }
    }

    /// Whether the metadata is JSON, that is CTF 2. False until its first byte has been read.
    #[must_use]
    pub fn is_json(&self) -> bool {
        matches!(self.form, Some(Form::Json(_)))
    }

    /// Reads metadata that is complete.
    ///
    /// # Errors
    /// If `bytes` are not metadata, or not all of it.
    pub fn read(bytes: &[u8]) -> Result<Self, MetadataError> {
        let mut metadata = Self::new();
        metadata.extend(bytes)?;
        metadata.finish()?;
        Ok(metadata)
    }

    /// Reads more metadata. `bytes` may begin and end anywhere; a declaration takes effect when it
    /// is complete.
    ///
    /// # Errors
    /// If the metadata is invalid. Declarations before the error stay valid; no more are read.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), MetadataError> {
        self.text.clear();
        self.unpacker.extend(bytes, &mut self.text)?;
        let Some(first) = self.text.first() else {
            return Ok(());
        };
        // By the text and not by the version in the packet header: LTTng 2.15 writes 1.8 there for
        // both.
        let form = self.form.get_or_insert_with(|| {
            if *first == RECORD_SEPARATOR {
                Form::Json(Box::new(json::Parser::new()))
            } else {
                Form::Tsdl(Box::new(tsdl::Parser::new(self.unpacker.is_packetised())))
            }
        });
        let declarations = match form {
            Form::Tsdl(parser) => parser.extend(&self.text)?,
            Form::Json(parser) => parser.extend(&self.text)?,
        };
        self.declare(declarations)
    }

    /// Ends the metadata.
    ///
    /// # Errors
    /// If it ends within a declaration, or refers to something that it does not declare.
    pub fn finish(&mut self) -> Result<(), MetadataError> {
        self.unpacker.finish(&mut self.trace.warnings)?;
        match &mut self.form {
            Some(Form::Tsdl(parser)) => parser.finish()?,
            Some(Form::Json(parser)) => parser.finish()?,
            None => {
                return Err(MetadataError::text(
                    Position::default(),
                    "there is no metadata",
                ));
            }
        }
        // Those that name no stream class get the implied one, 0; those of any other are refused.
        for event in std::mem::take(&mut self.pending).into_values().flatten() {
            self.trace.declare(Declaration::Event(event))?;
        }
        // CTF 1.8 implies one.
        if self.is_json() && self.trace.streams().next().is_none() {
            let what = "no data stream class is declared, so that the trace has no event";
            self.trace.warnings.add(Position::default(), what);
        }
        Ok(())
    }

    /// The text of the bytes that were read last, without packet headers and padding.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether the text is in packets. False until the first four bytes have been read.
    #[must_use]
    pub fn is_packetised(&self) -> bool {
        self.unpacker.is_packetised()
    }

    /// Declares the implied stream class, to be called when a packet arrives: if no stream
    /// class has been declared, pending event classes that name none belong to an empty one
    /// with the id 0. Not earlier, because a declaration may still follow until the first
    /// packet needs it.
    ///
    /// # Errors
    /// If one of the event classes is refused.
    pub fn imply_stream(&mut self) -> Result<(), MetadataError> {
        if self.trace.streams().next().is_none() {
            self.declare_pending(None)?;
        }
        Ok(())
    }

    /// The trace as far as it has been declared.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Corrects the times of all streams, also of those that are declared later. The cycles of
    /// events stay as they are.
    pub fn correct_times(&mut self, corrections: Arc<TimeCorrections>) {
        self.trace.correct_times(corrections);
    }

    /// Takes the warnings since the last call: unknown attributes, rules that the metadata breaks,
    /// and the like.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        let mut warnings = match &mut self.form {
            Some(Form::Tsdl(parser)) => parser.take_warnings(),
            Some(Form::Json(_)) | None => Vec::new(),
        };
        warnings.append(&mut self.trace.warnings.take_all());
        warnings
    }

    fn declare(&mut self, declarations: Vec<Declaration>) -> Result<(), MetadataError> {
        for declaration in declarations {
            match declaration {
                Declaration::Event(event) if !self.has_stream_of(&event) => {
                    self.defer_event(event)?
                }
                Declaration::Stream(stream) => {
                    let id = stream.id.unwrap_or(0);
                    self.trace.declare(Declaration::Stream(stream))?;
                    // At once, not after all others, so that the result does not depend on how the
                    // metadata was cut into pieces.
                    for id in [None, Some(id)] {
                        self.declare_pending(id)?;
                    }
                }
                declaration => {
                    let is_trace = matches!(declaration, Declaration::Trace(_));
                    self.trace.declare(declaration)?;
                    if is_trace {
                        self.check_uuid()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn defer_event(&mut self, event: EventDraft) -> Result<(), MetadataError> {
        // Each keeps its memory until its stream class is declared, which hostile metadata never
        // does.
        if self.pending_count >= MAX_PENDING_EVENT_CLASSES {
            let what = format!("more than {MAX_PENDING_EVENT_CLASSES} events without their stream");
            return Err(MetadataError::text(event.at, what));
        }
        self.pending_count += 1;
        self.pending.entry(event.stream_id).or_default().push(event);
        Ok(())
    }

    fn declare_pending(&mut self, stream_id: Option<u64>) -> Result<(), MetadataError> {
        let events = self.pending.remove(&stream_id).unwrap_or_default();
        self.pending_count -= events.len();
        for event in events {
            self.trace.declare(Declaration::Event(event))?;
        }
        Ok(())
    }

    fn has_stream_of(&self, event: &EventDraft) -> bool {
        match event.stream_id {
            Some(id) => self.trace.stream(id).is_some(),
            None => self.trace.streams().next().is_some(),
        }
    }

    /// Checks the UUID of the trace against that of the packets that carry the metadata.
    fn check_uuid(&mut self) -> Result<(), MetadataError> {
        match (self.trace.uuid, self.unpacker.uuid()) {
            (Some(declared), Some(carried)) if declared != carried => Err(MetadataError::text(
                Position::default(),
                format!("the trace is {declared}, but its metadata packets say {carried}"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &[u8] = b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";

    #[test]
    fn an_undeclared_stream_class_is_implied_by_the_first_packet() {
        let mut metadata = Metadata::new();
        metadata.extend(TRACE).unwrap();
        metadata.extend(b"event { name = tick; };").unwrap();
        assert_eq!(metadata.trace().streams().count(), 0);
        metadata.imply_stream().unwrap();
        let stream = metadata.trace().stream(0).unwrap();
        assert_eq!(stream.event(0).unwrap().name(), Some("tick"));
    }

    #[test]
    fn an_event_class_is_pending_until_its_stream_class_is_declared() {
        let mut metadata = Metadata::new();
        metadata.extend(TRACE).unwrap();
        let tick = b"event { id = 0; stream_id = 7; name = tick; };";
        metadata.extend(tick).unwrap();
        metadata.imply_stream().unwrap();
        assert_eq!(metadata.trace().streams().count(), 0);
        metadata.extend(b"stream { id = 7; };").unwrap();
        assert!(metadata.trace().stream(7).unwrap().event(0).is_some());
    }
}
