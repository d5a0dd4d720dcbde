//! The properties of fragments, apart from their field classes. Properties that are not listed are
//! ignored, as the specification asks.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::Value;

use super::class::ClassOrAlias;
use super::problem::Problem;
use super::property::{Attributes, Extensions, Name, Ordered};
use crate::model::{Clock, EnvironmentValue, LogLevel, Uuid};

/// The namespace of LTTng's attributes.
const LTTNG: &str = "lttng.org,2009";

/// LTTng's names of log levels, from 0.
const LOG_LEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// The properties that every fragment has.
#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) extensions: Extensions,
    #[serde(default, rename = "attributes")]
    _attributes: Attributes,
}

#[derive(Debug, Deserialize)]
pub(super) struct PreambleFragment {
    pub(super) version: u64,
    pub(super) uuid: Option<[u8; 16]>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AliasFragment {
    pub(super) name: Name,
    #[serde(rename = "field-class")]
    pub(super) class: ClassOrAlias,
}

#[derive(Debug, Deserialize)]
pub(super) struct TraceFragment {
    pub(super) namespace: Option<Name>,
    pub(super) name: Option<Name>,
    pub(super) uid: Option<Name>,
    pub(super) environment: Option<Ordered<Environment>>,
    #[serde(rename = "packet-header-field-class")]
    pub(super) packet_header: Option<ClassOrAlias>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ClockFragment {
    id: Name,
    frequency: u64,
    uid: Option<Name>,
    /// The string "unix-epoch", or an object that describes another origin.
    origin: Option<Value>,
    #[serde(default)]
    offset_from_origin: Offset,
    precision: Option<u64>,
    description: Option<Name>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Offset {
    seconds: i64,
    cycles: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamFragment {
    pub(super) id: Option<u64>,
    pub(super) name: Option<Name>,
    #[serde(rename = "default-clock-class-id")]
    pub(super) clock: Option<Name>,
    #[serde(rename = "packet-context-field-class")]
    pub(super) packet_context: Option<ClassOrAlias>,
    #[serde(rename = "event-record-header-field-class")]
    pub(super) event_header: Option<ClassOrAlias>,
    #[serde(rename = "event-record-common-context-field-class")]
    pub(super) event_context: Option<ClassOrAlias>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventFragment {
    pub(super) id: Option<u64>,
    #[serde(rename = "data-stream-class-id")]
    pub(super) stream_id: Option<u64>,
    pub(super) name: Option<Name>,
    #[serde(default)]
    attributes: Value,
    #[serde(rename = "specific-context-field-class")]
    pub(super) context: Option<ClassOrAlias>,
    #[serde(rename = "payload-field-class")]
    pub(super) payload: Option<ClassOrAlias>,
}

impl EventFragment {
    /// The log level; `None` if the name is unknown: decoding does not need it.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        let name = self.attribute("log-level")?;
        let number = LOG_LEVELS.iter().position(|level| *level == name)?;
        u8::try_from(number).ok().map(LogLevel)
    }

    pub(super) fn emf_uri(&self) -> Option<Arc<str>> {
        self.attribute("emf-uri").map(Arc::from)
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(LTTNG)?.get(name)?.as_str()
    }
}

impl ClockFragment {
    pub(super) fn model(&self) -> Result<Clock, Problem> {
        if self.frequency == 0 {
            return Err(Problem::new("a clock with the frequency 0"));
        }
        let absolute = match &self.origin {
            Some(Value::String(name)) if name == "unix-epoch" => true,
            // The origin of a clock that can be compared only with clocks of the same origin.
            Some(Value::Object(_)) | None => false,
            Some(unknown) => {
                return Err(Problem::new(format!("unknown clock origin {unknown}")));
            }
        };
        Ok(Clock {
            name: Arc::clone(&self.id.0),
            // A unique ID of CTF 2 may be any text: one that is no UUID cannot be the `uuid` of a
            // clock of CTF 1.8.
            uuid: self.uid.as_ref().and_then(|uid| Uuid::parse(&uid.0)),
            description: self.description.as_ref().map(|text| Arc::clone(&text.0)),
            frequency: self.frequency,
            precision: self.precision,
            offset_seconds: self.offset_from_origin.seconds,
            offset_cycles: self.offset_from_origin.cycles,
            absolute,
        })
    }
}

/// The value of an entry of the environment.
#[derive(Debug)]
pub(super) struct Environment(pub(super) EnvironmentValue);

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entry;

        impl Visitor<'_> for Entry {
            type Value = EnvironmentValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or an integer of 64 bits with sign")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(EnvironmentValue::Text(text.into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(EnvironmentValue::Integer(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                i64::try_from(number)
                    .map(EnvironmentValue::Integer)
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
            }
        }

        from.deserialize_any(Entry).map(Self)
    }
}
