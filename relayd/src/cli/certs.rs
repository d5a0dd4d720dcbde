//! The command line of `relayd certs`.

use std::path::PathBuf;

use clap::Parser;
use transport::role::Role;

/// Longest validity of a certificate, in days: a century. Certificates cannot hold years
/// beyond 9999.
const MAX_DAYS: u64 = 36_500;

const EXAMPLES: &str = "\
Examples:
  relayd certs                          In a new directory: a CA, a certificate of the relay under the
                                        name of this host, and the clients `producer` and `viewer`
  relayd certs --host relay.example.org --host 192.0.2.7
                                        The relay is reached under these names and addresses
  relayd certs --client ann --role view
                                        One more client of the CA that is in the directory

NAME.pem is a certificate and NAME.key its private key, which only the owner of the file may read. Any
other CA will do as well. Clients need the URI urn:relayd:role:produce or urn:relayd:role:view among the
subject alternative names of their certificate, and the relay the names under which it is reached.";

/// The arguments of `relayd certs`.
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct CertsArguments {
    /// Keep the files in DIR. A CA that is there is used, otherwise one is created
    #[arg(long, value_name = "DIR", default_value = "relayd-certs")]
    pub dir: PathBuf,

    /// Create server.pem for a relay that is reached under NAME, a host name or IP address;
    /// repeatable
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Create NAME.pem for a producer or viewer, with the roles of --role; repeatable
    #[arg(long, value_name = "NAME", requires = "role")]
    pub client: Vec<String>,

    /// What the clients may do: produce, view; repeatable
    #[arg(long, value_name = "produce|view", requires = "client")]
    pub role: Vec<Role>,

    /// Days for which the certificates are valid; a new CA is valid for ten times as long
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=MAX_DAYS / 10))]
    pub days: u64,

    /// Replace certificates that exist. The CA is never replaced
    #[arg(long)]
    pub force: bool,
}
