//! Agrees with a relay on a version of the protocol, as a producer does before it sends a trace:
//! `cargo run -p relay-proto --example greet_relay -- 127.0.0.1:5342`.
#![expect(
    clippy::disallowed_types,
    reason = "a program has the sockets that the crate does not open"
)]

use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::producer::Producer;
use relay_proto::{Command, Version};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let relay = std::env::args()
        .nth(1)
        .ok_or("usage: greet_relay HOST:PORT")?;
    let mut socket = TcpStream::connect(relay)?;
    let mut producer = Producer::default();

    let mut bytes = Vec::new();
    producer.send(&Command::Version(Version::OURS), &mut bytes)?;
    socket.write_all(&bytes)?;

    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let (command, reply) = loop {
        let length = socket.read(&mut buffer)?;
        if length == 0 {
            return Err("the relay closed the connection".into());
        }
        received.extend_from_slice(buffer.get(..length).unwrap_or_default());
        // None: the reply is not complete.
        if let Some(answer) = producer.receive(&mut &received[..])? {
            break answer;
        }
    };
    println!("{command:?}: {reply:?}; agreed on {:?}", producer.minor());
    Ok(())
}
