//! Bytes captured from real programs: each decodes to the expected values and encodes to the same
//! bytes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

use relay_proto::chunk::{
    CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams, RotationPosition,
    TraceChunkExists,
};
use relay_proto::command::GetConfiguration;
use relay_proto::index::SendIndex;
use relay_proto::metadata::ResetMetadata;
use relay_proto::reply::{ChunkExists, Configuration, StreamAdded};
use relay_proto::session::{CreateSession, DaemonId, Recording, TraceFormat};
use relay_proto::stream::{
    AddStream, BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use relay_proto::{
    Command, CommandCode, ControlHeader, DataDecoder, DataEvent, Minor, Reply, ReturnCode, Version,
};
use wire::{
    Bits, Bytes, ChunkId, EpochSeconds, Field, Flagged, InstanceId, Message, Micros, PacketIndex,
    PacketSeqNum, SeqNum, SessionId, StreamId, Text, Timestamp,
};

/// Captured commands, and the minor version of the producer that sent them.
type Captured = (&'static str, u32);

const V2_4: Captured = (include_str!("data/commands-2.4.hex"), 4);
const V2_13: Captured = (include_str!("data/commands-2.13.hex"), 13);
const V2_15: Captured = (include_str!("data/commands-2.15.hex"), 15);
const REPLIES: &str = include_str!("data/replies.hex");
const DATA: &str = include_str!("data/data.hex");

/// The bytes of a section of a fixture.
fn section(file: &str, name: &str) -> Vec<u8> {
    wire::hex::section(file, name).unwrap()
}

/// Decodes a command; checks that it is `want`, that each shorter prefix of its payload is
/// rejected, and that it encodes to the same bytes.
fn check((file, minor): Captured, name: &str, want: Command) {
    let minor = Minor(minor);
    let bytes = section(file, name);
    let mut payload = &bytes[..];
    let header = ControlHeader::read(&mut payload).unwrap();
    assert_eq!(header.data_size, payload.len() as u64, "{name}");
    let code = CommandCode::from_code(header.code).unwrap();
    let decoded = Command::decode(code, minor, payload);
    assert_eq!(decoded.as_ref(), Ok(&want), "{name}");
    for length in 0..payload.len() {
        if code == CommandCode::RotateStreams && [7, 4].contains(&(payload.len() - length)) {
            continue; // The same message has this length from senders of other ABIs.
        }
        let cut = Command::decode(code, minor, &payload[..length]);
        assert!(cut.is_err(), "{name} cut to {length}: {cut:?}");
    }
    let mut written = Vec::new();
    want.encode(minor, &mut written);
    let mut expected = payload.to_vec();
    if code == CommandCode::RotateStreams {
        // The captured padding between the flag and the chunk id is uninitialized memory.
        expected[5..12].fill(0);
    }
    assert_eq!(written, expected, "{name}");
}

fn session(name: &str, daemon: u128, created: u64) -> CreateSession {
    CreateSession {
        name: Text::from(name),
        host: Text::from("tracehost"),
        recording: Some(Recording {
            daemon: DaemonId(daemon.to_be_bytes()),
            created: EpochSeconds(created),
            ..Recording::default()
        }),
        ..CreateSession::default()
    }
}

#[test]
fn opening_commands_of_2_13_decode_and_encode() {
    check(
        V2_13,
        "version",
        Command::Version(Version {
            major: 2,
            minor: 13,
        }),
    );
    let ask = GetConfiguration { query: 0 };
    check(V2_13, "get-configuration", Command::GetConfiguration(ask));
    let live = CreateSession {
        live_timer: Micros(200_000),
        ..session(
            "livesess",
            0x33fd52cd_5a8d42bb_a42a28ec_28186a81,
            0x6b00_bdd7,
        )
    };
    check(V2_13, "create-session-live", Command::CreateSession(live));
    let based = CreateSession {
        base_path: Text::from("my/base"),
        ..session("regen", 0x8f9244c8_306549d3_97fbc8d0_53f7fd22, 0x6b00_bdfb)
    };
    check(
        V2_13,
        "create-session-base-path",
        Command::CreateSession(based),
    );
    let snapshot = CreateSession {
        snapshot: true,
        ..session(
            "snapsess",
            0xcd6bea05_fa79473a_85b0db82_2770280e,
            0x6b00_bdec,
        )
    };
    check(
        V2_13,
        "create-session-snapshot",
        Command::CreateSession(snapshot),
    );
    let stream = AddStream {
        channel: Text::from("chan0_0"),
        path: Text::from("ust/uid/0/64-bit"),
        tracefile_size: Bytes(8192),
        tracefile_count: 3,
        chunk: Some(ChunkId(0)),
    };
    check(V2_13, "add-stream", Command::AddStream(stream));
    check(V2_13, "streams-sent", Command::StreamsSent);
}

#[test]
fn indexes_and_beacons_decode_and_encode() {
    let packet = PacketIndex {
        packet_size: Bits(32768),
        content_size: Bits(32736),
        begin: Timestamp(0x02ba_7333_c036),
        end: Timestamp(0x02ba_7483_23c1),
        instance: Some(InstanceId(1)),
        packet_seq: Some(PacketSeqNum(0)),
        ..PacketIndex::default()
    };
    let index = SendIndex {
        stream: StreamId(2),
        seq: Some(SeqNum(0)),
        packet,
    };
    assert!(!index.packet.is_beacon());
    check(V2_13, "send-index", Command::SendIndex(index));
    let beacon = SendIndex {
        stream: StreamId(1),
        seq: Some(SeqNum(0)),
        packet: PacketIndex {
            end: Timestamp(0x02bb_4687_f6db),
            instance: Some(InstanceId(0)),
            packet_seq: packet.packet_seq,
            ..PacketIndex::default()
        },
    };
    assert!(beacon.packet.is_beacon());
    check(V2_13, "beacon", Command::SendIndex(beacon));
}

#[test]
fn data_pending_commands_decode_and_encode() {
    let session = SessionId(1);
    let begin = Command::BeginDataPending(BeginDataPending { session });
    check(V2_13, "begin-data-pending", begin);
    let ask = DataPending {
        stream: StreamId(1),
        last: Some(SeqNum(1)),
    };
    check(V2_13, "data-pending", Command::DataPending(ask));
    let quiescent = Command::QuiescentControl(QuiescentControl {
        stream: StreamId(5),
    });
    check(V2_13, "quiescent-control", quiescent);
    let end = Command::EndDataPending(EndDataPending { session });
    check(V2_13, "end-data-pending", end);
}

#[test]
fn chunk_commands_decode_and_encode() {
    let create = |created, name: Option<&str>| {
        Command::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(created),
            name: name.map(Text::from),
        })
    };
    check(V2_13, "create-trace-chunk", create(0x6b00_bdd7, None));
    let named = create(0x6b00_bdec, Some("snapshot-1-20261120-213852-0"));
    check(V2_13, "create-trace-chunk-named", named);
    let rotate = |target, positions: [(u64, u64); 2]| {
        let positions = positions.map(|(stream, at)| RotationPosition {
            stream: StreamId(stream),
            at: PacketSeqNum(at),
        });
        Command::RotateStreams(RotateStreams {
            target,
            positions: positions.to_vec(),
        })
    };
    let to_chunk = rotate(Some(ChunkId(1)), [(1, 1), (2, 1)]);
    check(V2_13, "rotate-streams-to-chunk", to_chunk);
    check(
        V2_13,
        "rotate-streams-to-none",
        rotate(None, [(3, 2), (4, 11)]),
    );
    let close = |closed, command| {
        Command::CloseTraceChunk(CloseTraceChunk {
            chunk: ChunkId(0),
            closed: EpochSeconds(closed),
            command: Flagged(command),
        })
    };
    check(V2_13, "close-trace-chunk", close(0x6b00_bddb, None));
    let moved = close(0x6b00_bde2, Some(CloseCommand::MoveToCompleted));
    check(V2_13, "close-trace-chunk-move", moved);
    let deleted = close(0x6b00_bde8, Some(CloseCommand::Delete));
    check(V2_13, "close-trace-chunk-delete", deleted);
    let exists = Command::TraceChunkExists(TraceChunkExists { chunk: ChunkId(0) });
    check(V2_13, "trace-chunk-exists", exists);
}

