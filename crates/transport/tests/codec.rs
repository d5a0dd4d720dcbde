//! Both ends of a TLS connection without a socket: bytes, certificates, roles, and hostile peers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use tempfile::TempDir;
use transport::authority::{Authority, IssuedFiles, Purpose, Validity};
use transport::codec::TlsCodec;
use transport::config::{ALPN_CONTROL, ALPN_LIVE, ClientPolicy, client_config, server_config};
use transport::identity::{Identity, TrustedCas};
use transport::role::{Role, Roles};

const DAY: Duration = Duration::from_secs(86_400);

/// A CA and certificates in a directory.
struct Certificates {
    directory: TempDir,
    authority: Authority,
}

impl Certificates {
    fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path(), valid_now()).unwrap();
        let server = Purpose::Server(vec!["relay.example".to_owned()]);
        let files = authority.issue("server", &server, valid_now(), false);
        files.unwrap();
        Self {
            directory,
            authority,
        }
    }

    fn client(&self, name: &str, roles: &[Role], validity: Validity) -> Identity {
        let client = Purpose::Client(roles.iter().copied().collect());
        let files = self.authority.issue(name, &client, validity, false);
        let IssuedFiles { certificate, key } = files.unwrap();
        Identity::load(&certificate, &key).unwrap()
    }

    fn trusted(&self) -> TrustedCas {
        TrustedCas::load(&self.file("ca.pem")).unwrap()
    }

    fn server(&self) -> Identity {
        Identity::load(&self.file("server.pem"), &self.file("server.key")).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn valid_now() -> Validity {
    Validity {
        now: SystemTime::now(),
        lifetime: DAY,
    }
}

fn expired() -> Validity {
    Validity {
        now: SystemTime::now() - 3 * DAY,
        lifetime: DAY,
    }
}

/// The bytes on their way to one end.
type Wire = RefCell<VecDeque<u8>>;

/// A client and a server that are connected in memory.
struct Pair {
    client: TlsCodec,
    server: TlsCodec,
    to_client: Wire,
    to_server: Wire,
}

fn receive(wire: &Wire, into: &mut [u8]) -> io::Result<usize> {
    let mut wire = wire.borrow_mut();
    if wire.is_empty() {
        return Err(ErrorKind::WouldBlock.into());
    }
    let count = wire.len().min(into.len());
    for (into, byte) in into.iter_mut().zip(wire.drain(..count)) {
        *into = byte;
    }
    Ok(count)
}

fn joined(pieces: &[IoSlice<'_>]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|piece| piece.iter().copied())
        .collect()
}

fn send(wire: &Wire, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let bytes = joined(pieces);
    wire.borrow_mut().extend(&bytes);
    Ok(bytes.len())
}

impl Pair {
    /// The two ends; `policy` is what the server asks of the client, and `identity` what the client
    /// shows.
    fn new(
        certificates: &Certificates,
        policy: Option<Role>,
        identity: Option<&Identity>,
        trusted: &TrustedCas,
        host: &'static str,
    ) -> Self {
        let policy = policy.map(|role| ClientPolicy {
            trusted: certificates.trusted(),
            role: Some(role),
        });
        let server = server_config(&certificates.server(), policy.as_ref(), &[ALPN_CONTROL]);
        let client = client_config(trusted, identity, &[ALPN_CONTROL]);
        let name = ServerName::try_from(host).unwrap();
        Self {
            client: TlsCodec::client(client.unwrap(), name).unwrap(),
            server: TlsCodec::server(server.unwrap()).unwrap(),
            to_client: Wire::default(),
            to_server: Wire::default(),
        }
    }

    /// Passes messages of the handshake until there are none. Returns the failures of client and
    /// server.
    fn handshake(&mut self) -> (Option<String>, Option<String>) {
        let (mut of_client, mut of_server) = (None, None);
        loop {
            let flush = |codec: &mut TlsCodec, wire: &Wire| {
                codec
                    .flush(&mut |pieces: &[IoSlice<'_>]| send(wire, pieces))
                    .unwrap();
            };
            flush(&mut self.client, &self.to_server);
            flush(&mut self.server, &self.to_client);
            let is_idle = |wire: &Wire| wire.borrow().is_empty();
            if is_idle(&self.to_server) && is_idle(&self.to_client) {
                return (of_client, of_server);
            }
            let step = |codec: &mut TlsCodec, wire: &Wire, failure: &mut Option<String>| {
                if !is_idle(wire)
                    && let Err(error) = codec.receive_handshake(|into| receive(wire, into))
                {
                    wire.borrow_mut().clear();
                    failure.get_or_insert(error.to_string());
                }
            };
            step(&mut self.server, &self.to_server, &mut of_server);
            step(&mut self.client, &self.to_client, &mut of_client);
        }
    }
}

#[test]
fn bytes_arrive_unchanged_whatever_the_sizes_of_writes_and_reads() {
    let certificates = Certificates::create();
    let sent: Vec<u8> = (0..700_001_u32).map(|n| (n % 251) as u8).collect();
    for (written, read) in [(700_001, 1 << 20), (700_001, 4096), (1000, 70_000), (33, 7)] {
        let trusted = certificates.trusted();
        let mut pair = Pair::new(&certificates, None, None, &trusted, "relay.example");
        assert_eq!(pair.handshake(), (None, None));
        let (mut rest, mut received) = (&sent[..written.max(20_000)], Vec::new());
        let expected = rest.to_vec();
        let mut buffer = vec![0; read];
        while received.len() < expected.len() {
            if !rest.is_empty() {
                let piece = &rest[..written.min(rest.len())];
                // The socket takes a part of what it is given.
                let to_server = &pair.to_server;
                let taken = pair.client.write(piece, |pieces: &[IoSlice<'_>]| {
                    if to_server.borrow().len() > 50_000 {
                        return Err(ErrorKind::WouldBlock.into());
                    }
                    let bytes = joined(pieces);
                    send(to_server, &[IoSlice::new(&bytes[..bytes.len().min(9000)])])
                });
                match taken {
                    Ok(taken) => rest = &rest[taken..],
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            } else {
                let to_server = &pair.to_server;
                let flushed = pair
                    .client
                    .flush(&mut |pieces: &[IoSlice<'_>]| send(to_server, pieces));
                flushed.unwrap();
            }
            loop {
                let to_server = &pair.to_server;
                match pair
                    .server
                    .read(&mut buffer, |into| receive(to_server, into))
                {
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        break;
                    }
                }
            }
        }
        assert!(received == expected, "{written} {read}");
    }
}

#[test]
fn a_closed_connection_ends_and_a_lost_one_fails() {
    let certificates = Certificates::create();
    let trusted = certificates.trusted();
    for closes in [true, false] {
        let mut pair = Pair::new(&certificates, None, None, &trusted, "relay.example");
        pair.handshake();
        let to_server = &pair.to_server;
        pair.client
            .write(b"last", |pieces: &[IoSlice<'_>]| send(to_server, pieces))
            .unwrap();
        if closes {
            pair.client.close();
            let flushed = pair
                .client
                .flush(&mut |pieces: &[IoSlice<'_>]| send(to_server, pieces));
            flushed.unwrap();
        }
        let mut buffer = [0; 100];
        // The end of the TCP connection follows.
        let mut read = || {
            pair.server
                .read(&mut buffer, |into| receive(to_server, into).or(Ok(0)))
        };
        assert_eq!(read().unwrap(), 4);
        if closes {
            assert_eq!(read().unwrap(), 0);
        } else {
            assert_eq!(read().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }
}

#[test]
fn certificates_that_are_refused_are_explained_to_both_sides() {
    let certificates = Certificates::create();
    let others = Certificates::create();
    let viewer = certificates.client("viewer", &[Role::View], valid_now());
    let both = certificates.client("both", &Role::ALL, valid_now());
    let none = certificates.client("none", &[], valid_now());
    let late = certificates.client("late", &[Role::View], expired());
    let stranger = others.client("stranger", &[Role::View], valid_now());
    let (trusted, other_ca) = (certificates.trusted(), others.trusted());
    let view = Some(Role::View);
    let host = "relay.example";
    let role = (
        Some("the certificate does not have the role that the peer requires"),
        Some("the peer's certificate does not have the role that this port requires"),
    );
    for (case, policy, identity, trusted, host, want) in [
        ("right", view, Some(&viewer), &trusted, host, (None, None)),
        ("both", view, Some(&both), &trusted, host, (None, None)),
        ("not asked", None, Some(&none), &trusted, host, (None, None)),
        (
            "wrong",
            Some(Role::Produce),
            Some(&viewer),
            &trusted,
            host,
            role,
        ),
        ("no role", view, Some(&none), &trusted, host, role),
        (
            "no certificate",
            view,
            None,
            &trusted,
            host,
            (
                Some("the peer requires a certificate"),
                Some("the peer has sent no certificate"),
            ),
        ),
        (
            "expired",
            view,
            Some(&late),
            &trusted,
            host,
            (
                Some("the peer reports that the certificate is expired or not valid yet"),
                Some("the peer's certificate has expired"),
            ),
        ),
        (
            "another CA's client",
            view,
            Some(&stranger),
            &trusted,
            host,
            (
                Some("the peer does not trust the CA of the certificate"),
                Some("no trusted CA has issued the peer's certificate"),
            ),
        ),
        (
            "another CA's server",
            None,
            None,
            &other_ca,
            host,
            (
                Some("no trusted CA has issued the peer's certificate"),
                Some("the peer does not trust the CA of the certificate"),
            ),
        ),
    ] {
        let mut pair = Pair::new(&certificates, policy, identity, trusted, host);
        let (client, server) = pair.handshake();
        assert_eq!((client.as_deref(), server.as_deref()), want, "{case}");
    }
}

#[test]
fn a_server_with_another_name_than_the_one_connected_to_is_refused() {
    let certificates = Certificates::create();
    let trusted = certificates.trusted();
    let mut pair = Pair::new(&certificates, None, None, &trusted, "other.example");
    let (client, server) = pair.handshake();
    assert_eq!(
        client.as_deref(),
        Some("the peer's certificate is for other host names than the one that was connected to")
    );
    assert_eq!(
        server.as_deref(),
        Some("the peer does not accept the certificate")
    );
}

#[test]
fn the_roles_of_a_verified_client_are_known_to_the_server() {
    let certificates = Certificates::create();
    let client = certificates.client("ann", &[Role::Produce], valid_now());
    let trusted = certificates.trusted();
    let produce = Some(Role::Produce);
    let mut pair = Pair::new(
        &certificates,
        produce,
        Some(&client),
        &trusted,
        "relay.example",
    );
    pair.handshake();
    let roles: Roles = [Role::Produce].into_iter().collect();
    assert_eq!(pair.server.peer_roles(), Some(roles));
}

#[test]
fn a_client_of_another_port_is_refused() {
    let certificates = Certificates::create();
    let trusted = certificates.trusted();
    let mut pair = Pair::new(&certificates, None, None, &trusted, "relay.example");
    let client = client_config(&trusted, None, &[ALPN_LIVE]).unwrap();
    let name = ServerName::try_from("relay.example").unwrap();
    pair.client = TlsCodec::client(client, name).unwrap();
    let (client, server) = pair.handshake();
    assert_eq!(
        client.as_deref(),
        Some("the peer serves another protocol on this port")
    );
    assert_eq!(
        server.as_deref(),
        Some("the peer takes this port for another one")
    );
}

#[test]
fn bytes_that_are_not_tls_are_refused_with_an_alert() {
    let certificates = Certificates::create();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 100],
        &[0xff; 70_000],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0x16, 3, 1, 0, 4, 9, 0, 0, 0],
    ] {
        let config = server_config(&certificates.server(), None, &[ALPN_CONTROL]);
        let mut server = TlsCodec::server(config.unwrap()).unwrap();
        let wire = Wire::default();
        send(&wire, &[IoSlice::new(garbage)]).unwrap();
        let refused = server.receive_handshake(|into| receive(&wire, into));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(server.has_unsent(), "{garbage:?}");
        let mut alert = Vec::new();
        let flushed = server.flush(&mut |pieces: &[IoSlice<'_>]| {
            alert.extend(joined(pieces));
            Ok(alert.len())
        });
        flushed.unwrap();
        assert!(transport::fault::is_alert(&alert));
    }
}

#[test]
fn a_changed_byte_is_detected_and_the_bytes_before_it_are_kept() {
    let certificates = Certificates::create();
    let trusted = certificates.trusted();
    let mut pair = Pair::new(&certificates, None, None, &trusted, "relay.example");
    pair.handshake();
    let to_server = &pair.to_server;
    for piece in [&b"first"[..], b"second"] {
        let written = pair
            .client
            .write(piece, |pieces: &[IoSlice<'_>]| send(to_server, pieces));
        written.unwrap();
    }
    *to_server.borrow_mut().back_mut().unwrap() ^= 1;
    let mut buffer = [0; 100];
    let mut read = || {
        pair.server
            .read(&mut buffer, |into| receive(to_server, into))
    };
    assert_eq!(read().unwrap(), 5);
    assert_eq!(read().unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(read().unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn reads_without_a_decrypted_byte_let_other_connections_run() {
    let certificates = Certificates::create();
    let trusted = certificates.trusted();
    let mut pair = Pair::new(&certificates, None, None, &trusted, "relay.example");
    pair.handshake();
    // A header of a record arrives one byte at a time, and there is always another.
    let to_server = Wire::default();
    pair.client
        .write(&[7; 10_000], |pieces: &[IoSlice<'_>]| {
            send(&to_server, pieces)
        })
        .unwrap();
    let mut calls = 0;
    let read = pair.server.read(&mut [0; 100], |into| {
        calls += 1;
        receive(&to_server, &mut into[..1])
    });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(calls < 10);
}
