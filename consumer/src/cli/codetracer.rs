//! The arguments of `consumer codetracer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{RelayUrls, SessionOptions, SpoolOptions};
use crate::command::codetracer::RecordingJob;
use crate::config::ConfigError;
use crate::frontend::codetracer::{Follow, RecordingSettings, RecordingSource};
use crate::frontend::{SessionConfig, host_name};
use crate::limits::{DEFAULT_RECORDING_LIVE_TIMER, DEFAULT_SOURCE_BYTES};
use crate::spool::SpoolSettings;
use crate::uplink::UplinkSettings;

const EXAMPLES: &str = "\
Examples:
  consumer codetracer -U net://COLLECTOR DIR     Send the recording in DIR; if it still grows, until its end
  recorder | consumer codetracer -U net://COLLECTOR --session=run -
                                                 Send what a recorder writes: metadata on the first line,
                                                 then an event on each line

DIR has trace.json or trace.bin, trace_metadata.json, and copies of source files in files/; what is not
there yet is waited for. FILE has the events only. A growing trace.json ends at its closing bracket.

Exit status: 0 if the relay has acknowledged everything, 1 if not, 2 if the command line is invalid.";

/// The arguments of `consumer codetracer`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CodetracerArguments {
    /// Directory of a recording, file with its events, or - for standard input
    #[arg(value_name = "DIR|FILE|-")]
    source: PathBuf,
    #[command(flatten)]
    relay: RelayUrls,
    #[command(flatten)]
    spool: SpoolOptions,
    #[command(flatten)]
    session: SessionOptions,
    /// Send packets that are not full every USEC microseconds
    #[arg(long, value_name = "USEC", default_value_t = default_live_timer(), value_parser = clap::value_parser!(u32).range(1..))]
    live: u32,
    /// End the session at the end of the file, even if the recording is incomplete
    #[arg(long)]
    no_follow: bool,
    /// Copy the source files that the recording names, if they are below DIR and it has no copies
    /// itself
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,
    /// Copy no source file that is longer than SIZE bytes, with an optional suffix K, M or G
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_SOURCE_BYTES, value_parser = daemon::size::parse)]
    max_source_size: u64,
}

fn default_live_timer() -> u32 {
    u32::try_from(DEFAULT_RECORDING_LIVE_TIMER.as_micros()).unwrap_or(u32::MAX)
}

impl CodetracerArguments {
    /// Returns the settings of the spool, if there is one.
    ///
    /// # Errors
    /// If it has no directory, or is too small.
    pub fn spool(&self) -> Result<Option<SpoolSettings>, ConfigError> {
        self.spool.clone().apply(None)
    }

    /// Returns what is to be sent, and the settings of the uplink that it goes through.
    ///
    /// # Errors
    /// If no relay is named, or its URL is malformed.
    pub fn job(self) -> Result<(RecordingJob, UplinkSettings), ConfigError> {
        let uplink = UplinkSettings {
            target: self.relay.relay().target()?,
            reconnect_timeout: Some(self.session.reconnect_timeout()),
        };
        let settings = RecordingSettings {
            tracefiles: self.session.tracefiles(),
            name: self.session.name,
            host: self.session.hostname.unwrap_or_else(host_name),
            live_timer: Duration::from_micros(self.live.into()),
            packet_bytes: SessionConfig::default().packet_bytes(),
            source_root: self.source_root,
            max_source_bytes: self.max_source_size,
        };
        let follow = if self.no_follow {
            Follow::No
        } else {
            Follow::Growth
        };
        let source = RecordingSource::of_argument(self.source);
        let job = RecordingJob {
            source,
            follow,
            settings,
        };
        Ok((job, uplink))
    }
}
