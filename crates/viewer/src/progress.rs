//! The progress bar for reading a large directory.

use ctf::directory::TraceDirectory;
use daemon::progress::{ProgressBar, byte_bar};

/// A bar on standard error, if that is a terminal, unless it shall be `silent`.
pub fn of_directories(traces: &[TraceDirectory], silent: bool) -> ProgressBar {
    if silent {
        return ProgressBar::hidden();
    }
    let streams = traces.iter().flat_map(|trace| &trace.streams);
    byte_bar(streams.map(|stream| stream.bytes()).sum())
}
