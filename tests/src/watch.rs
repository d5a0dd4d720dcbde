//! Somebody who keeps watch over a relay, over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::relay::Relay;
use crate::{TEST_TIMEOUT, wait_for};

/// Asks a relay over HTTP how it is.
#[derive(Debug)]
pub struct Watch(SocketAddr);

impl Watch {
    /// Of a relay that was started with `--http`.
    #[must_use]
    pub fn of(relay: &Relay) -> Self {
        Self(wait_for("the relay tells where it is asked", || {
            let log = relay.log();
            let mut fields = log
                .iter()
                .filter_map(|line| line.split_once("status endpoint enabled http="));
            fields.find_map(|(_, address)| address.trim().parse().ok())
        }))
    }

    /// Where it is asked.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0
    }

    /// Status and body of what is at this path.
    ///
    /// # Panics
    /// If the answer is not HTTP.
    #[must_use]
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.0).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// What is at this path.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }

    /// A metric, by its name and labels.
    ///
    /// # Panics
    /// If there is no such metric.
    #[must_use]
    pub fn number(&self, series: &str) -> u64 {
        let (_, text) = self.get("/metrics");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {series} in {text}"))
            .parse()
            .unwrap()
    }
}
