//! The command line of `test-live info`.

use std::ffi::OsString;

use clap::Parser;
use viewer::attach::target::Target;

use super::{ArchiveArguments, TlsArguments, set_certificates_or_exit, set_endpoint};

/// Show what traces are at a glance.
///
/// test-live info prints the time range, duration, size, hosts, clocks and streams of the traces in
/// a directory or archive, and decodes them for the processes, the losses, and the events by name
/// with their rates. Of a relay it prints the sessions. A host that is called info is the target
/// net://info.
#[derive(Debug, Parser)]
#[command(
    name = "test-live info",
    bin_name = "test-live info",
    max_term_width = 100
)]
pub struct InfoArguments {
    /// Directories with traces, archives, or relays, as those of test-live.
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<Target>,
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
    /// Do not decode the events: faster, and without processes, losses and events by name.
    #[arg(long)]
    pub no_events: bool,
    /// Correct the times of traces in directories by the samples of the hosts' clocks.
    #[arg(long)]
    pub align: bool,
    /// The certificates for encrypted relays.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// The archives that relays write.
    #[command(flatten)]
    pub archive: ArchiveArguments,
}

impl InfoArguments {
    /// The arguments of a command line, of which the first word is the command. Exits if they are
    /// invalid, or help was requested.
    #[must_use]
    pub fn from_words<W>(words: impl IntoIterator<Item = W>) -> Self
    where
        W: Into<OsString> + Clone,
    {
        let mut arguments = Self::parse_from(words);
        set_certificates_or_exit::<Self>(&mut arguments.targets, &arguments.tls);
        set_endpoint(&mut arguments.targets, &arguments.archive);
        arguments
    }
}
