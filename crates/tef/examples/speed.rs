//! How long an event takes: `cargo run --release -p tef --example speed`.

#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::hint::black_box;
use std::time::Instant;

use ctf::model::Uuid;
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use tef::Record;
use tef::ctf::Classes;
use wire::Timestamp;

const SHORT: &str =
    r#"{"pid":12345,"tid":12346,"dur":12.34,"ts":1234567.89,"name":"foo_bar","ph":"X","args":{}}"#;

/// Closed and opened again when there is so much in it.
const PACKET: usize = 256 << 10;

fn main() {
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "speed"));
    let stream = metadata.stream(0).expect("the first");
    let classes = Classes::declare(&mut metadata, &stream).expect("the first");
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(PACKET, PACKET));
    writer.open(Timestamp(0)).expect("none is open");
    let long = format!(
        r#"{}{{"function":"{}","args":[1,2,3],"line":42}}}}"#,
        SHORT.strip_suffix("{}}").unwrap_or_default(),
        "some words of a message; ".repeat(31),
    );
    // The best case: the same line each time, which the processor predicts.
    let same = vec![SHORT.to_owned(); 4096];
    for (what, lines) in [
        ("same", &same),
        ("short", &lines_like(SHORT)),
        ("long", &lines_like(&long)),
    ] {
        measure(what, "check", lines, |line| {
            assert!(matches!(
                tef::check(line.as_bytes()),
                tef::Checked::Valid(_)
            ));
        });
        measure(what, "check_str", lines, |line| {
            assert!(matches!(tef::check_str(line), tef::Checked::Valid(_)));
        });
        measure(what, "parse", lines, |line| {
            assert!(matches!(Record::parse(line), Ok(Record::Event(_))));
        });
        measure(what, "parse and write", lines, |line| {
            let record = Record::parse(line).expect("an event");
            let encoded = classes.record(1, &record);
            loop {
                let event = encoded.at(Timestamp(1));
                match writer
                    .append(encoded.class(), &event)
                    .expect("values that fit")
                {
                    Appended::Written => break,
                    Appended::Full => {
                        writer.close(Timestamp(1)).expect("one is open");
                        writer.open(Timestamp(1)).expect("none is open");
                    }
                }
            }
        });
    }
}

/// Numbers and names differ in length, as they do in a real trace.
fn lines_like(line: &str) -> Vec<String> {
    let mut lines = Vec::new();
    // A fixed sequence, so that runs can be compared.
    let mut random = 1_u64;
    for _ in 0..4096 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (random >> 33) >> (random >> 60 & 15);
        let name = "abcdefghijklmnop".get(..(random >> 56 & 15) as usize);
        let line = line.replace("1234567", &number.to_string());
        lines.push(line.replace("foo_bar", name.unwrap_or_default()));
    }
    lines
}

/// The best of several rounds: others use the machine too.
fn measure(what: &str, task: &str, lines: &[String], mut run: impl FnMut(&str)) {
    let bytes: usize = lines.iter().map(String::len).sum();
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let begin = Instant::now();
        for line in lines {
            run(black_box(line));
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    let event = best * 1e9 / lines.len() as f64;
    println!(
        "{what} {task}: {event:.1} ns for {} bytes, {:.2} GB/s",
        bytes / lines.len(),
        bytes as f64 / best / 1e9
    );
}
