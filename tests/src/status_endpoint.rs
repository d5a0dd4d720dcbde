//! The client end of a relay's status endpoint: metrics, sessions and health over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::lab::Lab;
use crate::relay::Relay;
use crate::{TEST_TIMEOUT, wait_for, wait_until};

/// The status endpoint of one relay. Each request opens a connection of its own.
#[derive(Debug)]
pub struct StatusEndpoint(SocketAddr);

impl StatusEndpoint {
    /// Starts a relay with a status endpoint and more options.
    #[must_use]
    pub fn start_relay(lab: &Lab, options: &[&str]) -> (Relay, Self) {
        let relay = Relay::start_with(lab, &[&["--http=0"], options].concat());
        let status = Self::of(&relay);
        (relay, status)
    }

    /// The endpoint of a relay that was started with `--http`; the relay's log says where it is.
    #[must_use]
    pub fn of(relay: &Relay) -> Self {
        Self(wait_for("the status endpoint listens", || {
            let log = relay.log();
            let mut fields = log
                .iter()
                .filter_map(|line| line.split_once("status endpoint enabled http="));
            fields.find_map(|(_, address)| address.trim().parse().ok())
        }))
    }

    /// Returns the address on which the endpoint listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0
    }

    /// Returns the status code and the body of a GET request.
    ///
    /// # Panics
    /// If the response is not HTTP.
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

    /// Returns the body of a GET request as JSON.
    ///
    /// # Panics
    /// If the body is not JSON.
    #[must_use]
    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }

    /// Waits until a metric has this value.
    pub fn wait_for_metric(&self, series: &str, value: u64) {
        wait_until(&format!("{series} is {value}"), || {
            self.metric(series) == value
        });
    }

    /// Returns the value of a metric, by its name and labels as in the exposition format.
    ///
    /// # Panics
    /// If there is no such metric.
    #[must_use]
    pub fn metric(&self, series: &str) -> u64 {
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
