//! The targets of the command line: a session of a relay or of an archive, a whole relay or
//! archive, or a directory.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;
use transport::client_files::ClientFiles;
use transport::relay_list::{ListFault, split_relays};

/// The port on which relays listen for viewers.
pub const DEFAULT_PORT: u16 = 5344;

/// The port on which relays listen for QUIC.
const DEFAULT_QUIC_PORT: u16 = 5346;

/// A source of events that users can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The live sessions of a relay.
    Relay(RelayTarget),
    /// The sessions that relays have archived on object storage.
    Archive(ArchiveTarget),
    /// A trace on disk, or a directory with traces.
    Directory(PathBuf),
}

/// An archive, and perhaps a session in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveTarget {
    /// The URL of the archive without a session, as it was typed: `s3://BUCKET[/PREFIX]`, the same
    /// with `gs` or `az`, or `file:///DIRECTORY`.
    pub url: String,
    /// The URL of the S3 service, which an option names. Absent: the environment says it.
    pub endpoint: Option<String>,
    /// The sessions to read: all of this name. Absent: all sessions of the archive.
    pub session: Option<SessionName>,
}

/// A relay, or a list of which one is used at a time, and perhaps a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTarget {
    /// The URL of the relay or relays without a session, as it was typed.
    pub url: String,
    /// The family of addresses that may be used.
    pub family: Family,
    /// The relays, in the order in which they are tried; at least one.
    pub relays: Vec<RelayHost>,
    /// Whether the connection is encrypted: `nets://`, `quic://`.
    pub is_tls: bool,
    /// Whether the connection is QUIC: `quic://`.
    pub is_quic: bool,
    /// The certificates for an encrypted connection, which the options name.
    pub tls: Option<ClientFiles>,
    /// The session to follow. Absent: all sessions of the relay.
    pub session: Option<SessionName>,
}

/// Where a relay listens for viewers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayHost {
    /// The relay's host, as name or address.
    pub host: String,
    /// The port for viewers.
    pub port: u16,
}

/// The name of a session at a relay. Several may have the same: they belong together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// The name of the traced host. Absent: the session of this name of any host.
    pub host: Option<String>,
    /// The name of the session on that host.
    pub name: String,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `net://`, `nets://`, `quic://`: IPv4 or IPv6.
    Any,
    /// `net4://`, `nets4://`, `quic4://`: IPv4 only.
    V4,
    /// `net6://`, `nets6://`, `quic6://`: IPv6 only.
    V6,
}

/// Why a target names nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{target}: {fault}")]
pub struct TargetError {
    /// The text as it was typed.
    pub target: String,
    /// The fault by which it names nothing.
    pub fault: Fault,
}

/// A fault by which a text names no target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The text is empty.
    #[error("expected a relay, an archive or a directory")]
    Empty,
    /// The URL has this unknown scheme.
    #[error(
        "unknown scheme {0}://; expected net[s]:// or quic://HOST[:PORT][,HOST[:PORT]...][/host/TRACED-HOST/SESSION], \
         s3://BUCKET[/PREFIX][/host/TRACED-HOST/SESSION] or file:///DIRECTORY"
    )]
    Scheme(String),
    /// The list of relays is malformed.
    #[error(transparent)]
    List(#[from] ListFault),
    /// The relay has no host.
    #[error("the host of the relay is missing")]
    NoHost,
    /// A name in the URL has white space or a control character.
    #[error("invalid character {0:?} in a name")]
    Character(char),
    /// The address has `[` without `]`.
    #[error("the ] after an IPv6 address is missing")]
    Bracket,
    /// The text has something between `]` and `:`.
    #[error("unexpected {0:?} after the IPv6 address")]
    BehindBracket(String),
    /// The host is an IPv6 address without brackets.
    #[error("an IPv6 address must be in brackets: [ADDRESS]:PORT")]
    BareV6,
    /// The port is no number, or too high.
    #[error("invalid port {0:?}: expected 0 to 65535")]
    Port(String),
    /// The relay is followed by a path that names no session.
    #[error("unexpected path {0:?}: expected /host/TRACED-HOST/SESSION")]
    Path(String),
    /// The path has `/host` without a traced host.
    #[error("the traced host is missing: expected /host/TRACED-HOST/SESSION")]
    NoTracedHost,
    /// The path has `/host/HOST` without a session.
    #[error("the session is missing: expected /host/TRACED-HOST/SESSION")]
    NoSession,
    /// The session is followed by `/`, or by more after it.
    #[error("unexpected {0:?} after the session")]
    BehindSession(String),
    /// The URL of an archive has no bucket.
    #[error("the bucket is missing: expected s3://BUCKET[/PREFIX]")]
    NoBucket,
    /// The URL of an archive in a directory does not have its whole path.
    #[error("expected file:///DIRECTORY, with the whole path of the directory")]
    NotAbsolute,
    /// The text is a path where nothing is.
    #[error("no such directory; a relay's URL begins with net://")]
    NoDirectory,
    /// The text is a path that cannot be looked at, for this reason.
    #[error("{0}")]
    Unreachable(String),
    /// The text is a path where something else than a directory is.
    #[error("not a directory; the URL of a relay of that name begins with net://")]
    NotADirectory,
}

