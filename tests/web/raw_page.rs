//! A page without a browser: a WebSocket on which anything can be sent.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::TEST_TIMEOUT;

use crate::system::Web;

/// Bytes of a frame before its tracks, of a track before its rows, and of a row.
const HEAD: usize = 40;
const TRACK: usize = 8;
const ROW: usize = 32;

/// What the server sends.
#[derive(Debug)]
pub(crate) enum Message {
    Text(Value),
    Frame(Frame),
}

/// The rows in view.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) number: u32,
    /// The rows and how many events they stand for.
    pub(crate) rows: usize,
    pub(crate) events: u64,
}

#[derive(Debug)]
pub(crate) struct RawPage {
    pub(crate) socket: TcpStream,
    number: u32,
}

impl RawPage {
    /// Opens a WebSocket.
    pub(crate) fn open(web: &Web) -> Self {
        let (socket, status) = Self::try_open(web);
        assert_eq!(status, "101");
        Self { socket, number: 0 }
    }

    /// Asks for a WebSocket, and returns the status that is answered.
    pub(crate) fn try_open(web: &Web) -> (TcpStream, String) {
        let mut socket = TcpStream::connect(web.address()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let head = format!(
            "GET /socket HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            web.address()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().to_owned();
        (socket, status)
    }

    /// Sends a text message, masked with zeros.
    pub(crate) fn send_text(&mut self, text: &str) -> io::Result<()> {
        let mut frame = vec![0x81];
        match u16::try_from(text.len()) {
            Ok(short @ ..126) => frame.push(0x80 | u8::try_from(short).unwrap()),
            Ok(length) => {
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
            Err(_) => {
                frame.push(0x80 | 127);
                frame.extend((text.len() as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.socket.write_all(&frame)
    }

    /// Sends a request with a number of its own, which is returned.
    pub(crate) fn ask(&mut self, mut request: Value) -> io::Result<u32> {
        self.number += 1;
        request["number"] = self.number.into();
        self.send_text(&request.to_string())?;
        Ok(self.number)
    }

    /// Shows the last ten minutes of these tracks, and follows.
    pub(crate) fn follow(&mut self, tracks: &[u64]) -> io::Result<u32> {
        self.ask(json!({
            "type": "view", "from": "0", "to": "600000000000", "isFollowing": true, "width": 1000,
            "tracks": tracks,
        }))
    }

    pub(crate) fn acknowledge(&mut self, frame: u32) -> io::Result<()> {
        self.send_text(&json!({"type": "ack", "frame": frame}).to_string())
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> io::Result<Message> {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.socket.read_exact(&mut length)?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.socket.read_exact(&mut length)?;
                u64::from_be_bytes(length)
            }
            short => short.into(),
        };
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut body)?;
        match head[0] {
            0x81 => Ok(Message::Text(serde_json::from_slice(&body)?)),
            0x82 => Ok(Message::Frame(Frame::parse(&body))),
            other => Err(io::Error::other(format!("closed: {other:x}"))),
        }
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, number: u32) -> io::Result<Value> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(left > Duration::ZERO, "no answer to request {number}");
            if let Message::Text(text) = self.receive()?
                && text["number"] == number
            {
                return Ok(text);
            }
        }
    }
}

impl Frame {
    fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut rows, mut events) = (HEAD, 0, 0);
        for _ in 0..word(32) {
            let count = word(at + 4) as usize;
            at += TRACK;
            events += (0..count)
                .map(|row| u64::from(word(at + row * ROW + 20)))
                .sum::<u64>();
            rows += count;
            at += count * ROW;
        }
        assert_eq!(at, bytes.len());
        Self {
            number: word(0),
            rows,
            events,
        }
    }
}
