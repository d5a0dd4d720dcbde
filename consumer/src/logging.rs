//! What the programs of a traced host tell of what they do, on standard error.

use std::io::IsTerminal;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// From which level on is logged, by how often `-v` was given: nothing while all is well.
#[must_use]
pub fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Logs as `RUST_LOG` says, else from `level` on.
///
/// # Errors
/// If `RUST_LOG` makes no sense.
pub fn start(level: LevelFilter) -> anyhow::Result<()> {
    let targets = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives
            .parse()
            .with_context(|| format!("RUST_LOG={directives}"))?,
        _ => Targets::new().with_default(level),
    };
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(targets)
        .init();
    Ok(())
}
