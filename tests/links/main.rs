//! Encrypted links: producers and viewers over TLS and over QUIC on bad networks, certificates and
//! roles, the proxy for other viewers, and hostile handshakes.

mod certs;
mod handshakes;
mod proxy;
mod quic;
mod refusals;
mod tls;

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::babeltrace::Babeltrace;
use tests::certificates::Certificates;
use tests::consumer::HeldReplay;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::replay::HOST;
use tests::{binaries, wait_until};

/// Returns a relay with TLS on all ports that asks for clients' certificates.
fn start_relay(lab: &Lab, certificates: &Certificates) -> Relay {
    Relay::start_with_schemes(lab, ["tls"; 3], &certificates.of_server(true))
}

/// Returns the command that replays a directory over TLS, as a session of [`HOST`].
fn replay_command(
    lab: &Lab,
    relay: &Relay,
    session: &str,
    directory: &Path,
    options: &[String],
) -> Command {
    let mut command = lab.command(binaries::consumer());
    let (control, data) = (relay.control, relay.data);
    assert_eq!(control.ip(), data.ip());
    command
        .args(["replay", "-v", "--hostname", HOST, "--session", session])
        .arg(format!(
            "--set-url=nets://{}:{}:{}",
            control.ip(),
            control.port(),
            data.port()
        ))
        .args(options)
        .arg(directory);
    command
}

/// Returns the events as Babeltrace prints them, without the trace name, which is that of the
/// directory.
fn events(directory: &Path) -> Vec<String> {
    let shown = Babeltrace::Two.read_with(&["--no-delta", "--clock-cycles"], directory);
    shown.expect_success()
}

/// Sends the packets of a replay to viewers that are attached, ends the session when they have
/// printed `want`, and checks that they print nothing else.
fn assert_viewers_show(want: &[String], mut held: HeldReplay, mut viewers: [Process; 2]) {
    held.send_packets();
    for viewer in &mut viewers {
        wait_until("all events are printed", || {
            viewer.stdout_line_count() >= want.len() || !viewer.is_running()
        });
    }
    held.close_session().wait().expect_success();
    for viewer in viewers {
        assert!(viewer.wait().expect_success() == want);
    }
}

/// Returns the output directory of the only session of a name.
fn directory_of(relay: &Relay, session: &str) -> PathBuf {
    let entries = std::fs::read_dir(relay.output.join(HOST)).unwrap();
    let is_of = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_prefix(session)
            .is_some_and(|rest| rest.starts_with("-20"))
    };
    let found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(is_of)
        .collect();
    assert_eq!(found.len(), 1, "{session}: {found:?}");
    found.into_iter().next().unwrap()
}
