//! The row of a sink: its name and help, what it needs, and how it is opened.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail};
use daemon::named_file::NamedFile;
use daemon::output::stdout;
use timeline::DownloadFormat;
use viewer::run::UsageError;
use viewer::sink::{Needs, OpenSink};

use super::SinkOptions;

/// A sink, as `--sink NAME` selects it.
#[derive(Debug)]
pub struct SinkRow {
    /// The name, as `--sink` takes it.
    pub name: &'static str,
    /// One line about the sink.
    pub help: &'static str,
    /// What the sink needs of the events of a run.
    pub needs: Needs,
    /// How the sink is opened.
    pub open: Open,
    /// How the page of `test-live web` offers it for a range of time. Absent if it does not.
    pub download: Option<DownloadFormat>,
}

/// How a sink is opened, by where it writes.
#[derive(Debug)]
pub enum Open {
    /// The sink writes to standard output or a file.
    Stream(fn(Box<dyn Write>, &SinkContext<'_>) -> anyhow::Result<OpenSink>),
    /// The sink writes files in a directory.
    Directory(fn(&Path, &SinkContext<'_>) -> anyhow::Result<OpenSink>),
}

/// What a sink may have to know when it is opened.
#[derive(Debug)]
pub struct SinkContext<'a> {
    /// The options of all sinks.
    pub options: &'a SinkOptions,
    /// The file that the sink writes. Absent if it writes to standard output.
    pub output: Option<&'a Path>,
    /// The URL of the server of a bucket, unless the environment says it.
    pub endpoint: Option<&'a str>,
    /// Whether the output is a terminal.
    pub is_terminal: bool,
    /// Whether further sessions may come when all that exist have ended.
    pub is_endless: bool,
}

impl SinkRow {
    /// Opens the sink, which writes to `output`, or to standard output if that is absent.
    ///
    /// # Errors
    /// If the output cannot be opened, or options of the sink are wrong.
    pub fn open(
        &self,
        output: Option<&Path>,
        options: &SinkOptions,
        endpoint: Option<&str>,
        is_endless: bool,
    ) -> anyhow::Result<OpenSink> {
        options.check_used_by(self)?;
        let context = SinkContext {
            options,
            output,
            endpoint,
            is_terminal: output.is_none() && io::stdout().is_terminal(),
            is_endless,
        };
        match (&self.open, output) {
            (Open::Stream(open), None) => open(Box::new(stdout()), &context),
            (Open::Stream(open), Some(path)) => {
                // A file that is there is overwritten, as a shell does for `>`.
                let file = File::create(path);
                let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                open(Box::new(NamedFile::new(path, file)), &context)
            }
            (Open::Directory(open), Some(path)) => open(path, &context),
            (Open::Directory(_), None) => {
                let what = format!("--sink {} requires a directory: --output PATH", self.name);
                bail!(UsageError(what))
            }
        }
    }
}
