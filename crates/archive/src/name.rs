//! Names of objects, relative to the prefix of the archive. A name that is found in a bucket is
//! hostile input: it is parsed, or the object is ignored.

use std::fmt::{self, Write};
use std::str::FromStr;

use thiserror::Error;

/// Length of an escaped host or session name at which it is cut, in bytes: file systems allow 255
/// for a name, and a store 1,024 for the whole path.
const MAX_ESCAPED_BYTES: usize = 200;

/// The name of the object that says which version of the formats an archive has.
pub const FORMAT: &str = "format";

/// Prefix of the objects by day.
pub const DAYS: &str = "days/";

/// Prefix of the logs.
pub const LOG: &str = "log/";

/// End of the name of the object that is written when a session ends.
const END_SUFFIX: &str = ".end";

/// Largest number of an owner or part: names have eight digits for it.
pub const MAX_NUMBER: u32 = 99_999_999;

/// A name that no archive gives to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not the name of an object of an archive")]
pub struct UnknownName;

/// One run of a relay. Random, so that no two runs write the same log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootId(pub [u8; 16]);

/// One session, for as long as the archive exists: the producer's UUID and its number there. A
/// session that cannot be resumed has the relay's [`BootId`] and the relay's number instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// UUID of the producer, or the boot id of the relay.
    pub producer: [u8; 16],
    /// Number of the session there.
    pub id: u64,
}

/// An object below `sessions/S/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionObject {
    /// Says which relay serves the session. Owners are counted from 1.
    Owner(u32),
    /// Packets of the session, written by one of its owners. Parts are counted from 0.
    Part {
        /// Number of the owner.
        owner: u32,
        /// Number of the part among those of this owner.
        number: u32,
    },
}

/// The object by which a session is listed: below its day, host and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DayObject {
    /// Day on which the session was created, `YYYY-MM-DD` in UTC.
    pub day: String,
    /// Name of the host, [escaped](escape).
    pub host: String,
    /// Name of the session, [escaped](escape).
    pub name: String,
    /// The session.
    pub session: SessionKey,
    /// Whether the object was written at the end of the session.
    pub is_end: bool,
}

fn write_hex(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{:032x}", u128::from_be_bytes(bytes))
}

fn parse_hex(text: &str) -> Result<[u8; 16], UnknownName> {
    let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 32 || !text.bytes().all(is_lower_hex) {
        return Err(UnknownName);
    }
    let number = u128::from_str_radix(text, 16).map_err(|_| UnknownName)?;
    Ok(number.to_be_bytes())
}

/// Parses a decimal number of exactly this many digits.
fn parse_digits(text: &str, digits: usize) -> Result<u64, UnknownName> {
    if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnknownName);
    }
    text.parse().map_err(|_| UnknownName)
}

fn parse_u32(text: &str) -> Result<u32, UnknownName> {
    let number = parse_digits(text, 8)?;
    u32::try_from(number).map_err(|_| UnknownName)
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.0, f)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({self})")
    }
}

impl FromStr for BootId {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        parse_hex(text).map(Self)
    }
}

impl BootId {
    /// Prefix of the commit objects of this run.
    #[must_use]
    pub fn log_prefix(self) -> String {
        format!("{LOG}{self}/")
    }

    /// Name of the commit object with this number.
    #[must_use]
    pub fn commit(self, number: u64) -> String {
        format!("{LOG}{self}/{number:010}")
    }
}

/// Parses the name of a commit object.
///
/// # Errors
/// If it is none.
pub fn parse_commit(name: &str) -> Result<(BootId, u64), UnknownName> {
    let rest = name.strip_prefix(LOG).ok_or(UnknownName)?;
    let (boot, number) = rest.split_once('/').ok_or(UnknownName)?;
    Ok((boot.parse()?, parse_digits(number, 10)?))
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.producer, f)?;
        write!(f, "-{}", self.id)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({self})")
    }
}

impl FromStr for SessionKey {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let (producer, id) = text.split_once('-').ok_or(UnknownName)?;
        let key = Self {
            producer: parse_hex(producer)?,
            id: id.parse().map_err(|_| UnknownName)?,
        };
        // One session has one name: no `+1`, no `01`.
        if key.id.to_string() == id {
            Ok(key)
        } else {
            Err(UnknownName)
        }
    }
}

impl SessionKey {
    /// Prefix of the objects of this session.
    #[must_use]
    pub fn prefix(self) -> String {
        format!("sessions/{self}/")
    }

    /// Name of an object of this session.
    #[must_use]
    pub fn object(self, object: SessionObject) -> String {
        format!("sessions/{self}/{object}")
    }
}

impl fmt::Display for SessionObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(number) => write!(f, "own-{number:08}"),
            Self::Part { owner, number } => write!(f, "part-{owner:08}-{number:08}"),
        }
    }
}

impl FromStr for SessionObject {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        if let Some(number) = text.strip_prefix("own-") {
            return parse_u32(number).map(Self::Owner);
        }
        let numbers = text.strip_prefix("part-").ok_or(UnknownName)?;
        let (owner, number) = numbers.split_once('-').ok_or(UnknownName)?;
        Ok(Self::Part {
            owner: parse_u32(owner)?,
            number: parse_u32(number)?,
        })
    }
}

