//! Records of several parts, and what is written of them.

use serde_json::{Value, json};

use super::*;

/// Adds a line, and returns how many records have come of it.
fn add(held: &mut HeldRecords, line: &str) -> Option<u64> {
    held.add(Record::parse(line).unwrap(), None)
}

/// The records that are written of these parts, and the origin.
fn written(parts: &[&[&str]]) -> (Vec<Value>, i64) {
    let mut held = HeldRecords::default();
    let (mut out, mut has_any, mut origin) = (Vec::new(), false, 0);
    for (number, lines) in parts.iter().enumerate() {
        for line in *lines {
            add(&mut held, line);
        }
        let is_last = number + 1 == parts.len();
        origin = held.write(&mut out, &mut has_any, is_last);
    }
    let text = format!("[{}]", String::from_utf8(out).unwrap());
    (serde_json::from_str(&text).unwrap(), origin)
}

#[test]
fn lines_for_perfetto_are_in_order_with_times_since_the_first() {
    let (records, origin) = written(&[&[
        r#"{"ph":"X","name":"b","ts":1767225600000000.5,"dur":1}"#,
        r#"{"ph":"S","name":"a","ts":1767225600000000,"id":1,"pid":5}"#,
        r#"{"ph":"M","name":"thread_name","args":{"name":"main"}}"#,
    ]]);
    assert_eq!(origin, 1_767_225_600_000_000_000);
    assert_eq!(
        records,
        [
            json!({"ph": "M", "name": "thread_name", "args": {"name": "main"}}),
            json!({"ph": "b", "name": "a", "ts": 0, "pid": 5, "id": "1"}),
            json!({"ph": "X", "name": "b", "ts": 0.5, "dur": 1}),
        ]
    );
}

#[test]
fn longer_complete_events_come_first_and_stay_complete() {
    let (records, _) = written(&[&[
        r#"{"ph":"X","name":"short","ts":5,"dur":1}"#,
        r#"{"ph":"X","name":"long","ts":5,"dur":2}"#,
    ]]);
    let short = json!({"ph": "X", "name": "short", "ts": 0, "dur": 1});
    assert_eq!(
        records,
        [json!({"ph": "X", "name": "long", "ts": 0, "dur": 2}), short]
    );
}

