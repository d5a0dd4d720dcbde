//! Metadata as text of CTF 1.8, which grows by whole declarations.

use std::collections::{BTreeMap, BTreeSet};

use super::declare::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, Width,
};
use super::field_text::{field_lines, hexadecimal, signed, unsigned};
use super::text::{identifier, quoted};
use crate::model::{EnvironmentValue, Uuid};

/// Largest number of event classes of a stream class: few, because every viewer reads all of them.
const MAX_EVENT_CLASSES: usize = 4096;

/// The declaration of a trace: what all its streams have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceDeclaration {
    /// The UUID of the trace, which is in every packet.
    pub uuid: Uuid,
    /// Name of the program that writes the trace. Readers would work around LTTng's defects if it
    /// began with `lttng`.
    pub tracer_name: String,
    /// Major, minor and patch version of that program.
    pub tracer_version: [u32; 3],
    /// Further entries of the environment: `hostname`, `trace_name`, `trace_creation_datetime`
    /// (`20260101T000000+0000`), `procname`, `vpid` are shown or used by readers.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// The clock of all times.
    pub clock: TraceClock,
}

/// A clock of 1 GHz. Its offset is measured once: a later correction would change the order of
/// events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceClock {
    /// The identity of what the clock counts from, usually the boot of the host; `None` if it is
    /// not to be declared.
    pub uuid: Option<Uuid>,
    /// Seconds from 1970 to the clock's zero.
    pub offset_seconds: i64,
    /// Nanoseconds to be added to that.
    pub offset_nanoseconds: u64,
}

impl TraceDeclaration {
    /// A declaration without environment entries of its own; its times count from 1970.
    #[must_use]
    pub fn new(uuid: Uuid, tracer_name: &str) -> Self {
        Self {
            uuid,
            tracer_name: tracer_name.to_owned(),
            tracer_version: [0, 1, 0],
            environment: Vec::new(),
            clock: TraceClock::default(),
        }
    }
}

/// The metadata of one trace, as text.
#[derive(Debug, Clone)]
pub struct MetadataText {
    uuid: Uuid,
    text: String,
    /// The number of bytes that [`take_new`](Self::take_new) has returned.
    taken: usize,
    /// Event classes of each stream class.
    streams: BTreeMap<u32, BTreeSet<u32>>,
}

/// The members of the packet context of every stream class.
const PACKET_CONTEXT: [&str; 7] = [
    "clock64_t timestamp_begin",
    "clock64_t timestamp_end",
    "uint64_t content_size",
    "uint64_t packet_size",
    "uint64_t packet_seq_num",
    "uint64_t events_discarded",
    "uint32_t cpu_id",
];

/// The types of all written traces. Members of named structures have no underscore: babeltrace2 2.0
/// loses it there, and then does not find the field to which a variant refers.
const TYPES: &str = r#"
struct event_header_large {
	enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
	variant <id> {
		struct {
			clock32_t timestamp;
		} compact;
		struct {
			uint32_t id;
			clock64_t timestamp;
		} extended;
	} v;
} align(8);

enum bool_t : uint8_t { "false" = 0, "true" = 1 };

struct arg {
	string key;
	enum : uint8_t { nil = 0, flag = 1, sint = 2, uint = 3, real = 4, text = 5 } kind;
	variant <kind> {
		uint8_t nil;
		enum bool_t flag;
		int64_t sint;
		uint64_t uint;
		double real;
		string text;
	} value;
};
"#;

impl MetadataText {
    /// Declares the trace and its clock, and the types that written event classes use.
    #[must_use]
    pub fn new(trace: &TraceDeclaration) -> Self {
        let mut metadata = Self {
            uuid: trace.uuid,
            text: "/* CTF 1.8 */\n\n".to_owned(),
            taken: 0,
            streams: BTreeMap::new(),
        };
        metadata.number_types();
        metadata.trace(trace);
        metadata.clock(trace.clock);
        metadata.line("\nstruct packet_context {");
        for member in PACKET_CONTEXT {
            metadata.line(&format!("\t{member};"));
        }
        metadata.line("};");
        metadata.text.push_str(TYPES);
        metadata
    }

