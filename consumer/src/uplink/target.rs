//! The address of a relay, in the URLs that `lttng create` takes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use transport::client_files::ClientFiles;

/// The default ports of a relay: control and data.
const CONTROL_PORT: u16 = 5342;
const DATA_PORT: u16 = 5343;

/// The default QUIC port of a relay.
const QUIC_PORT: u16 = 5346;

/// The address of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTarget {
    /// How the relay is reached.
    pub link: Link,
    /// The port for commands.
    pub control: RelayEndpoint,
    /// The port for packets.
    pub data: RelayEndpoint,
    /// Path of the trace below the host's directory on the relay; empty if the URL has none.
    pub base_path: String,
    /// The certificates for ports with TLS. Present if one of them is encrypted.
    pub tls: Option<ClientFiles>,
    /// Over QUIC: how long a packet may take from when it is cut until the relay has it. If absent,
    /// it may take any time.
    pub deadline: Option<Duration>,
}

/// How a relay is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Two TCP connections: `net://`, or `tcp://` twice, or with TLS `nets://` or `tls://`.
    Tcp,
    /// One QUIC connection: `quic://`.
    Quic,
}

/// One port of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayEndpoint {
    /// The family of the host's addresses that may be used.
    pub family: AddressFamily,
    /// Host name, or an address without brackets.
    pub host: String,
    /// TCP port, or with `quic://` UDP port.
    pub port: u16,
    /// Whether the connection is encrypted: `nets://`, `tls://`.
    pub is_tls: bool,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4: `net://`, `net4://`, `tcp://`, `tcp4://`, and with TLS `nets://`, `tls://`.
    V4,
    /// IPv6: `net6://`, `tcp6://`, and with TLS `nets6://`, `tls6://`; all others with an address
    /// in brackets, unless they end in 4.
    V6,
}

/// A URL does not name a relay.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{url}: {fault}")]
pub struct TargetError {
    /// The URL as it was typed, with control characters escaped.
    pub url: String,
    /// What is wrong with the URL.
    pub fault: UrlFault,
}

/// A fault of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlFault {
    /// The URL has no `://`.
    #[error("a relay is net[s]://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]")]
    NoScheme,
    /// The scheme is unknown.
    #[error(
        "unknown scheme {0}://; use net://, net6://, tcp:// or tcp6://, or with TLS nets://, nets6://, tls:// or tls6://, or quic://"
    )]
    Scheme(String),
    /// The URL names one port where both are needed.
    #[error("tcp:// or tls:// is one port: give --ctrl-url and --data-url")]
    OnePort,
    /// The URL names both ports where one is needed.
    #[error(
        "net://, nets:// or quic:// is both ports; one is tcp://HOST[:PORT] or tls://HOST[:PORT]"
    )]
    BothPorts,
    /// The host is empty.
    #[error("the host is missing")]
    NoHost,
    /// The host has a character that host names cannot have, such as white space.
    #[error("invalid character {0:?} in the host name")]
    Character(char),
    /// Brackets do not match, an IPv6 address has none, or IPv4 is asked for.
    #[error(
        "an IPv6 address must be in brackets, [ADDRESS]:PORT, and not with net4:// or the like"
    )]
    Brackets,
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} is not a port: 1 to 65535")]
    Port(String),
    /// The path has a part `..`.
    #[error("the path must not have a part `..`")]
    Path,
    /// The URLs of the two ports have different paths.
    #[error("the paths of both URLs differ")]
    TwoPaths,
}

impl RelayTarget {
    /// Makes the address of a relay from the URLs of its two ports.
    ///
    /// # Errors
    /// If a URL is not `tcp://HOST[:PORT][/PATH]`, or the paths differ.
    pub fn from_port_urls(control: &str, data: &str) -> Result<Self, TargetError> {
        let (endpoint, path) = parse_port_url(control, CONTROL_PORT)?;
        let (data_endpoint, data_path) = parse_port_url(data, DATA_PORT)?;
        let base_path = match (path.is_empty(), data_path.is_empty()) {
            (_, true) => path,
            (true, false) => data_path,
            _ if path == data_path => path,
            _ => return Err(error(data, UrlFault::TwoPaths)),
        };
        Ok(Self {
            link: Link::Tcp,
            control: endpoint,
            data: data_endpoint,
            base_path,
            tls: None,
            deadline: None,
        })
    }
}

impl RelayTarget {
    /// Whether one of the ports is encrypted.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.control.is_tls || self.data.is_tls
    }
}