#[test]
fn slice_that_began_before_all_others_has_no_negative_time_in_a_later_part() {
    let day = ORIGIN_MARGIN / 1000;
    let parent = r#"{"ph":"X","name":"parent","ts":999990,"dur":30}"#.to_owned();
    let earlier = 1_000_000 - day - 10;
    let earliest = format!(r#"{{"ph":"X","name":"earliest","ts":{earlier},"dur":15,"tid":2}}"#);
    let (records, origin) = written(&[
        &[r#"{"ph":"X","name":"child","ts":1000000,"dur":5}"#],
        &[&parent, &earliest],
    ]);
    assert_eq!(origin, 1_000_000_000 - ORIGIN_MARGIN);
    assert_eq!(
        records,
        [
            json!({"ph": "X", "name": "child", "ts": day, "dur": 5}),
            // The part of it that is not before the origin.
            json!({"ph": "X", "name": "earliest", "ts": 0, "dur": 5, "tid": 2}),
            json!({"ph": "X", "name": "parent", "ts": day - 10, "dur": 30}),
        ]
    );
}

#[test]
fn slice_begins_and_ends_in_different_parts() {
    let (records, _) = written(&[
        &[
            r#"{"ph":"B","name":"a","ts":1,"pid":1,"tid":1}"#,
            r#"{"ph":"b","name":"c","ts":2,"pid":1,"id":"x"}"#,
            r#"{"ph":"i","name":"point","ts":3,"s":"g"}"#,
        ],
        &[],
        &[
            r#"{"ph":"e","name":"c","ts":5,"pid":1,"id":"x"}"#,
            r#"{"ph":"E","name":"a","ts":4,"pid":1,"tid":1}"#,
        ],
    ]);
    let phases = records.iter().map(|record| record["ph"].as_str().unwrap());
    assert_eq!(phases.collect::<String>(), "iXbe");
    assert_eq!(records[2]["id"], "x");
}

#[test]
fn begin_and_end_of_a_slice_are_one_record_with_the_arguments_of_both() {
    let (records, _) = written(&[&[
        r#"{"ph":"B","name":"a","cat":"c","ts":1,"tts":5,"args":{"x":1,"y":2}}"#,
        r#"{"ph":"B","name":"b","ts":1}"#,
        r#"{"ph":"E","ts":3,"args":[3]}"#,
        r#"{"ph":"E","name":"a","cat":"other","ts":3,"tts":7.5,"args":{"y":3,"z":4}}"#,
        r#"{"ph":"E","name":"a","ts":4}"#,
        r#"{"ph":"B","name":"open","ts":5}"#,
    ]]);
    assert_eq!(
        records,
        [
            json!({
                "ph": "X", "name": "a", "cat": "c", "ts": 0, "dur": 2, "tts": 5, "tdur": 2.5,
                "args": {"x": 1, "y": 2, "z": 4},
            }),
            json!({"ph": "X", "name": "b", "ts": 0, "dur": 2, "args": {"value": [3]}}),
            json!({"ph": "i", "name": "a", "ts": 3, "s": "t"}),
            json!({"ph": "B", "name": "open", "ts": 4}),
        ]
    );
}

#[test]
fn asynchronous_slices_that_touch_are_on_lanes_of_their_own_and_empty_ones_are_instants() {
    let (records, _) = written(&[&[
        r#"{"ph":"b","name":"a","ts":1,"pid":1,"id":"x"}"#,
        r#"{"ph":"e","name":"a","ts":3,"pid":1,"id":"x"}"#,
        r#"{"ph":"b","name":"b","ts":3,"pid":1,"id":"x"}"#,
        r#"{"ph":"e","name":"b","ts":4,"pid":1,"id":"x"}"#,
        r#"{"ph":"b","name":"c","ts":6,"pid":1,"id":"x"}"#,
        r#"{"ph":"e","name":"c","ts":6,"pid":1,"id":"x"}"#,
    ]]);
    let of = |record: &Value| [&record["ph"], &record["name"], &record["id"]].map(|v| v.clone());
    let shown: Vec<_> = records.iter().map(of).collect();
    assert_eq!(
        shown,
        [
            ["b", "a", "x"],
            ["e", "a", "x"],
            ["b", "b", "x (lane 2)"],
            ["e", "b", "x (lane 2)"],
            ["n", "c", "x"],
        ]
    );
}

#[test]
fn overlapping_slices_have_threads_and_ids_of_their_own_with_the_name_of_the_first() {
    let (records, _) = written(&[&[
        r#"{"ph":"M","name":"thread_name","pid":1,"tid":5,"args":{"name":"render"}}"#,
        r#"{"ph":"X","name":"a","ts":1,"dur":5,"pid":1,"tid":5}"#,
        r#"{"ph":"X","name":"b","ts":2,"dur":5,"pid":1,"tid":5}"#,
        r#"{"ph":"b","name":"c","ts":1,"pid":1,"id":7}"#,
        r#"{"ph":"b","name":"d","ts":2,"pid":1,"id":7}"#,
        r#"{"ph":"e","name":"c","ts":3,"pid":1,"id":7}"#,
        r#"{"ph":"e","name":"d","ts":4,"pid":1,"id":7}"#,
    ]]);
    let lane = &records[1];
    assert_eq!(lane["args"]["name"], "render (lane 2)");
    let of = |name: &str, what: &str| {
        let named = records.iter().filter(|record| record["name"] == name);
        named.map(|record| record[what].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("a", "tid"), of("b", "tid")),
        (vec![json!(5)], vec![lane["tid"].clone()])
    );
    assert_eq!(of("c", "id"), ["7", "7"]);
    assert_eq!(of("d", "id"), ["7 (lane 2)", "7 (lane 2)"]);
}

#[test]
fn objects_with_two_members_of_one_name_have_the_last_and_those_without_a_phase_are_left_out() {
    let mut held = HeldRecords::default();
    for (line, added) in [
        (
            r#"{"ph":"i","ph":"X","ts":9,"ts":1,"dur":2,"other":1,"other":2}"#,
            Some(1),
        ),
        (r#"{"name":"no phase"}"#, None),
        (r#"{"ph":"M","name":"thread_name"}"#, Some(0)),
        (r#"{"ph":"B","ts":1,"pid":-1,"tid":-2}"#, Some(3)),
    ] {
        assert_eq!(add(&mut held, line), added, "{line}");
    }
    let mut out = Vec::new();
    held.write(&mut out, &mut true, true);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains(r#"{"ts":0,"ph":"X","dur":2}"#), "{text}");
}

#[test]
fn records_that_are_held_can_be_removed() {
    let mut held = HeldRecords::default();
    for name in ["a", "b", "c"] {
        add(
            &mut held,
            &format!(r#"{{"ph":"B","name":"{name}","ts":1}}"#),
        );
    }
    assert!(held.remove(2) && !held.remove(2) && !held.remove(4));
    let mut out = Vec::new();
    held.write(&mut out, &mut false, false);
    // Those that are kept for the next part may be on the way to the output.
    assert!(!held.remove(1));
    held.write(&mut out, &mut false, true);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\"a\"") && !text.contains("\"b\"") && text.contains("\"c\""));
}

#[test]
fn begins_that_are_kept_for_the_next_part_are_bounded() {
    let mut held = HeldRecords::default();
    let text = "x".repeat(1 << 20);
    let line = format!(r#"{{"ph":"B","name":"{text}","ts":1}}"#);
    let (mut out, mut has_any) = (Vec::new(), false);
    for count in [10, 70] {
        for _ in 0..count {
            add(&mut held, &line);
        }
        held.write(&mut out, &mut has_any, false);
        assert_eq!(held.entries.len(), if count == 10 { 10 } else { 0 });
    }
    assert_eq!(out.windows(5).filter(|part| part == b"\"ph\":").count(), 80);
}

#[test]
fn flows_of_one_id_have_one_number_and_local_ids_are_of_their_process() {
    let (records, _) = written(&[&[
        r#"{"ph":"s","ts":1,"pid":1,"id2":{"global":"x"},"cname":"good"}"#,
        r#"{"ph":"f","ts":2,"pid":2,"id2":{"global":"x","local":1}}"#,
        r#"{"ph":"s","ts":3,"pid":1,"id2":{"local":"y"},"cname":"good"}"#,
        r#"{"ph":"f","ts":4,"pid":1,"id2":{"local":"y"}}"#,
        r#"{"ph":"f","ts":5,"pid":2,"id2":{"local":"y"}}"#,
        r#"{"ph":"s","ts":6,"pid":1,"id":"z","cname":"good"}"#,
        r#"{"ph":"f","ts":7,"pid":2,"id":"z"}"#,
        r#"{"ph":"f","ts":8,"pid":1,"id":17}"#,
        r#"{"ph":"s","ts":9,"pid":1,"id2":{"other":1}}"#,
    ]]);
    let ids: Vec<_> = records.iter().map(|record| &record["id"]).collect();
    let [global, _, local, _, of_other, text, ..] = ids[..] else {
        panic!("{records:?}");
    };
    for id in [global, local, of_other, text] {
        assert!(id.as_str().unwrap().starts_with("0x"), "{id}");
        assert_eq!(
            ids.iter().filter(|other| **other == id).count(),
            if id == of_other { 1 } else { 2 }
        );
    }
    assert_eq!(ids[7], 17);
    assert_eq!(
        (&records[8]["ph"], &records[8]["id"]),
        (&json!("i"), &Value::Null)
    );
}

#[test]
fn memory_for_records_counts_what_it_takes_to_put_them_in_order_and_to_write_them() {
    let mut held = HeldRecords::default();
    for name in 0..1000 {
        for (phase, ts) in [("b", "1767225600000000.5"), ("e", "1767225600000001.75")] {
            let rest = format!(r#""name":"{name}","pid":1234567,"id":{name}"#);
            add(
                &mut held,
                &format!(r#"{{"ph":"{phase}","ts":{ts},{rest}}}"#),
            );
        }
    }
    let counted = held.bytes();
    let marks: Vec<_> = held.entries.iter().map(|entry| entry.mark).collect();
    let layout = lay_out(&marks, &mut LaneTable::default(), true);
    let slices = held.entries.len() / 2 * size_of::<Slice>();
    let (items, marks) = (size_of_val(&layout.items[..]), size_of_val(&marks[..]));
    let known = held.text.len() + size_of_val(&held.entries[..]) + marks + slices + items;
    let mut out = Vec::new();
    held.write(&mut out, &mut false, true);
    assert!(
        counted >= known + out.len(),
        "{counted}, {known}, {}",
        out.len()
    );
}
