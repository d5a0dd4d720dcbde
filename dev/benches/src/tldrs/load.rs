//! Clients that send as fast as they can.

use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Size of an event in bytes, with its line feed.
pub(super) const EVENT_BYTES: usize = 84;

/// Size of a client's write buffer in bytes, as in the client library.
const CHUNK_BYTES: usize = 64 << 10;

/// Number of different events, which are sent repeatedly.
const EVENTS: usize = 4096;

/// How clients write their events to the socket.
#[derive(Clone, Copy)]
pub(crate) enum Writes {
    Chunks,
    OneByOne,
}

/// Runs `clients` clients that send `events` events each to one trace.
pub(crate) fn run(socket: &Path, writes: Writes, clients: usize, events: usize) {
    let text = text();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            let text = text.as_bytes();
            scope.spawn(move || {
                let mut client = UnixStream::connect(socket).unwrap();
                client.write_all(b"OPEN load\n").unwrap();
                match writes {
                    Writes::Chunks => in_chunks(&mut client, text, events * EVENT_BYTES),
                    Writes::OneByOne => {
                        for event in text.chunks(EVENT_BYTES).cycle().take(events) {
                            client.write_all(event).unwrap();
                        }
                    }
                }
            });
        }
    });
}

/// Writes in chunks that may end inside of an event, like a buffered stream.
fn in_chunks(client: &mut UnixStream, text: &[u8], bytes: usize) {
    // Twice, so that a chunk that passes the end is one slice.
    let twice = [text, text].concat();
    let mut sent = 0;
    while sent < bytes {
        let from = sent % text.len();
        let length = CHUNK_BYTES.min(bytes - sent);
        client.write_all(&twice[from..from + length]).unwrap();
        sent += length;
    }
}

fn text() -> String {
    let mut text = String::new();
    for number in 0..EVENTS {
        let begin = text.len();
        write!(
            text,
            "{{\"pid\":4711,\"tid\":{},\"ts\":{}.{:02},\"dur\":{}.50,\"name\":\"",
            number % 8,
            1_000_000 + number * 7,
            number % 100,
            number % 1000,
        )
        .unwrap();
        let end = "\",\"ph\":\"X\"}\n";
        // All events have one size, so that the stored bytes tell how many there are.
        let padding = EVENT_BYTES - (text.len() - begin) - end.len();
        text.extend("function_name".chars().cycle().take(padding));
        text.push_str(end);
    }
    text
}
