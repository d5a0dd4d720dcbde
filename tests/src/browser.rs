//! A real browser, Debian's Chromium without a window, driven by WebDriver: JSON over HTTP, see
//! <https://www.w3.org/TR/webdriver2/>.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::lab::Lab;
use crate::process::Process;
use crate::{TEST_TIMEOUT, wait_for};

/// The length of what is printed of the page if the test fails.
const MAX_REPORTED_CHARS: usize = 8000;

/// A browser with one page. It is closed when this is dropped.
#[derive(Debug)]
pub struct Browser {
    /// The driver ends the browser when it ends.
    driver: Process,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// Starts a browser whose files are in the directory of the test.
    ///
    /// # Panics
    /// If the browser cannot be started.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        Self::start_with_host(lab, None)
    }

    /// Starts a browser for which a host is another address, if one is given.
    ///
    /// # Panics
    /// If the browser cannot be started.
    #[must_use]
    pub fn start_with_host(lab: &Lab, host: Option<(&str, SocketAddr)>) -> Self {
        let host_rules = match host {
            Some((name, address)) => format!("--host-resolver-rules=MAP {name} {address}"),
            None => "--host-resolver-rules=".to_owned(),
        };
        let (driver, port) = start_driver(lab);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let data = lab.directory(&format!("browser-{port}"));
        let arguments = json!([
            "--headless=new",
            // The tests run as root, for whom Chromium has no sandbox.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--window-size=1280,800",
            format!("--user-data-dir={}", data.display()),
            host_rules,
        ]);
        let options = json!({"args": arguments, "binary": peers::program("chromium")});
        // Servers of tests have certificates of their own CA.
        let wanted = json!({
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": options,
        });
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let created = request(address, "POST", "/session", &body);
        let session = created["sessionId"].as_str();
        let session = session.unwrap_or_else(|| panic!("no browser: {created}"));
        Self {
            driver,
            address,
            session: session.to_owned(),
        }
    }

    /// Returns the process id of the driver, of which all processes of the browser descend.
    #[must_use]
    pub fn driver_id(&self) -> u32 {
        self.driver.id()
    }

    /// Returns the URL of the session of WebDriver, by which other programs may run scripts.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/session/{}", self.address, self.session)
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{name}", self.session);
        request(self.address, "POST", &path, body)
    }

    fn get(&self, name: &str) -> Value {
        let path = format!("/session/{}/{name}", self.session);
        request(self.address, "GET", &path, &Value::Null)
    }

    /// Opens a page in the window of the test.
    pub fn open(&self, url: &str) {
        let answer = self.command("url", &json!({"url": url}));
        assert!(answer.is_null(), "{answer}");
    }

    /// Runs a script in the page, and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script in the page, and returns what it passes to the function that is its last
    /// argument.
    pub fn run_async(&self, script: &str) -> Value {
        self.command("execute/async", &json!({"script": script, "args": []}))
    }

    /// Returns the window that scripts run in.
    #[must_use]
    pub fn window(&self) -> String {
        let window = self.get("window");
        window.as_str().unwrap_or_default().to_owned()
    }

    /// Returns all windows and tabs.
    #[must_use]
    pub fn windows(&self) -> Vec<String> {
        let windows = self.get("window/handles");
        let windows = windows.as_array().into_iter().flatten();
        windows
            .filter_map(|window| Some(window.as_str()?.to_owned()))
            .collect()
    }

    /// Runs scripts in this window from now on.
    pub fn switch_to(&self, window: &str) {
        let answer = self.command("window", &json!({"handle": window}));
        assert!(answer.is_null(), "{answer}");
    }

    /// Waits until a script returns something else than `null` and `false`.
    ///
    /// # Panics
    /// If that does not happen within [`TEST_TIMEOUT`].
    pub fn wait_for(&self, what: &str, script: &str) -> Value {
        wait_for(what, || {
            let value = self.run(script);
            (!value.is_null() && value != json!(false)).then_some(value)
        })
    }

    /// Presses and releases a key.
    pub fn press(&self, key: &str) {
        let key = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": key}]});
        let answer = self.command("actions", &actions);
        assert!(answer.is_null(), "{answer}");
    }

    /// Moves the mouse through places of the page, in CSS pixels, with the button pressed from the
    /// first to the last.
    pub fn drag(&self, places: &[(i64, i64)]) {
        let mut moves = Vec::new();
        for (number, (x, y)) in places.iter().enumerate() {
            moves.push(json!({"type": "pointerMove", "duration": 0, "x": x, "y": y}));
            if number == 0 {
                moves.push(json!({"type": "pointerDown", "button": 0}));
            }
        }
        moves.push(json!({"type": "pointerUp", "button": 0}));
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": moves});
        let answer = self.command("actions", &json!({"actions": [mouse]}));
        assert!(answer.is_null(), "{answer}");
    }

    /// Clicks a place of the page, in CSS pixels.
    pub fn click(&self, x: i64, y: i64) {
        self.drag(&[(x, y)]);
    }

    /// Lets the page have a part of the speed of the processor only.
    pub fn throttle_processor(&self, part: u32) {
        let command = "Emulation.setCPUThrottlingRate";
        let body = json!({"cmd": command, "params": {"rate": part}});
        let _ = self.command("goog/cdp/execute", &body);
    }

    /// Lets the page be as large as this, in CSS pixels, with the colours of a theme of the system.
    pub fn emulate(&self, (width, height): (u32, u32), scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        for (command, params) in [
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", scheme),
        ] {
            let body = json!({"cmd": command, "params": params});
            let _ = self.command("goog/cdp/execute", &body);
        }
    }

    /// Returns the page as a picture, a PNG.
    #[must_use]
    pub fn screenshot(&self) -> Vec<u8> {
        let picture = self.get("screenshot");
        decode_base64(picture.as_str().unwrap_or_default())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the page shows and knows, to tell why the test failed.
            let script = "return [document.body.innerText, window.__view ? __view() : null]";
            let path = format!("/session/{}/execute/sync", self.session);
            let body = json!({"script": script, "args": []});
            let state = try_request(self.address, "POST", &path, &body);
            let state = state.map_or_else(|error| error.to_string(), |state| state.to_string());
            let state: String = state.chars().take(MAX_REPORTED_CHARS).collect();
            eprintln!("page: {state}");
        }
        // Also after a failed test: the driver that is killed leaves the browser running.
        let path = format!("/session/{}", self.session);
        let _ = try_request(self.address, "DELETE", &path, &Value::Null);
    }
}

