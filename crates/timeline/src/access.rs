//! Who may use the server: a token, and which pages of other origins may not.
//!
//! A page that the user opens elsewhere could ask a server on loopback, too. The check of `Origin`
//! keeps it from opening a WebSocket, and the check of `Host` keeps it from becoming the same
//! origin by a name that it points at loopback (DNS rebinding). A request with the right token may
//! name any host: no foreign page knows the token.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes of a token that is made here: 128 bits.
const TOKEN_BYTES: usize = 16;
/// Shortest and longest token of a file, in characters.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// The token in the URL.
#[derive(Debug, Clone)]
pub(super) struct Token {
    text: String,
    /// The time from which on the token is not accepted. Absent: it always is.
    expires: Option<Instant>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "the request names another host than this one; open the URL that test-live web has printed"
    )]
    ForeignHost,
    #[error("the request comes from a page of another origin")]
    ForeignOrigin,
    #[error("the token is missing or wrong; open the URL that test-live web has printed")]
    WrongToken,
    #[error("the token has expired; start test-live web again for a new one")]
    ExpiredToken,
}

/// The rules for requests.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// The token that requests need. Absent if they need none.
    pub(super) token: Option<Token>,
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// The names of the certificate. Absent: connections are not encrypted.
    pub(super) certificate_names: Option<Vec<String>>,
}

/// The token of a file or option is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token has 16 to 256 letters, digits, '-' and '_', and nothing else")]
pub(super) struct InvalidToken;