#[test]
fn rotation_decodes_the_same_from_senders_of_every_abi() {
    let want = RotateStreams {
        target: Some(ChunkId(7)),
        positions: vec![RotationPosition {
            stream: StreamId(1),
            at: PacketSeqNum(9),
        }],
    };
    let rotation = |bytes: &[u8]| RotateStreams::decode(Minor(13), bytes);
    let position = "0000000000000001 0000000000000009";
    for (abi, head) in [
        ("packed", "00000001 01 0000000000000007"),
        ("32-bit", "00000001 01 aaaaaa 0000000000000007"),
        ("64-bit", "00000001 01 aaaaaaaaaaaaaa 0000000000000007"),
    ] {
        let bytes = wire::hex::parse(&format!("{head} {position}")).unwrap();
        assert_eq!(rotation(&bytes).as_ref(), Ok(&want), "{abi}");
    }
    let other = wire::hex::parse(&format!("00000001 01 aa*5 00*8 {position}")).unwrap();
    assert!(rotation(&other).is_err());
    let lying = wire::hex::parse(&format!("ffffffff 01 aa*7 00*8 {position}")).unwrap();
    assert!(rotation(&lying).is_err());
}

#[test]
fn other_commands_of_2_13_decode_and_encode() {
    let reset = ResetMetadata {
        stream: StreamId(3),
        version: 1,
    };
    check(V2_13, "reset-metadata", Command::ResetMetadata(reset));
    let close = CloseStream {
        stream: StreamId(5),
        last: None,
    };
    check(V2_13, "close-stream", Command::CloseStream(close));
}

