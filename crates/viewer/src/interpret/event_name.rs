//! The names of events: by these they are counted, searched for and selected, wherever that is.
//!
//! An event has the name of its class. One that was sent in Trace Event Format has the name that it
//! was sent with instead; its class, as `tef:begin`, says its phase only. Of what is shown as a
//! span, an event has the name of the span as well.

use std::collections::HashMap;
use std::sync::Arc;

use ::tef::ctf::{PREFIX, RecordDecoder};
use ctf::decode::{Event, FieldError, NumberFormat, Visitor};
use ctf::metadata::EventClass;

use super::kind::RecordKind;
use crate::attach::TraceKey;

/// Largest number of characters of a name by which events are counted.
pub const MAX_NAME_CHARACTERS: usize = 256;

/// Largest number of event classes whose names are remembered. With one more, all are forgotten.
const MAX_REMEMBERED_CLASSES: usize = 1 << 16;

/// Trace, stream class and event class.
pub type ClassKey = (TraceKey, u64, u64);

/// The names of events, by their classes.
#[derive(Debug, Default)]
pub struct EventNames {
    /// The names of classes, and the number of classes of the stream class when they were found.
    classes: HashMap<ClassKey, (usize, ClassNames)>,
    finder: NameFinder,
}

impl EventNames {
    /// The names of the class of an event. Found anew when there are more classes: the other half
    /// of a pair may be among them.
    pub fn of_class(&mut self, event: &Event<'_>, key: ClassKey) -> ClassNames {
        let classes = event.stream_class().events();
        if let Some((declared, names)) = self.classes.get(&key)
            && *declared == classes.len()
        {
            // A cheap copy, because the name of the span is shared.
            return names.clone();
        }
        if self.classes.len() >= MAX_REMEMBERED_CLASSES {
            self.classes.clear();
        }
        let names = ClassNames::of(event.class(), classes);
        self.classes.insert(key, (classes.len(), names.clone()));
        names
    }

    /// The name that an event has besides that of its class. `None` if it has none.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub fn own_name(
        &mut self,
        names: &ClassNames,
        event: &Event<'_>,
    ) -> Result<Option<&str>, FieldError> {
        let Some(member) = names.member else {
            return Ok(None);
        };
        self.finder.begin_event(member);
        event.visit_fields(&mut self.finder)?;
        Ok(Some(self.finder.name.as_str()).filter(|name| !name.is_empty()))
    }
}

/// What the events of a class are called, as far as the class says it.
#[derive(Debug, Clone, Default)]
pub struct ClassNames {
    /// The span that the events begin or end, for all of them the same.
    pub span: Option<Arc<str>>,
    /// The member of the payload by which each event has a name of its own.
    member: Option<&'static str>,
    /// Whether the events were sent in Trace Event Format.
    is_sent: bool,
}

impl ClassNames {
    /// The names of a class among the classes of its stream class.
    pub fn of(class: &EventClass, classes: &[EventClass]) -> Self {
        let name = class.name().unwrap_or_default();
        let has_member = |name: &&str| {
            let payload = class.payload();
            payload.is_some_and(|payload| payload.members.iter().any(|of| &*of.name == *name))
        };
        if RecordDecoder::is_known_class(name) {
            return Self {
                member: Some("name").filter(has_member),
                is_sent: true,
                ..Self::default()
            };
        }
        let exists = |name: &str| classes.iter().any(|class| class.name() == Some(name));
        match RecordKind::of(name, exists) {
            RecordKind::Begin(span) | RecordKind::End(span) => Self {
                span: Some(span.name),
                ..Self::default()
            },
            kind => Self {
                member: own_name_member(&kind).filter(has_member),
                ..Self::default()
            },
        }
    }

    /// Whether the names of an event depend on more than its class.
    pub fn has_own_names(&self) -> bool {
        self.member.is_some()
    }

    /// The name of a class, if its events are called so besides their own names.
    pub fn shown_class<'n>(&self, class: Option<&'n str>) -> Option<&'n str> {
        class.filter(|_| !self.is_sent)
    }

    /// Names of a class that says nothing but its own.
    #[cfg(test)]
    pub const NONE: Self = Self {
        span: None,
        member: None,
        is_sent: false,
    };

    /// Whether an event of a class has a name that fits. `own`: its own name, if it has one.
    /// `is_of_phase`: what is looked for is a phase of Trace Event Format, which is the name of a
    /// class.
    pub fn any(
        &self,
        class: Option<&str>,
        own: Option<&str>,
        is_of_phase: bool,
        fits: impl Fn(&str) -> bool,
    ) -> bool {
        let is_class_name = !self.is_sent || is_of_phase || own.is_none();
        class.is_some_and(|class| is_class_name && fits(class))
            || own.is_some_and(&fits)
            || self.span.as_deref().is_some_and(&fits)
    }
}

/// Whether a text that is looked for names a phase of Trace Event Format, as `tef:begin` and
/// `tef:*` do.
pub fn is_phase(text: &[u8]) -> bool {
    text.starts_with(PREFIX.as_bytes())
}

