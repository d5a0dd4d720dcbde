//! The commands for stored traces.

use std::cmp::Reverse;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use daemon::named_file::NamedFile;
use daemon::output::{print_line, print_message, stdout, write_json};
use daemon::progress::{ProgressBar, byte_bar};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::fs::OFlags;
use serde::{Serialize, Serializer};
use tldrs_daemon::default_paths;
use tldrs_daemon::export::{DocumentForm, ExportCounts, open_output, write_document};
use tldrs_daemon::files::{StoredTrace, list_traces};
use tldrs_daemon::record::TraceRecord;
use tracing::warn;

use crate::cli::{
    ClearArguments, DirectoryArguments, ExportArguments, GetTefArguments, ListArguments,
};

/// Largest number of bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 64;

/// The name that stands for the newest trace.
const LATEST: &str = "latest";

/// Prints the directory of traces.
///
/// # Errors
/// If there is no default directory.
pub fn print_directory(options: &DirectoryArguments) -> anyhow::Result<ExitCode> {
    print_line(traces_directory(options)?.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the traces.
///
/// # Errors
/// If the directory cannot be read.
pub fn list(options: &ListArguments) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(stdout());
    let listed = list_all_traces(&options.directory)?;
    if !options.long && !options.json {
        for trace in listed {
            writeln!(out, "{}", trace.files.events.display())?;
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let described = listed.iter().filter_map(|trace| {
        let described = TraceRow::read(trace);
        // The trace may be removed meanwhile.
        described
            .inspect_err(|error| {
                warn!(path = %trace.files.events.display(), %error, "cannot list the trace");
            })
            .ok()
    });
    if options.json {
        write_json(&described.collect::<Vec<_>>(), &mut out)?;
    } else {
        writeln!(
            out,
            "{:<19}  {:>12}  {:>10}  {:>7}  {:>8}  {:>8}  {:>6}  PATH",
            "MODIFIED", "BYTES", "EVENTS", "CLIENTS", "REPAIRED", "REJECTED", "LOST"
        )?;
        for row in described {
            writeln!(out, "{row}")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Removes traces, and prints their paths. Asks first if standard input is a terminal.
///
/// # Errors
/// If the directory or the answer cannot be read.
pub fn clear(options: &ClearArguments) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let selected = select_for_clear(
        list_own_traces(&options.directory)?,
        options,
        SystemTime::now(),
    );
    let needs_answer = !options.yes && !options.dry_run && io::stdin().is_terminal();
    if needs_answer && !selected.is_empty() {
        let directory = traces_directory(&options.directory)?;
        if !confirm_removal(
            &selected,
            &directory,
            &mut io::stdin().lock(),
            &mut io::stderr(),
        )? {
            print_message("tldrs: nothing was removed");
            return Ok(ExitCode::FAILURE);
        }
    }
    // All are removed, whether or not their paths can be printed.
    let mut printed = Ok(());
    for trace in selected {
        let path = trace.files.events.display();
        if options.dry_run {
            match (trace.lock()?, options.force) {
                (Some(_), _) => print_line(format_args!("would remove {path}"))?,
                (None, true) => print_line(format_args!("would empty {path}"))?,
                (None, false) => print_message(format_args!(
                    "tldrs: {path}: the trace is being written; it would not be removed"
                )),
            }
            continue;
        }
        match remove_or_empty(&trace, options.force) {
            Ok(done) => printed = printed.and(print_line(format_args!("{done} {path}"))),
            Err(error) => {
                print_message(format_args!("tldrs: {path}: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    printed?;
    Ok(code)
}

/// Returns the traces that `tldrs clear` removes, in the order in which they are listed.
fn select_for_clear(
    mut traces: Vec<StoredTrace>,
    options: &ClearArguments,
    now: SystemTime,
) -> Vec<StoredTrace> {
    let mut newest: Vec<SystemTime> = traces.iter().map(|trace| trace.modified).collect();
    newest.sort_by_key(|modified| Reverse(*modified));
    let mut kept = options.keep;
    // Of traces that were written at the same time as the last one to keep, the first ones are
    // kept.
    let last_kept = kept.checked_sub(1).and_then(|last| newest.get(last));
    let last_kept = last_kept
        .or(newest.last().filter(|_| options.keep > 0))
        .copied();
    let newer = newest
        .iter()
        .filter(|modified| last_kept.is_some_and(|last| **modified > last));
    kept -= kept.min(newer.count());
    traces.retain(|trace| {
        let is_newer = last_kept.is_some_and(|last| trace.modified > last);
        let is_kept_equal = last_kept == Some(trace.modified) && kept > 0;
        kept -= usize::from(is_kept_equal);
        let age = now.duration_since(trace.modified).unwrap_or_default();
        let is_old = options.older_than.is_none_or(|min_age| age >= min_age);
        !is_newer && !is_kept_equal && is_old
    });
    traces
}

/// Asks whether traces shall be removed. Anything but yes is a no.
fn confirm_removal(
    traces: &[StoredTrace],
    directory: &Path,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<bool> {
    let (count, bytes) = (
        traces.len(),
        traces.iter().map(|trace| trace.size).sum::<u64>(),
    );
    let directory = directory.display();
    write!(
        output,
        "Remove {count} traces of {directory}, {bytes} bytes? [y/N] "
    )?;
    output.flush()?;
    let mut answer = String::new();
    // An input without a line break must not fill the memory.
    input.take(MAX_ANSWER_BYTES).read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes a trace as one JSON document.
///
/// # Errors
/// If there is no such trace, or it cannot be read or written.
pub fn get_tef(options: &GetTefArguments) -> anyhow::Result<ExitCode> {
    let path = find_trace(&options.export.trace, &options.export.directory)?;
    export(
        &path,
        options.export.output.as_deref(),
        options.reader.into(),
    )
}

/// Writes a trace in Perfetto's own format.
///
/// # Errors
/// If there is no such trace, it cannot be read or written, or it would be written to a terminal.
pub fn get_perfetto(options: &ExportArguments) -> anyhow::Result<ExitCode> {
    if options.output.is_none() && io::stdout().is_terminal() {
        bail!("the format is not text; name a file with -o, for example -o trace.pftrace");
    }
    let path = find_trace(&options.trace, &options.directory)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    export(
        &path,
        options.output.as_deref(),
        DocumentForm::Protobuf(&name),
    )
}

/// Writes the trace at `path` to a file or to standard output.
fn export(path: &Path, output: Option<&Path>, form: DocumentForm<'_>) -> anyhow::Result<ExitCode> {
    let from = regular_file::open(path, OFlags::RDONLY);
    let from = from.with_context(|| path.display().to_string())?;
    // A document on the same terminal would be written over the bar.
    let is_shown = output.is_none() && io::stdout().is_terminal();
    let bar = match from.metadata() {
        Ok(about) if !is_shown => byte_bar(about.len()),
        _ => ProgressBar::hidden(),
    };
    let mut to = match output {
        Some(output) => Some((output, NamedFile::new(output, open_for(output, &from)?))),
        None => None,
    };
    let mut from = NamedFile::new(path, bar.wrap_read(from));
    let is_compressed = |output: &Path| output.extension().is_some_and(|name| name == "gz");
    let written = match &mut to {
        Some((output, to)) if is_compressed(output) => write_compressed(&mut from, to, form),
        Some((_, to)) => write_document(&mut from, to, form),
        None => write_document(&mut from, &mut stdout(), form),
    };
    bar.finish_and_clear();
    if let (Err(_), Some((output, to))) = (&written, &to)
        && to.file.metadata().is_ok_and(|about| about.is_file())
    {
        // A part of a document would look like the whole.
        let _ = fs::remove_file(output);
    }
    let dropped = written?.dropped;
    if dropped > 0 {
        print_message(format_args!(
            "tldrs: {}: left out {dropped} lines that are not events",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the file that a trace is written to, and truncates it.
fn open_for(output: &Path, trace: &File) -> anyhow::Result<File> {
    let shown = || output.display().to_string();
    let to = open_output(&default_paths::absolute_path(output)?).with_context(shown)?;
    if is_same(trace, &to)? {
        bail!("cannot export to {}: it is the trace itself", shown());
    }
    if to.metadata().with_context(shown)?.is_file() {
        // Only after the check above: the trace itself would be empty otherwise.
        to.set_len(0).with_context(shown)?;
    }
    Ok(to)
}

fn write_compressed(
    from: &mut impl Read,
    to: &mut impl Write,
    form: DocumentForm<'_>,
) -> io::Result<ExportCounts> {
    let mut to = GzEncoder::new(to, Compression::default());
    let written = write_document(from, &mut to, form)?;
    to.finish()?;
    Ok(written)
}

fn is_same(file: &File, other: &File) -> io::Result<bool> {
    // Links may give one file two names.
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    Ok(file.metadata().map(identity)? == other.metadata().map(identity)?)
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
    let traces = list_all_traces(options)?;
    let is_it = |trace: &&StoredTrace| {
        let events = &trace.files.events;
        events.file_name() == Some(name.as_os_str())
            || (events.file_stem() == Some(name.as_os_str())
                && name.parent() == Some(Path::new("")))
    };
    let found: Vec<&StoredTrace> = traces.iter().filter(is_it).collect();
    match &found[..] {
        [trace] => Ok(trace.files.events.clone()),
        [] => {
            // A file that is no trace by its name, of another program for example.
            let directory = options.directory.as_ref();
            let path = directory.map(|directory| directory.join(name));
            match path.filter(|path| path.is_file()) {
                Some(path) => Ok(path),
                None => bail!("{}: no such trace; `tldrs list` shows all", name.display()),
            }
        }
        [first, second, ..] => bail!(
            "{}: several traces have this name: {} and {}; use the path",
            name.display(),
            first.files.events.display(),
            second.files.events.display()
        ),
    }
}

fn remove_or_empty(trace: &StoredTrace, force: bool) -> anyhow::Result<&'static str> {
    match trace.lock()? {
        Some(lock) => {
            trace.remove(lock)?;
            Ok("removed")
        }
        None if force => {
            // A daemon that has the file open would go on writing to it without a name, and nobody
            // could read that.
            trace.empty()?;
            Ok("emptied")
        }
        None => bail!("the trace is being written; use --force to empty it"),
    }
}

/// A trace, as `tldrs list` describes it.
#[derive(Debug, Serialize)]
struct TraceRow {
    path: String,
    /// When the file of events was written to, in UTC.
    #[serde(serialize_with = "serialize_time")]
    modified: Timestamp,
    /// The size of that file.
    bytes: u64,
    events: u64,
    /// The clients that have the trace open.
    clients: u32,
    repaired: u64,
    rejected: u64,
    lost: u64,
}

fn serialize_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

impl TraceRow {
    fn read(trace: &StoredTrace) -> io::Result<Self> {
        let record = TraceRecord::load(&trace.files.record);
        let clients = match trace.lock()? {
            // No daemon has the trace open. The record may be of one that was killed.
            Some(_) => 0,
            None => record.clients,
        };
        Ok(Self {
            path: trace.files.events.display().to_string(),
            modified: Timestamp::try_from(trace.modified).unwrap_or_default(),
            bytes: trace.size,
            events: count_lines(&trace.files.events)?,
            clients,
            repaired: record.repaired.total(),
            rejected: record.refused,
            lost: record.lost,
        })
    }
}

impl fmt::Display for TraceRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modified = self.modified.to_zoned(TimeZone::system());
        write!(
            f,
            "{}  {:>12}  {:>10}  {:>7}  {:>8}  {:>8}  {:>6}  {}",
            modified.strftime("%Y-%m-%d %H:%M:%S"),
            self.bytes,
            self.events,
            self.clients,
            self.repaired,
            self.rejected,
            self.lost,
            self.path
        )
    }
}

/// Counts the lines of a file. The record is not used: other daemons may have written to the file,
/// too.
fn count_lines(path: &Path) -> io::Result<u64> {
    let file = regular_file::open(path, OFlags::RDONLY | OFlags::NOFOLLOW)?;
    let mut file = BufReader::with_capacity(1 << 18, file);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tldrs_daemon::files::TraceFiles;

    use super::*;

    /// Traces of these ages in seconds, named by their place.
    fn traces(ages: &[u64], now: SystemTime) -> Vec<StoredTrace> {
        let trace = |(place, age): (usize, &u64)| StoredTrace {
            files: TraceFiles::in_directory(Path::new("/d"), &place.to_string()),
            modified: now - Duration::from_secs(*age),
            size: 10,
        };
        ages.iter().enumerate().map(trace).collect()
    }

    fn selected(keep: usize, older_than: Option<u64>) -> Vec<String> {
        let now = SystemTime::now();
        let options = ClearArguments {
            directory: DirectoryArguments { directory: None },
            force: false,
            yes: true,
            older_than: older_than.map(Duration::from_secs),
            keep,
            dry_run: false,
        };
        let selected = select_for_clear(traces(&[50, 10, 30, 30], now), &options, now);
        let name =
            |trace: &StoredTrace| trace.files.events.file_stem()?.to_str().map(str::to_owned);
        selected.iter().filter_map(name).collect()
    }

    #[test]
    fn clear_selects_by_age_and_keeps_the_newest() {
        assert_eq!(selected(0, None), ["0", "1", "2", "3"]);
        assert_eq!(selected(0, Some(30)), ["0", "2", "3"]);
        assert_eq!(selected(1, None), ["0", "2", "3"]);
        assert_eq!(selected(2, None), ["0", "3"]);
        assert_eq!(selected(3, Some(40)), ["0"]);
        assert_eq!(selected(4, None), [""; 0]);
        assert_eq!(selected(9, None), [""; 0]);
    }

    #[test]
    fn clear_takes_only_yes_for_a_yes() {
        let now = SystemTime::now();
        let mut output = Vec::new();
        for (answer, want) in [
            ("y\n", true),
            ("yes\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
        ] {
            output.clear();
            let mut input = answer.as_bytes();
            let traces = traces(&[1, 2], now);
            let confirmed = confirm_removal(&traces, Path::new("/d"), &mut input, &mut output);
            assert_eq!(confirmed.unwrap(), want, "{answer:?}");
        }
        let prompt = String::from_utf8(output).unwrap();
        assert_eq!(prompt, "Remove 2 traces of /d, 20 bytes? [y/N] ");
    }
}