    /// Declares a stream class. All stream classes have the same event header.
    ///
    /// # Errors
    /// If the id is in use.
    pub fn stream(&mut self, id: u32) -> Result<DeclaredStreamClass, DeclareError> {
        self.stream_with_context(id, &[])
    }

    /// Declares a stream class whose packet context ends with further unsigned integers of 64 bits,
    /// of these names. A stream sets them with
    /// [`StreamWriter::set_context`](super::StreamWriter::set_context).
    ///
    /// # Errors
    /// If the id is in use.
    pub fn stream_with_context(
        &mut self,
        id: u32,
        fields: &[&str],
    ) -> Result<DeclaredStreamClass, DeclareError> {
        if self.streams.contains_key(&id) {
            return Err(DeclareError::StreamTwice(id));
        }
        self.streams.insert(id, BTreeSet::new());
        self.line("");
        self.line("stream {");
        self.line(&format!("\tid = {id};"));
        if fields.is_empty() {
            self.line("\tpacket.context := struct packet_context;");
        } else {
            // TSDL cannot extend a structure: the members are repeated.
            self.line("\tpacket.context := struct {");
            for member in PACKET_CONTEXT {
                self.line(&format!("\t\t{member};"));
            }
            for name in fields {
                self.line(&format!("\t\tuint64_t {};", identifier(name)));
            }
            self.line("\t};");
        }
        self.line("\tevent.header := struct event_header_large;");
        self.line("\tevent.context := struct {");
        self.line("\t\tint32_t _vpid;");
        self.line("\t\tint32_t _vtid;");
        self.line("\t};");
        self.line("};");
        let uuid = self.uuid;
        Ok(DeclaredStreamClass {
            uuid,
            id,
            context_fields: fields.len(),
        })
    }

    /// Declares an event class.
    ///
    /// # Errors
    /// If the class is refused; then nothing is declared.
    pub fn event(
        &mut self,
        stream: &DeclaredStreamClass,
        event: &EventDeclaration,
    ) -> Result<DeclaredEventClass, DeclareError> {
        let (id, uuid) = (event.id, self.uuid);
        let events = self.streams.get_mut(&stream.id);
        let Some(events) = events.filter(|_| stream.uuid == uuid) else {
            return Err(DeclareError::OtherStream(stream.id));
        };
        if events.contains(&id) {
            let stream = stream.id;
            return Err(DeclareError::EventTwice { stream, id });
        }
        if events.len() >= MAX_EVENT_CLASSES {
            return Err(DeclareError::TooMany(MAX_EVENT_CLASSES));
        }
        if let Some(level) = event.log_level.filter(|level| level.name().is_none()) {
            return Err(DeclareError::LogLevel(level.0));
        }
        let fields = field_lines(&event.fields)?;
        // After all that can fail: a class that is refused must not take the id.
        events.insert(id);
        self.line("");
        self.line("event {");
        self.line(&format!("\tname = {};", quoted(&event.name)));
        self.line(&format!("\tid = {id};"));
        self.line(&format!("\tstream_id = {};", stream.id));
        if let Some(level) = event.log_level {
            self.line(&format!("\tloglevel = {};", level.0));
        }
        if let Some(uri) = &event.emf_uri {
            self.line(&format!("\tmodel.emf.uri = {};", quoted(uri)));
        }
        self.line("\tfields := struct {");
        for field in fields {
            self.line(&format!("\t\t{field};"));
        }
        self.line("\t};");
        self.line("};");
        Ok(DeclaredEventClass {
            stream: stream.clone(),
            id,
            fields: event.fields.iter().map(|(_, of)| of.clone()).collect(),
        })
    }