impl FromStr for RelayTarget {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let parts = UrlParts::parse(url).map_err(|fault| error(url, fault))?;
        let [control, data] = parts.ports;
        if parts.link == Link::Quic {
            let endpoint = parts.endpoint(control, QUIC_PORT);
            return Ok(Self {
                link: Link::Quic,
                // Packets go through the same connection as commands.
                control: endpoint.clone(),
                data: endpoint,
                base_path: parts.path,
                tls: None,
                deadline: None,
            });
        }
        if !parts.net {
            return Err(error(url, UrlFault::OnePort));
        }
        Ok(Self {
            link: Link::Tcp,
            control: parts.endpoint(control, CONTROL_PORT),
            data: parts.endpoint(data, DATA_PORT),
            base_path: parts.path,
            tls: None,
            deadline: None,
        })
    }
}

impl fmt::Display for RelayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (control, data) = (&self.control, &self.data);
        let of_one_host = (&control.host, control.family, control.is_tls)
            == (&data.host, data.family, data.is_tls);
        if self.link == Link::Quic {
            control.write(f, "quic")?;
        } else if of_one_host {
            control.write(f, if control.is_tls { "nets" } else { "net" })?;
            write!(f, ":{}", self.data.port)?;
        } else {
            write!(f, "{} and {}", self.control, self.data)?;
        }
        if self.base_path.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.base_path)
        }
    }
}

impl RelayEndpoint {
    fn write(&self, f: &mut fmt::Formatter<'_>, scheme: &str) -> fmt::Result {
        match self.family {
            AddressFamily::V4 => write!(f, "{scheme}://{}:{}", self.host, self.port),
            AddressFamily::V6 => write!(f, "{scheme}6://[{}]:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for RelayEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, if self.is_tls { "tls" } else { "tcp" })
    }
}

fn error(url: &str, fault: UrlFault) -> TargetError {
    TargetError {
        url: url.escape_debug().to_string(),
        fault,
    }
}

fn parse_port_url(url: &str, usual: u16) -> Result<(RelayEndpoint, String), TargetError> {
    let parts = UrlParts::parse(url).map_err(|fault| error(url, fault))?;
    if parts.net || parts.link == Link::Quic {
        return Err(error(url, UrlFault::BothPorts));
    }
    let [port, _] = parts.ports;
    Ok((parts.endpoint(port, usual), parts.path))
}

/// The parts of a URL.
struct UrlParts<'a> {
    /// Whether the URL names both ports (`net://`).
    net: bool,
    is_tls: bool,
    link: Link,
    family: AddressFamily,
    host: &'a str,
    ports: [Option<u16>; 2],
    path: String,
}

impl<'a> UrlParts<'a> {
    fn parse(url: &'a str) -> Result<Self, UrlFault> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlFault::NoScheme)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (v4, v6) = (AddressFamily::V4, AddressFamily::V6);
        let (name, family) = match (scheme.strip_suffix('4'), scheme.strip_suffix('6')) {
            // No resolver finds an address in brackets among those of IPv4.
            (Some(_), _) if authority.starts_with('[') => return Err(UrlFault::Brackets),
            (Some(name), _) => (name, v4),
            (_, Some(name)) => (name, v6),
            _ if authority.starts_with('[') => (scheme, v6),
            _ => (scheme, v4),
        };
        let (net, is_tls) = match name {
            "net" => (true, false),
            "nets" => (true, true),
            "tcp" => (false, false),
            "tls" | "quic" => (false, true),
            _ => return Err(UrlFault::Scheme(scheme.escape_debug().to_string())),
        };
        let link = match name {
            "quic" => Link::Quic,
            _ => Link::Tcp,
        };
        let (host, ports) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']').ok_or(UrlFault::Brackets)?;
                match rest.strip_prefix(':') {
                    Some(ports) => (host, ports),
                    None if rest.is_empty() => (host, ""),
                    None => return Err(UrlFault::Brackets),
                }
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        if host.is_empty() {
            return Err(UrlFault::NoHost);
        }
        let unfit = |c: &char| c.is_whitespace() || c.is_control() || "@[]?#".contains(*c);
        if let Some(character) = host.chars().find(unfit) {
            return Err(UrlFault::Character(character));
        }
        let (first, second) = match ports.split_once(':') {
            Some((first, second)) if net => (first, second),
            // An IPv6 address without brackets has more than one colon as well.
            Some(_) if family == AddressFamily::V6 => return Err(UrlFault::Brackets),
            _ => (ports, ""),
        };
        Ok(Self {
            net,
            is_tls,
            link,
            family,
            host,
            ports: [port(first)?, port(second)?],
            path: normalize_path(path)?,
        })
    }

    fn endpoint(&self, port: Option<u16>, usual: u16) -> RelayEndpoint {
        RelayEndpoint {
            family: self.family,
            host: self.host.to_owned(),
            port: port.unwrap_or(usual),
            is_tls: self.is_tls,
        }
    }
}

