//! A packet that does not fit a viewer's socket, and viewers that do not read it.

use std::io::Write;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use tests::producer::{OK, Producer, index, packet_of};
use tests::relay::Relay;
use tests::viewer::Viewer;
use viewer_proto::Command;
use viewer_proto::index::IndexStatus;
use viewer_proto::packet::GetPacket;
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

/// Returns numbers, so that each piece of the packet differs from the others. `size` in bytes.
pub(crate) fn payload(size: usize) -> Vec<u8> {
    (0..size / 4)
        .flat_map(|number| u32::try_from(number).unwrap().to_be_bytes())
        .collect()
}

/// Sends packet 0 of the stream with this content.
pub(crate) fn send_payload(producer: &mut Producer, stream: StreamId, payload: &[u8]) {
    let bytes = packet_of(stream, 0, payload, 0);
    producer.data.write_all(&bytes).unwrap();
    let index = index(0, payload.len() as u64);
    assert_eq!(producer.send_index(stream, 0, index), OK);
}

/// Returns a viewer that may request packet 0 of the stream, and whose socket takes only the
/// beginning of it.
pub(crate) fn attach(relay: &Relay, session: &str, stream: StreamId) -> Viewer {
    let (mut viewer, ..) = Viewer::attached(relay.live, session, Seek::Beginning);
    assert_eq!(viewer.wait_for_index(stream).status, IndexStatus::Ready);
    set_socket_recv_buffer_size(viewer.socket(), 64 << 10).unwrap();
    viewer
}

/// Requests packet 0 of the stream, of `size` bytes, and waits until the reply has begun, without
/// reading it.
pub(crate) fn request_payload(viewer: &Viewer, stream: StreamId, size: usize) {
    let mut request = Vec::new();
    Command::GetPacket(GetPacket {
        stream,
        offset: Bytes(0),
        len: u32::try_from(size).unwrap(),
    })
    .encode(&mut request);
    viewer.socket().write_all(&request).unwrap();
    viewer.socket().peek(&mut [0]).unwrap();
}
