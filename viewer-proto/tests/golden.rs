//! Bytes captured from real programs: each decodes to the expected values and encodes to the same
//! bytes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

use viewer_proto::client::{Client, ClientError, Head, Part};
use viewer_proto::command::CommandHeader;
use viewer_proto::index::{IndexStatus, NEW_STREAMS, NextIndex};
use viewer_proto::metadata::{MetadataHead, MetadataStatus};
use viewer_proto::packet::{GetPacket, PacketHead, PacketStatus};
use viewer_proto::session::{
    AttachSession, AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, Seek,
    SessionList, TraceFormat,
};
use viewer_proto::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use viewer_proto::version::Connect;
use viewer_proto::{Command, CommandCode, Minor};
use wire::{
    Bits, Bytes, ClassId, Field, FixedText, Micros, PacketIndexV1_0, SessionId, StreamId, Text,
    Timestamp, TraceId, ViewerId,
};

const LIVE: &str = include_str!("data/live.hex");

/// The bytes of a section of a fixture.
fn section(file: &str, name: &str) -> Vec<u8> {
    wire::hex::section(file, name).unwrap()
}

#[test]
fn captured_commands_decode_and_encode_and_truncated_ones_are_rejected() {
    let connect = Connect {
        viewer: None,
        major: 2,
        minor: 4,
        kind: 1,
    };
    let attach = AttachSession {
        session: SessionId(2),
        offset: 0,
        seek: Seek::Last.code(),
    };
    let packet = GetPacket {
        stream: StreamId(4),
        offset: Bytes(0),
        len: 4096,
    };
    for (name, want) in [
        ("connect", Command::Connect(connect)),
        ("create-viewer-session", Command::CreateViewerSession),
        ("list-sessions", Command::ListSessions),
        ("attach-session", Command::AttachSession(attach)),
        ("get-new-streams", Command::GetNewStreams(SessionId(2))),
        ("get-metadata", Command::GetMetadata(StreamId(6))),
        ("get-next-index", Command::GetNextIndex(StreamId(4))),
        ("get-packet", Command::GetPacket(packet)),
        ("detach-session", Command::DetachSession(SessionId(2))),
    ] {
        let bytes = section(LIVE, name);
        let mut payload = &bytes[..];
        let header = CommandHeader::read(&mut payload).unwrap();
        let code = CommandCode::from_code(header.code).unwrap();
        assert_eq!(
            (header.data_size, code.size()),
            (payload.len() as u64, payload.len())
        );
        assert_eq!(Command::decode(code, payload).as_ref(), Ok(&want), "{name}");
        for length in 0..payload.len() {
            let cut = Command::decode(code, &payload[..length]);
            assert!(cut.is_err(), "{name} cut to {length}: {cut:?}");
        }
        let mut written = Vec::new();
        want.encode(&mut written);
        assert_eq!(written, bytes, "{name}");
    }
}

fn connected(minor: u32) -> Client {
    let mut client = Client::new(Minor(minor));
    client
        .send(&client.connect_command(), &mut Vec::new())
        .unwrap();
    let mut hello = &section(LIVE, "connected")[..19];
    assert_eq!(client.receive(&mut hello), Ok(None));
    let mut bytes = section(LIVE, "connected");
    if minor == 15 {
        bytes[15] = 15;
    }
    let mut hello = &bytes[..];
    let minor = Minor(minor);
    let viewer = Some(ViewerId(3));
    assert_eq!(
        client.receive(&mut hello),
        Ok(Some(Part::Head(Head::Connected { viewer, minor })))
    );
    assert_eq!(client.receive(&mut hello), Ok(Some(Part::Done)));
    client
}

