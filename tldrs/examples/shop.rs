//! A shop that serves made-up requests on three threads, and shows what it does through a `tldrs`
//! daemon, with nothing but a socket and JSON lines.
//!
//! ```text
//! tldrs serve &
//! cargo run -p tldrs --example shop              # until it is stopped
//! cargo run -p tldrs --example shop -- 5 t.json  # five seconds, then the daemon exports the trace
//! ```

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, io, process, thread};

use serde_json::{Value, json};

/// Where the daemon listens.
const SOCKET: &str = "TRACE_TEF_TLDR_SOCKET";
const TRACE: &str = "shop";
const THREADS: [&str; 3] = ["main", "worker", "worker"];

/// The requests that are being served.
static OPEN: AtomicI64 = AtomicI64::new(0);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let seconds = arguments.next().map(|text| text.to_string_lossy().parse());
    let export = arguments.next().map(PathBuf::from);
    let served = match seconds.transpose() {
        Ok(seconds) => serve_all(seconds.map(Duration::from_secs), export),
        Err(error) => Err(io::Error::other(format!("SECONDS: {error}"))),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves requests on all threads, for this duration or until the program is stopped.
fn serve_all(duration: Option<Duration>, export: Option<PathBuf>) -> io::Result<()> {
    let mut events = Events::open(process::id())?;
    if let Some(path) = export {
        let line = format!(
            "EMIT_TEF_AT_EXIT {}\n",
            std::path::absolute(path)?.display()
        );
        events.socket.write_all(line.as_bytes())?;
    }
    events.send("M", "process_name", json!({ "name": "shop-server" }))?;
    let until = duration.map(|duration| Instant::now() + duration);
    thread::scope(|scope| {
        let start = |(name, id)| scope.spawn(move || serve(name, id, until));
        let threads: Vec<_> = THREADS
            .into_iter()
            .zip(process::id()..)
            .map(start)
            .collect();
        let panicked = |_| Err(io::Error::other("a thread has panicked"));
        let mut served = threads.into_iter().map(thread::ScopedJoinHandle::join);
        served.try_for_each(|served| served.unwrap_or_else(panicked))
    })
}

/// Serves one request after another.
fn serve(name: &str, id: u32, until: Option<Instant>) -> io::Result<()> {
    let mut events = Events::open(id)?;
    events.send("M", "thread_name", json!({ "name": name }))?;
    // Other numbers for each thread.
    let mut state = u64::from(id);
    let mut random = |min: u64, max: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        min + (state >> 33) % (max - min)
    };
    while until.is_none_or(|until| Instant::now() < until) {
        let order = random(1, 1000);
        events.send("B", "GET /orders", json!({ "order": order }))?;
        events.count_open(1)?;
        events.send("B", "query", json!({ "table": "orders" }))?;
        pause(random(20, 120));
        if random(0, 3) == 0 {
            events.send("i", "cache miss", json!({ "order": order }))?;
            pause(random(40, 120));
        }
        events.send("E", "query", json!({}))?;
        events.send("B", "render", json!({ "template": "order.html" }))?;
        pause(random(30, 150));
        events.send("E", "render", json!({}))?;
        let status = if order % 50 == 0 { 404 } else { 200 };
        events.send("E", "GET /orders", json!({ "status": status }))?;
        events.count_open(-1)?;
        pause(random(20, 250));
    }
    Ok(())
}

fn pause(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// A thread's connection to the daemon, which never replies.
struct Events {
    socket: UnixStream,
    thread: u32,
}

impl Events {
    fn open(thread: u32) -> io::Result<Self> {
        let path = env::var_os(SOCKET).unwrap_or_else(|| "/tmp/tldrs.socket".into());
        let mut socket = UnixStream::connect(path)?;
        socket.write_all(format!("OPEN {TRACE}\n").as_bytes())?;
        Ok(Self { socket, thread })
    }

    /// Sends an event that happens now.
    fn send(&mut self, phase: &str, name: &str, args: Value) -> io::Result<()> {
        let event = json!({
            "ph": phase, "name": name, "ts": now_us(), "pid": process::id(), "tid": self.thread,
            "args": args,
        });
        self.socket.write_all(format!("{event}\n").as_bytes())
    }

    /// Sends the number of open requests after one more or one less.
    fn count_open(&mut self, change: i64) -> io::Result<()> {
        let open = OPEN.fetch_add(change, Ordering::Relaxed) + change;
        self.send("C", "open requests", json!({ "requests": open }))
    }
}

/// Returns the present time in microseconds since 1970.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    u64::try_from(micros).unwrap_or(u64::MAX)
}
