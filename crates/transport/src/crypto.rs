//! The cryptography that rustls uses.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};

/// Returns the cryptography of ring. AES-128 comes first: it is faster than AES-256, and nothing
/// here has to be secret for a century.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
    }
}