/// The name by which an event that was sent is counted. `None` if it has none: then it is the name
/// of its class.
pub fn counted_name<'e>(sent: &'e ::tef::Event<'_>) -> Option<&'e str> {
    let name = sent.name.as_deref().filter(|name| !name.is_empty());
    name.map(shortened)
}

/// The part of a name by which events are counted.
pub fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(MAX_NAME_CHARACTERS);
    name.get(..end.map_or(name.len(), |(end, _)| end))
        .unwrap_or_default()
}

/// The member of the payload that names what an event of this kind is shown as.
fn own_name_member(kind: &RecordKind) -> Option<&'static str> {
    match kind {
        RecordKind::Record | RecordKind::SpanEnter | RecordKind::SpanExit => Some("name"),
        RecordKind::Log => Some("message"),
        RecordKind::FunctionEntry | RecordKind::FunctionExit => Some("addr"),
        RecordKind::Begin(_) | RecordKind::End(_) | RecordKind::Instant => None,
    }
}

/// Finds the name of an event in a member of its payload.
#[derive(Debug, Default)]
struct NameFinder {
    member: &'static str,
    name: String,
    in_payload: bool,
    depth: usize,
    is_at_name: bool,
}

impl NameFinder {
    fn begin_event(&mut self, member: &'static str) {
        self.member = member;
        self.name.clear();
        (self.in_payload, self.depth, self.is_at_name) = (false, 0, false);
    }
}

impl Visitor for NameFinder {
    visit_depth!();

    fn member(&mut self, name: &str) {
        if self.depth == 1 {
            self.is_at_name = self.in_payload && name == self.member;
        }
    }

    fn unsigned(&mut self, value: u64, _format: NumberFormat<'_>) {
        if self.is_at_name && self.depth == 1 {
            self.name = format!("{value:#x}");
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.is_at_name && self.depth == 1 {
            self.name.clear();
            self.name.push_str(&String::from_utf8_lossy(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use ctf::Metadata;
    use ctf::decode::StreamDecoder;

    use super::*;

    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { u8 id; }; event.context := struct { string _name; }; };
        event { id = 0; name = \"tef:begin\"; fields := struct { struct { string _name; } _in; string _name; }; };
        event { id = 1; name = \"app:span:enter\"; fields := struct { u8 _span; string _name; }; };
        event { id = 2; name = \"lttng_ust_cyg_profile:func_entry\"; fields := struct { u8 _addr; }; };
        event { id = 3; name = \"p:frame_begin\"; fields := struct { string _name; }; };
        event { id = 4; name = \"p:frame_end\"; fields := struct {}; };
        event { id = 5; name = \"app:other\"; fields := struct { string _name; }; };";

    #[test]
    fn events_have_the_names_of_what_they_are_shown_as() {
        let metadata = Metadata::read(METADATA.as_bytes()).unwrap();
        let trace = metadata.trace();
        for (packet, want, not) in [
            (
                &b"\0ctx\0inner\0parse\0"[..],
                &["parse"][..],
                &["tef:begin", "inner", "ctx"][..],
            ),
            (b"\0ctx\0inner\0\0", &["tef:begin"], &["inner", ""]),
            (
                b"\x01ctx\0\x07image\0",
                &["image", "app:span:enter"],
                &["7"],
            ),
            (
                b"\x02ctx\0\x40",
                &["0x40", "lttng_ust_cyg_profile:func_entry"],
                &["64"],
            ),
            (b"\x03ctx\0x\0", &["p:frame", "p:frame_begin"], &["x"]),
            (b"\x05ctx\0x\0", &["app:other"], &["x", "app"]),
        ] {
            let mut decoder = StreamDecoder::new();
            decoder.begin_packet(trace, packet).unwrap();
            assert!(decoder.advance(trace, packet).unwrap());
            let event = decoder.event(trace, packet).unwrap();
            let mut of_events = EventNames::default();
            let names = of_events.of_class(&event, (TraceKey(0), 0, event.class().id()));
            let own = of_events.own_name(&names, &event).unwrap();
            assert!(own.is_none() || names.has_own_names());
            let class = event.class().name();
            let has = |name: &str| names.any(class, own, false, |other| other == name);
            for name in want {
                assert!(has(name), "{name}: {own:?}");
            }
            for name in not {
                assert!(!has(name), "{name}: {own:?}");
            }
            let is_begin = names.any(class, own, true, |other| other == "tef:begin");
            assert_eq!(is_begin, class == Some("tef:begin"));
        }
        assert!(is_phase(b"tef:*") && !is_phase(b"*tef:begin") && !is_phase(b"parse"));
    }

    #[test]
    fn names_by_which_events_are_counted_are_bounded_and_not_empty() {
        let mut event = ::tef::Event::new("B");
        assert_eq!(counted_name(&event), None);
        event.name = Some("".into());
        assert_eq!(counted_name(&event), None);
        event.name = Some("é".repeat(1000).into());
        let name = counted_name(&event).unwrap();
        assert_eq!(name.chars().count(), MAX_NAME_CHARACTERS);
    }
}
