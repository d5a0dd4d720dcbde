//! The option that aligns the clocks of hosts.

use clap::{Args, ValueEnum};
use viewer::align::AlignBy;

/// Whether and how times are corrected.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct AlignArguments {
    /// Correct the times of events by what relates the clocks of their hosts, and print the
    /// corrections. Without HOW by samples.
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "samples",
        help_heading = "Selection"
    )]
    align: Option<AlignHow>,
}

/// What relates the clocks of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AlignHow {
    /// The samples of the hosts' clocks that consumer has written.
    Samples,
    /// The TCP packets in kernel traces of the hosts; for directories.
    Network,
}

impl AlignArguments {
    /// By what times are corrected. None: they are shown as they are.
    #[must_use]
    pub fn by(self) -> Option<AlignBy> {
        Some(match self.align? {
            AlignHow::Samples => AlignBy::Samples,
            AlignHow::Network => AlignBy::Network,
        })
    }
}
