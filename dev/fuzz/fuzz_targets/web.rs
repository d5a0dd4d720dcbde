//! What a browser sends to `test-live web`, which shows a small recording. The first byte says what
//! the rest is: the bytes of a connection, the query of a download, messages of a page as sections
//! over its WebSocket, or bytes over that.
//!
//! Each message that asks for something is answered, in order, or the connection is closed; what
//! the server sends has the form that the page reads.
#![no_main]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use fuzz::sections;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tempfile::TempDir;
use test_live::cli::{Arguments, Command};
use viewer::filter::Filter;
use viewer::run::Stop;

/// Time in which the server answers, whatever it is asked.
const TIMEOUT: Duration = Duration::from_secs(8);
const METADATA: &str = "/* CTF 1.8 */
    typealias integer { size = 8; align = 8; } := u8;
    clock { name = c; freq = 1000000000; offset_s = 1700000000; };
    typealias integer { size = 32; align = 8; map = clock.c.value; } := time;
    trace { major = 1; minor = 8; byte_order = le; };
    stream {
        packet.context := struct { time timestamp_begin; time timestamp_end; u8 cpu_id; };
        event.header := struct { u8 id; time timestamp; };
        event.context := struct { u8 _vpid; u8 _vtid; };
    };
    event { id = 1; name = \"p:frame_begin\"; fields := struct { u8 frame; }; };
    event { id = 2; name = \"p:frame_end\"; fields := struct { u8 frame; }; };
    event { id = 3; name = tick; fields := struct { string text; }; };";
const PACKET: &[u8] = b"\0\0\0\0\0\0\0\x60\x01\
    \x01\0\0\0\x10\x05\x06\x01\
    \x03\0\0\0\x20\x05\x06one\0\
    \x02\0\0\0\x30\x05\x06\x01\
    \x01\0\0\0\x40\x05\x07\x02\
    \x03\0\0\0\x50\x06\x06two\0";

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(fuzz::output);
static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| serve(DIRECTORY.path()));

fuzz_target!(|input: &[u8]| {
    let Some((kind, input)) = input.split_first() else {
        return;
    };
    match kind % 4 {
        0 => send_bytes(input),
        1 => download(input),
        2 => send_messages(&sections(input).collect::<Vec<_>>()),
        _ => send_frames(input),
    }
});

/// Starts a server on a free port, which runs until the process ends.
fn serve(directory: &Path) -> SocketAddr {
    fs::write(directory.join("metadata"), METADATA).expect("a file");
    fs::write(directory.join("stream"), PACKET).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    // The server binds it again: the system seldom gives a port to another program at once.
    drop(listener);
    let words = [
        "test-live".to_owned(),
        "web".to_owned(),
        format!("--listen={address}"),
        "--history=10000".to_owned(),
        directory.display().to_string(),
    ];
    let Some(Command::Web(arguments)) = Arguments::from_words(words).command else {
        unreachable!("the words name the command");
    };
    thread::spawn(move || {
        timeline::run(arguments.settings().expect("settings"), &Stop::default()).expect("a server")
    });
    while TcpStream::connect(address).is_err() {
        thread::yield_now();
    }
    address
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(*SERVER).expect("the server accepts connections");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Reads until the server has closed the connection.
fn read_rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        let kind = error.kind();
        let is_open = matches!(
            kind,
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        );
        assert!(!is_open, "the server does not answer");
    }
    received
}

/// Writes all bytes, unless the server closes the connection before.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.flush();
}

/// The bytes of a connection.
fn send_bytes(bytes: &[u8]) {
    let mut stream = connect();
    write(&mut stream, bytes);
    // The server may have closed the connection already.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let received = read_rest(&mut stream);
    if !received.is_empty() {
        status(&received);
    }
}

/// The status of a response, and its body as it was sent.
fn status(response: &[u8]) -> (u16, &[u8]) {
    let end = response.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.expect("a whole head");
    let head = std::str::from_utf8(&response[..end]).expect("a head of text");
    let status = head.strip_prefix("HTTP/1.").expect("an HTTP version");
    let status: u16 = status[2..5].parse().expect("a status");
    let known = [
        101, 200, 400, 403, 404, 405, 408, 410, 413, 414, 426, 431, 503,
    ];
    assert!(known.contains(&status), "{head}");
    if status == 200 {
        assert!(head.contains("content-security-policy: default-src 'none'"));
        assert!(head.contains("x-frame-options: DENY"));
    }
    (status, &response[end + 4..])
}

/// The query of a download.
fn download(query: &[u8]) {
    let mut request = b"GET /download?".to_vec();
    // What ends the query begins another header, which is what the bytes of a connection are for.
    request.extend(query.iter().filter(|byte| **byte > b' '));
    let host = *SERVER;
    let rest = format!(" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    request.extend(rest.as_bytes());
    let mut stream = connect();
    write(&mut stream, &request);
    let received = read_rest(&mut stream);
    let (status, body) = status(&received);
    if status != 200 {
        return;
    }
    let body = dechunked(body);
    match body.first() {
        Some(b'{') if body.starts_with(b"{\"displayTimeUnit\"") => {
            serde_json::from_slice::<Value>(&body).expect("a document");
        }
        Some(b'{') => {
            for line in body
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                serde_json::from_slice::<Value>(line).expect("a line of JSON");
            }
        }
        Some(_) => assert!(body.len().is_multiple_of(512), "no archive"),
        None => {}
    }
}

