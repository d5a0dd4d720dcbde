//! The relay's configuration: endpoints, directories, limits and timeouts, as values that no longer depend on
//! where they were set. `cli` makes it of options, files and environment variables.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use jiff::tz::TimeZone;
use thiserror::Error;

pub use self::network::{KeepAlive, Network, Timeouts};
use crate::ingest::WhenFull;
use crate::ingest::reorder::Window;
use crate::store::layout::Grouping;

mod network;

/// Format of the log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event, on a line of its own.
    Json,
}

/// Configuration of one relay. It does not change while the relay runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Absolute path of the directory that all traces are written below.
    pub output: PathBuf,
    /// Whether session directories are grouped by host or by session name.
    pub grouping: Grouping,
    /// Whether producers may delete what they recorded (`lttng clear`).
    pub allows_clear: bool,
    /// Endpoint of producers' control connections.
    pub control: Endpoint,
    /// Endpoint of producers' data connections.
    pub data: Endpoint,
    /// Endpoint of viewers' connections.
    pub live: Endpoint,
    /// Endpoint of the HTTP status endpoint. None if it is not served.
    pub http: Option<Endpoint>,
    /// Keep-alive and timeouts of connections.
    pub network: Network,
    /// Maximum number of open trace files.
    pub pool: usize,
    /// Packets and bytes of a stream after which a missing packet is given up.
    pub window: Window,
    /// Maximum memory for early packets of all streams together, in bytes.
    pub reorder_memory: u64,
    /// Whether producers are paused or sessions closed when the disk is full.
    pub when_full: WhenFull,
    /// Time zone of the times in directory names.
    pub time_zone: TimeZone,
    /// Settings of the process itself.
    pub process: ProcessConfig,
}

/// Settings of the process: directories, files and signals besides ports and traces.
#[derive(Debug, Clone, Default)]
pub struct ProcessConfig {
    /// Absolute working directory. None: the one it was started in, or `/` in the background.
    pub working_directory: Option<PathBuf>,
    /// Group that may query the health socket. None: `tracing`, if that group exists.
    pub group: Option<String>,
    /// Absolute path of the health socket. None: `relayd/health-PID` in the run folder.
    pub health: Option<PathBuf>,
    /// Absolute path of the file that the process ID is written to. None: no file.
    pub pid_file: Option<PathBuf>,
    /// Whether the parent process is sent SIGUSR1 when all ports accept connections.
    pub signals_parent: bool,
    /// Absolute run folder, in which LTTng's programs find each other. None if there is no home directory for
    /// one.
    pub run_folder: Option<PathBuf>,
}

/// An address to listen on: `tcp://HOST[:PORT]`, `tcp4://` or `tcp6://`. The host may be a name, which is
/// resolved when the relay starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv6 rather than IPv4.
    is_ipv6: bool,
    host: String,
    /// None until [`or_port`](Self::or_port) sets the default.
    port: Option<u16>,
}

/// An [`Endpoint`] that cannot be parsed or resolved.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The text is no URL of a supported scheme.
    #[error("invalid URL {0:?}: expected tcp://HOST[:PORT] or tcp6://HOST[:PORT]")]
    Form(String),
    /// The text is no endpoint of `--http`.
    #[error("invalid endpoint {0:?}: expected [HOST:]PORT")]
    HttpForm(String),
    /// The host has no address of the endpoint's family.
    #[error("{host:?} has no {family} address")]
    NoAddress {
        /// Host of the endpoint.
        host: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The host name cannot be resolved.
    #[error("cannot resolve {host:?}")]
    Unknown {
        /// Host of the endpoint.
        host: String,
        /// Error of the resolver.
        source: std::io::Error,
    },
}

impl Endpoint {
    /// An IPv4 endpoint.
    #[must_use]
    pub fn v4(host: &str, port: u16) -> Self {
        Self {
            is_ipv6: false,
            host: host.to_owned(),
            port: Some(port),
        }
    }

    /// Parses an endpoint of `--http`: `[HOST:]PORT` or a URL. The default host is 127.0.0.1.
    ///
    /// # Errors
    /// If the text has neither form.
    pub fn parse_http(text: &str) -> Result<Self, EndpointError> {
        if text.contains("://") {
            return text.parse();
        }
        if let Ok(port) = text.parse() {
            return Ok(Self::v4("127.0.0.1", port));
        }
        let scheme = if text.starts_with('[') { "tcp6" } else { "tcp" };
        let parsed = format!("{scheme}://{text}").parse();
        // The error must not name a scheme that the user did not write.
        parsed.map_err(|_| EndpointError::HttpForm(text.to_owned()))
    }