#[test]
fn commands_of_2_4_decode_and_encode() {
    let unnumbered = CreateSession {
        recording: None,
        ..session("oldsess", 0, 0)
    };
    check(
        V2_4,
        "create-session",
        Command::CreateSession(unnumbered.clone()),
    );
    check(
        (V2_4.0, 10),
        "create-session",
        Command::CreateSession(unnumbered),
    );
    let stream = AddStream {
        channel: Text::from("chan0_0"),
        path: Text::from("/tracehost/oldsess-20261120-213904//ust/uid/0/64-bit"),
        ..AddStream::default()
    };
    check(V2_4, "add-stream", Command::AddStream(stream));
    let index = SendIndex {
        stream: StreamId(1),
        seq: Some(SeqNum(0)),
        packet: PacketIndex {
            packet_size: Bits(32768),
            content_size: Bits(672),
            begin: Timestamp(0x02c2_db96_44b0),
            end: Timestamp(0x02c2_ee5d_3d12),
            ..PacketIndex::default()
        },
    };
    check(V2_4, "send-index", Command::SendIndex(index));
}

#[test]
fn sessions_of_2_15_have_a_trace_format() {
    let ctf2 = CreateSession {
        trace_format: TraceFormat::Ctf2,
        ..session(
            "plain15",
            0xb71c3f86_2e1e4d85_a6f71044_2e5f6969,
            0x6b00_be07,
        )
    };
    check(V2_15, "create-session-ctf2", Command::CreateSession(ctf2));
    let ctf1 = CreateSession {
        live_timer: Micros(200_000),
        ..session("live15", 0xab80c2e2_35f74c6c_8713ee7f_727a4992, 0x6b00_be0b)
    };
    check(V2_15, "create-session-ctf1", Command::CreateSession(ctf1));
}