/// Checks that the client decodes a captured reply to these parts, and waits for more after each
/// shorter prefix.
fn check(name: &str, minor: u32, command: &Command, want: &[Part<'_>]) {
    let bytes = section(LIVE, name);
    for length in 0..=bytes.len() {
        // A body may be received in pieces: after a prefix its first bytes are a part already.
        let mut client = connected(minor);
        client.send(command, &mut Vec::new()).unwrap();
        let mut input = &bytes[..length];
        let mut parts = Vec::new();
        while let Some(part) = client.receive(&mut input).unwrap() {
            parts.push(part);
        }
        if length == bytes.len() {
            assert_eq!(parts, [want, &[Part::Done]].concat(), "{name}");
            assert!(input.is_empty());
        } else {
            assert!(!parts.contains(&Part::Done), "{name} cut to {length}");
        }
    }
}

fn listed(format: TraceFormat, name: &str) -> ListedSession {
    ListedSession {
        session: SessionId(2),
        live_timer: Micros(500_000),
        viewers: 0,
        streams: 0,
        host: Text::from("vm"),
        name: Text::from(name),
        trace_format: format,
    }
}

fn stream(stream: u64, channel: &str) -> StreamRecord {
    StreamRecord {
        stream: StreamId(stream),
        trace: TraceId(2),
        is_metadata: u32::from(channel == "metadata"),
        path: FixedText(Text::from("ust/uid/0/64-bit")),
        channel: FixedText(Text::from(channel)),
    }
}

#[test]
fn captured_session_lists_decode_however_they_are_split() {
    let one = || Part::Head(Head::Sessions(SessionList { count: 1 }));
    let old = listed(TraceFormat::Ctf1, "cap2");
    let new = ListedSession {
        session: SessionId(1),
        live_timer: Micros(1_000_000),
        viewers: 1,
        streams: 3,
        ..listed(TraceFormat::Ctf2, "n1")
    };
    for (name, minor, session) in [("sessions", 4, old), ("sessions-2.15", 15, new)] {
        let parts = [one(), Part::Session(session.clone())];
        check(name, minor, &Command::ListSessions, &parts);
        let mut written = vec![0, 0, 0, 1];
        session.write(Minor(minor), &mut written);
        assert_eq!(written, section(LIVE, name), "{name}");
    }
}

#[test]
fn captured_streams_decode_however_they_are_split() {
    let ask = Command::GetNewStreams(SessionId(2));
    let head = NewStreams {
        status: NewStreamsStatus::Ok,
        count: 2,
    };
    let records = [stream(4, "ch0_0"), stream(6, "metadata")];
    let parts: Vec<_> = std::iter::once(Part::Head(Head::NewStreams(head)))
        .chain(records.clone().map(|record| Part::Stream(Box::new(record))))
        .collect();
    check("new-streams", 4, &ask, &parts);
    let mut written = Vec::new();
    head.write(&mut written);
    records.iter().for_each(|record| record.write(&mut written));
    assert_eq!(written, section(LIVE, "new-streams"));
    let over = NewStreams {
        status: NewStreamsStatus::HungUp,
        count: 0,
    };
    check("hung-up", 4, &ask, &[Part::Head(Head::NewStreams(over))]);
    let attach = Command::AttachSession(AttachSession {
        session: SessionId(2),
        offset: 0,
        seek: 2,
    });
    let none = Attached {
        status: AttachStatus::Ok,
        count: 0,
    };
    check("attached", 4, &attach, &[Part::Head(Head::Attached(none))]);
}

#[test]
fn captured_indexes_decode_however_they_are_split() {
    let ask = Command::GetNextIndex(StreamId(4));
    let retry = NextIndex::without_packet(IndexStatus::Retry, 0);
    let inactive = NextIndex::inactive(Timestamp(0x013a_bf60_4348), ClassId(0), 0);
    let ready = NextIndex {
        offset: Bytes(0),
        packet: PacketIndexV1_0 {
            packet_size: Bits(32768),
            content_size: Bits(672),
            begin: Timestamp(0x013a_83c4_06e4),
            end: Timestamp(0x013a_a193_9604),
            ..PacketIndexV1_0::default()
        },
        status: IndexStatus::Ready,
        flags: NEW_STREAMS,
    };
    for (name, index) in [
        ("index-retry", retry),
        ("index-ready", ready),
        ("index-inactive", inactive),
    ] {
        check(name, 4, &ask, &[Part::Head(Head::Index(index))]);
        let mut written = Vec::new();
        index.write(&mut written);
        assert_eq!(written, section(LIVE, name), "{name}");
    }
}

#[test]
fn captured_packets_metadata_and_small_replies_decode_however_they_are_split() {
    let get = GetPacket {
        stream: StreamId(4),
        offset: Bytes(0),
        len: 4096,
    };
    let head = PacketHead {
        status: PacketStatus::Ok,
        len: 4,
        flags: 0,
    };
    let parts = [
        Part::Head(Head::Packet(head)),
        Part::Bytes(&[0xc1, 0x1f, 0xfc, 0xc1]),
    ];
    check("packet", 4, &Command::GetPacket(get), &parts);
    let ask = Command::GetMetadata(StreamId(6));
    let head = MetadataHead {
        len: 4,
        status: MetadataStatus::Ok,
    };
    let parts = [
        Part::Head(Head::Metadata(head)),
        Part::Bytes(&[0x57, 0x1d, 0xd1, 0x75]),
    ];
    check("metadata", 4, &ask, &parts);
    let none = MetadataHead {
        len: 0,
        status: MetadataStatus::NoNew,
    };
    check("no-metadata", 4, &ask, &[Part::Head(Head::Metadata(none))]);
    let created = Part::Head(Head::Created(CreateStatus::Ok));
    check("created", 4, &Command::CreateViewerSession, &[created]);
    let detached = Part::Head(Head::Detached(DetachStatus::Ok));
    let detach = Command::DetachSession(SessionId(2));
    check("detached", 4, &detach, &[detached]);
}

/// Parts of replies; pieces of a body put together again.
fn parts(client: &mut Client, pieces: [&[u8]; 2]) -> Vec<(Vec<u8>, String)> {
    let (mut parts, mut unused) = (Vec::new(), Vec::new());
    for piece in pieces {
        unused.extend_from_slice(piece);
        let mut input = &unused[..];
        while let Some(part) = client.receive(&mut input).unwrap() {
            match (part, parts.last_mut()) {
                (Part::Bytes(more), Some((bytes, _))) => Vec::extend_from_slice(bytes, more),
                (part, _) => parts.push((Vec::new(), format!("{part:?}"))),
            }
        }
        unused = input.to_vec();
    }
    assert!(unused.is_empty());
    parts
}

#[test]
fn pipelined_replies_decode_like_single_ones_however_they_are_split() {
    let get = GetPacket {
        stream: StreamId(4),
        offset: Bytes(0),
        len: 4096,
    };
    let index = Command::GetNextIndex(StreamId(4));
    let asked = [
        (index.clone(), "index-ready"),
        (Command::GetPacket(get), "packet"),
        (Command::GetMetadata(StreamId(6)), "metadata"),
        (Command::ListSessions, "sessions"),
        (Command::GetMetadata(StreamId(6)), "no-metadata"),
        (index, "index-inactive"),
        (Command::DetachSession(SessionId(2)), "detached"),
    ];
    let (mut wanted, mut all) = (Vec::new(), Vec::new());
    for (command, name) in &asked {
        let bytes = section(LIVE, name);
        let mut client = connected(4);
        client.send(command, &mut Vec::new()).unwrap();
        wanted.extend(parts(&mut client, [&bytes, &[]]));
        all.extend(bytes);
    }
    for cut in 0..=all.len() {
        let mut client = connected(4);
        assert!(!client.awaits_reply());
        for (command, _) in &asked {
            client.send(command, &mut Vec::new()).unwrap();
        }
        let (before, behind) = all.split_at(cut);
        assert!(client.awaits_reply());
        assert_eq!(parts(&mut client, [before, behind]), wanted, "cut at {cut}");
        assert!(!client.awaits_reply());
    }
}

#[test]
fn replies_that_announce_too_much_are_rejected_before_memory_is_allocated() {
    let get = Command::GetPacket(GetPacket {
        stream: StreamId(4),
        offset: Bytes(0),
        len: 16,
    });
    for (command, reply) in [
        (Command::ListSessions, "00010001"),
        (Command::GetNewStreams(SessionId(2)), "00000001 ffffffff"),
        (
            Command::GetMetadata(StreamId(6)),
            "ffffffffffffffff 00000001",
        ),
        (get, "00000001 00000011 00000000"),
    ] {
        let mut client = connected(4);
        client.send(&command, &mut Vec::new()).unwrap();
        let bytes = wire::hex::parse(reply).unwrap();
        let received = client.receive(&mut &bytes[..]);
        assert!(
            matches!(received, Err(ClientError::TooMuch { .. })),
            "{command:?}: {received:?}"
        );
    }
    let mut client = connected(4);
    client
        .send(&Command::GetNextIndex(StreamId(4)), &mut Vec::new())
        .unwrap();
    let mut index = section(LIVE, "index-ready");
    index[59] = 9;
    let received = client.receive(&mut &index[..]);
    assert!(
        matches!(received, Err(ClientError::Malformed { .. })),
        "{received:?}"
    );
}

#[test]
fn client_names_a_server_of_http() {
    let mut client = Client::new(Minor(4));
    let connect = client.connect_command();
    client.send(&connect, &mut Vec::new()).unwrap();
    let answer = client.receive(&mut &b"HTTP/1.1 400 Bad Request\r\n"[..]);
    assert_eq!(answer, Err(ClientError::Http));
}

#[test]
fn client_rejects_unrequested_bytes_and_commands_before_the_handshake() {
    let mut client = connected(4);
    assert!(matches!(
        client.receive(&mut &[0][..]),
        Err(ClientError::Unasked { bytes: 1 })
    ));
    let early = Client::new(Minor(4)).send(&Command::ListSessions, &mut Vec::new());
    assert!(matches!(early, Err(ClientError::NotNow { .. })));
}
