//! Trace Event Format events written as CTF: Babeltrace shows their members as typed fields.

use std::fs;

use ctf::model::Uuid;
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use tef::Record;
use tef::ctf::{Classes, Client, Encoded, Lost};
use tests::babeltrace::Babeltrace;
use wire::Timestamp;

#[test]
fn babeltrace_shows_tef_members_as_fields_and_omits_those_that_never_apply() {
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
    let stream = metadata.stream(0).unwrap();
    let classes = Classes::declare(&mut metadata, &stream).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(4096, 65_536));
    writer.open(Timestamp(0)).unwrap();
    let mut append = |encoded: &Encoded<'_>| {
        let appended = writer.append(encoded.class(), &encoded.at(Timestamp(1)));
        assert_eq!(appended, Ok(Appended::Written));
    };
    for line in [
        r#"{"pid":2,"cat":"","tid": 3,"dur": 3.00,"ts": 1.00,"name":"inner.loop","ph":"X","args": {"n":null}}"#,
        r#"{"pid":2,"cat":"trace","id":-5432109876543210987,"tid": 3,"ts": 7.00,"name":"async","ph":"b"}"#,
        r#"{"ph":"I","s":"t","name":"é","pid":"main","cname":"good"}"#,
        "{}",
    ] {
        append(&classes.record(1, &Record::parse(line).unwrap()));
    }
    append(&classes.client(&Client {
        client: 1,
        pid: Some(2),
        uid: 1000,
        exe: "/bin/true",
        opened: true,
        offset: None,
    }));
    append(&classes.lost(&Lost {
        client: 1,
        count: 3,
        reason: "no object at byte 0",
    }));
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("metadata"), metadata.as_str()).unwrap();
    let packet = writer.close(Timestamp(2)).unwrap();
    fs::write(directory.path().join("stream"), packet.bytes).unwrap();
    let ended = Babeltrace::Two.read(directory.path());
    assert_eq!(ended.stderr, [""; 0]);
    let lines = ended.expect_success();
    let shown: Vec<_> = lines
        .iter()
        .filter_map(|line| Some(line.split_once("tef:")?.1))
        .collect();
    assert_eq!(
        shown,
        [
            r#"complete: { cpu_id = 0 }, { vpid = 2, vtid = 3 }, { client = 1, present = 0x80F3, name = "inner.loop", cat = "", ts = 1000, dur = 3000, tts = 0, tdur = 0, bind_id = "", args = "{\"n\":null}", rest = "" }"#,
            r#"async_begin: { cpu_id = 0 }, { vpid = 2, vtid = 3 }, { client = 1, present = 0x8F1, name = "async", cat = "trace", ts = 7000, id = "-5432109876543210987", id2_local = "", id2_global = "", scope = "", args = "", rest = "" }"#,
            r#"instant: { cpu_id = 0 }, { vpid = 0, vtid = 0 }, { client = 1, present = 0x240, ph = "I", name = "é", cat = "", ts = 0, s = "t", args = "", rest = "{\"cname\":\"good\",\"pid\":\"main\"}" }"#,
            r#"raw: { cpu_id = 0 }, { vpid = 0, vtid = 0 }, { client = 1, json = "{}" }"#,
            r#"client: { cpu_id = 0 }, { vpid = 2, vtid = 2 }, { client = 1, pid = 2, uid = 1000, exe = "/bin/true", opened = ( "true" : container = 1 ), offset_known = ( "false" : container = 0 ), offset = 0 }"#,
            r#"lost: { cpu_id = 0 }, { vpid = 0, vtid = 0 }, { client = 1, count = 3, reason = "no object at byte 0" }"#,
        ]
    );
}
