//! Misbehaving peers affect only their own connections and sessions. Each test sends what no peer
//! should, and checks by a probe session that the relay still serves others. `doc/security.md`
//! lists the threats. Input that crashes the reference is in `tests/defects`.

mod commands;
mod conversation;
mod differential;
mod hung_files;
mod isolation;
mod many_streams;
mod packets;
mod reference_faults;
mod session_churn;
mod session_takeover;
mod timeouts;
mod viewers;

use std::io::Write;

use tests::probe_session::start_relay_with_probe;
use tests::producer::{OK, Producer, control_header, plain_session as session, read_to_close};
use tests::relay::Relay;
use tests::tree::files;

/// Returns the contents of a session's files of this name, in the order of their paths.
fn recorded_files(relay: &Relay, session: &str, file: &str) -> Vec<Vec<u8>> {
    files(&relay.output, &format!("/{file}"))
        .into_iter()
        .filter(|(path, _)| path.contains(&format!("/{session}-")))
        .map(|(_, bytes)| bytes)
        .collect()
}

/// Returns the bytes of a command of any code and payload, valid or not.
fn command_bytes(code: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = control_header(code, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// Sends bytes on the control connection, closes it for writing, and returns what the relay sends
/// until it closes the connection.
fn send_and_read_to_end(producer: &Producer, bytes: &[u8]) -> Vec<u8> {
    let mut control = producer.control();
    control.write_all(bytes).unwrap();
    control.shutdown(std::net::Shutdown::Write).unwrap();
    read_to_close(control)
}
