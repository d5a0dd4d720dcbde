//! The progress bar of a conversion, for people who wait for it.

use std::io::{self, IsTerminal};
use std::time::Duration;

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressStyle};

/// Smallest size in bytes for which a bar is shown: less is converted in no time.
const MIN_BYTES_WITH_BAR: u64 = 32 << 20;

/// Number of times per second that a bar is drawn at most.
const DRAW_HZ: u8 = 5;

/// The time after which rate and remaining time are drawn again, even if nothing has happened.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// Returns a bar on standard error that shows bytes of `total`, bytes per second, and the remaining
/// time. It is hidden if standard error is not a terminal, or if the bytes are few. The caller must
/// clear it before it writes other lines there.
#[must_use]
pub fn byte_bar(total: u64) -> ProgressBar {
    if total < MIN_BYTES_WITH_BAR || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let target = ProgressDrawTarget::stderr_with_hz(DRAW_HZ);
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    // The thread that draws it from now on may be late.
    bar.tick();
    bar.enable_steady_tick(TICK_INTERVAL);
    bar
}
