use super::*;

const LINES: &str = include_str!("../../tests/data/every-event.jsonl");
const METADATA: &str = r#"{"workdir":"/w","program":"p","args":["a"]}"#;

/// The items of an input that arrives in pieces of a length, as JSON; errors by their text; and
/// whether it is complete.
fn read(input: &[u8], length: usize) -> (Vec<String>, bool) {
    let mut reader = RecordingReader::new(1 << 20);
    let mut all = Vec::new();
    for piece in input.chunks(length) {
        if let Err(error) = reader.push(piece) {
            all.push(error.to_string());
            return (all, false);
        }
        take(&mut reader, &mut all);
    }
    reader.end();
    take(&mut reader, &mut all);
    (all, reader.is_complete())
}

fn take(reader: &mut RecordingReader, all: &mut Vec<String>) {
    while let Some(item) = reader.next_item() {
        all.push(match item {
            Ok(Item::Record(record)) => record.to_string(),
            Ok(Item::Metadata(metadata)) => metadata.to_json(),
            Ok(Item::FileChunk(_) | Item::End { .. }) => {
                unreachable!("no form has copies of files, or an end")
            }
            Err(error) => format!("error: {error}"),
        });
    }
}

fn array() -> String {
    let elements: Vec<_> = LINES.lines().collect();
    format!("[{}]", elements.join(","))
}

#[test]
fn every_form_gives_the_same_records() {
    let want: Vec<_> = LINES.lines().map(str::to_owned).collect();
    let v1: &[u8] = include_bytes!("../../tests/data/every-event.v1.bin");
    for length in [1, 5, 4096] {
        assert_eq!(read(LINES.as_bytes(), length), (want.clone(), false));
        assert_eq!(read(array().as_bytes(), length), (want.clone(), true));
        assert_eq!(read(v1, length), (want.clone(), true));
    }
    let v0: &[u8] = include_bytes!("../../tests/data/every-event.v0.bin");
    let (records, is_complete) = read(v0, 100);
    assert!(is_complete);
    assert_eq!(records.len(), want.len() - 1);
}

#[test]
fn every_prefix_gives_a_prefix_of_the_records() {
    let want: Vec<_> = LINES.lines().map(str::to_owned).collect();
    let v1: &[u8] = include_bytes!("../../tests/data/every-event.v1.bin");
    let array = array();
    for input in [LINES.as_bytes(), array.as_bytes(), v1] {
        for cut in 0..input.len() {
            let (mut records, is_complete) = read(&input[..cut], 64);
            let errors = records
                .iter()
                .filter(|text| text.starts_with("error"))
                .count();
            assert!(errors <= 1, "{cut}: {records:?}");
            records.truncate(records.len() - errors);
            assert!(want.starts_with(&records), "{cut}");
            // Only the seek table may be cut.
            assert!(!is_complete || records == want);
        }
    }
}

#[test]
fn the_first_line_may_be_the_metadata_and_lines_may_be_an_array() {
    for layout in [
        "M\nA\nB\n",
        "M\n[A,\nB\n]\n",
        "M\n[A,B]",
        "M\n[\nA\n,\nB",
        "M A B",
    ] {
        let (a, b) = (r#"{"Path":"p"}"#, r#""DropLastStep""#);
        let text = layout
            .replace('A', a)
            .replace('B', b)
            .replace('M', METADATA);
        for length in [1, 1000] {
            assert_eq!(
                read(text.as_bytes(), length).0,
                [METADATA, a, b],
                "{layout:?}"
            );
        }
    }
    let (items, _) = read(br#"{"program":"only"}"#, 100);
    assert_eq!(items, [r#"{"workdir":"","program":"only","args":[]}"#]);
}

#[test]
fn malformed_elements_do_not_end_the_recording() {
    let text = "[{\"Path\":5},{\"Step\":{}},7,{\"Path\":\"\u{e9}\"},nonsense,{\"New\":1}]";
    let bytes: Vec<u8> = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    let mut reader = RecordingReader::new(1000);
    reader.push(&bytes).unwrap();
    let mut placeholders = Vec::new();
    let mut records = Vec::new();
    while let Some(item) = reader.next_item() {
        match item {
            Ok(Item::Record(record)) => records.push(record.to_string()),
            Ok(other) => unreachable!("{other:?}"),
            Err(error) => {
                assert!(!error.is_fatal());
                let ReadError::Element { placeholder, .. } = error else {
                    unreachable!();
                };
                placeholders.push(placeholder.map(|record| record.to_string()));
            }
        }
    }
    assert_eq!(records, [r#"{"New":1}"#]);
    assert_eq!(placeholders.len(), 5);
    assert_eq!(placeholders[0].as_deref(), Some(r#"{"Path":"<invalid>"}"#));
    assert_eq!(placeholders[3].as_deref(), Some("{\"Path\":\"\u{fffd}\"}"));
}

#[test]
fn containers_and_foreign_files_are_refused() {
    for version in [2, 3, 4, 200] {
        let file = [&BINARY_MAGIC[..], &[version, 0, 0]].concat();
        let (items, _) = read(&file, 100);
        assert!(items[0].contains("container"), "{items:?}");
    }
    let (items, _) = read(&[0xc0, 1, 2, 3, 4, 5, 6, 7, 8], 100);
    assert!(items[0].contains("magic"), "{items:?}");
    let (items, _) = read(&[0xc0, 0xde], 100);
    assert!(items[0].contains("incomplete"), "{items:?}");
    assert_eq!(read(b" \n ", 1), (vec![], false));
}

#[test]
fn an_element_without_end_takes_bounded_memory() {
    let mut reader = RecordingReader::new(1000);
    reader.push(b"[\"").unwrap();
    for _ in 0..1000 {
        assert!(reader.next_item().is_none());
        assert!(reader.pending_bytes() < 1100);
        reader
            .push(b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{{{{{{{{{{{")
            .unwrap();
    }
    reader.push(b"\",{\"New\":1}]").unwrap();
    assert!(matches!(reader.next_item(), Some(Err(error)) if error.to_string().contains("longer")));
    assert!(matches!(reader.next_item(), Some(Ok(_))));
    assert!(reader.is_complete() || reader.next_item().is_none());
}
