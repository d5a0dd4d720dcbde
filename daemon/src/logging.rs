//! The log on standard error.

use std::io::IsTerminal;

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people; in colors if standard error is a terminal.
    Text,
    /// One JSON object to a line.
    Json,
}

/// The value of `RUST_LOG` is malformed.
#[derive(Debug, Error)]
#[error("RUST_LOG={directives}")]
pub struct RustLogError {
    directives: String,
    source: ParseError,
}

/// The lowest level that is logged when `-v` was given `verbose` times: warnings only if not at all.
#[must_use]
pub fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Starts the log of this process: what `RUST_LOG` selects if it is set and not empty, otherwise `level`
/// and above. To be called once.
///
/// # Errors
/// If `RUST_LOG` is malformed.
pub fn start(level: LevelFilter, format: LogFormat) -> Result<(), RustLogError> {
    let targets = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives
            .parse()
            .map_err(|source| RustLogError { directives, source })?,
        _ => Targets::new().with_default(level),
    };
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let to_stderr = match format {
        LogFormat::Text => to_stderr.boxed(),
        LogFormat::Json => to_stderr.with_ansi(false).json().boxed(),
    };
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(targets)
        .init();
    Ok(())
}