    /// The same endpoint, with `port` if it has none.
    #[must_use]
    pub fn or_port(mut self, port: u16) -> Self {
        self.port.get_or_insert(port);
        self
    }

    /// Resolves the host to its first address of the endpoint's family.
    ///
    /// # Errors
    /// If the host is unknown, or has no address of that family.
    pub fn resolve(&self) -> Result<SocketAddr, EndpointError> {
        let host = || self.host.clone();
        let mut found = (self.host.as_str(), self.port.unwrap_or(0))
            .to_socket_addrs()
            .map_err(|source| EndpointError::Unknown {
                host: host(),
                source,
            })?;
        let family = if self.is_ipv6 { "IPv6" } else { "IPv4" };
        found
            .find(|address| address.is_ipv6() == self.is_ipv6)
            .ok_or_else(|| EndpointError::NoAddress {
                host: host(),
                family,
            })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let form = || EndpointError::Form(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let is_ipv6 = match scheme {
            "tcp" | "tcp4" => false,
            "tcp6" => true,
            _ => return Err(form()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(form)?;
                (
                    host,
                    after
                        .strip_prefix(':')
                        .or(after.is_empty().then_some(""))
                        .ok_or_else(form)?,
                )
            }
            None => match rest.rsplit_once(':') {
                // Without brackets, all colons belong to the IPv6 address.
                Some((host, _)) if is_ipv6 && host.contains(':') => (rest, ""),
                Some((host, port)) => (host, port),
                None => (rest, ""),
            },
        };
        let port = match port {
            "" => None,
            port => Some(port.parse().map_err(|_| form())?),
        };
        if host.is_empty() || host.contains(['/', '@', '[', ']']) {
            return Err(form());
        }
        Ok(Self {
            is_ipv6,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_ipv6 { "tcp6" } else { "tcp" };
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "{scheme}://[{}]:{port}", self.host),
            (true, None) => write!(f, "{scheme}://[{}]", self.host),
            (false, Some(port)) => write!(f, "{scheme}://{}:{port}", self.host),
            (false, None) => write!(f, "{scheme}://{}", self.host),
        }
    }
}

/// Parses a boolean of a configuration file or environment variable. None if the text is none.
pub(crate) fn parse_boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_urls_are_parsed_and_displayed_and_malformed_ones_rejected() {
        for (text, shown) in [
            ("tcp://0.0.0.0:5342", "tcp://0.0.0.0:5342"),
            ("tcp4://localhost", "tcp://localhost"),
            ("tcp6://[::1]:99", "tcp6://[::1]:99"),
            ("tcp6://::1", "tcp6://[::1]"),
            ("tcp://host:1/", "tcp://host:1"),
        ] {
            assert_eq!(
                text.parse::<Endpoint>().unwrap().to_string(),
                shown,
                "{text}"
            );
        }
        for text in [
            "localhost",
            "net://localhost",
            "tcp://",
            "tcp://:5342",
            "tcp://a:b",
            "tcp://a:70000",
            "tcp://a/b",
            "tcp6://[::1",
            "tcp6://[::1]99",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn http_endpoint_defaults_to_the_loopback_address() {
        for (text, shown) in [
            ("9342", "tcp://127.0.0.1:9342"),
            ("0.0.0.0:9342", "tcp://0.0.0.0:9342"),
            ("[::1]:9342", "tcp6://[::1]:9342"),
            ("localhost", "tcp://localhost"),
            ("tcp6://[::]:1", "tcp6://[::]:1"),
        ] {
            let endpoint = Endpoint::parse_http(text).unwrap();
            assert_eq!(endpoint.to_string(), shown, "{text}");
        }
        for text in ["", ":", "http://localhost", "a:b", "localhost:70000"] {
            assert!(Endpoint::parse_http(text).is_err(), "{text}");
        }
    }

    #[test]
    fn endpoint_host_is_resolved_in_its_address_family() {
        let four: Endpoint = "tcp://127.0.0.1:7".parse().unwrap();
        assert_eq!(four.resolve().unwrap(), "127.0.0.1:7".parse().unwrap());
        let six: Endpoint = "tcp6://::1".parse().unwrap();
        assert_eq!(
            six.or_port(8).resolve().unwrap(),
            "[::1]:8".parse().unwrap()
        );
        let mixed: Endpoint = "tcp6://127.0.0.1:7".parse().unwrap();
        assert!(matches!(
            mixed.resolve(),
            Err(EndpointError::NoAddress { .. })
        ));
    }
}
