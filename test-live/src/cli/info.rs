//! The command line of `test-live info`.

use clap::Parser;
use viewer::attach::target::Target;

use super::{AlignArguments, ArchiveArguments, TlsArguments};

/// Show what traces are at a glance.
///
/// test-live info prints the time range, duration, size, hosts, clocks and streams of the traces in
/// a directory or archive, and decodes them for the processes, the losses, and the events by name
/// with their rates. Of a relay it prints the sessions. A host that is called info is the target
/// net://info.
#[derive(Debug, Parser)]
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
    /// What relates the clocks of hosts.
    #[command(flatten)]
    pub align: AlignArguments,
    /// The certificates for encrypted relays.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// The archives that relays write.
    #[command(flatten)]
    pub archive: ArchiveArguments,
}
