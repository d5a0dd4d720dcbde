//! The options for functions and source lines of addresses.

use std::path::PathBuf;

use clap::Args;
use debug_info::SearchOptions;
use viewer::interpret::debug_info::DebugInfo;

/// The options of `--debug-info`. Each of the others implies it, as in `babeltrace2`.
#[derive(Debug, Clone, Default, Args)]
pub struct DebugInfoArguments {
    /// Show the function and the source line of addresses: of the contexts ip and vpid of LTTng,
    /// and of entries and exits of functions. Opens the programs and libraries that the trace
    /// names, on this host.
    #[arg(long, help_heading = "Debug information")]
    pub debug_info: bool,
    /// Look for separate debug information in DIR; default: /usr/lib/debug.
    #[arg(long, value_name = "DIR", help_heading = "Debug information")]
    pub debug_info_dir: Option<PathBuf>,
    /// Show the paths of programs and source files with their directories.
    #[arg(long, help_heading = "Debug information")]
    pub debug_info_full_path: bool,
    /// Look for programs and libraries below DIR, a copy of the root of the traced host.
    #[arg(long, value_name = "DIR", help_heading = "Debug information")]
    pub debug_info_target_prefix: Option<PathBuf>,
}

impl DebugInfoArguments {
    /// What finds functions and source lines. None if that is not asked for.
    #[must_use]
    pub fn open(&self) -> Option<DebugInfo> {
        let options = || SearchOptions {
            directory: self.debug_info_dir.clone(),
            target_prefix: self.debug_info_target_prefix.clone(),
        };
        let is_on = self.is_on();
        is_on.then(|| DebugInfo::new(options(), self.debug_info_full_path))
    }

    /// Whether functions and source lines are asked for.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.debug_info
            || self.debug_info_full_path
            || self.debug_info_dir.is_some()
            || self.debug_info_target_prefix.is_some()
    }
}
