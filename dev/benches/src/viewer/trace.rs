//! Writes the trace that viewers read: of a given size, with the kinds of events that tracers
//! write.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ctf::model::{LogLevel, Uuid};
use ctf::write::{
    Appended, Argument, ArgumentValue, Enumeration, EventDeclaration, EventRecord, FieldType,
    MetadataText, PacketSize, StreamWriter, TraceDeclaration, Value, Width,
};
use wire::Timestamp;

/// Number of streams of the trace.
const STREAMS: u64 = 4;
/// Size of each packet in bytes.
const PACKET: usize = 256 << 10;

/// Writes a trace of at least `bytes` bytes to `directory`. Returns its number of events.
pub(crate) fn write(directory: &Path, bytes: u64) -> io::Result<u64> {
    fs::create_dir_all(directory)?;
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "bench"));
    let stream = metadata.stream(0).unwrap();
    let classes: Vec<_> = (64..)
        .zip(event_kinds())
        .map(|(id, (name, fields))| {
            let fields = fields.into_iter();
            let declaration = EventDeclaration {
                log_level: Some(LogLevel(6)),
                fields: fields.map(|(name, kind)| (name.into(), kind)).collect(),
                ..EventDeclaration::new(id, name)
            };
            metadata.event(&stream, &declaration).unwrap()
        })
        .collect();
    fs::write(directory.join("metadata"), metadata.as_str())?;
    let mut events = 0;
    for instance in 0..STREAMS {
        let path = directory.join(format!("channel_{instance}"));
        let mut file = BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
        let cpu = u32::try_from(instance).unwrap();
        let size = PacketSize::new(PACKET, PACKET);
        let mut writer = StreamWriter::new(&stream, instance, cpu, size);
        let mut time = 1_000 + instance;
        let mut written = 0;
        writer.open(Timestamp(time)).unwrap();
        let mut number = instance;
        while written < bytes / STREAMS {
            number += 1;
            // Gaps of all lengths, but the same in every run.
            time += 400 + number * 7919 % 1200;
            let arguments = [
                ("path", ArgumentValue::Text("/index.html")),
                ("bytes", ArgumentValue::Unsigned(number)),
            ]
            .map(|(key, value)| Argument { key, value });
            let kind = usize::try_from(number % 8).unwrap();
            let tid = i64::try_from(number % 5000).unwrap();
            let values: &[Value<'_>] = match kind {
                0 => &[
                    Value::Text("worker/3"),
                    Value::Signed(tid),
                    Value::Signed(tid + 1),
                ],
                1 => &[
                    Value::Unsigned(number % 400),
                    Value::Unsigned(0x7f00_0000_0000 + number),
                ],
                2 => &[Value::Signed(tid - 100)],
                3 => &[Value::Unsigned(number % 64), Value::Text("eth0-rx")],
                4 => &[Value::Unsigned(number % 3)],
                5 => &[
                    Value::Float(number as f64 / 7.0),
                    Value::Boolean(number % 2 == 0),
                ],
                6 => &[Value::Unsigned(number % 100), Value::Unsigned(number)],
                _ => &[Value::Arguments(&arguments)],
            };
            let event = EventRecord {
                time: Timestamp(time),
                process: 1234,
                thread: 1240,
                values,
            };
            if writer.append(&classes[kind], &event).unwrap() == Appended::Full {
                let packet = writer.close(Timestamp(time)).unwrap();
                file.write_all(packet.bytes)?;
                written += packet.bytes.len() as u64;
                writer.open(Timestamp(time)).unwrap();
                assert_eq!(
                    writer.append(&classes[kind], &event).unwrap(),
                    Appended::Written
                );
            }
            events += 1;
        }
        file.write_all(writer.close(Timestamp(time)).unwrap().bytes)?;
        file.flush()?;
    }
    Ok(events)
}

/// Names and fields of the event classes.
fn event_kinds() -> Vec<(&'static str, Vec<(&'static str, FieldType)>)> {
    vec![
        (
            "sched:switch",
            vec![
                ("prev_comm", FieldType::Text),
                ("prev_tid", FieldType::Signed(Width::Bits32)),
                ("next_tid", FieldType::Signed(Width::Bits32)),
            ],
        ),
        (
            "syscall:entry",
            vec![
                ("nr", FieldType::Unsigned(Width::Bits16)),
                ("address", FieldType::Hexadecimal(Width::Bits64)),
            ],
        ),
        (
            "syscall:exit",
            vec![("ret", FieldType::Signed(Width::Bits64))],
        ),
        (
            "irq:handler",
            vec![
                ("irq", FieldType::Unsigned(Width::Bits32)),
                ("name", FieldType::Text),
            ],
        ),
        (
            "app:state",
            vec![(
                "state",
                FieldType::Enumeration(Enumeration {
                    width: Width::Bits8,
                    labels: vec![
                        ("IDLE".into(), 0),
                        ("RUNNING".into(), 1),
                        ("DONE".into(), 2),
                    ],
                }),
            )],
        ),
        (
            "app:sample",
            vec![("value", FieldType::Float), ("flag", FieldType::Boolean)],
        ),
        (
            "app:counter",
            vec![
                ("id", FieldType::Unsigned(Width::Bits32)),
                ("count", FieldType::Unsigned(Width::Bits64)),
            ],
        ),
        ("app:request", vec![("args", FieldType::Arguments)]),
    ]
}