impl Token {
    /// A random token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn random(expires: Option<Instant>) -> Result<Self, ring::error::Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes)?;
        let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { text, expires })
    }

    /// A token that was chosen elsewhere.
    pub(super) fn parse(text: &str, expires: Option<Instant>) -> Result<Self, InvalidToken> {
        // A file usually ends with a line end, which is not part of the token.
        let text = text.trim();
        // These characters need no escape in a URL.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !TOKEN_LENGTHS.contains(&text.len()) || !text.bytes().all(is_plain) {
            return Err(InvalidToken);
        }
        Ok(Self {
            text: text.to_owned(),
            expires,
        })
    }

    /// The text, for the URL.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The time for which the token is accepted from `now` on. Absent: always.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        Some(self.expires?.saturating_duration_since(now))
    }

    fn check(&self, given: &str, now: Instant) -> Result<(), Refusal> {
        if !is_equal(self.text.as_bytes(), given.as_bytes()) {
            return Err(Refusal::WrongToken);
        }
        match self.remaining(now) {
            Some(Duration::ZERO) => Err(Refusal::ExpiredToken),
            _ => Ok(()),
        }
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one
        .iter()
        .zip(other)
        .fold(0, |all, (one, other)| all | (one ^ other));
    // Keeps the compiler from leaving the loop at the first difference.
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

impl Access {
    /// Checks a request for the page: its host, and its token.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        token: Option<&str>,
        now: Instant,
    ) -> Result<(), Refusal> {
        match &self.token {
            Some(expected) => expected.check(token.unwrap_or_default(), now),
            None => self.check_host(headers),
        }
    }

    /// Checks a request that only the page itself makes: its origin too.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) fn check_origin(
        &self,
        headers: &HeaderMap,
        token: Option<&str>,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check(headers, token, now)?;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // A program that is no browser sends none, and has no user whose rights it could use.
        let Some(origin) = text(&ORIGIN) else {
            return match headers.contains_key(ORIGIN) {
                // An origin that is no text is that of some page, too.
                true => Err(Refusal::ForeignOrigin),
                false => Ok(()),
            };
        };
        let host = origin.strip_prefix(match self.certificate_names {
            Some(_) => "https://",
            None => "http://",
        });
        match host.is_some() && host == text(&HOST) {
            true => Ok(()),
            false => Err(Refusal::ForeignOrigin),
        }
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        match host.is_some_and(|host| self.is_own_host(host)) {
            true => Ok(()),
            false => Err(Refusal::ForeignHost),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let port = self.address.port();
        if let Ok(address) = host.parse::<SocketAddr>() {
            return address.port() == port && self.is_own_address(address.ip());
        }
        let (name, own_port) = match host.rsplit_once(':') {
            Some((name, of)) => (name, of.parse() == Ok(port)),
            // Browsers leave the default port of the scheme out.
            None if self.certificate_names.is_some() => (host, port == 443),
            None => (host, port == 80),
        };
        let mut names = self.certificate_names.iter().flatten();
        // Browsers resolve this name themselves: no foreign page can point it at another host.
        let is_own = name.eq_ignore_ascii_case("localhost")
            || names.any(|own| own.eq_ignore_ascii_case(name))
            || name
                .parse()
                .is_ok_and(|address| self.is_own_address(address));
        own_port && is_own
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || address == self.address.ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let header =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        of.iter().map(header).collect()
    }

    fn access(token: Option<Token>) -> Access {
        let address = "127.0.0.1:8000".parse().unwrap();
        Access {
            token,
            address,
            certificate_names: None,
        }
    }

    #[test]
    fn names_that_point_at_loopback_are_refused() {
        let access = access(None);
        let check = |host: &str| access.check(&headers(&[("host", host)]), None, Instant::now());
        for host in [
            "127.0.0.1:8000",
            "localhost:8000",
            "[::1]:8000",
            "LOCALHOST:8000",
        ] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example:8000",
            "localhost.evil.example:8000",
            "127.0.0.1",
            "127.0.0.1:80",
            "192.168.0.1:8000",
            "",
        ] {
            assert_eq!(check(host), Err(Refusal::ForeignHost), "{host}");
        }
        let none = access.check(&HeaderMap::new(), None, Instant::now());
        assert_eq!(none, Err(Refusal::ForeignHost));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let access = access(None);
        let check = |origin: &str| {
            let headers = headers(&[("host", "localhost:8000"), ("origin", origin)]);
            access.check_origin(&headers, None, Instant::now())
        };
        assert_eq!(check("http://localhost:8000"), Ok(()));
        for origin in [
            "http://evil.example",
            "http://localhost:8001",
            "null",
            "localhost:8000",
        ] {
            assert_eq!(check(origin), Err(Refusal::ForeignOrigin), "{origin}");
        }
        let no_browser = headers(&[("host", "localhost:8000")]);
        let checked = access.check_origin(&no_browser, None, Instant::now());
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn encrypted_page_may_have_the_names_of_its_certificate() {
        let address = "127.0.0.1:443".parse().unwrap();
        let access = Access {
            token: None,
            address,
            certificate_names: Some(vec!["viewer.example".to_owned()]),
        };
        let check = |host: &str, origin: &str| {
            let headers = headers(&[("host", host), ("origin", origin)]);
            access.check_origin(&headers, None, Instant::now())
        };
        assert_eq!(check("viewer.example", "https://viewer.example"), Ok(()));
        assert_eq!(check("localhost:443", "https://localhost:443"), Ok(()));
        let refused = check("viewer.example", "http://viewer.example");
        assert_eq!(refused, Err(Refusal::ForeignOrigin));
        let refused = check("other.example", "https://other.example");
        assert_eq!(refused, Err(Refusal::ForeignHost));
    }

    #[test]
    fn wrong_and_expired_tokens_are_refused() {
        let now = Instant::now();
        let token = Token::random(Some(now + Duration::from_secs(5))).unwrap();
        assert_eq!(token.text().len(), 32);
        assert_ne!(token.text(), Token::random(None).unwrap().text());
        let access = access(Some(token.clone()));
        let check = |given: Option<&str>, now| access.check(&HeaderMap::new(), given, now);
        assert_eq!(check(Some(token.text()), now), Ok(()));
        let wrong = format!("{}0", token.text());
        for given in [
            None,
            Some(""),
            Some("x"),
            Some(&wrong[..]),
            Some(&wrong[1..]),
        ] {
            assert_eq!(check(given, now), Err(Refusal::WrongToken), "{given:?}");
        }
        let later = now + Duration::from_secs(5);
        let expired = check(Some(token.text()), later);
        assert_eq!(expired, Err(Refusal::ExpiredToken));
    }

    #[test]
    fn token_of_a_file_is_long_enough_and_plain() {
        assert_eq!(
            Token::parse("0123456789abcdef\n", None).unwrap().text(),
            "0123456789abcdef"
        );
        for wrong in ["short", "0123456789abcde/", "0123456789 abcdef"] {
            assert!(Token::parse(wrong, None).is_err(), "{wrong}");
        }
        assert!(Token::parse(&"a".repeat(300), None).is_err());
    }
}
