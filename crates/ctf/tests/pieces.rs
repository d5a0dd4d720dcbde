//! Traces in several directories: pieces of one trace.
#![cfg(test)]

use std::fs;
use std::path::Path;

use ctf::Trace;

/// The metadata of a piece: its trace class or what stands for it, the offset of its clock, and its
/// event classes.
fn metadata_2(trace: &str, offset: i64, events: &[u64]) -> String {
    const BYTE: &str =
        r#""type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian""#;
    let mut text = format!(
        "\u{1e}{trace}
        \u{1e}{{\"type\":\"clock-class\",\"id\":\"c\",\"frequency\":1000000000,
            \"offset-from-origin\":{{\"seconds\":{offset}}}}}
        \u{1e}{{\"type\":\"data-stream-class\",\"default-clock-class-id\":\"c\",
            \"packet-context-field-class\":{{\"type\":\"structure\",\"member-classes\":[
                {{\"name\":\"begin\",\"field-class\":{{{BYTE},\"roles\":[\"default-clock-timestamp\"]}}}}]}},
            \"event-record-header-field-class\":{{\"type\":\"structure\",\"member-classes\":[
                {{\"name\":\"id\",\"field-class\":{{{BYTE},\"roles\":[\"event-record-class-id\"]}}}},
                {{\"name\":\"time\",\"field-class\":{{{BYTE},\"roles\":[\"default-clock-timestamp\"]}}}}]}}}}"
    );
    for id in events {
        text.push_str(&format!(
            "\u{1e}{{\"type\":\"event-record-class\",\"id\":{id},\"name\":\"e{id}\"}}"
        ));
    }
    text
}

fn metadata_1(uuid: &str, offset: i64, events: &[u64]) -> String {
    let mut text = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; {uuid} }};
        clock {{ name = c; freq = 1000000000; offset_s = {offset}; }};
        typealias integer {{ size = 8; map = clock.c.value; }} := time;
        stream {{ packet.context := struct {{ time timestamp_begin; }};
            event.header := struct {{ integer {{ size = 8; }} id; time timestamp; }}; }};"
    );
    for id in events {
        text.push_str(&format!("event {{ id = {id}; name = e{id}; }};"));
    }
    text
}

fn write(directory: &Path, metadata: &str, packet: &[u8]) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("metadata"), metadata).unwrap();
    fs::write(directory.join("s"), packet).unwrap();
}

/// The number of traces, and the time of each event in seconds and nanoseconds with its name.
fn read(root: &Path) -> (usize, Vec<(i64, i64, String)>) {
    let trace = Trace::open(root).unwrap();
    let event = |event: Result<ctf::Event, _>| {
        let event = event.unwrap();
        let time = event.time.unwrap();
        (
            time / 1_000_000_000,
            time % 1_000_000_000,
            event.name.to_string(),
        )
    };
    (
        trace.directories().len(),
        trace.events().map(event).collect(),
    )
}

#[test]
fn pieces_of_a_trace_have_one_clock_where_it_was_set_between_them() {
    let lab = tempfile::tempdir().unwrap();
    let class = |uid: &str| {
        format!(
            "{{\"type\":\"preamble\",\"version\":2}}\u{1e}{{\"type\":\"trace-class\",
            \"namespace\":\"n\",\"name\":\"t\",\"uid\":\"{uid}\"}}"
        )
    };
    let json =
        |uid: &'static str| move |offset, events: &[u64]| metadata_2(&class(uid), offset, events);
    let uuid = "uuid = \"8b6bc058-daa0-41d1-ac6c-f9ea4724defe\";";
    let tsdl = |offset, events: &[u64]| metadata_1(uuid, offset, events);
    type Form<'a> = (&'a str, &'a dyn Fn(i64, &[u64]) -> String);
    let forms: [Form<'_>; 3] = [
        ("text", &json("any text")),
        ("UUID", &json("8b6bc058-daa0-41d1-ac6c-f9ea4724defe")),
        ("CTF 1.8", &tsdl),
    ];
    for (form, metadata) in forms {
        // The later piece declares as much as the first, or more: then its clock counts.
        for (later, offset) in [(&[0][..], 100), (&[0, 1], 50)] {
            let root = lab.path().join(format!("{form} {}", later.len()));
            write(&root.join("1"), &metadata(100, &[0]), &[10, 0, 12]);
            let last = *later.last().unwrap();
            write(
                &root.join("2"),
                &metadata(50, later),
                &[30, u8::try_from(last).unwrap(), 32],
            );
            let want = vec![
                (offset, 12, "e0".to_owned()),
                (offset, 32, format!("e{last}")),
            ];
            assert_eq!(read(&root), (1, want), "{form}");
        }
    }
}

#[test]
fn traces_of_another_name_or_without_unique_id_are_not_joined() {
    let lab = tempfile::tempdir().unwrap();
    let class = |properties: &str| {
        format!(
            "{{\"type\":\"preamble\",\"version\":2}}\u{1e}{{\"type\":\"trace-class\"{properties}}}"
        )
    };
    for (number, other) in [
        r#","namespace":"n","name":"t","uid":"2""#,
        r#","namespace":"n","name":"u","uid":"1""#,
        r#","namespace":"m","name":"t","uid":"1""#,
        r#","name":"t","uid":"1""#,
        r#","namespace":"n","name":"t""#,
    ]
    .iter()
    .enumerate()
    {
        let root = lab.path().join(number.to_string());
        let first = class(r#","namespace":"n","name":"t","uid":"1""#);
        write(
            &root.join("1"),
            &metadata_2(&first, 100, &[0]),
            &[10, 0, 12],
        );
        write(
            &root.join("2"),
            &metadata_2(&class(other), 50, &[0]),
            &[30, 0, 32],
        );
        let (traces, events) = read(&root);
        let times: Vec<_> = events.iter().map(|(seconds, ..)| *seconds).collect();
        assert_eq!((traces, times), (2, vec![50, 100]), "{other}");
    }
}

#[test]
fn a_trace_whose_metadata_cannot_be_read_does_not_hide_the_others() {
    let lab = tempfile::tempdir().unwrap();
    let good = metadata_1("", 100, &[0]);
    let cut = &good[..good.len() - 3];
    for (bad, what) in [("", "there is no metadata"), (cut, "metadata ends within")] {
        let root = lab.path().join(bad.len().to_string());
        write(&root.join("bad"), bad, &[10, 0, 12]);
        write(&root.join("good"), &good, &[10, 0, 12]);
        std::os::unix::fs::symlink("nowhere", root.join("good/gone")).unwrap();
        let trace = Trace::open(&root).unwrap();
        let (events, errors): (Vec<_>, Vec<_>) = trace.events().partition(Result::is_ok);
        assert_eq!((events.len(), errors.len()), (1, 2), "{errors:?}");
        let texts: Vec<_> = errors.iter().map(|error| format!("{error:?}")).collect();
        assert!(texts[0].contains("bad/metadata"), "{texts:?}");
        assert!(texts[1].contains("good/gone"), "{texts:?}");
        fs::remove_dir_all(root.join("good")).unwrap();
        let error = Trace::open(&root).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(what), "{source}");
    }
}