    /// The text of all declarations.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The declarations since the last call. They must be stored or sent before the first packet
    /// that needs them.
    pub fn take_new(&mut self) -> &str {
        let from = std::mem::replace(&mut self.taken, self.text.len());
        self.text.get(from..).unwrap_or_default()
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn number_types(&mut self) {
        for width in Width::ALL {
            let size = format!("size = {}; align = 8;", width.bits());
            for (more, name) in [
                ("signed = false;", unsigned(width)),
                ("signed = true;", signed(width)),
                ("signed = false; base = 16;", hexadecimal(width)),
            ] {
                self.line(&format!("typealias integer {{ {size} {more} }} := {name};"));
            }
        }
        self.line(
            "typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := double;",
        );
    }

    fn trace(&mut self, trace: &TraceDeclaration) {
        let uuid = trace.uuid;
        self.line("\ntrace {\n\tmajor = 1;\n\tminor = 8;");
        self.line(&format!("\tuuid = \"{uuid}\";"));
        // `StreamWriter` writes little-endian numbers, also on a big-endian machine.
        self.line("\tbyte_order = le;");
        self.line("\tpacket.header := struct {");
        self.line("\t\tuint32_t magic;");
        self.line("\t\tuint8_t uuid[16];");
        self.line("\t\tuint32_t stream_id;");
        self.line("\t\tuint64_t stream_instance_id;");
        self.line("\t};\n};\n");
        self.line("env {");
        // Trace Compass selects its LTTng view by the domain alone.
        self.line("\tdomain = \"ust\";");
        self.line(&format!("\ttracer_name = {};", quoted(&trace.tracer_name)));
        for (name, number) in ["major", "minor", "patch"].iter().zip(trace.tracer_version) {
            self.line(&format!("\ttracer_{name} = {number};"));
        }
        for (name, value) in &trace.environment {
            let mut name = identifier(name);
            // A name of TSDL does not begin with a digit.
            if name.starts_with(|first: char| first.is_ascii_digit()) || name.is_empty() {
                name.insert(0, '_');
            }
            match value {
                EnvironmentValue::Integer(number) => self.line(&format!("\t{name} = {number};")),
                EnvironmentValue::Text(text) => {
                    self.line(&format!("\t{name} = {};", quoted(text)));
                }
            }
        }
        self.line("};");
    }

    fn clock(&mut self, clock: TraceClock) {
        self.line("\nclock {");
        self.line("\tname = \"monotonic\";");
        if let Some(uuid) = clock.uuid {
            self.line(&format!("\tuuid = \"{uuid}\";"));
        }
        self.line("\tdescription = \"Monotonic Clock\";");
        self.line("\tfreq = 1000000000;");
        self.line(&format!("\toffset_s = {};", clock.offset_seconds));
        self.line(&format!("\toffset = {};", clock.offset_nanoseconds));
        // Readers take LTTng's clock as absolute by its name, but only if the tracer's name begins
        // with `lttng`.
        self.line("\tabsolute = true;");
        self.line("};\n");
        for bits in [32, 64] {
            self.line(&format!(
                "typealias integer {{ size = {bits}; align = 8; signed = false; \
                 map = clock.monotonic.value; }} := clock{bits}_t;"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::declare::{Enumeration, FieldType};
    use super::*;
    use crate::model::LogLevel;

    fn trace(byte: u8) -> TraceDeclaration {
        TraceDeclaration::new(Uuid([byte; 16]), "test")
    }

    #[test]
    fn written_metadata_gives_each_declaration_once_and_complete() {
        let mut metadata = MetadataText::new(&trace(1));
        assert!(metadata.take_new().starts_with("/* CTF 1.8 */\n"));
        assert_eq!(metadata.take_new(), "");
        let stream = metadata.stream(3).unwrap();
        assert!(metadata.take_new().starts_with("\nstream {\n\tid = 3;\n"));
        let event = EventDeclaration {
            log_level: Some(LogLevel(4)),
            emf_uri: Some("a.rs:1".into()),
            fields: vec![
                ("event".into(), FieldType::Boolean),
                (
                    "how".into(),
                    FieldType::Enumeration(Enumeration {
                        width: Width::Bits8,
                        labels: vec![("a".into(), 1), ("\"".into(), 255)],
                    }),
                ),
                ("args".into(), FieldType::Arguments),
            ],
            ..EventDeclaration::new(64, "a \"b\"")
        };
        let class = metadata.event(&stream, &event).unwrap();
        assert_eq!((class.id(), class.stream.id()), (64, 3));
        let want = r#"
event {
	name = "a \"b\"";
	id = 64;
	stream_id = 3;
	loglevel = 4;
	model.emf.uri = "a.rs:1";
	fields := struct {
		enum bool_t _event;
		enum : uint8_t { "a" = 1, "\"" = 255 } _how;
		uint8_t __args_length;
		struct arg _args[__args_length];
	};
};
"#;
        assert_eq!(metadata.take_new(), want);
        assert!(metadata.as_str().ends_with(want));
    }

    #[test]
    fn a_refused_declaration_adds_nothing_to_written_metadata() {
        let mut metadata = MetadataText::new(&trace(1));
        let stream = metadata.stream(0).unwrap();
        metadata
            .event(&stream, &EventDeclaration::new(7, "a"))
            .unwrap();
        let before = metadata.as_str().to_owned();
        assert_eq!(metadata.stream(0), Err(DeclareError::StreamTwice(0)));
        let fields = |fields: &[(&str, FieldType)]| EventDeclaration {
            fields: fields
                .iter()
                .map(|(name, of)| ((*name).to_owned(), of.clone()))
                .collect(),
            ..EventDeclaration::new(8, "b")
        };
        let number = FieldType::Unsigned(Width::Bits8);
        let labels = |labels| {
            FieldType::Enumeration(Enumeration {
                width: Width::Bits8,
                labels,
            })
        };
        let level = EventDeclaration {
            log_level: Some(LogLevel(15)),
            ..EventDeclaration::new(9, "c")
        };
        for (event, want) in [
            (
                EventDeclaration::new(7, "again"),
                DeclareError::EventTwice { stream: 0, id: 7 },
            ),
            (
                fields(&[("a.b", number.clone()), ("a-b", number.clone())]),
                DeclareError::FieldTwice("a-b".into()),
            ),
            (
                fields(&[("_x_length", number.clone()), ("x", FieldType::Arguments)]),
                DeclareError::FieldTwice("x".into()),
            ),
            (fields(&[("", number)]), DeclareError::Nameless),
            (
                fields(&[("e", labels(vec![]))]),
                DeclareError::Labels("e".into()),
            ),
            (
                fields(&[("e", labels(vec![("x".into(), 256)]))]),
                DeclareError::Labels("e".into()),
            ),
            (level, DeclareError::LogLevel(15)),
        ] {
            assert_eq!(metadata.event(&stream, &event), Err(want));
        }
        let other = MetadataText::new(&trace(2)).stream(0).unwrap();
        assert_eq!(
            metadata.event(&other, &EventDeclaration::new(9, "c")),
            Err(DeclareError::OtherStream(0))
        );
        assert_eq!(metadata.as_str(), before);
    }

    #[test]
    fn the_number_of_written_event_classes_is_limited() {
        let mut metadata = MetadataText::new(&trace(1));
        let stream = metadata.stream(0).unwrap();
        for id in 0..4096 {
            metadata
                .event(&stream, &EventDeclaration::new(id, "x"))
                .unwrap();
        }
        assert_eq!(
            metadata.event(&stream, &EventDeclaration::new(4096, "x")),
            Err(DeclareError::TooMany(4096))
        );
    }
}
