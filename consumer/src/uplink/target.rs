//! Where a relay is, in the URLs that `lttng create` takes.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Where relays listen for commands, and for packets.
const CONTROL_PORT: u16 = 5342;
const DATA_PORT: u16 = 5343;

/// A relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it takes commands.
    pub control: Endpoint,
    /// Where it takes packets.
    pub data: Endpoint,
    /// Where the trace is wanted below the host's directory; empty if the URL does not say.
    pub base_path: String,
}

/// One of a relay's ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Which addresses of the host may be used.
    pub family: Family,
    /// Name or address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Which addresses may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Those of IPv4: `net://`, `net4://`, `tcp://`, `tcp4://`.
    V4,
    /// Those of IPv6: `net6://`, `tcp6://`.
    V6,
}

/// Why a text names no relay.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{url}: {fault}")]
pub struct TargetError {
    /// As it was typed.
    pub url: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// No `://`.
    #[error("a relay is net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]")]
    NoScheme,
    /// Another scheme.
    #[error("{0}:// is not known here, but net://, net6://, tcp:// and tcp6://")]
    Scheme(String),
    /// One port where two belong.
    #[error("tcp:// is one port: give --ctrl-url and --data-url")]
    OnePort,
    /// Two ports where one belongs.
    #[error("net:// is both ports; one is tcp://HOST[:PORT]")]
    BothPorts,
    /// No host.
    #[error("the host is missing")]
    NoHost,
    /// White space or the like.
    #[error("{0:?} cannot be in a host's name")]
    Character(char),
    /// `[` without `]`, or something between `]` and `:`.
    #[error("an IPv6 address is in brackets: [ADDRESS]:PORT")]
    Brackets,
    /// No number, or too high.
    #[error("{0:?} is not a port: 1 to 65535")]
    Port(String),
    /// A path that leads elsewhere.
    #[error("the path must not have a part `..`")]
    Path,
    /// Two different paths.
    #[error("the paths of both URLs differ")]
    TwoPaths,
}

