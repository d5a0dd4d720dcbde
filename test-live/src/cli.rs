//! The command line. What `babeltrace2` has too is called the same.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use jiff::tz::TimeZone;

use crate::attach::target::Target;
use crate::bound::TypedTime;
use crate::sink::tef;
use crate::sink::text::{ClockFormat, HeaderFields, Names, TextOptions};

/// Show live what is being recorded on other hosts, and read CTF traces.
#[derive(Debug, Parser)]
#[command(
    name = "test-live",
    version,
    after_help = EXAMPLES,
    max_term_width = 100,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub struct Arguments {
    /// What to read.
    #[arg(value_name = "TARGET", required = true, help = TARGETS)]
    pub targets: Vec<Target>,

    /// List the sessions of relays, and end
    #[arg(short, long)]
    pub list: bool,
    /// List as JSON
    #[arg(long, requires = "list")]
    pub json: bool,

    /// Where to begin in sessions that are there already
    #[arg(long, value_enum, default_value = "last", help_heading = "Live")]
    pub seek: SeekTo,
    /// Wait for more: sessions that come later, directories that are being written
    #[arg(long, overrides_with = "no_follow", help_heading = "Live")]
    pub follow: bool,
    /// End when what is there has ended
    #[arg(long, overrides_with = "follow", help_heading = "Live")]
    pub no_follow: bool,
    /// What to do if the session is not there
    #[arg(long, value_enum, value_name = "ACTION", help_heading = "Live")]
    pub session_not_found: Option<NotFound>,
    /// When a relay is not there or goes away, end instead of trying again
    #[arg(long, help_heading = "Live")]
    pub no_retry: bool,
    /// Ask the relay again and again, even if it offers to say when there is more
    #[arg(long, help_heading = "Live")]
    pub poll: bool,

    /// Nothing earlier: [YYYY-MM-DD ]HH:MM:SS[.N] or SECONDS[.N]
    #[arg(
        short,
        long,
        value_name = "TIME",
        help_heading = "Selection",
        allow_hyphen_values = true
    )]
    pub begin: Option<TypedTime>,
    /// Nothing later
    #[arg(
        short,
        long,
        value_name = "TIME",
        help_heading = "Selection",
        allow_hyphen_values = true
    )]
    pub end: Option<TypedTime>,
    /// Only events that match, as in '$name == "sched_*" && prev_tid > 0'
    #[arg(long, value_name = "EXPR", help_heading = "Selection")]
    pub filter: Option<String>,
    /// No more than N events
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub limit: Option<u64>,
    /// Only the time in which all streams of a trace are active
    #[arg(long, help_heading = "Selection")]
    pub stream_intersection: bool,

    /// Where events go
    #[arg(long, value_enum, default_value = "text", help_heading = "Output")]
    pub sink: SinkKind,
    /// To a file instead of standard output; for --sink ctf a directory
    #[arg(short = 'w', long, value_name = "PATH", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Fail if anything was lost
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// No summary, no notices
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Times in universal time
    #[arg(long, help_heading = "Text")]
    pub clock_gmt: bool,
    /// Times with their date
    #[arg(long, help_heading = "Text")]
    pub clock_date: bool,
    /// Times as seconds since 1970
    #[arg(long, help_heading = "Text")]
    pub clock_seconds: bool,
    /// Times as cycles of their clock
    #[arg(long, help_heading = "Text")]
    pub clock_cycles: bool,
    /// Add so many seconds to all times
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0,
        allow_hyphen_values = true,
        help_heading = "Text"
    )]
    pub clock_offset: i64,
    /// Add so many nanoseconds to all times
    #[arg(
        long,
        value_name = "NS",
        default_value_t = 0,
        allow_hyphen_values = true,
        help_heading = "Text"
    )]
    pub clock_offset_ns: i64,
    /// Without the time since the event before
    #[arg(long, help_heading = "Text")]
    pub no_delta: bool,
    /// Where names are shown: payload, context, scope, header, all, none
    #[arg(short, long, value_name = "LIST", help_heading = "Text")]
    pub names: Option<NamesList>,
    /// What stands before the event's name: trace, trace:hostname, trace:domain, trace:procname,
    /// trace:vpid, loglevel, emf, callsite, all
    #[arg(short, long, value_name = "LIST", help_heading = "Text")]
    pub fields: Option<FieldsList>,
    /// Colours
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Text"
    )]
    pub color: Colour,

    /// Write what that viewer would take amiss otherwise, in order of time and since the first event;
    /// all is held until the end
    #[arg(
        long = "for",
        value_enum,
        value_name = "VIEWER",
        help_heading = "Trace Event Format"
    )]
    pub viewer: Option<Viewer>,
    /// Times of events that programs have sent in this format
    #[arg(
        long,
        value_enum,
        default_value = "producer",
        value_name = "CLOCK",
        help_heading = "Trace Event Format"
    )]
    pub tef_time: TefTime,

    /// Say more; twice: much more
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

// Not a comment on the field, where brackets are links.
const TARGETS: &str = "What to read: HOST[:PORT] for all live sessions of a relay, \
net://HOST[:PORT]/host/TRACED/SESSION for one of them, or a directory: a trace, or a tree of traces";