/// Parses the name of an object of a session.
///
/// # Errors
/// If it is none.
pub fn parse_session_object(name: &str) -> Result<(SessionKey, SessionObject), UnknownName> {
    let rest = name.strip_prefix("sessions/").ok_or(UnknownName)?;
    let (session, object) = rest.split_once('/').ok_or(UnknownName)?;
    Ok((session.parse()?, object.parse()?))
}

impl fmt::Display for DayObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            day,
            host,
            name,
            session,
            is_end,
        } = self;
        let end = if *is_end { END_SUFFIX } else { "" };
        write!(f, "{DAYS}{day}/{host}/{name}/{session}{end}")
    }
}

impl FromStr for DayObject {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let rest = text.strip_prefix(DAYS).ok_or(UnknownName)?;
        let mut parts = rest.split('/');
        let mut part = || parts.next().ok_or(UnknownName);
        let (day, host, name, session) = (part()?, part()?, part()?, part()?);
        let is_end = session.ends_with(END_SUFFIX);
        let session = session.strip_suffix(END_SUFFIX).unwrap_or(session);
        let is_day = day.len() == 10
            && day
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
        if part().is_ok() || !is_day || host.is_empty() || name.is_empty() {
            return Err(UnknownName);
        }
        Ok(Self {
            day: day.to_owned(),
            host: host.to_owned(),
            name: name.to_owned(),
            session: session.parse()?,
            is_end,
        })
    }
}

/// Escapes the name of a host or session, so that it can be a part of a path in every store and
/// file system: bytes other than letters, digits, `_`, `-` and inner `.` become `=` and two
/// hexadecimal digits. A long name is cut: the object itself has the whole name.
#[must_use]
pub fn escape(name: &[u8]) -> String {
    let mut escaped = String::new();
    for &byte in name {
        let is_dot = byte == b'.' && !escaped.is_empty();
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || is_dot;
        if escaped.len() + if plain { 1 } else { 3 } > MAX_ESCAPED_BYTES {
            break;
        }
        if plain {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "={byte:02X}");
        }
    }
    if escaped.is_empty() {
        // A part of a path is never empty.
        escaped.push('=');
    }
    escaped
}

/// The name that [`escape`] has made this of, for people: a cut name stays cut.
#[must_use]
pub fn unescape(escaped: &str) -> String {
    let mut name = Vec::new();
    let mut rest = escaped.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = rest
            .get(1..3)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|_| *first == b'=') {
            Some(byte) => {
                name.push(byte);
                rest = rest.get(3..).unwrap_or_default();
            }
            None if rest == b"=" => break,
            None => {
                name.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&name).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: SessionKey = SessionKey {
        producer: [0xab; 16],
        id: 7,
    };

    #[test]
    fn names_are_read_back() {
        let boot = BootId([1; 16]);
        let commit = boot.commit(42);
        assert_eq!(commit, format!("log/{}/0000000042", "01".repeat(16)));
        assert_eq!(parse_commit(&commit), Ok((boot, 42)));
        for object in [
            SessionObject::Owner(3),
            SessionObject::Part {
                owner: 1,
                number: 17,
            },
        ] {
            let name = SESSION.object(object);
            assert_eq!(parse_session_object(&name), Ok((SESSION, object)));
        }
        let day = DayObject {
            day: "2026-11-27".to_owned(),
            host: escape(b"robot-7"),
            name: escape("caf\u{e9}/..".as_bytes()),
            session: SESSION,
            is_end: true,
        };
        let name = day.to_string();
        let session = "ab".repeat(16);
        assert_eq!(
            name,
            format!("days/2026-11-27/robot-7/caf=C3=A9=2F../{session}-7.end")
        );
        assert_eq!(name.parse(), Ok(day));
    }

    #[test]
    fn names_of_others_are_refused() {
        let boot = "0".repeat(32);
        for name in [
            String::new(),
            format!("log/{boot}/42"),
            format!("log/{boot}/0000000042/"),
            format!("log/{}/0000000042", "A".repeat(32)),
        ] {
            assert_eq!(parse_commit(&name), Err(UnknownName), "{name}");
        }
        for name in [
            format!("sessions/{boot}-01/own-00000001"),
            format!("sessions/{boot}-1/own-1"),
            format!("sessions/{boot}-1/part-00000001"),
            format!("sessions/{boot}-1/../own-00000001"),
        ] {
            assert_eq!(parse_session_object(&name), Err(UnknownName), "{name}");
        }
        for name in [
            format!("days/2026-11-27/h/n/{boot}-1/x"),
            format!("days/yesterday!/h/n/{boot}-1"),
            format!("days/2026-11-27//n/{boot}-1"),
        ] {
            assert_eq!(name.parse::<DayObject>(), Err(UnknownName), "{name}");
        }
    }

    proptest! {
        #[test]
        fn an_escaped_name_is_read_back(name in "\\PC{0,15}") {
            prop_assert_eq!(unescape(&escape(name.as_bytes())), name);
        }

        #[test]
        fn an_escaped_name_is_one_harmless_part_of_a_path(name: Vec<u8>) {
            let escaped = escape(&name);
            prop_assert!(!escaped.is_empty() && escaped.len() <= MAX_ESCAPED_BYTES);
            prop_assert!(!escaped.starts_with('.') && !escaped.contains('/'));
        }
    }
}
