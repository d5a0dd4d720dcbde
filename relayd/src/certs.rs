//! `relayd certs`: creates the certificates of a first set-up, and says what to do with them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use transport::authority::{Authority, Purpose, Validity};
use transport::error::TransportError;
use transport::role::{Role, Roles};

use crate::cli::CertsArguments;

const DAY: Duration = Duration::from_secs(86_400);

/// Validity of a CA, in multiples of that of its certificates.
const CA_LIFETIMES: u32 = 10;

/// Name of the relay's certificate.
const SERVER: &str = "server";

/// The clients of a first set-up.
const FIRST_CLIENTS: [(&str, Role); 2] = [("producer", Role::Produce), ("viewer", Role::View)];

/// The report of what was created: a line for each pair of files, and commands that use them.
struct Report {
    directory: PathBuf,
    text: String,
}

/// Creates what the options ask for. Returns what to tell the user.
///
/// # Errors
/// If a file exists that would be replaced, cannot be read or written, or a name cannot stand in a
/// certificate.
pub fn create(arguments: &CertsArguments, now: SystemTime) -> Result<String, TransportError> {
    let directory = &arguments.dir;
    let lifetime = DAY * u32::try_from(arguments.days).unwrap_or(u32::MAX);
    let validity = |lifetime| Validity { now, lifetime };
    let is_new = !Authority::exists(directory);
    let authority = if is_new {
        Authority::create(directory, validity(lifetime * CA_LIFETIMES))?
    } else {
        Authority::open(directory)?
    };
    let mut report = Report {
        directory: directory.clone(),
        text: String::new(),
    };
    if is_new {
        report.add("ca", "the CA; ca.key creates clients: keep it secret");
    }
    let issue =
        |name: &str, purpose| authority.issue(name, &purpose, validity(lifetime), arguments.force);
    let is_only_clients = arguments.host.is_empty() && !is_new;
    if !is_only_clients {
        let hosts = match arguments.host.as_slice() {
            [] => own_names(),
            hosts => hosts.to_vec(),
        };
        let names = hosts.join(", ");
        issue(SERVER, Purpose::Server(hosts))?;
        report.add(SERVER, &format!("the relay, as {names}"));
    }
    let roles: Roles = arguments.role.iter().copied().collect();
    let mut clients: Vec<_> = arguments
        .client
        .iter()
        .map(|name| (name.as_str(), roles))
        .collect();
    if is_new && clients.is_empty() {
        let first = FIRST_CLIENTS.map(|(name, role)| (name, [role].into_iter().collect()));
        clients.extend(first);
    }
    for (name, roles) in &clients {
        issue(name, Purpose::Client(*roles))?;
        report.add(name, &format!("a client with the role {roles}"));
    }
    if report.text.is_empty() {
        return Ok(format!(
            "{} has a CA already: nothing created; give --host or --client\n",
            directory.display()
        ));
    }
    Ok(report.finish(arguments.days, &clients))
}

/// The names under which programs reach a relay on this host.
fn own_names() -> Vec<String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let mut names = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    if !host.is_empty() && host != "localhost" {
        names.insert(0, host.into_owned());
    }
    names
}

impl Report {
    fn add(&mut self, name: &str, what: &str) {
        let files = format!("{name}.pem, {name}.key");
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "  {files:<32} {what}");
    }

    /// The whole report, with commands for the relay and for each kind of client.
    fn finish(self, days: u64, clients: &[(&str, Roles)]) -> String {
        let Self { directory, text } = self;
        let file = |name: &str| shell_word(&directory.join(name));
        let mut out = format!(
            "Created in {}, valid for {days} days:\n{text}",
            directory.display()
        );
        let _ = write!(
            out,
            "\nOn this host, start the relay:\n  relayd -C tls://0.0.0.0 -D tls://0.0.0.0 -L tls://0.0.0.0 \\\n    \
             --tls-cert {} --tls-key {} --tls-client-ca {}\n",
            file("server.pem"),
            file("server.key"),
            file("ca.pem")
        );
        let of_role = |role| clients.iter().find(|(_, roles)| roles.has(role));
        if let Some((name, _)) = of_role(Role::Produce) {
            let _ = write!(
                out,
                "\nOn a traced host, with copies of ca.pem, {name}.pem and {name}.key:\n  \
                 consumer replay DIR -U nets://RELAY \\\n    \
                 --tls-ca ca.pem --tls-cert {name}.pem --tls-key {name}.key\n"
            );
        }
        if let Some((name, _)) = of_role(Role::View) {
            let _ = write!(
                out,
                "\nTo view, with copies of ca.pem, {name}.pem and {name}.key:\n  \
                 test-live nets://RELAY \\\n    \
                 --tls-ca ca.pem --tls-cert {name}.pem --tls-key {name}.key\n"
            );
        }
        out
    }
}

/// A path as a word of a shell.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if path.chars().all(is_plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn run(directory: &Path, arguments: &[&str]) -> Result<String, TransportError> {
        let directory = directory.to_str().unwrap();
        let words = [&["certs", "--dir", directory], arguments].concat();
        create(
            &CertsArguments::try_parse_from(words).unwrap(),
            SystemTime::now(),
        )
    }

    #[test]
    fn first_run_creates_all_that_a_relay_a_producer_and_a_viewer_need() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("certs");
        let report = run(&directory, &[]).unwrap();
        for name in ["ca", "server", "producer", "viewer"] {
            assert!(directory.join(format!("{name}.pem")).exists(), "{name}");
            assert!(report.contains(&format!("{name}.key")), "{report}");
        }
        assert!(report.contains("localhost"), "{report}");
        assert!(run(&directory, &[]).unwrap().contains("nothing created"));
    }

    #[test]
    fn further_clients_are_added_and_existing_ones_are_replaced_only_with_force() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        run(directory, &["--host", "relay.example"]).unwrap();
        let ca = std::fs::read(directory.join("ca.pem")).unwrap();
        let ann = ["--client", "ann", "--role", "view", "--role", "produce"];
        let report = run(directory, &ann).unwrap();
        assert!(report.contains("role produce and view"), "{report}");
        let again = run(directory, &ann);
        assert!(matches!(again, Err(TransportError::Exists { .. })));
        run(directory, &[&ann[..], &["--force"]].concat()).unwrap();
        assert_eq!(std::fs::read(directory.join("ca.pem")).unwrap(), ca);
    }

    #[test]
    fn clients_need_a_role_and_roles_a_client() {
        for wrong in [
            &["--client", "ann"][..],
            &["--role", "view"],
            &["--client", "ann", "--role", "admin"],
            &["--days", "0"],
        ] {
            let words = [&["certs"], wrong].concat();
            assert!(CertsArguments::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }
}
