//! Whatever a peer sends, it harms nobody but itself: each test does something that no peer should, and
//! looks whether a probe, a session with a viewer, has lost anything. Which rows of
//! `doc/security.md` each of them stands for is said there. What the reference dies of is in
//! `tests/defects`; here is the rest.

mod commands;
mod conversation;
mod differential;
mod hung_files;
mod isolation;
mod many_streams;
mod packets;
mod reference_faults;
mod session_takeover;
mod timeouts;
mod viewers;

use std::io::{Read, Write};

use relay_proto::ControlHeader;
use tests::probe_session::start_relay_with_probe;
use tests::producer::{OK, Producer, plain_session as session};
use tests::relay::Relay;
use tests::tree::files;
use wire::Field;

/// What a session has recorded in files of this name, in the order of their paths.
fn recorded_files(relay: &Relay, session: &str, file: &str) -> Vec<Vec<u8>> {
    files(&relay.output, &format!("/{file}"))
        .into_iter()
        .filter(|(path, _)| path.contains(&format!("/{session}-")))
        .map(|(_, bytes)| bytes)
        .collect()
}

/// A command's bytes, whatever they are.
fn command_bytes(code: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ControlHeader {
        circuit: 0,
        data_size: payload.len() as u64,
        code,
        code_version: 0,
    }
    .write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Sends bytes on the control connection and nothing after them. Gives what is answered until the
/// relay hangs up.
fn send_and_read_to_end(producer: &Producer, bytes: &[u8]) -> Vec<u8> {
    let mut control = producer.control();
    control.write_all(bytes).unwrap();
    control.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // It is reset where the relay did not read everything.
    let _ = control.read_to_end(&mut answer);
    answer
}
