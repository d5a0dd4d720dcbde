//! The addresses of relays, in the URLs that `lttng create` takes, which name one, or in lists of
//! several.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use transport::client_files::ClientFiles;
use transport::relay_list::{ListFault, split_relays};

/// The default ports of a relay: control and data.
const CONTROL_PORT: u16 = 5342;
const DATA_PORT: u16 = 5343;

/// The default QUIC port of a relay.
const QUIC_PORT: u16 = 5346;

/// The relays that sessions are sent to, one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTarget {
    /// How the relays are reached.
    pub link: Link,
    /// The relays, in the order in which they are tried; at least one.
    pub relays: Vec<RelayPorts>,
    /// Path of the trace below the host's directory on the relay; empty if the URL has none.
    pub base_path: String,
    /// The certificates for ports with TLS. Present if one of them is encrypted.
    pub tls: Option<ClientFiles>,
    /// Over QUIC: how long a packet may take from when it is cut until the relay has it. If absent,
    /// it may take any time.
    pub deadline: Option<Duration>,
}

/// The ports of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPorts {
    /// The port for commands; over QUIC, for packets as well.
    pub control: RelayEndpoint,
    /// The port for packets; over QUIC, the same as `control`.
    pub data: RelayEndpoint,
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
    /// The list of relays is malformed.
    #[error(transparent)]
    List(#[from] ListFault),
    /// The URL of one port has a list of relays.
    #[error("a list of relays is net://, nets:// or quic://; tcp:// or tls:// is one port")]
    PortList,
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
        let ports = RelayPorts {
            control: endpoint,
            data: data_endpoint,
        };
        Ok(Self {
            link: Link::Tcp,
            relays: vec![ports],
            base_path,
            tls: None,
            deadline: None,
        })
    }

    /// Whether one of the ports is encrypted.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        let mut relays = self.relays.iter();
        relays.any(|relay| relay.control.is_tls || relay.data.is_tls)
    }
}

impl RelayPorts {
    /// Whether both ports are of the same host, so that the data connection goes to the address of
    /// the control connection.
    #[must_use]
    pub fn is_one_host(&self) -> bool {
        (&self.control.host, self.control.family) == (&self.data.host, self.data.family)
    }
}

impl FromStr for RelayTarget {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let fault = |fault| error(url, fault);
        let (link, relays, path) = parse_relays(url).map_err(fault)?;
        Ok(Self {
            link,
            relays,
            base_path: normalize_path(path).map_err(fault)?,
            tls: None,
            deadline: None,
        })
    }
}

/// Parses a URL of both ports, of one relay or a list. Also returns its path.
fn parse_relays(url: &str) -> Result<(Link, Vec<RelayPorts>, &str), UrlFault> {
    let UrlParts {
        scheme,
        relays,
        path,
    } = UrlParts::split(url)?;
    if !scheme.is_net && scheme.link == Link::Tcp {
        return Err(UrlFault::OnePort);
    }
    let ports = |relay: &&str| {
        let HostPorts {
            family,
            host,
            ports: [control, data],
        } = HostPorts::parse(&scheme, relay)?;
        let endpoint = |port| RelayEndpoint {
            family,
            host: host.to_owned(),
            port,
            is_tls: scheme.is_tls,
        };
        Ok(match scheme.link {
            Link::Quic => {
                let control = endpoint(control.unwrap_or(QUIC_PORT));
                RelayPorts {
                    data: control.clone(),
                    control,
                }
            }
            Link::Tcp => RelayPorts {
                control: endpoint(control.unwrap_or(CONTROL_PORT)),
                data: endpoint(data.unwrap_or(DATA_PORT)),
            },
        })
    };
    let relays = relays.iter().map(ports).collect::<Result<_, UrlFault>>()?;
    Ok((scheme.link, relays, path))
}

