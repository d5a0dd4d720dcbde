//! The arguments of `consumer rings`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use daemon::output::has_colors;
use trace_ring_core::Severity;

use crate::frontend::SessionConfig;
use crate::frontend::ring::{RingSettings, default_directory};
use crate::rings::print::PrintSettings;
use crate::rings::record::{RecordSettings, StoreLimits};

const EXAMPLES: &str = "\
Examples:
  consumer rings --list                          Show traced processes, rings, fill levels and losses
  consumer rings --print                         Show events as they are written, until Ctrl-C
  consumer rings --print --pid 4711 --level warn Show warnings and errors of one process
  consumer rings --record DIR --quota 10G        Record all events to DIR, and keep the newest 10 GiB
  consumer rings --snapshot DIR                  Record what the flight recorders have now
  consumer rings --enable app::db=debug --pid 4711
                                                 Let a running process write more

The programs choose the mode of their rings by TRACE_RING=discard or TRACE_RING=overwrite (a flight
recorder). The traces that --record and --snapshot write can be read with test-live and babeltrace2.";

/// The arguments of `consumer rings`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct RingsArguments {
    #[command(flatten)]
    action: RingsAction,
    /// With --list, print JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// Directory of the rings [default: $TRACE_RING_DIR, $XDG_RUNTIME_DIR/ring or /run/ring]
    #[arg(long, value_name = "DIR")]
    ring: Option<PathBuf>,
    /// Only the process with this id; may be repeated
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// With --print, only events of this severity and above: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "trace", value_parser = parse_severity, requires = "print")]
    level: Severity,
    /// With --record, begin the next file of a stream at SIZE bytes, with an optional suffix K, M
    /// or G
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse, requires = "record")]
    file_size: Option<u64>,
    /// With --record, keep the last N files of each stream; needs --file-size or --quota
    #[arg(long, value_name = "N", requires = "record")]
    file_count: Option<u64>,
    /// With --record, keep at most SIZE bytes in the directory, also of earlier recordings: the
    /// oldest files are removed
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse, requires = "record")]
    quota: Option<u64>,
    /// With --record, when a process writes more than N events per second, leave out trace, then
    /// debug, then info
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "record")]
    max_rate: Option<u64>,
}

/// What `consumer rings` does: exactly one.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct RingsAction {
    /// Show the traced processes and their rings
    #[arg(long)]
    list: bool,
    /// Show events as they are written, until SIGINT or SIGTERM
    #[arg(long)]
    print: bool,
    /// Record events to the directory DIR, until SIGINT or SIGTERM
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Record the present content of all flight recorders to the directory DIR
    #[arg(long, value_name = "DIR")]
    snapshot: Option<PathBuf>,
    /// Add directives to the filters of running processes, as `app::db=debug`
    #[arg(long, value_name = "DIRECTIVES")]
    enable: Option<String>,
}

/// A command of `consumer rings`, with its settings.
#[derive(Debug)]
pub enum RingsCommand {
    /// Show a table of the rings.
    List {
        /// The run directory of the programs.
        directory: PathBuf,
        /// The processes; all if there are none.
        pids: Vec<u32>,
        /// Whether it is printed as JSON.
        is_json: bool,
    },
    /// Show events as they are written.
    Print(PrintSettings),
    /// Record events until the command is stopped.
    Record(RecordSettings),
    /// Record the present content of the flight recorders.
    Snapshot(RecordSettings),
    /// Change the filters of running programs.
    Enable {
        /// The run directory of the programs.
        directory: PathBuf,
        /// The processes; all if there are none.
        pids: Vec<u32>,
        /// The directives that are added.
        directives: String,
    },
}

impl RingsArguments {
    /// Returns the command that the arguments select.
    #[must_use]
    pub fn command(self) -> RingsCommand {
        let directory = self.ring.clone().unwrap_or_else(default_directory);
        let pids = self.pids.clone();
        if let Some(directives) = self.action.enable {
            return RingsCommand::Enable {
                directory,
                pids,
                directives,
            };
        }
        if let Some(output) = &self.action.snapshot {
            return RingsCommand::Snapshot(self.record_settings(directory, output.clone()));
        }
        if let Some(output) = &self.action.record {
            return RingsCommand::Record(self.record_settings(directory, output.clone()));
        }
        if self.action.list {
            return RingsCommand::List {
                directory,
                pids,
                is_json: self.json,
            };
        }
        RingsCommand::Print(PrintSettings {
            directory,
            pids,
            max_severity: self.level,
            has_colors: has_colors(&io::stdout()),
        })
    }

    fn record_settings(&self, directory: PathBuf, output: PathBuf) -> RecordSettings {
        RecordSettings {
            rings: RingSettings {
                is_live: false,
                // What is in the queue is on disk in a moment.
                is_spooled: true,
                max_events_per_second: self.max_rate,
                pids: self.pids.clone(),
                ..RingSettings::new(directory, &SessionConfig::default())
            },
            output,
            limits: StoreLimits {
                file_bytes: self.file_size.unwrap_or(0),
                files: self.file_count.unwrap_or(0),
                quota: self.quota.unwrap_or(0),
            },
        }
    }
}

fn parse_severity(name: &str) -> Result<Severity, String> {
    let parsed = name.parse();
    parsed.map_err(|()| "must be error, warn, info, debug or trace".to_owned())
}
