//! The progress bar for reading a large directory.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ctf::directory::TraceDirectory;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Smallest size in bytes for which a bar is shown: less is read in no time.
const MIN_BYTES_WITH_BAR: u64 = 32 << 20;

/// A bar on standard error, if that is a terminal, unless it shall be `silent`.
pub(crate) fn of_directories(traces: &[TraceDirectory], silent: bool) -> ProgressBar {
    let streams = traces.iter().flat_map(|trace| &trace.streams);
    let bytes = streams.map(|stream| stream.bytes()).sum();
    let unseen = silent || !io::stderr().is_terminal();
    if unseen || bytes < MIN_BYTES_WITH_BAR {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(5));
    let style =
        ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