impl fmt::Display for RelayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.relays[..] {
            [relay] => relay.write_url(self.link, f)?,
            // A list has one scheme, so that its relays differ in their hosts and ports only.
            relays => {
                let is_v6 = |relay: &RelayPorts| relay.control.family == AddressFamily::V6;
                let has_tls = self.has_tls();
                f.write_str(match self.link {
                    Link::Quic => "quic",
                    Link::Tcp if has_tls => "nets",
                    Link::Tcp => "net",
                })?;
                f.write_str(if relays.iter().all(is_v6) {
                    "6://"
                } else {
                    "://"
                })?;
                for (place, relay) in relays.iter().enumerate() {
                    f.write_str(if place > 0 { "," } else { "" })?;
                    relay.control.write_host(f)?;
                    if self.link == Link::Tcp {
                        write!(f, ":{}", relay.data.port)?;
                    }
                }
            }
        }
        if self.base_path.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.base_path)
        }
    }
}

impl RelayPorts {
    /// Writes the relay's URL, or those of both ports if they are of different hosts.
    pub(super) fn write_url(&self, link: Link, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (control, data) = (&self.control, &self.data);
        if link == Link::Quic {
            control.write(f, "quic")
        } else if self.is_one_host() && control.is_tls == data.is_tls {
            control.write(f, if control.is_tls { "nets" } else { "net" })?;
            write!(f, ":{}", data.port)
        } else {
            write!(f, "{control} and {data}")
        }
    }
}

impl RelayEndpoint {
    fn write(&self, f: &mut fmt::Formatter<'_>, scheme: &str) -> fmt::Result {
        f.write_str(scheme)?;
        f.write_str(match self.family {
            AddressFamily::V4 => "://",
            AddressFamily::V6 => "6://",
        })?;
        self.write_host(f)
    }

    fn write_host(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            AddressFamily::V4 => write!(f, "{}:{}", self.host, self.port),
            AddressFamily::V6 => write!(f, "[{}]:{}", self.host, self.port),
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
    let parse = || {
        let UrlParts {
            scheme,
            relays,
            path,
        } = UrlParts::split(url)?;
        if scheme.is_net || scheme.link == Link::Quic {
            return Err(UrlFault::BothPorts);
        }
        let [relay] = relays[..] else {
            return Err(UrlFault::PortList);
        };
        let HostPorts {
            family,
            host,
            ports: [port, _],
        } = HostPorts::parse(&scheme, relay)?;
        let endpoint = RelayEndpoint {
            family,
            host: host.to_owned(),
            port: port.unwrap_or(usual),
            is_tls: scheme.is_tls,
        };
        Ok((endpoint, normalize_path(path)?))
    };
    parse().map_err(|fault| error(url, fault))
}

/// The parts of a URL.
struct UrlParts<'a> {
    scheme: Scheme,
    /// Host and ports of each relay; at least one.
    relays: Vec<&'a str>,
    path: &'a str,
}

/// What the scheme of a URL says.
struct Scheme {
    /// Whether the URL names both ports (`net://`).
    is_net: bool,
    is_tls: bool,
    link: Link,
    /// The family that the scheme ends in. Absent: an address in brackets is one of IPv6.
    family: Option<AddressFamily>,
}

impl<'a> UrlParts<'a> {
    fn split(url: &'a str) -> Result<Self, UrlFault> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlFault::NoScheme)?;
        let (relays, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Self {
            scheme: Scheme::parse(scheme)?,
            relays: split_relays(relays)?,
            path,
        })
    }
}

impl Scheme {
    fn parse(scheme: &str) -> Result<Self, UrlFault> {
        let (name, family) = match (scheme.strip_suffix('4'), scheme.strip_suffix('6')) {
            (Some(name), _) => (name, Some(AddressFamily::V4)),
            (_, Some(name)) => (name, Some(AddressFamily::V6)),
            _ => (scheme, None),
        };
        let (is_net, is_tls) = match name {
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
        Ok(Self {
            is_net,
            is_tls,
            link,
            family,
        })
    }
}

/// Host and ports of a relay.
struct HostPorts<'a> {
    family: AddressFamily,
    host: &'a str,
    ports: [Option<u16>; 2],
}

