//! Lists the sessions of a relay, as a viewer does before it attaches to one:
//! `cargo run -p viewer-proto --example list_sessions -- 127.0.0.1:5344`.
#![expect(
    clippy::disallowed_types,
    reason = "a program has the sockets that the crate does not open"
)]

use std::io::{Read, Write};
use std::net::TcpStream;

use viewer_proto::client::{Client, Part};
use viewer_proto::{Command, Minor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let relay = std::env::args()
        .nth(1)
        .ok_or("usage: list_sessions HOST:PORT")?;
    let mut socket = TcpStream::connect(relay)?;
    let mut client = Client::new(Minor::OURS);
    for command in [client.connect_command(), Command::ListSessions] {
        let mut bytes = Vec::new();
        client.send(&command, &mut bytes)?;
        socket.write_all(&bytes)?;
        print_reply(&mut client, &mut socket)?;
    }
    Ok(())
}

/// Reads the reply to one command, and prints the sessions that it has.
fn print_reply(
    client: &mut Client,
    socket: &mut TcpStream,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = socket.read(&mut buffer)?;
        if length == 0 {
            return Err("the relay closed the connection".into());
        }
        received.extend_from_slice(buffer.get(..length).unwrap_or_default());
        let mut input = &received[..];
        // None: the next part is not complete.
        while let Some(part) = client.receive(&mut input)? {
            match part {
                Part::Session(session) => println!(
                    "{}/{}: {} streams",
                    session.host, session.name, session.streams
                ),
                Part::Done => return Ok(()),
                _ => {}
            }
        }
        let rest = input.len();
        received.drain(..received.len() - rest);
    }
}
