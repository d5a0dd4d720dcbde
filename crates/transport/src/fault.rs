//! Failures of TLS in words that name the cause and the side that has it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// A failure of TLS. It ends the connection.
#[derive(Debug, Clone)]
pub struct TlsFault(Error);

/// What the user of a client changes to mend a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The server does not accept the client's certificate, or requires one.
    OwnCertificate,
    /// The client does not accept the server's certificate.
    PeerCertificate,
    /// The port serves another protocol.
    OtherPort,
    /// Something else.
    Other,
}

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
    /// Returns the failure that an error of a connection stands for. None if it is another one,
    /// such as a lost connection.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns what a client changes to mend the fault.
    #[must_use]
    pub fn cause(&self) -> Cause {
        use AlertDescription as A;
        match &self.0 {
            Error::InvalidCertificate(_) => Cause::PeerCertificate,
            Error::AlertReceived(A::NoApplicationProtocol) => Cause::OtherPort,
            Error::AlertReceived(
                A::CertificateRequired
                | A::UnknownCA
                | A::CertificateExpired
                | A::AccessDenied
                | A::BadCertificate
                | A::UnsupportedCertificate
                | A::CertificateUnknown,
            ) => Cause::OwnCertificate,
            _ => Cause::Other,
        }
    }

    /// Whether the next connection would fail in the same way, unless certificates or options
    /// change.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        // An internal error of the peer says nothing about the files or options of either side.
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

/// Writes the words for a fault of the peer's certificate, which this side has found.
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

/// Writes the words for a fault that the peer has found and reported.
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

/// Whether a client's first bytes begin the handshake of TLS. No command of the protocols of LTTng
/// begins like that.
#[must_use]
pub fn is_handshake(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 0x03, ..])
}

/// Whether all that a server has sent is an alert of TLS that is not encrypted: how it answers a
/// client that does not speak TLS. The reply of a relay to a viewer begins with a random number, so
/// that the whole alert is compared, not its first bytes.
#[must_use]
pub fn is_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15, 0x03, 0..=4, 0, 2, 1 | 2, _])
}

#[cfg(test)]
mod tests {
    use super::is_alert;

    #[test]
    fn a_viewer_id_that_begins_like_an_alert_is_none() {
        assert!(is_alert(&[0x15, 3, 3, 0, 2, 2, 50]));
        let mut reply = [0; 20];
        reply[..7].copy_from_slice(&[0x15, 3, 3, 0, 2, 2, 50]);
        assert!(!is_alert(&reply));
        assert!(!is_alert(&[0x15, 3]));
    }
}
