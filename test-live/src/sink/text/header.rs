//! The part of a line between the time and the fields: where the event is from, and its name.

use ctf::decode::Event;
use ctf::model::EnvironmentValue;
use viewer::attach::TraceInfo;

use super::style::Style;

/// The parts that stand before the event's name. (`--fields`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderFields {
    /// Whether the trace's name is shown.
    pub trace: bool,
    /// Whether `hostname` of the environment is shown.
    pub hostname: bool,
    /// Whether `domain` of the environment is shown.
    pub domain: bool,
    /// Whether `procname` of the environment is shown.
    pub procname: bool,
    /// Whether `vpid` of the environment is shown.
    pub vpid: bool,
    /// The event class' log level.
    pub log_level: bool,
    /// The event class' EMF URI.
    pub emf_uri: bool,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self {
            trace: false,
            hostname: true,
            domain: false,
            procname: true,
            vpid: true,
            log_level: false,
            emf_uri: false,
        }
    }
}

/// The text between the time and the fields of `event`, and of all others of its class.
pub(super) fn header(
    event: &Event<'_>,
    trace: &TraceInfo,
    fields: HeaderFields,
    named: bool,
    style: &Style,
) -> Vec<u8> {
    let class = event.class();
    let environment = |name| match event.trace().environment_value(name)? {
        EnvironmentValue::Text(text) => Some(text.to_string()),
        EnvironmentValue::Integer(number) => Some(number.to_string()),
    };
    let log_level = || {
        let level = class.log_level()?;
        Some(format!("{} ({})", level.name()?, level.0))
    };
    let parts = [
        (fields.hostname, "trace:hostname", environment("hostname")),
        (fields.domain, "trace:domain", environment("domain")),
        (fields.procname, "trace:procname", environment("procname")),
        (
            fields.vpid,
            "trace:vpid",
            environment("vpid").map(|vpid| format!("({vpid})")),
        ),
        (fields.log_level, "loglevel", log_level()),
        (
            fields.emf_uri,
            "model.emf.uri",
            class.emf_uri().map(str::to_owned),
        ),
    ];
    let name = |name: &str| format!("{}{name}{} = ", style.name, style.end);
    let mut text = String::new();
    if fields.trace {
        if named {
            text.push_str(&name("trace"));
        }
        text.push_str(&trace.name);
        if named {
            // The empty element between the two is what scripts know.
            text.push_str(", , ");
        }
    }
    let shown = parts.iter().filter(|(is_wanted, _, _)| *is_wanted);
    let shown = shown.filter_map(|(_, part, value)| Some((*part, value.as_deref()?)));
    if named {
        for (part, value) in shown {
            text.push_str(&format!("{}{value}, ", name(part)));
        }
    } else {
        let values: Vec<_> = shown.map(|(_, value)| value).collect();
        text.push_str(&values.join(":"));
        text.push_str(if values.is_empty() { "" } else { " " });
    }
    if named {
        text.push_str(&name("name"));
    }
    text.push_str(style.event);
    text.push_str(class.name().unwrap_or("<unknown>"));
    text.push_str(style.end);
    text.push_str(if named { ", " } else { ": " });
    text.into_bytes()
}
