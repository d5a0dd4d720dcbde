//! The commands for stored traces.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use tldrs_daemon::default_paths;
use tldrs_daemon::export::{DocumentForm, ExportCounts, open_output, write_document};
use tldrs_daemon::files::{StoredTrace, list_traces};
use tldrs_daemon::record::TraceRecord;
use tracing::warn;

use crate::cli::{ClearArguments, DirectoryArguments, GetTefArguments, ListArguments};

/// The name that stands for the newest trace.
const LATEST: &str = "latest";

/// Prints the directory of traces.
///
/// # Errors
/// If there is no default directory.
pub fn print_directory(options: &DirectoryArguments) -> anyhow::Result<ExitCode> {
    println!("{}", traces_directory(options)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Lists the traces.
///
/// # Errors
/// If the directory cannot be read.
pub fn list(options: &ListArguments) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let listed = list_all_traces(&options.directory)?;
    if options.long {
        writeln!(
            out,
            "{:<19}  {:>12}  {:>10}  {:>7}  {:>8}  {:>8}  {:>6}  PATH",
            "MODIFIED", "BYTES", "EVENTS", "CLIENTS", "REPAIRED", "REJECTED", "LOST"
        )?;
    }
    for trace in listed {
        let path = trace.files.events.display();
        if options.long {
            // The trace may be removed meanwhile.
            match long_line(&trace) {
                Ok(line) => writeln!(out, "{line}  {path}")?,
                Err(error) => warn!(%path, %error, "cannot list the trace"),
            }
        } else {
            writeln!(out, "{path}")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Removes traces, and prints their paths.
///
/// # Errors
/// If the directory cannot be read.
pub fn clear(options: &ClearArguments) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for trace in list_own_traces(&options.directory)? {
        let path = trace.files.events.display();
        match remove_or_empty(&trace, options.force) {
            Ok(done) => println!("{done} {path}"),
            Err(error) => {
                eprintln!("tldrs: {path}: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Writes a trace as one JSON document.
///
/// # Errors
/// If there is no such trace, or it cannot be read or written.
pub fn get_tef(options: &GetTefArguments) -> anyhow::Result<ExitCode> {
    let path = find_trace(&options.trace, &options.directory)?;
    let mut from = File::open(&path).with_context(|| path.display().to_string())?;
    let form = options.reader.into();
    let written = match &options.output {
        Some(output) => {
            let shown = || output.display().to_string();
            let mut to = open_output(&default_paths::absolute_path(output)?).with_context(shown)?;
            if is_same(&from, &to)? {
                bail!(
                    "cannot export to {}: it is the trace itself",
                    output.display()
                );
            }
            if to.metadata().with_context(shown)?.is_file() {
                to.set_len(0).with_context(shown)?;
            }
            write_document(&mut from, &mut to, form)
        }
        None => write_to_stdout(&mut from, form),
    };
    let dropped = written.with_context(|| path.display().to_string())?.dropped;
    if dropped > 0 {
        eprintln!(
            "tldrs: {}: left out {dropped} lines that are not events",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn is_same(file: &File, other: &File) -> io::Result<bool> {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    Ok(file.metadata().map(identity)? == other.metadata().map(identity)?)
}

/// Writes to standard output. A reader that closes the pipe early is not an error.
fn write_to_stdout(from: &mut File, form: DocumentForm) -> io::Result<ExportCounts> {
    match write_document(from, &mut io::stdout().lock(), form) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExportCounts::default()),
        written => written,
    }
}

fn traces_directory(options: &DirectoryArguments) -> anyhow::Result<PathBuf> {
    match &options.directory {
        Some(directory) => Ok(directory.clone()),
        None => default_paths::own_directory(),
    }
}

/// Lists the traces of the directory that was named, or of all default directories.
fn list_all_traces(options: &DirectoryArguments) -> anyhow::Result<Vec<StoredTrace>> {
    let mut all = list_own_traces(options)?;
    if options.directory.is_none() {
        for directory in default_paths::other_directories() {
            all.extend(list_if_exists(&directory)?);
        }
        all.sort_by(|a, b| a.files.events.as_os_str().cmp(b.files.events.as_os_str()));
    }
    Ok(all)
}

fn list_own_traces(options: &DirectoryArguments) -> anyhow::Result<Vec<StoredTrace>> {
    let directory = traces_directory(options)?;
    if options.directory.is_some() {
        list_traces(&directory).with_context(|| directory.display().to_string())
    } else {
        // A missing directory has no traces: the first daemon makes it.
        list_if_exists(&directory)
    }
}

fn list_if_exists(directory: &Path) -> anyhow::Result<Vec<StoredTrace>> {
    match list_traces(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        traces => traces.with_context(|| directory.display().to_string()),
    }
}

fn find_trace(name: &Path, options: &DirectoryArguments) -> anyhow::Result<PathBuf> {
    if name.is_file() {
        return Ok(name.to_owned());
    }
    if name == Path::new(LATEST) {
        let newest = list_all_traces(options)?
            .into_iter()
            .max_by(|a, b| a.modified.cmp(&b.modified));
        let newest = newest.context("there are no traces")?;
        return Ok(newest.files.events);
    }
    match &options.directory {
        Some(directory) if directory.join(name).is_file() => Ok(directory.join(name)),
        _ => bail!("{}: no such trace", name.display()),
    }
}

fn remove_or_empty(trace: &StoredTrace, force: bool) -> anyhow::Result<&'static str> {
    match trace.lock()? {
        Some(lock) => {
            trace.remove(lock)?;
            Ok("removed")
        }
        None if force => {
            trace.empty()?;
            Ok("emptied")
        }
        None => bail!("the trace is being written; use --force to empty it"),
    }
}

fn long_line(trace: &StoredTrace) -> io::Result<String> {
    let record = TraceRecord::load(&trace.files.record);
    let clients = match trace.lock()? {
        Some(_) => 0,
        None => record.clients,
    };
    let modified = jiff::Timestamp::try_from(trace.modified).unwrap_or_default();
    let modified = modified.to_zoned(TimeZone::system());
    Ok(format!(
        "{}  {:>12}  {:>10}  {clients:>7}  {:>8}  {:>8}  {:>6}",
        modified.strftime("%Y-%m-%d %H:%M:%S"),
        trace.size,
        count_lines(&trace.files.events)?,
        record.repaired.total(),
        record.refused,
        record.lost,
    ))
}

/// Counts the lines of a file. The record is not used: other daemons may have written to the file, too.
fn count_lines(path: &Path) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
    let mut lines = 0;
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(lines);
        }
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = bytes.len();
        file.consume(length);
    }
}