impl<'a> HostPorts<'a> {
    fn parse(scheme: &Scheme, relay: &'a str) -> Result<Self, UrlFault> {
        let is_bracketed = relay.starts_with('[');
        let family = match scheme.family {
            // No resolver finds an address in brackets among those of IPv4.
            Some(AddressFamily::V4) if is_bracketed => return Err(UrlFault::Brackets),
            Some(family) => family,
            None if is_bracketed => AddressFamily::V6,
            None => AddressFamily::V4,
        };
        let (host, ports) = match relay.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']').ok_or(UrlFault::Brackets)?;
                match rest.strip_prefix(':') {
                    Some(ports) => (host, ports),
                    None if rest.is_empty() => (host, ""),
                    None => return Err(UrlFault::Brackets),
                }
            }
            None => relay.split_once(':').unwrap_or((relay, "")),
        };
        if host.is_empty() {
            return Err(UrlFault::NoHost);
        }
        let unfit = |c: &char| c.is_whitespace() || c.is_control() || "@[]?#".contains(*c);
        if let Some(character) = host.chars().find(unfit) {
            return Err(UrlFault::Character(character));
        }
        let (first, second) = match ports.split_once(':') {
            Some((first, second)) if scheme.is_net => (first, second),
            // An IPv6 address without brackets has more than one colon as well.
            Some(_) if family == AddressFamily::V6 => return Err(UrlFault::Brackets),
            _ => (ports, ""),
        };
        Ok(Self {
            family,
            host,
            ports: [port(first)?, port(second)?],
        })
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
    fn list_names_relays_each_with_its_ports_and_one_path() {
        for (url, want) in [
            ("net://a,b:1,c:1:2", "net://a:5342:5343,b:1:5343,c:1:2"),
            ("net://a::2,[::1]:3/p,q", "net://a:5342:2,[::1]:3:5343/p,q"),
            ("net6://a,[::1]", "net6://[a]:5342:5343,[::1]:5342:5343"),
            ("nets://a,b/x/y", "nets://a:5342:5343,b:5342:5343/x/y"),
            ("quic://a,[::1]:7", "quic://a:5346,[::1]:7"),
        ] {
            assert_eq!(shown(url), want, "{url}");
            assert_eq!(shown(want), want, "{url}");
        }
    }

    #[test]
    fn control_and_data_urls_may_name_different_hosts() {
        let target = RelayTarget::from_port_urls("tcp://one", "tcp6://[::2]:9/x").unwrap();
        assert_eq!(target.relays[0].control.to_string(), "tcp://one:5342");
        assert_eq!(target.relays[0].data.to_string(), "tcp6://[::2]:9");
        assert!(!target.relays[0].is_one_host());
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
        assert_eq!(fault("tcp://one,two", "tcp://one,two"), UrlFault::PortList);
    }

    #[test]
    fn malformed_url_error_names_the_fault() {
        let scheme = || UrlFault::Scheme("http".into());
        let many = format!("net://{}", ["h"; 17].join(","));
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
            ("tcp://one,two", UrlFault::OnePort),
            ("net://one,", UrlFault::List(ListFault::Empty(2))),
            ("net://,one/x", UrlFault::List(ListFault::Empty(1))),
            ("net://one,:1", UrlFault::NoHost),
            ("net://one, two", UrlFault::Character(' ')),
            ("net4://one,[::1]", UrlFault::Brackets),
            ("nets://one:1:2,two:1:2:3", UrlFault::Port("2:3".into())),
            ("quic://one:1,two:1:2", UrlFault::Port("1:2".into())),
            (&many, UrlFault::List(ListFault::TooMany(17))),
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
            assert_eq!(target.relays[0].control.family, AddressFamily::V6, "{url}");
            assert_eq!(target.to_string().parse(), Ok(target), "{url}");
        }
        let ports = RelayTarget::from_port_urls("tcp://[::1]", "tls://[::1]").unwrap();
        assert_eq!(ports.to_string(), "tcp6://[::1]:5342 and tls6://[::1]:5343");
    }
}