/// Sends a command, and returns the value in the answer.
fn request(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    try_request(address, method, path, body).unwrap()
}

fn try_request(address: SocketAddr, method: &str, path: &str, body: &Value) -> io::Result<Value> {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TEST_TIMEOUT))?;
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())?;
    let body = read_body(BufReader::new(socket))?;
    let mut answer: Value = serde_json::from_slice(&body)?;
    Ok(answer["value"].take())
}

/// Reads a response to the end of its body. The driver leaves the connection open.
fn read_body(mut response: impl BufRead) -> io::Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        response.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    response.read_exact(&mut body)?;
    Ok(body)
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF).unwrap());
        }
    }
    bytes
}

/// Starts chromedriver at a free port. It takes the one that it was given for IPv4 for IPv6 as
/// well, and exits if somebody else has that.
fn start_driver(lab: &Lab) -> (Process, u16) {
    let start = || {
        let mut command = Command::new(peers::program("chromedriver"));
        Process::start(command.arg("--port=0").env("HOME", lab.path()))
    };
    let mut driver = start();
    let port = wait_for("the port of chromedriver", || {
        let lines = driver.stdout();
        let port = lines
            .iter()
            .find_map(|line| line.split_once("successfully on port "));
        if port.is_none() && !driver.is_running() {
            driver = start();
        }
        let (_, port) = port?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    (driver, port)
}
