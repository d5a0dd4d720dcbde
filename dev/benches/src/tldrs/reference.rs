//! A stand-in for the reference: its work per event, and nothing else.
//!
//! One thread per client, lines through a buffered reader, a check of the first and last byte, a
//! lock and an 8 KiB buffer per trace, flushed when a client disconnects and every two seconds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The argument that makes the benchmark program run as the stand-in.
pub(crate) const NAME: &str = "tldrs-reference";

/// Interval at which unflushed buffers are flushed.
const SWEEP: Duration = Duration::from_secs(2);

type Trace = Arc<Mutex<BufWriter<File>>>;
type Traces = Arc<Mutex<HashMap<String, Trace>>>;

/// Runs until it is killed: `--socket PATH -d DIR`.
pub(crate) fn run(arguments: &[String]) {
    let after = |word: &str| {
        let at = arguments.iter().position(|argument| argument == word);
        PathBuf::from(&arguments[at.unwrap() + 1])
    };
    let (listener, directory) = (UnixListener::bind(after("--socket")), after("-d"));
    let traces = Traces::default();
    let swept = Arc::clone(&traces);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(SWEEP);
            for trace in swept.lock().unwrap().values() {
                trace.lock().unwrap().flush().unwrap();
            }
        }
    });
    for client in listener.unwrap().incoming() {
        let (client, traces, directory) = (client.unwrap(), Arc::clone(&traces), directory.clone());
        std::thread::spawn(move || serve(client, &traces, &directory));
    }
}

fn serve(client: UnixStream, traces: &Traces, directory: &Path) {
    let mut lines = BufReader::new(client);
    let mut line = String::new();
    let mut trace: Option<Trace> = None;
    while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
        let record = line.trim();
        if let Some(id) = record.strip_prefix("OPEN ") {
            // Locked at OPEN only: an event takes the lock of its trace alone.
            let mut traces = traces.lock().unwrap();
            let opened = traces.entry(id.to_owned()).or_insert_with(|| {
                let path = directory.join(format!("{id}.jsonl"));
                let file = File::options().append(true).create(true).open(path);
                Arc::new(Mutex::new(BufWriter::new(file.unwrap())))
            });
            trace = Some(Arc::clone(opened));
        } else if let (true, true, Some(trace)) =
            (record.starts_with('{'), record.ends_with('}'), &trace)
        {
            let mut file = trace.lock().unwrap();
            file.write_all(record.as_bytes()).unwrap();
            file.write_all(b"\n").unwrap();
        }
        line.clear();
    }
    if let Some(trace) = trace {
        trace.lock().unwrap().flush().unwrap();
    }
}
