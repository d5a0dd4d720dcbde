//! Failures of TLS in words that name the cause and the side that has it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// A failure of TLS. It ends the connection.
#[derive(Debug, Clone)]
pub struct TlsFault(Error);

impl From<Error> for TlsFault {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<TlsFault> for io::Error {
    fn from(fault: TlsFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

impl StdError for TlsFault {}

impl TlsFault {
    /// The failure that an error of a connection stands for. None if it is another one, such as a lost connection.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the next connection would fail in the same way, unless certificates or options change.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.0,
            Error::InvalidCertificate(_)
                | Error::NoCertificatesPresented
                | Error::NoApplicationProtocol
                | Error::PeerIncompatible(_)
                | Error::InvalidMessage(_)
        ) || matches!(self.0, Error::AlertReceived(alert) if alert != AlertDescription::InternalError)
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match &self.0 {
            Error::NoCertificatesPresented => "the peer has sent no certificate",
            Error::InvalidCertificate(error) => return of_certificate(error, f),
            Error::AlertReceived(alert) => return of_alert(*alert, f),
            Error::NoApplicationProtocol => "the peer takes this port for another one",
            Error::PeerIncompatible(
                PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            ) => "the peer does not support TLS 1.3",
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                "the peer does not speak TLS; it may take the port for a plain one, or be one"
            }
            other => return write!(f, "TLS: {other}"),
        };
        f.write_str(words)
    }
}

/// A fault of the peer's certificate, which this side has found.
fn of_certificate(error: &CertificateError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use CertificateError as E;
    let words = match error {
        E::UnknownIssuer | E::BadSignature => "no trusted CA has issued the peer's certificate",
        E::Expired | E::ExpiredContext { .. } => "the peer's certificate has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "the peer's certificate is not valid yet",
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "the peer's certificate is for other host names than the one that was connected to"
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "the peer's certificate is for another purpose"
        }
        E::ApplicationVerificationFailure => {
            "the peer's certificate does not have the role that this port requires"
        }
        other => return write!(f, "the peer's certificate is not accepted: {other}"),
    };
    f.write_str(words)
}

/// A fault that the peer has found and reported.
fn of_alert(alert: AlertDescription, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use AlertDescription as A;
    let words = match alert {
        A::CertificateRequired => "the peer requires a certificate",
        A::UnknownCA => "the peer does not trust the CA of the certificate",
        A::CertificateExpired => {
            "the peer reports that the certificate is expired or not valid yet"
        }
        A::AccessDenied => "the certificate does not have the role that the peer requires",
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => {
            "the peer does not accept the certificate"
        }
        A::NoApplicationProtocol => "the peer serves another protocol on this port",
        A::ProtocolVersion => "the peer does not support TLS 1.3",
        other => return write!(f, "the peer reports a TLS failure: {other:?}"),
    };
    f.write_str(words)
}

/// Whether these are the first bytes of a TLS connection: a client's (handshake) or a server's that takes the peer for
/// one that does not speak TLS (alert). No message of the protocols of LTTng begins like that.
#[must_use]
pub fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}