fn port(text: &str) -> Result<Option<u16>, UrlFault> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        // Which `parse` would take with a sign.
        Ok(port @ 1..) if !text.starts_with('+') => Ok(Some(port)),
        _ => Err(UrlFault::Port(text.to_owned())),
    }
}

/// Removes empty parts and `.` from a path.
fn normalize_path(path: &str) -> Result<String, UrlFault> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(UrlFault::Path);
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        url.parse::<RelayTarget>().unwrap().to_string()
    }

    #[test]
    fn url_names_a_host_its_ports_and_a_path() {
        for (url, want) in [
            ("net://relay", "net://relay:5342:5343"),
            ("net://relay:1", "net://relay:1:5343"),
            ("net://relay:1:2", "net://relay:1:2"),
            ("net://relay::2", "net://relay:5342:2"),
            ("net4://10.0.0.1:1:2/", "net://10.0.0.1:1:2"),
            ("net://relay/a//b/", "net://relay:5342:5343/a/b"),
            ("net6://[::1]", "net6://[::1]:5342:5343"),
            ("net6://[fe80::1]:1:2/x", "net6://[fe80::1]:1:2/x"),
            ("net6://relay:1", "net6://[relay]:1:5343"),
            ("quic://relay", "quic://relay:5346"),
            ("quic://relay:1/a", "quic://relay:1/a"),
            ("quic://[::1]:7", "quic6://[::1]:7"),
            ("quic6://relay", "quic6://[relay]:5346"),
            ("nets://relay:1/x", "nets://relay:1:5343/x"),
            ("nets4://relay", "nets://relay:5342:5343"),
            ("nets6://[::1]", "nets6://[::1]:5342:5343"),
        ] {
            assert_eq!(shown(url), want, "{url}");
        }
    }

    #[test]
    fn control_and_data_urls_may_name_different_hosts() {
        let target = RelayTarget::from_port_urls("tcp://one", "tcp6://[::2]:9/x").unwrap();
        assert_eq!(target.control.to_string(), "tcp://one:5342");
        assert_eq!(target.data.to_string(), "tcp6://[::2]:9");
        assert_eq!(target.base_path, "x");
        let mixed = RelayTarget::from_port_urls("tls://one", "tcp://one").unwrap();
        assert_eq!(mixed.to_string(), "tls://one:5342 and tcp://one:5343");
        assert!(mixed.has_tls() && !target.has_tls());
        let fault = |control, data| {
            RelayTarget::from_port_urls(control, data)
                .unwrap_err()
                .fault
        };
        assert_eq!(fault("net://one", "tcp://one"), UrlFault::BothPorts);
        assert_eq!(fault("quic://one", "tcp://one"), UrlFault::BothPorts);
        assert_eq!(fault("tcp://one/a", "tcp://one/b"), UrlFault::TwoPaths);
    }

    #[test]
    fn malformed_url_error_names_the_fault() {
        let scheme = || UrlFault::Scheme("http".into());
        for (url, want) in [
            ("relay", UrlFault::NoScheme),
            ("http://relay", scheme()),
            ("tcp://relay", UrlFault::OnePort),
            ("net://", UrlFault::NoHost),
            ("net://:1", UrlFault::NoHost),
            ("net://a b", UrlFault::Character(' ')),
            ("net://user@relay", UrlFault::Character('@')),
            ("net6://[::1", UrlFault::Brackets),
            ("net6://[::1]1", UrlFault::Brackets),
            ("net://relay:x", UrlFault::Port("x".into())),
            ("net://relay:0", UrlFault::Port("0".into())),
            ("net://relay:1:65536", UrlFault::Port("65536".into())),
            ("quic://relay:1:2", UrlFault::Port("1:2".into())),
            ("net://relay:1:2:3", UrlFault::Port("2:3".into())),
            ("net://relay:+1", UrlFault::Port("+1".into())),
            ("net4://[::1]", UrlFault::Brackets),
            ("quic4://[::1]", UrlFault::Brackets),
            ("net://relay/a/../b", UrlFault::Path),
        ] {
            assert_eq!(url.parse::<RelayTarget>().unwrap_err().fault, want, "{url}");
        }
        let error = "net\u{1b}[31m://relay".parse::<RelayTarget>().unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
    }

    #[test]
    fn an_address_in_brackets_prints_as_a_url_of_the_same_address() {
        for url in ["net://[::1]:1:2", "nets://[::1]/a", "quic://[::1]"] {
            let target: RelayTarget = url.parse().unwrap();
            assert_eq!(target.control.family, AddressFamily::V6, "{url}");
            assert_eq!(target.to_string().parse(), Ok(target), "{url}");
        }
        let ports = RelayTarget::from_port_urls("tcp://[::1]", "tls://[::1]").unwrap();
        assert_eq!(ports.to_string(), "tcp6://[::1]:5342 and tls6://[::1]:5343");
    }
}
