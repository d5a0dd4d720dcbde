//! The form of a line of the log, chosen at the start of the program.
//!
//! The library has a type for each form, and code for each combination of a form and a target.
//! These two types choose at each line instead.

use std::fmt;
use std::mem;

use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{
    DefaultFields, Format, Full, Json, JsonFields, Writer, format,
};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people; in colors if standard error is a terminal.
    Text,
    /// One JSON object to a line.
    Json,
}

/// Writes the line of an event.
pub(crate) enum LineFormat {
    Text(Format),
    TextWithoutTime(Format<Full, ()>),
    Json(Format<Json>),
    JsonWithoutTime(Format<Json, ()>),
}

impl LineFormat {
    pub(crate) fn new(form: LogFormat) -> Self {
        match form {
            LogFormat::Text => Self::Text(format()),
            LogFormat::Json => Self::Json(format().json()),
        }
    }

    pub(crate) fn without_time(form: LogFormat) -> Self {
        match form {
            LogFormat::Text => Self::TextWithoutTime(format().without_time()),
            LogFormat::Json => Self::JsonWithoutTime(format().json().without_time()),
        }
    }

    /// Returns the form of the fields in these lines.
    pub(crate) fn fields(&self) -> FieldFormat {
        match self {
            Self::Text(_) | Self::TextWithoutTime(_) => FieldFormat::Text(DefaultFields::new()),
            Self::Json(_) | Self::JsonWithoutTime(_) => FieldFormat::Json(JsonFields::new()),
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self {
            Self::Text(format) => format.format_event(context, writer, event),
            Self::TextWithoutTime(format) => format.format_event(context, writer, event),
            Self::Json(format) => format.format_event(context, writer, event),
            Self::JsonWithoutTime(format) => format.format_event(context, writer, event),
        }
    }
}

/// Writes the fields of an event or a span.
pub(crate) enum FieldFormat {
    Text(DefaultFields),
    Json(JsonFields),
}

impl<'writer> FormatFields<'writer> for FieldFormat {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        match self {
            Self::Text(format) => format.format_fields(writer, fields),
            Self::Json(format) => format.format_fields(writer, fields),
        }
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let text = mem::take(&mut current.fields);
        let (text, added) = match self {
            Self::Text(format) => add_fields_of(format, text, fields),
            Self::Json(format) => add_fields_of(format, text, fields),
        };
        current.fields = text;
        added
    }
}

/// Adds fields to those of a span, which are `text`.
fn add_fields_of<F>(format: &F, text: String, fields: &Record<'_>) -> (String, fmt::Result)
where
    F: for<'writer> FormatFields<'writer>,
{
    let mut formatted = FormattedFields::new(text);
    let added = format.add_fields(&mut formatted, fields);
    (formatted.fields, added)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::field::Empty;
    use tracing::subscriber::with_default;
    use tracing::{info, info_span};
    use tracing_subscriber::fmt::{self, MakeWriter};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// Returns the line of an event in a span of which one field is recorded late.
    fn line_in_span(line: LineFormat) -> String {
        let written = Written::default();
        let layer = fmt::layer()
            .with_writer(written.clone())
            .fmt_fields(line.fields())
            .event_format(line)
            .with_ansi(false);
        with_default(tracing_subscriber::registry().with(layer), || {
            let span = info_span!("session", id = 7, host = Empty);
            span.record("host", "alpha");
            span.in_scope(|| info!(packets = 3, "closed"));
        });
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn text_line_has_the_fields_of_its_event_and_of_its_span() {
        let rest =
            "INFO session{id=7 host=\"alpha\"}: daemon::line_format::tests: closed packets=3\n";
        let line = line_in_span(LineFormat::without_time(LogFormat::Text));
        assert_eq!(line.trim_start(), rest);
        let line = line_in_span(LineFormat::new(LogFormat::Text));
        let (time, line) = line.split_once("  ").unwrap();
        assert_eq!(line, rest);
        assert!(time.ends_with('Z'), "{time}");
    }

    #[test]
    fn json_line_has_the_fields_of_its_event_and_of_its_span() {
        let rest = "\"level\":\"INFO\",\"fields\":{\"message\":\"closed\",\"packets\":3},\
            \"target\":\"daemon::line_format::tests\",\
            \"span\":{\"host\":\"alpha\",\"id\":7,\"name\":\"session\"},\
            \"spans\":[{\"host\":\"alpha\",\"id\":7,\"name\":\"session\"}]}\n";
        let line = line_in_span(LineFormat::without_time(LogFormat::Json));
        assert_eq!(line, format!("{{{rest}"));
        let line = line_in_span(LineFormat::new(LogFormat::Json));
        let (time, line) = line.split_once(',').unwrap();
        assert_eq!(line, rest);
        assert!(time.starts_with("{\"timestamp\":\""), "{time}");
    }
}