impl FromStr for Target {
    type Err = TargetError;

    /// Parses a target. An existing directory wins over a relay of the same name.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        parse(text).map_err(|fault| TargetError {
            // The text is shown in a message, and may have control characters.
            target: text.escape_debug().to_string(),
            fault,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(relay) => relay.fmt(f),
            Self::Archive(archive) => archive.fmt(f),
            Self::Directory(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for RelayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_url(&self.url, self.session.as_ref(), f)
    }
}

impl fmt::Display for ArchiveTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_url(&self.url, self.session.as_ref(), f)
    }
}

impl fmt::Display for RelayHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn write_url(url: &str, session: Option<&SessionName>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(url)?;
    match session {
        Some(session) => write!(f, "/host/{session}"),
        None => Ok(()),
    }
}

impl SessionName {
    /// Whether a session of this host has this name.
    #[must_use]
    pub fn names(&self, host: &str, session: &str) -> bool {
        self.name == session && self.host.as_ref().is_none_or(|wanted| wanted == host)
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host.as_deref().unwrap_or("*"), self.name)
    }
}

fn parse(text: &str) -> Result<Target, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let family = match scheme {
            "net" | "nets" | "quic" => Family::Any,
            "net4" | "nets4" | "quic4" => Family::V4,
            "net6" | "nets6" | "quic6" => Family::V6,
            "s3" | "gs" | "az" | "file" => return archive(scheme, rest).map(Target::Archive),
            other => return Err(Fault::Scheme(other.escape_debug().to_string())),
        };
        return relay(scheme, family, rest).map(Target::Relay);
    }
    let path = Path::new(text);
    if path.is_dir() {
        return Ok(Target::Directory(path.to_owned()));
    }
    // No host name has a slash or begins with a dot: a directory was meant. So it was with a file.
    if path.is_file() || text.contains('/') || text.starts_with('.') {
        return Err(match path.metadata() {
            Ok(_) => Fault::NotADirectory,
            Err(error) if error.kind() == ErrorKind::NotFound => Fault::NoDirectory,
            Err(error) => Fault::Unreachable(error.kind().to_string()),
        });
    }
    relay("net", Family::Any, text).map(Target::Relay)
}

fn archive(scheme: &str, text: &str) -> Result<ArchiveTarget, Fault> {
    let (place, path) = match scheme {
        "file" if !text.starts_with('/') => return Err(Fault::NotAbsolute),
        // The path of the archive may itself have a directory `host`.
        "file" if Path::new(text).is_dir() => (text, ""),
        _ => match split_at_host(text) {
            Some(parts) => parts,
            None if text.ends_with("/host") => return Err(Fault::NoTracedHost),
            None => (text, ""),
        },
    };
    let place = place.trim_end_matches('/');
    let bucket = place.split('/').next();
    if scheme != "file" && bucket.is_none_or(str::is_empty) {
        return Err(Fault::NoBucket);
    }
    if let Some(odd) = place.chars().find(|c| c.is_control()) {
        return Err(Fault::Character(odd));
    }
    Ok(ArchiveTarget {
        url: format!("{scheme}://{place}"),
        endpoint: None,
        session: session(path)?,
    })
}

/// Splits a text before the last `/host/`, or the one before if the traced host has that name.
fn split_at_host(text: &str) -> Option<(&str, &str)> {
    let (place, path) = text.split_at(text.rfind("/host/")?);
    let has_session = path.matches('/').count() > 2;
    match place.strip_suffix("/host") {
        Some(shorter) if !has_session => Some(text.split_at(shorter.len())),
        _ => Some((place, path)),
    }
}

fn relay(scheme: &str, family: Family, text: &str) -> Result<RelayTarget, Fault> {
    let (authority, path) = match text.find('/') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let is_quic = scheme.starts_with("quic");
    let relays = split_relays(authority)?;
    let relays = relays.into_iter().map(|relay| relay_host(relay, is_quic));
    Ok(RelayTarget {
        url: format!("{scheme}://{authority}"),
        family,
        relays: relays.collect::<Result<_, Fault>>()?,
        is_tls: is_quic || scheme.starts_with("nets"),
        is_quic,
        tls: None,
        session: session(path)?,
    })
}

