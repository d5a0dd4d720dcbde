//! Writes traces in the format of LTTng-UST: compact event headers of four bytes.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes of the packet header and context.
const HEAD_BYTES: usize = 84;

/// The events of a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Two integers; no context.
    Ints,
    /// A text and an integer; the contexts vpid, vtid and procname.
    Strings,
}

/// The language of the metadata. The packets are the same with both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// TSDL, the language of CTF 1.8.
    Tsdl,
    /// JSON, the language of CTF 2.
    Json,
}

/// The shape of a trace.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) kind: Kind,
    pub(crate) streams: u32,
    /// Size of each packet in bytes.
    pub(crate) packet: usize,
}

const METADATA: &str = include_str!("lttng.tsdl");

/// The metadata of the same trace in JSON, a fragment on each line.
const METADATA_JSON: &str = include_str!("lttng.jsons");

const CONTEXT: &str = "
	event.context := struct {
		integer { size = 32; align = 8; signed = 1; } _vpid;
		integer { size = 32; align = 8; signed = 1; } _vtid;
		integer { size = 8; align = 8; signed = 1; encoding = UTF8; } _procname[17];
	};";

const INTS: &str = "
	name = \"bench:ints\";
	fields := struct {
		integer { size = 32; align = 8; signed = 1; } _intfield;
		integer { size = 64; align = 8; signed = 0; } _longfield;
	};";

const STRINGS: &str = "
	name = \"bench:strings\";
	fields := struct {
		string _path;
		integer { size = 32; align = 8; signed = 1; } _length;
	};";

const CONTEXT_JSON: &str = r#", "event-record-common-context-field-class": {"type": "structure", "member-classes": [
{"name": "vpid", "field-class": "i32"}, {"name": "vtid", "field-class": "i32"},
{"name": "procname", "field-class": {"type": "static-length-string", "length": 17}}]}"#;

const INTS_JSON: &str = r#"
"name": "bench:ints", "payload-field-class": {"type": "structure", "member-classes": [
{"name": "intfield", "field-class": "i32"}, {"name": "longfield", "field-class": "u64"}]}"#;

const STRINGS_JSON: &str = r#"
"name": "bench:strings", "payload-field-class": {"type": "structure", "member-classes": [
{"name": "path", "field-class": {"type": "null-terminated-string"}}, {"name": "length", "field-class": "i32"}]}"#;

fn metadata(shape: Shape) -> String {
    let (template, context, event) = match (shape.form, shape.kind) {
        (Form::Tsdl, Kind::Ints) => (METADATA, "", INTS),
        (Form::Tsdl, Kind::Strings) => (METADATA, CONTEXT, STRINGS),
        (Form::Json, Kind::Ints) => (METADATA_JSON, "", INTS_JSON),
        (Form::Json, Kind::Strings) => (METADATA_JSON, CONTEXT_JSON, STRINGS_JSON),
    };
    let fragment = |line: &str| match shape.form {
        Form::Tsdl => format!("{line}\n"),
        // Each fragment begins with a record separator (RFC 7464).
        Form::Json => format!("\x1e{line}\n"),
    };
    let template: String = template.lines().map(fragment).collect();
    template
        .replace("@CONTEXT@", context)
        .replace("@EVENT@", event)
}

/// Writes a trace of about this number of events to `directory`. Returns the number.
pub(crate) fn write(directory: &Path, shape: Shape, events: u64) -> io::Result<u64> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("metadata"), metadata(shape))?;
    let events = events / u64::from(shape.streams);
    for stream in 0..shape.streams {
        let path = directory.join(format!("channel0_{stream}"));
        let file = BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
        write_stream(file, shape, stream, events)?;
    }
    Ok(events * u64::from(shape.streams))
}

fn write_stream(mut file: impl Write, shape: Shape, stream: u32, events: u64) -> io::Result<()> {
    let mut time = 1_000_000 + u64::from(stream);
    let (mut packet, mut begin, mut sequence) = (vec![0; HEAD_BYTES], time, 0_u64);
    let mut event = Vec::new();
    for number in 0..events {
        // Gaps of all lengths, but the same in every run.
        time += u64::from(shape.streams) * (100 + number * 7919 % 300);
        event.clear();
        // The id 0 in five bits, the time in 27.
        event.extend_from_slice(&(u32::try_from(time % (1 << 27)).unwrap() << 5).to_le_bytes());
        match shape.kind {
            Kind::Ints => {
                event.extend_from_slice(&u32::try_from(number % 5000).unwrap().to_le_bytes());
                event.extend_from_slice(&(number * 31).to_le_bytes());
            }
            Kind::Strings => {
                event.extend_from_slice(&1234_i32.to_le_bytes());
                event.extend_from_slice(&(1240 + stream).to_le_bytes());
                event.extend_from_slice(b"web-server\0\0\0\0\0\0\0");
                let paths: [&[u8]; 3] = [
                    b"/index.html\0",
                    b"/static/images/logo-large.png\0",
                    b"/api/v1/users/1234567/messages?page=12\0",
                ];
                event.extend_from_slice(paths[usize::try_from(number % 3).unwrap()]);
                event.extend_from_slice(&u32::try_from(number % 100_000).unwrap().to_le_bytes());
            }
        }
        if packet.len() + event.len() > shape.packet {
            close(&mut packet, shape, stream, (begin, time), sequence);
            file.write_all(&packet)?;
            packet.truncate(HEAD_BYTES);
            (begin, sequence) = (time, sequence + 1);
        }
        packet.extend_from_slice(&event);
    }
    close(&mut packet, shape, stream, (begin, time), sequence);
    file.write_all(&packet)?;
    file.flush()
}

/// Fills in the head of a packet and its padding.
fn close(packet: &mut Vec<u8>, shape: Shape, stream: u32, times: (u64, u64), sequence: u64) {
    let content = packet.len() as u64 * 8;
    packet.resize(shape.packet, 0);
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(&0xC1FC_1FC1_u32.to_le_bytes());
    // The UUID of the metadata.
    head.extend_from_slice(&[7; 16]);
    head.extend_from_slice(&0_u32.to_le_bytes());
    let packet_bits = shape.packet as u64 * 8;
    let stream_id = u64::from(stream);
    for number in [
        stream_id,
        times.0,
        times.1,
        content,
        packet_bits,
        sequence,
        0,
    ] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&stream.to_le_bytes());
    packet[..HEAD_BYTES].copy_from_slice(&head);
}
