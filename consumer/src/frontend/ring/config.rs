//! The section `[ring]` of the configuration file, and the options that override it.

use std::path::PathBuf;

use clap::Args;
use daemon::checkup::Report;
use daemon::checkup::host::check_directory;
use daemon::fd_limit::raise_fd_limit;
use serde::{Deserialize, Serialize};

use super::{Coverage, RingSettings, default_directory, run};
use crate::frontend::{Frontend, FrontendContext, FrontendTask};

/// The options of `consumer serve` for shared-memory rings.
#[derive(Debug, Args)]
pub struct RingOptions {
    /// Send the events that programs write to shared-memory rings, found in the directory DIR
    /// [default DIR: $TRACE_RING_DIR, $XDG_RUNTIME_DIR/ring or /run/ring]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    ring: Option<Option<PathBuf>>,
}

/// The shared-memory rings that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RingConfig {
    /// The run directory of the traced programs. If absent, that of programs with the agent's
    /// environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

impl RingConfig {
    fn run_directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(default_directory)
    }
}

impl Frontend for RingConfig {
    type Options = RingOptions;

    fn apply_options(section: &mut Option<Self>, options: RingOptions) {
        let Some(directory) = options.ring else {
            return;
        };
        let section = section.get_or_insert_default();
        if directory.is_some() {
            section.directory = directory;
        }
    }

    fn check_host(&self, report: &mut Report) {
        let option = "--ring=DIR, or TRACE_RING_DIR=DIR";
        check_directory(report, "rings", &self.run_directory(), option, None);
    }

    fn start(&self, context: FrontendContext) -> anyhow::Result<FrontendTask> {
        // Each ring is an open file.
        raise_fd_limit();
        let settings = RingSettings {
            base_path: context.base_path,
            is_spooled: context.is_spooled,
            ..RingSettings::new(self.run_directory(), &context.session)
        };
        let (opener, stop) = (context.opener, context.stop);
        Ok(Box::pin(run(settings, Coverage::Drain, opener, stop)))
    }
}