/// The captured replies: name of the section, command, minor version, value.
fn replies() -> [(&'static str, CommandCode, u32, Reply); 12] {
    let path = || Some(Text::from("tracehost/livesess-20261120-213831"));
    let code = ReturnCode::OK;
    let session_created = |path| Reply::SessionCreated {
        session: SessionId(1),
        code,
        path,
    };
    [
        (
            "version",
            CommandCode::Version,
            0,
            Reply::Version(Version {
                major: 2,
                minor: 13,
            }),
        ),
        (
            "configuration",
            CommandCode::GetConfiguration,
            13,
            Reply::Configuration(Configuration { code, flags: 1 }),
        ),
        (
            "session-created",
            CommandCode::CreateSession,
            13,
            session_created(path()),
        ),
        (
            "session-created-2.4",
            CommandCode::CreateSession,
            4,
            session_created(None),
        ),
        (
            "session-refused",
            CommandCode::CreateSession,
            13,
            Reply::SessionCreated {
                session: SessionId(0),
                code: ReturnCode::FATAL,
                path: None,
            },
        ),
        (
            "stream-added",
            CommandCode::AddStream,
            13,
            Reply::StreamAdded(StreamAdded {
                stream: Some(StreamId(1)),
                code,
            }),
        ),
        ("ended", CommandCode::SendIndex, 13, Reply::Ended(code)),
        (
            "not-pending",
            CommandCode::DataPending,
            13,
            Reply::Pending(false),
        ),
        (
            "pending",
            CommandCode::EndDataPending,
            13,
            Reply::Pending(true),
        ),
        (
            "pending-unknown",
            CommandCode::DataPending,
            13,
            Reply::PendingUnknown,
        ),
        (
            "chunk-closed",
            CommandCode::CloseTraceChunk,
            13,
            Reply::ChunkClosed { code, path: path() },
        ),
        (
            "chunk-exists",
            CommandCode::TraceChunkExists,
            13,
            Reply::ChunkExists(ChunkExists { code, exists: 0 }),
        ),
    ]
}

#[test]
fn replies_decode_and_encode_and_truncated_ones_wait() {
    for (name, to, minor, want) in replies() {
        let bytes = section(REPLIES, name);
        let decode = |mut from: &[u8]| Reply::decode(to, Minor(minor), &mut from);
        assert_eq!(decode(&bytes), Ok(Some(want.clone())), "{name}");
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Ok(None), "{name} cut to {length}");
        }
        let mut written = Vec::new();
        want.encode(Minor(minor), &mut written);
        assert_eq!(written, bytes, "{name}");
    }
}

#[test]
fn data_packet_decodes_the_same_however_it_is_split() {
    let bytes = section(DATA, "packet");
    for cut in 0..=bytes.len() {
        let mut decoder = DataDecoder::default();
        let (mut payload, mut begun, mut ended) = (Vec::new(), 0, 0);
        let mut kept = Vec::new();
        for piece in [&bytes[..cut], &bytes[cut..]] {
            kept.extend_from_slice(piece);
            let mut input = &kept[..];
            while let Some(event) = decoder.next(&mut input) {
                match event {
                    DataEvent::Begin(header) => {
                        assert_eq!((header.stream, header.seq), (StreamId(1), SeqNum(0)));
                        assert_eq!(header.packet_bytes(), 4096);
                        begun += 1;
                    }
                    DataEvent::Payload { bytes, last } => {
                        payload.extend_from_slice(bytes);
                        ended += usize::from(last);
                    }
                }
            }
            kept = input.to_vec();
        }
        assert_eq!((begun, ended, kept.len()), (1, 1, 0), "cut at {cut}");
        assert_eq!(payload, bytes[32..], "cut at {cut}");
        assert!(!decoder.in_packet());
    }
}

#[test]
fn empty_data_packet_is_complete_at_once() {
    let header = wire::hex::parse("00*15 01 00*8 00*4 00000010").unwrap();
    let mut decoder = DataDecoder::default();
    let mut input = &header[..];
    let begun = decoder.next(&mut input);
    assert!(matches!(begun, Some(DataEvent::Begin(_))));
    let (bytes, last) = (&[][..], true);
    let ended = decoder.next(&mut input);
    assert_eq!(ended, Some(DataEvent::Payload { bytes, last }));
    assert_eq!(decoder.next(&mut input), None);
    assert!(!decoder.in_packet());
}
