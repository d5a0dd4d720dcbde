//! The programs of these tests: a relay, the agent with a `tldrs` socket, `test-live web`, and a
//! browser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{TEST_TIMEOUT, binaries, test_live, wait_for};

/// `consumer serve` with a `tldrs` socket.
pub(crate) struct Agent {
    _process: Process,
    socket: PathBuf,
}

impl Agent {
    pub(crate) fn start(lab: &Lab, relay: &Relay) -> Self {
        Self::start_with(lab, relay, "--clock-interval=0")
    }

    pub(crate) fn start_with(lab: &Lab, relay: &Relay, option: &str) -> Self {
        let socket = lab.path().join("tldrs.socket");
        let mut command = lab.command(binaries::consumer());
        command
            .args(["serve", "-v", "--live=20000", option])
            .args(["-C", &format!("tcp://{}", relay.control)])
            .args(["-D", &format!("tcp://{}", relay.data)])
            .arg(format!("--tldrs={}", socket.display()))
            .arg(format!("--tldrs-dir={}", lab.directory("data").display()))
            .arg(format!("--socket={}", lab.path().join("status").display()));
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::agent: ready");
        Self {
            _process: process,
            socket,
        }
    }

    /// Connects a client that sends lines to a session.
    pub(crate) fn open(&self, session: &str) -> Client {
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        writeln!(socket, "OPEN {session}").unwrap();
        Client { socket }
    }
}

/// A traced program, as a client of the daemon.
pub(crate) struct Client {
    socket: UnixStream,
}

impl Client {
    /// Sends lines, whose times are microseconds from now.
    pub(crate) fn send(&mut self, lines: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for line in lines.lines() {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if let Some(ts) = event["ts"].as_u64() {
                let now = u64::try_from(now.as_micros()).unwrap();
                event["ts"] = (now + ts).into();
            }
            writeln!(self.socket, "{event}").unwrap();
        }
    }
}

/// The program `test-live web`, and the URL of its page.
pub(crate) struct Web {
    pub(crate) process: Process,
    pub(crate) url: String,
}

impl Web {
    pub(crate) fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let arguments = [&["web", "--listen=127.0.0.1:0"], arguments].concat();
        Self::start_with(lab, &arguments)
    }

    /// Starts it with these arguments and no others.
    pub(crate) fn start_with(lab: &Lab, arguments: &[&str]) -> Self {
        let process = test_live::start(lab, arguments);
        let url = wait_for("the URL", || {
            let lines = process.stdout();
            let url = lines.first()?.strip_prefix("open ")?;
            Some(url.to_owned())
        });
        Self { process, url }
    }

    /// Shows what is on a relay, from the beginning.
    pub(crate) fn show(lab: &Lab, live: SocketAddr) -> Self {
        Self::start(lab, &["--seek=beginning", &format!("net://{live}")])
    }

    /// Starts a server that shows a directory.
    pub(crate) fn show_directory(lab: &Lab, directory: &Path) -> Self {
        Self::start(lab, &[directory.to_str().unwrap()])
    }

    /// Returns the page, with so much of the past in view that nothing leaves it during a test.
    pub(crate) fn long_url(&self) -> String {
        format!("{}#follow=600000000000", self.url)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let rest = self.url.split("//").nth(1).unwrap();
        let host = rest.split('/').next().unwrap();
        host.replace("localhost", "127.0.0.1").parse().unwrap()
    }

    /// Returns the body of a response, without chunks.
    pub(crate) fn download(&self, path: &str) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let head = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address());
        socket.write_all(head.as_bytes()).unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).unwrap();
        assert!(
            response.starts_with(b"HTTP/1.0 200"),
            "{}",
            String::from_utf8_lossy(&response)
        );
        let body = response
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .unwrap()
            + 4;
        response.split_off(body)
    }

    /// Sends a request, and returns the whole response.
    pub(crate) fn request(&self, path: &str, headers: &str) -> String {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let host = match headers.contains("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address()),
        };
        let close = match headers.contains("Upgrade:") {
            true => "Connection: upgrade, close\r\n",
            false => "Connection: close\r\n",
        };
        let head = format!("GET {path} HTTP/1.1\r\n{host}{close}{headers}\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }
}

/// Returns the rows that the page shows, of this name.
pub(crate) fn rows_named(browser: &Browser, name: &str) -> Vec<Value> {
    let all = browser.run("return __view().shown");
    let all = all.as_array().unwrap().iter();
    all.filter(|row| row["name"] == name).cloned().collect()
}

/// Waits until the page shows a row of this name, and returns the first.
pub(crate) fn wait_for_row(browser: &Browser, name: &str) -> Value {
    wait_for(&format!("the page shows {name}"), || {
        // The script of a page that was just opened may not have run yet.
        let all = browser.run("return window.__view ? __view().shown : null");
        let mut rows = all.as_array()?.iter();
        rows.find(|row| row["name"] == name).cloned()
    })
}

/// Shows the 2.5 ms around the begin of a row, 0.5 ms of them before it.
pub(crate) fn show_from(browser: &Browser, row: &Value) {
    let begin: i64 = row["begin"].as_str().unwrap().parse().unwrap();
    let (from, to) = (begin - 500_000, begin + 2_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    browser.wait_for(
        "the range is shown",
        &format!("return __view().to === '{to}'"),
    );
}

/// Returns the place in the middle of a row, in CSS pixels of the page.
pub(crate) fn center(row: &Value) -> (i64, i64) {
    let number = |name: &str| row[name].as_f64().unwrap();
    let x = number("x") + number("width") / 2.0;
    let y = number("y") + number("height") / 2.0;
    (x as i64, y as i64)
}
