//! Addresses to listen on, as users write them.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use thiserror::Error;

/// An address to listen on, as the user writes it: `tcp://HOST[:PORT]`, `tcp4://` or `tcp6://`, or
/// `tls` in place of `tcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it is a UDP port for QUIC.
    quic: bool,
    /// Whether connections are encrypted: `tls://`.
    tls: bool,
    /// Whether the address is of IPv6 rather than IPv4.
    v6: bool,
    /// Host name, or an address without brackets.
    host: String,
    /// Port; absent if the user has not given one.
    port: Option<u16>,
}

/// A text is not an [`Endpoint`], or it cannot be resolved.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The text is not of the form.
    #[error(
        "{0:?} is not of the form tcp://HOST[:PORT] or tcp6://HOST[:PORT]; with TLS it is tls:// or tls6://"
    )]
    Form(String),
    /// The text is not of the shorter form for HTTP.
    #[error("{0:?} is not of the form [HOST:]PORT")]
    HttpForm(String),
    /// The text is not of the form for QUIC.
    #[error("{0:?} is not of the form quic://HOST[:PORT]")]
    QuicForm(String),
    /// The host has no address of the family asked for.
    #[error("{host:?} has no {family} address")]
    NoAddress {
        /// Host as the user has given it.
        host: String,
        /// The family: `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The host cannot be looked up.
    #[error("cannot find {host:?}")]
    Unknown {
        /// Host as the user has given it.
        host: String,
        /// The error of the lookup.
        source: std::io::Error,
    },
}

impl Endpoint {
    /// Makes an endpoint of IPv4.
    #[must_use]
    pub fn v4(host: &str, port: u16) -> Self {
        Self {
            quic: false,
            tls: false,
            v6: false,
            host: host.to_owned(),
            port: Some(port),
        }
    }

    /// Parses the form for HTTP: `[HOST:]PORT`, or a URL. Without a host the address is 127.0.0.1.
    ///
    /// # Errors
    /// If the text is of neither form, or its scheme asks for TLS.
    pub fn parse_http(text: &str) -> Result<Self, EndpointError> {
        if text.contains("://") {
            let endpoint: Self = text.parse()?;
            return match endpoint.tls {
                false => Ok(endpoint),
                true => Err(EndpointError::HttpForm(text.to_owned())),
            };
        }
        if let Some(port) = parse_port(text) {
            return Ok(Self::v4("127.0.0.1", port));
        }
        let scheme = if text.starts_with('[') { "tcp6" } else { "tcp" };
        let parsed = format!("{scheme}://{text}").parse();
        // The message must not show a scheme that the user did not write.
        parsed.map_err(|_| EndpointError::HttpForm(text.to_owned()))
    }

    /// Parses the form for QUIC: `quic://HOST[:PORT]`. A host in brackets is an IPv6 address.
    ///
    /// # Errors
    /// If the text is not of this form.
    pub fn parse_quic(text: &str) -> Result<Self, EndpointError> {
        let form = || EndpointError::QuicForm(text.to_owned());
        let rest = text.strip_prefix("quic://").ok_or_else(form)?;
        let scheme = if rest.starts_with('[') { "tcp6" } else { "tcp" };
        let parsed: Result<Self, EndpointError> = format!("{scheme}://{rest}").parse();
        let quic = true;
        match parsed {
            // Without brackets it would be an address of IPv6 that is looked for in IPv4.
            Ok(endpoint) if endpoint.v6 || !endpoint.host.contains(':') => {
                Ok(Self { quic, ..endpoint })
            }
            _ => Err(form()),
        }
    }

    /// Whether connections are encrypted with TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Returns the endpoint with this port, if it has none.
    #[must_use]
    pub fn or_port(mut self, port: u16) -> Self {
        self.port.get_or_insert(port);
        self
    }

    /// Looks the host up, and returns its first address of the family.
    ///
    /// # Errors
    /// If the host is not known, or has no address of the family.
    pub fn resolve(&self) -> Result<SocketAddr, EndpointError> {
        let host = || self.host.clone();
        let mut found = (self.host.as_str(), self.port.unwrap_or(0))
            .to_socket_addrs()
            .map_err(|source| EndpointError::Unknown {
                host: host(),
                source,
            })?;
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        found
            // As with LTTng, the scheme decides the family, and not the resolver.
            .find(|address| address.is_ipv6() == self.v6)
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
        let (tls, v6) = match scheme {
            "tcp" | "tcp4" => (false, false),
            "tcp6" => (false, true),
            "tls" | "tls4" => (true, false),
            "tls6" => (true, true),
            _ => return Err(form()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(form)?;
                let port = after.strip_prefix(':').or(after.is_empty().then_some(""));
                (host, port.ok_or_else(form)?)
            }
            None => match rest.rsplit_once(':') {
                // Without brackets the last part of an IPv6 address cannot be told from a port.
                Some((host, _)) if v6 && host.contains(':') => (rest, ""),
                Some((host, port)) => (host, port),
                None => (rest, ""),
            },
        };
        let port = match port {
            "" => None,
            port => Some(parse_port(port).ok_or_else(form)?),
        };
        if host.is_empty() || host.contains(['/', '@', '[', ']', '+']) {
            return Err(form());
        }
        Ok(Self {
            quic: false,
            tls,
            v6,
            host: host.to_owned(),
            port,
        })
    }
}

/// Parses a port, which the parser of numbers would take with a sign.
fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.tls, self.v6) {
            _ if self.quic => "quic",
            (false, false) => "tcp",
            (false, true) => "tcp6",
            (true, false) => "tls",
            (true, true) => "tls6",
        };
        // Of QUIC only the brackets say that it is IPv6.
        let is_bracketed = self.host.contains(':') || self.quic && self.v6;
        match (is_bracketed, self.port) {
            (true, Some(port)) => write!(f, "{scheme}://[{}]:{port}", self.host),
            (true, None) => write!(f, "{scheme}://[{}]", self.host),
            (false, Some(port)) => write!(f, "{scheme}://{}:{port}", self.host),
            (false, None) => write!(f, "{scheme}://{}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_parse_from_and_print_as_urls() {
        for (text, shown) in [
            ("tcp://0.0.0.0:5342", "tcp://0.0.0.0:5342"),
            ("tcp4://localhost", "tcp://localhost"),
            ("tcp6://[::1]:99", "tcp6://[::1]:99"),
            ("tcp6://::1", "tcp6://[::1]"),
            ("tcp://host:1/", "tcp://host:1"),
            ("tls://host:1", "tls://host:1"),
            ("tls4://host", "tls://host"),
            ("tls6://[::1]:99", "tls6://[::1]:99"),
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
    fn http_endpoint_without_a_host_is_on_the_loopback_address() {
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
    fn endpoint_prints_as_a_text_with_the_same_meaning() {
        let host = Endpoint::parse_quic("quic://[host]:1").unwrap();
        let again = Endpoint::parse_quic(&host.to_string());
        assert_eq!(again.unwrap(), host);
        assert!(Endpoint::parse_quic("quic://::1:692").is_err());
        for text in ["+80", "h:+80"] {
            assert!(Endpoint::parse_http(text).is_err(), "{text}");
        }
    }

    #[test]
    fn host_is_resolved_in_its_address_family() {
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
