//! Encrypted links between programs of ours: certificates and what they allow, and the
//! configurations of rustls that all programs use.
//!
//! Read in this order: [`authority`] (creates a CA and certificates), [`role`] (what a certificate
//! allows), [`identity`] (certificates from files), [`config`] (what both ends of a connection
//! accept), [`client_files`], [`error`]; then [`codec`] (TLS without a socket), [`tls_stream`]
//! (with one), [`socket`] (encrypted or not), [`fault`] (why TLS has failed); [`relay_list`] (which
//! relay is connected to).
//!
//! A link is encrypted with TLS 1.3; older versions are not accepted. Client and server trust one
//! CA or a few, which their options name, and never those of the system. A certificate allows to
//! produce or to view only if it says so: see [`role`].

pub mod authority;
pub mod client_files;
pub mod codec;
pub mod config;
mod crypto;
pub mod error;
pub mod fault;
pub mod identity;
mod pem_file;
pub mod quic;
pub mod quic_stream;
pub mod relay_list;
pub mod role;
pub mod socket;
pub mod tls_stream;

pub use rustls;