impl Target {
    /// A relay with its two ports given one by one.
    ///
    /// # Errors
    /// If one is no `tcp://HOST[:PORT][/PATH]`, or the paths of both differ.
    pub fn of_ports(control: &str, data: &str) -> Result<Self, TargetError> {
        let (endpoint, path) = one_port(control, CONTROL_PORT)?;
        let (data_endpoint, data_path) = one_port(data, DATA_PORT)?;
        let base_path = match (path.is_empty(), data_path.is_empty()) {
            (_, true) => path,
            (true, false) => data_path,
            _ if path == data_path => path,
            _ => return Err(error(data, Fault::TwoPaths)),
        };
        Ok(Self {
            control: endpoint,
            data: data_endpoint,
            base_path,
        })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let parts = Parts::of(url).map_err(|fault| error(url, fault))?;
        if !parts.net {
            return Err(error(url, Fault::OnePort));
        }
        let [control, data] = parts.ports.map(|port| port.unwrap_or_default());
        let endpoint = |given, usual| Endpoint {
            family: parts.family,
            host: parts.host.to_owned(),
            port: if given == 0 { usual } else { given },
        };
        Ok(Self {
            control: endpoint(control, CONTROL_PORT),
            data: endpoint(data, DATA_PORT),
            base_path: parts.path,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_one_host =
            self.control.host == self.data.host && self.control.family == self.data.family;
        if of_one_host {
            self.control.write(f, "net")?;
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

impl Endpoint {
    fn write(&self, f: &mut fmt::Formatter<'_>, scheme: &str) -> fmt::Result {
        match self.family {
            Family::V4 => write!(f, "{scheme}://{}:{}", self.host, self.port),
            Family::V6 => write!(f, "{scheme}6://[{}]:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "tcp")
    }
}

fn error(url: &str, fault: Fault) -> TargetError {
    TargetError {
        url: url.escape_debug().to_string(),
        fault,
    }
}

fn one_port(url: &str, usual: u16) -> Result<(Endpoint, String), TargetError> {
    let parts = Parts::of(url).map_err(|fault| error(url, fault))?;
    if parts.net {
        return Err(error(url, Fault::BothPorts));
    }
    let [port, _] = parts.ports;
    let endpoint = Endpoint {
        family: parts.family,
        host: parts.host.to_owned(),
        port: port.unwrap_or(usual),
    };
    Ok((endpoint, parts.path))
}

/// A URL taken apart.
struct Parts<'a> {
    net: bool,
    family: Family,
    host: &'a str,
    ports: [Option<u16>; 2],
    path: String,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, Fault> {
        let (scheme, rest) = url.split_once("://").ok_or(Fault::NoScheme)?;
        let (net, family) = match scheme {
            "net" | "net4" => (true, Family::V4),
            "net6" => (true, Family::V6),
            "tcp" | "tcp4" => (false, Family::V4),
            "tcp6" => (false, Family::V6),
            other => return Err(Fault::Scheme(other.to_owned())),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, ports) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']').ok_or(Fault::Brackets)?;
                match rest.strip_prefix(':') {
                    Some(ports) => (host, ports),
                    None if rest.is_empty() => (host, ""),
                    None => return Err(Fault::Brackets),
                }
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        if host.is_empty() {
            return Err(Fault::NoHost);
        }
        let unfit = |c: &char| c.is_whitespace() || c.is_control() || "@[]?#".contains(*c);
        if let Some(character) = host.chars().find(unfit) {
            return Err(Fault::Character(character));
        }
        let (first, second) = match ports.split_once(':') {
            Some((first, second)) if net => (first, second),
            // An IPv6 address without brackets has more than one colon as well.
            Some(_) if family == Family::V6 => return Err(Fault::Brackets),
            _ => (ports, ""),
        };
        Ok(Self {
            net,
            family,
            host,
            ports: [port(first)?, port(second)?],
            path: relative(path)?,
        })
    }
}

fn port(text: &str) -> Result<Option<u16>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(port @ 1..) => Ok(Some(port)),
        _ => Err(Fault::Port(text.to_owned())),
    }
}

/// Without doubled slashes.
fn relative(path: &str) -> Result<String, Fault> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(Fault::Path);
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        url.parse::<Target>().unwrap().to_string()
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
        ] {
            assert_eq!(shown(url), want, "{url}");
        }
    }

    #[test]
    fn control_and_data_urls_may_name_different_hosts() {
        let target = Target::of_ports("tcp://one", "tcp6://[::2]:9/x").unwrap();
        assert_eq!(target.control.to_string(), "tcp://one:5342");
        assert_eq!(target.data.to_string(), "tcp6://[::2]:9");
        assert_eq!(target.base_path, "x");
        let fault = |control, data| Target::of_ports(control, data).unwrap_err().fault;
        assert_eq!(fault("net://one", "tcp://one"), Fault::BothPorts);
        assert_eq!(fault("tcp://one/a", "tcp://one/b"), Fault::TwoPaths);
    }

    #[test]
    fn malformed_url_error_names_the_fault() {
        let scheme = || Fault::Scheme("http".into());
        for (url, want) in [
            ("relay", Fault::NoScheme),
            ("http://relay", scheme()),
            ("tcp://relay", Fault::OnePort),
            ("net://", Fault::NoHost),
            ("net://:1", Fault::NoHost),
            ("net://a b", Fault::Character(' ')),
            ("net://user@relay", Fault::Character('@')),
            ("net6://[::1", Fault::Brackets),
            ("net6://[::1]1", Fault::Brackets),
            ("net://relay:x", Fault::Port("x".into())),
            ("net://relay:0", Fault::Port("0".into())),
            ("net://relay:1:65536", Fault::Port("65536".into())),
            ("net://relay:1:2:3", Fault::Port("2:3".into())),
            ("net://relay/a/../b", Fault::Path),
        ] {
            assert_eq!(url.parse::<Target>().unwrap_err().fault, want, "{url}");
        }
    }
}