fn relay_host(text: &str, is_quic: bool) -> Result<RelayHost, Fault> {
    let (host, port) = authority_parts(text)?;
    if host.is_empty() {
        return Err(Fault::NoHost);
    }
    if let Some(odd) = host.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(Fault::Character(odd));
    }
    let port = match port {
        None if is_quic => DEFAULT_QUIC_PORT,
        None => DEFAULT_PORT,
        // The parser of numbers would take a sign too.
        Some(digits) if !digits.starts_with('+') => {
            digits.parse().map_err(|_| Fault::Port(digits.to_owned()))?
        }
        Some(other) => return Err(Fault::Port(other.to_owned())),
    };
    let host = host.to_owned();
    Ok(RelayHost { host, port })
}

/// Splits a relay into host and port.
fn authority_parts(text: &str) -> Result<(&str, Option<&str>), Fault> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) = rest.split_once(']').ok_or(Fault::Bracket)?;
        return match behind.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if behind.is_empty() => Ok((host, None)),
            None => Err(Fault::BehindBracket(behind.to_owned())),
        };
    }
    match text.split_once(':') {
        // With several colons and no brackets, nobody can say where the port begins.
        Some((_, port)) if port.contains(':') => Err(Fault::BareV6),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// Parses `/host/TRACED-HOST/SESSION`, or no path.
fn session(path: &str) -> Result<Option<SessionName>, Fault> {
    if path.is_empty() {
        return Ok(None);
    }
    let names = match path.strip_prefix("/host") {
        Some("") => return Err(Fault::NoTracedHost),
        Some(rest) => rest.strip_prefix('/'),
        None => None,
    };
    let names = names.ok_or_else(|| Fault::Path(path.to_owned()))?;
    let (host, name) = names.split_once('/').unwrap_or((names, ""));
    if host.is_empty() {
        return Err(Fault::NoTracedHost);
    }
    let (name, behind) = match name.find('/') {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    if name.is_empty() {
        return Err(Fault::NoSession);
    }
    if !behind.is_empty() {
        return Err(Fault::BehindSession(behind.to_owned()));
    }
    Ok(Some(SessionName {
        host: Some(host.to_owned()),
        name: name.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay_of(text: &str) -> RelayTarget {
        match text.parse() {
            Ok(Target::Relay(relay)) => relay,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn relay_urls_are_parsed() {
        for (text, host, port, family, session) in [
            ("localhost", "localhost", 5344, Family::Any, None),
            ("localhost:1", "localhost", 1, Family::Any, None),
            ("[::1]:77", "::1", 77, Family::Any, None),
            ("[::1]", "::1", 5344, Family::Any, None),
            ("net://h", "h", 5344, Family::Any, None),
            ("net4://10.0.0.1:65535", "10.0.0.1", 65535, Family::V4, None),
            ("net6://[fe80::1]:9", "fe80::1", 9, Family::V6, None),
            (
                "net://h/host/vm/s",
                "h",
                5344,
                Family::Any,
                Some(("vm", "s")),
            ),
            (
                "net://h:1/host/v.m/a session",
                "h",
                1,
                Family::Any,
                Some(("v.m", "a session")),
            ),
        ] {
            let relay = relay_of(text);
            let names = relay
                .session
                .as_ref()
                .map(|session| (session.host.as_deref().unwrap(), session.name.as_str()));
            let [only] = &relay.relays[..] else {
                panic!("{text} is one relay");
            };
            assert_eq!(
                (only.host.as_str(), only.port, relay.family, names),
                (host, port, family, session),
                "{text}"
            );
        }
    }

    #[test]
    fn lists_of_relays_are_parsed() {
        for (text, relays) in [
            ("a,b:1", vec!["a:5344", "b:1"]),
            (
                "net://a:1,[::1]:2,[::2]",
                vec!["a:1", "[::1]:2", "[::2]:5344"],
            ),
            ("nets4://a,b/host/vm/s,t", vec!["a:5344", "b:5344"]),
            ("quic://a,b:7", vec!["a:5346", "b:7"]),
        ] {
            let target = relay_of(text);
            let shown: Vec<_> = target.relays.iter().map(ToString::to_string).collect();
            assert_eq!(shown, relays, "{text}");
            assert!(target.to_string().ends_with(text), "{target}");
        }
        let session = relay_of("net://a,b/host/vm/s,t").session.unwrap();
        assert_eq!(session.to_string(), "vm/s,t");
    }

    #[test]
    fn each_invalid_target_is_refused_with_its_own_error() {
        let owned = |text: &str| text.to_owned();
        let many = ["h"; 17].join(",");
        for (text, fault) in [
            ("", Fault::Empty),
            ("http://h", Fault::Scheme(owned("http"))),
            ("net://", Fault::NoHost),
            ("net://:5344", Fault::NoHost),
            ("net:///host/a/b", Fault::NoHost),
            ("a b", Fault::Character(' ')),
            ("net://[::1", Fault::Bracket),
            ("net://[::1]x", Fault::BehindBracket(owned("x"))),
            ("::1", Fault::BareV6),
            ("h:", Fault::Port(owned(""))),
            ("h:65536", Fault::Port(owned("65536"))),
            ("h:+1", Fault::Port(owned("+1"))),
            ("h:1x", Fault::Port(owned("1x"))),
            ("net://h/", Fault::Path(owned("/"))),
            ("net://h/hosts/a/b", Fault::Path(owned("/hosts/a/b"))),
            ("net://h/host", Fault::NoTracedHost),
            ("net://h/host/", Fault::NoTracedHost),
            ("net://h/host//s", Fault::NoTracedHost),
            ("net://h/host/a", Fault::NoSession),
            ("net://h/host/a/", Fault::NoSession),
            ("net://h/host/a/b/", Fault::BehindSession(owned("/"))),
            ("net://h/host/a/b/c", Fault::BehindSession(owned("/c"))),
            ("./no-such-directory", Fault::NoDirectory),
            ("h/host/a/b", Fault::NoDirectory),
            ("/dev/null", Fault::NotADirectory),
            ("s3://", Fault::NoBucket),
            ("s3:///prefix", Fault::NoBucket),
            ("s3://b/host", Fault::NoTracedHost),
            ("s3://b/host/vm", Fault::NoSession),
            ("s3://b/host/vm/s/", Fault::BehindSession(owned("/"))),
            ("file://directory", Fault::NotAbsolute),
            ("a,", Fault::List(ListFault::Empty(2))),
            ("net://,a/host/vm/s", Fault::List(ListFault::Empty(1))),
            ("net://a,:1", Fault::NoHost),
            ("net://a,b:x", Fault::Port(owned("x"))),
            (&many, Fault::List(ListFault::TooMany(17))),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error.fault, fault, "{text}");
        }
    }

    #[test]
    fn urls_of_archives_are_parsed() {
        for (text, url, session) in [
            ("s3://bucket", "s3://bucket", None),
            ("s3://bucket/a/b/", "s3://bucket/a/b", None),
            ("s3://b/host/vm/s", "s3://b", Some("vm/s")),
            ("s3://b/host/host/s", "s3://b", Some("host/s")),
            ("s3://b/host/host/host/s", "s3://b/host", Some("host/s")),
            ("s3://b/host/x/host/vm/s", "s3://b/host/x", Some("vm/s")),
            ("file:///no/such", "file:///no/such", None),
            ("file:///no/such/host/vm/s", "file:///no/such", Some("vm/s")),
            ("file:///", "file://", None),
        ] {
            let Ok(Target::Archive(archive)) = text.parse() else {
                panic!("{text} is an archive")
            };
            let named = archive.session.as_ref().map(ToString::to_string);
            assert_eq!((&*archive.url, named.as_deref()), (url, session), "{text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("host/vm/s");
        std::fs::create_dir_all(&below).unwrap();
        let url = format!("file://{}", below.display());
        let target: Target = url.parse().unwrap();
        let is_whole = matches!(&target, Target::Archive(whole) if whole.session.is_none());
        assert!(is_whole, "an existing directory is the archive itself");
        assert_eq!(target.to_string(), url);
    }

    #[test]
    fn error_of_a_target_changes_no_terminal() {
        for text in [
            "\u{1b}[31m://h",
            "net://\u{7}h",
            "h:\n",
            "net://h/\u{9b}",
            "s3://b/\u{9b}",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn an_existing_directory_is_preferred_to_a_host_of_the_same_name() {
        // Tests run in the directory of their package.
        assert_eq!("src".parse(), Ok(Target::Directory(PathBuf::from("src"))));
        assert_eq!(".".parse(), Ok(Target::Directory(PathBuf::from("."))));
    }

    #[test]
    fn a_target_is_displayed_as_it_was_typed() {
        assert!(relay_of("nets://h").is_tls && !relay_of("net://h").is_tls);
        for text in [
            "net4://h",
            "nets6://[::1]/host/a/b",
            "net://h:5344/host/a/b",
            "net6://[::1]:1",
            ".",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!(relay_of("h:1").to_string(), "net://h:1");
    }
}