/// A body without the lengths of its chunks.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|part| part == b"\r\n");
        let end = end.expect("the length of a chunk");
        let length = std::str::from_utf8(&body[..end]).expect("text");
        let length = usize::from_str_radix(length, 16).expect("a number");
        let chunk = &body[end + 2..];
        if length == 0 {
            return whole;
        }
        whole.extend(&chunk[..length]);
        body = &chunk[length + 2..];
    }
}

/// A WebSocket that the server has accepted.
struct Page {
    stream: TcpStream,
    /// Bytes that were received and not read.
    received: Vec<u8>,
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Page {
    fn open() -> Self {
        let mut stream = connect();
        let host = *SERVER;
        let head = format!(
            "GET /socket HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        write(&mut stream, head.as_bytes());
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            // Byte by byte, so that no frame is read with the head.
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a whole head");
            received.extend(byte);
        }
        assert_eq!(status(&received).0, 101);
        Self {
            stream,
            received: Vec::new(),
        }
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match u16::try_from(payload.len()) {
            Ok(length @ 0..126) => frame.push(0x80 | length as u8),
            Ok(length) => {
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
            Err(_) => unreachable!("a section has a length in two bytes"),
        }
        // The key of the mask, which changes nothing.
        frame.extend([0; 4]);
        frame.extend(payload);
        write(&mut self.stream, &frame);
    }

    /// Receives a frame. None: the server has closed the connection.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((kind, payload, length)) = first_frame(&self.received) {
                self.received.drain(..length);
                return (kind != CLOSE).then_some((kind, payload));
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.received.extend(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // The timer of libFuzzer.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("the server does not answer: {error}"),
            }
        }
    }
}

/// Kind and payload of the first frame, and its length with the head. None: it is not whole.
fn first_frame(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    assert_eq!(head[0] & 0xF0, 0x80, "one frame for each message");
    let (length, rest) = match head[1] {
        127 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(*length) as usize, rest)
        }
        126 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u16::from_be_bytes(*length).into(), rest)
        }
        length => (usize::from(length), rest),
    };
    let payload = rest.get(..length)?;
    let head_length = bytes.len() - rest.len();
    Some((head[0] & 0x0F, payload.to_vec(), head_length + length))
}

/// The messages of a page.
fn send_messages(messages: &[&[u8]]) {
    let mut page = Page::open();
    for message in messages {
        page.send(TEXT, message);
    }
    // A ping is answered after all messages before it.
    page.send(PING, b"end");
    let mut asked = messages.iter().filter_map(|message| question(message));
    loop {
        match page.receive() {
            None => return,
            Some((PONG, _)) => break,
            Some((BINARY, frame)) => check_frame(&frame),
            Some((TEXT, text)) => check_reply(&text, &mut asked),
            Some((kind, _)) => panic!("a frame of kind {kind}"),
        }
    }
    // The server has handled all messages, so that none was invalid.
    let unanswered = asked.next();
    assert_eq!(unanswered, None, "no answer");
}

/// Checks the length of the rows in view.
fn check_frame(frame: &[u8]) {
    let number = |at: usize| {
        let bytes = frame[at..].first_chunk().expect("a whole frame");
        u32::from_le_bytes(*bytes) as usize
    };
    let mut at = 40;
    for _ in 0..number(32) {
        at += 8 + 32 * number(at + 4);
    }
    assert_eq!(at, frame.len());
}

/// A message that is to be answered: its type, its number, and perhaps a text.
type Question = (&'static str, Value, Option<String>);

/// The question that a message is, if it is valid: an object, or an array of the same values.
fn question(message: &[u8]) -> Option<Question> {
    const TYPES: [&str; 6] = ["view", "ack", "details", "search", "count", "filter"];
    let message: Value = serde_json::from_slice(message).ok()?;
    let value = |name: &str, place: usize| match &message {
        Value::Array(values) => values.get(place),
        object => object.get(name),
    };
    let kind = value("type", 0)?;
    let is_it = |(place, name): &(usize, &&str)| kind == **name || kind == *place;
    let (place, kind) = TYPES.iter().enumerate().find(is_it)?;
    let text = value("text", 2).and_then(Value::as_str);
    (place > 1).then_some((kind, value("number", 1)?.clone(), text.map(str::to_owned)))
}

/// Checks that an answer is the one to the next question.
fn check_reply(text: &[u8], asked: &mut impl Iterator<Item = Question>) {
    let reply: Value = serde_json::from_slice(text).expect("JSON");
    if reply["type"] == "state" {
        return;
    }
    let (kind, number, text) = asked.next().expect("a question");
    assert_eq!(reply["type"], kind);
    assert_eq!(reply["number"], number);
    if kind == "filter" {
        let filter = text.as_deref().expect("a filter").trim();
        let is_valid = filter.is_empty() || Filter::parse(filter).is_ok();
        assert_eq!(reply["error"] == "", is_valid);
    }
}

/// Bytes over a WebSocket.
fn send_frames(bytes: &[u8]) {
    let mut page = Page::open();
    write(&mut page.stream, bytes);
    let _ = page.stream.shutdown(std::net::Shutdown::Write);
    read_rest(&mut page.stream);
}
