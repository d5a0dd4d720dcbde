//! A program of several short-lived processes that shows what it does through a `tldrs` daemon,
//! with nothing but a socket and JSON lines.
//!
//! It counts the lines of the Rust files below a directory, one process for each of its folders.
//! All processes write to one trace: the first invents its name and passes it on in the
//! environment, as the client libraries of `tldrs` do.
//!
//! ```text
//! tldrs serve &
//! cargo run -p tldrs --example count_lines -- .  trace.json
//! ```

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, process, thread};

use serde_json::json;

/// Where the daemon listens, and which trace is written to.
const SOCKET: &str = "TRACE_TEF_TLDR_SOCKET";
const TRACE: &str = "TRACE_TEF_TLDR_TRACE_ID";
/// Pause after each file in milliseconds, so that the trace can be watched live.
const PAUSE: &str = "COUNT_LINES_PAUSE_MS";

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let done = match env::var(TRACE) {
        Ok(trace) => count(&directory, &trace),
        Err(_) => run_workers(&directory, arguments.next().as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("count_lines: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a process for each folder, and asks the daemon to export the trace when the last process
/// has ended.
fn run_workers(directory: &Path, export: Option<&Path>) -> io::Result<()> {
    let trace = format!("count-{}", process::id());
    let mut events = Events::open(&trace)?;
    if let Some(path) = export {
        let path = std::path::absolute(path)?;
        events.line(&format!("EMIT_TEF_AT_EXIT {}", path.display()))?;
    }
    events.name("count_lines")?;
    let begun = now_us();
    let mut folders = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.join("src").is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    for pair in folders.chunks(2) {
        let mut workers = Vec::new();
        for folder in pair {
            let mut worker = Command::new(env::current_exe()?);
            workers.push(worker.arg(folder).env(TRACE, &trace).spawn()?);
        }
        for mut worker in workers {
            worker.wait()?;
        }
    }
    let args = json!({ "folders": folders.len() });
    events.span("all folders", begun, &args)
}

/// Counts the lines of the files of one folder.
fn count(folder: &Path, trace: &str) -> io::Result<()> {
    let mut events = Events::open(trace)?;
    let name = folder.file_name().unwrap_or(folder.as_os_str());
    let name = name.to_string_lossy();
    events.name(&name)?;
    events.begin(&name)?;
    let pause = env::var(PAUSE).ok().and_then(|text| text.parse().ok());
    let mut total = 0;
    for path in rust_files(&folder.join("src"))? {
        let begun = now_us();
        let text = fs::read_to_string(&path)?;
        let lines = text.lines().count();
        total += lines;
        thread::sleep(Duration::from_millis(pause.unwrap_or(0)));
        let shown = path.strip_prefix(folder).unwrap_or(&path);
        let args = json!({ "lines": lines, "bytes": text.len() });
        events.span(&shown.to_string_lossy(), begun, &args)?;
        events.counter("lines", total)?;
    }
    events.end(&name)
}

fn rust_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// A connection to the daemon, which never replies.
struct Events {
    socket: UnixStream,
    line: String,
}

impl Events {
    fn open(trace: &str) -> io::Result<Self> {
        let path = env::var_os(SOCKET).unwrap_or_else(|| "/tmp/tldrs.socket".into());
        let socket = UnixStream::connect(path)?;
        let line = String::new();
        let mut events = Self { socket, line };
        events.line(&format!("OPEN {trace}"))?;
        Ok(events)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.socket.write_all(format!("{line}\n").as_bytes())
    }

    /// Sends the name of this process (metadata event `process_name`).
    fn name(&mut self, name: &str) -> io::Result<()> {
        let args = json!({ "name": name });
        self.event("M", "process_name", &format!(r#","args":{args}"#))
    }

    fn begin(&mut self, name: &str) -> io::Result<()> {
        self.event("B", name, &format!(r#","ts":{}"#, now_us()))
    }

    fn end(&mut self, name: &str) -> io::Result<()> {
        self.event("E", name, &format!(r#","ts":{}"#, now_us()))
    }

    /// Sends a span that began at `begun` and ends now.
    fn span(&mut self, name: &str, begun: u64, args: &serde_json::Value) -> io::Result<()> {
        let duration = now_us().saturating_sub(begun);
        let rest = format!(r#","ts":{begun},"dur":{duration},"args":{args}"#);
        self.event("X", name, &rest)
    }

    fn counter(&mut self, name: &str, value: usize) -> io::Result<()> {
        let rest = format!(r#","ts":{},"args":{{"total":{value}}}"#, now_us());
        self.event("C", name, &rest)
    }

    fn event(&mut self, phase: &str, name: &str, rest: &str) -> io::Result<()> {
        let (id, name) = (process::id(), json!(name));
        self.line.clear();
        let _ = writeln!(
            self.line,
            r#"{{"ph":"{phase}","name":{name},"cat":"count","pid":{id},"tid":{id}{rest}}}"#
        );
        self.socket.write_all(self.line.as_bytes())
    }
}

/// Returns the present time in microseconds since 1970.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    u64::try_from(micros).unwrap_or(u64::MAX)
}