const EXAMPLES: &str = "\
Examples:
  test-live collector                       all that is being recorded there, as it happens
  test-live --list collector                which sessions there are
  test-live net://collector/host/db7/slow   one session
  test-live ~/lttng-traces/slow-20260101    a recording, as text
  test-live --filter '$name == \"sched_*\" && prev_tid > 0' collector
  test-live --sink tef --for perfetto -w trace.json DIR    for ui.perfetto.dev
  test-live --sink counter collector        events per second, by name and stream

Exit status: 0 all was shown; 1 something could not be read, or was lost and --strict was given;
2 the command line is wrong.";

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeekTo {
    /// With all that the relay still has
    Beginning,
    /// With what comes from now on
    Last,
}

/// What to do if there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NotFound {
    /// Wait for it
    Continue,
    /// End with an error
    Fail,
    /// End
    End,
}

/// Where events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SinkKind {
    /// Lines, as babeltrace2 writes them
    Text,
    /// All that is known of each event, on many lines
    Details,
    /// An object on each line
    Json,
    /// A trace.json for ui.perfetto.dev and chrome://tracing
    Tef,
    /// A copy that every reader of CTF understands
    Ctf,
    /// Events per second
    Counter,
    /// Nowhere: decode only
    Dummy,
}

/// Who opens a trace.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// ui.perfetto.dev
    Perfetto,
}

/// Times of events that were sent in Trace Event Format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TefTime {
    /// As the program wrote them
    Producer,
    /// When they arrived, on the clock of all other events
    Arrival,
}

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On terminals
    Auto,
    /// Never
    Never,
    /// Always
    Always,
}

/// `--names`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesList(pub Names);

impl FromStr for NamesList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |all| Names {
            payload: all,
            context: all,
            scope: all,
            header: all,
        };
        let mut names = of(false);
        for word in text.split(',') {
            match word.trim() {
                "payload" | "arg" | "args" => names.payload = true,
                "context" | "ctx" => names.context = true,
                "scope" => names.scope = true,
                "header" => names.header = true,
                "all" => names = of(true),
                "none" => names = of(false),
                other => return Err(format!("there are no names of {other:?}")),
            }
        }
        Ok(Self(names))
    }
}

/// `--fields`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldsList(pub HeaderFields);

impl FromStr for FieldsList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |all| HeaderFields {
            trace: all,
            hostname: all,
            domain: all,
            procname: all,
            vpid: all,
            log_level: all,
            emf_uri: all,
        };
        let mut fields = of(false);
        for word in text.split(',') {
            match word.trim() {
                "trace" => fields.trace = true,
                "trace:hostname" => fields.hostname = true,
                "trace:domain" => fields.domain = true,
                "trace:procname" => fields.procname = true,
                "trace:vpid" => fields.vpid = true,
                "loglevel" => fields.log_level = true,
                "emf" => fields.emf_uri = true,
                // Known, and never present in a trace.
                "callsite" => {}
                "all" => fields = of(true),
                other => return Err(format!("there is no field {other:?}")),
            }
        }
        Ok(Self(fields))
    }
}

impl Arguments {
    /// How lines of text look, on a terminal or not.
    #[must_use]
    pub fn text(&self, terminal: bool) -> TextOptions {
        TextOptions {
            clock: self.clock(),
            no_delta: self.no_delta,
            names: self.names.map_or_else(Names::default, |list| list.0),
            fields: self
                .fields
                .map_or_else(HeaderFields::default, |list| list.0),
            colour: match self.color {
                Colour::Always => true,
                Colour::Never => false,
                Colour::Auto => terminal,
            },
        }
    }

    /// How times look.
    #[must_use]
    pub fn clock(&self) -> ClockFormat {
        let seconds = Duration::from_secs(self.clock_offset.unsigned_abs());
        let seconds = i64::try_from(seconds.as_nanos()).unwrap_or(i64::MAX);
        ClockFormat {
            seconds: self.clock_seconds,
            cycles: self.clock_cycles,
            date: self.clock_date,
            gmt: self.clock_gmt,
            offset: seconds
                .saturating_mul(self.clock_offset.signum())
                .saturating_add(self.clock_offset_ns),
        }
    }

    /// What a trace.json looks like.
    #[must_use]
    pub fn tef(&self) -> tef::TefOptions {
        tef::TefOptions {
            sent: match self.tef_time {
                TefTime::Producer => tef::SentTimes::Producer,
                TefTime::Arrival => tef::SentTimes::Arrival,
            },
            perfetto: self.viewer == Some(Viewer::Perfetto),
        }
    }

    /// The zone in which times are typed and shown.
    #[must_use]
    pub fn zone(&self) -> TimeZone {
        if self.clock_gmt {
            TimeZone::UTC
        } else {
            TimeZone::system()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_clap_definition_of_the_command_line_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_list_of_names_replaces_the_default_names() {
        let NamesList(names) = "payload,scope".parse().unwrap();
        assert!(names.payload && names.scope && !names.context && !names.header);
        assert!("payload,nothing".parse::<NamesList>().is_err());
        let FieldsList(fields) = "loglevel".parse().unwrap();
        assert!(fields.log_level && !fields.hostname);
    }
}
