//! The filter against the verdicts of CodeTracer's own post-processing, and against the published
//! types.

use std::collections::HashSet;

use codetracer_trace_types::{TraceLowLevelEvent, ValueRecord};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Lists of records with the verdict of CodeTracer: whether it opens them. From the format's
/// examples, MIT licence.
const REPLAY_RULES: &str = include_str!("../../tests/data/replay-rules.json");
/// All kinds of records and values, one on each line.
const EVERY_EVENT: &str = include_str!("../../tests/data/every-event.jsonl");

fn push(filter: &mut ReplayFilter, element: &str) {
    let placeholder = || Record::placeholder(element);
    let record = Record::parse(element).ok().or_else(placeholder);
    filter.push(&record.unwrap(), None);
}

/// What the filter makes of these elements.
fn filtered(elements: &[&str]) -> (Vec<String>, RecordCounts) {
    let mut filter = ReplayFilter::new(OutputForm::Json);
    for element in elements {
        push(&mut filter, element);
    }
    filter.finish();
    (lines(filter.certain()), filter.counts())
}

fn lines(text: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(text).unwrap();
    let lines = text.split(",\n").skip(1).map(str::to_owned);
    lines.collect()
}

/// Whether the replay engine opens these records, by the rules that the cases show. Panics if the
/// published types cannot parse them.
fn opens(elements: &[String]) -> bool {
    let text = format!("[{}]", elements.join(","));
    let records: Vec<TraceLowLevelEvent> = serde_json::from_str(&text).unwrap();
    let (mut depth, mut has_step, mut is_started) = (0_u64, false, false);
    let mut places = HashSet::new();
    for record in records {
        use TraceLowLevelEvent as E;
        let is_valid = match record {
            E::Step(_) => {
                depth += u64::from(!is_started);
                (has_step, is_started) = (true, true);
                true
            }
            E::Call(_) => {
                depth += 1;
                is_started = true;
                true
            }
            E::Return(_) => {
                let left = depth.checked_sub(1);
                depth = left.unwrap_or_default();
                left.is_some()
            }
            E::Asm(_) | E::CellValue(_) | E::AssignCell(_) => has_step,
            E::VariableCell(_) => has_step && depth > 0,
            E::CompoundValue(compound) => {
                places.insert(compound.place);
                has_step && matches!(compound.value, ValueRecord::Sequence { .. })
            }
            E::AssignCompoundItem(item) => places.contains(&item.place),
            E::DropLastStep => false,
            _ => true,
        };
        if !is_valid {
            return false;
        }
    }
    true
}

fn cases() -> Vec<(String, bool, Vec<String>)> {
    let cases: Vec<Value> = serde_json::from_str(REPLAY_RULES).unwrap();
    let case = |case: Value| {
        let name = case["name"].as_str().unwrap().to_owned();
        let elements = case["events"].as_array().unwrap().iter();
        (
            name,
            case["verdict"] == "opens",
            elements.map(Value::to_string).collect(),
        )
    };
    cases.into_iter().map(case).collect()
}

#[test]
fn every_case_of_the_replay_rules_opens_after_the_filter() {
    let cases = cases();
    assert_eq!(cases.len(), 28);
    for (name, opens_before, elements) in cases {
        assert_eq!(opens(&elements), opens_before, "{name}: the oracle");
        let elements: Vec<_> = elements.iter().map(String::as_str).collect();
        let (found, counts) = filtered(&elements);
        assert!(opens(&found), "{name}: {found:?}");
        let parse = |text: &str| Record::parse(text).unwrap().into_owned();
        let found: Vec<_> = found.iter().map(|text| parse(text)).collect();
        if opens_before {
            let given: Vec<_> = elements.iter().map(|text| parse(text)).collect();
            assert_eq!(found, given, "{name}");
            assert_eq!(counts.left_out(), 0, "{name}");
        } else {
            let definitions = elements
                .iter()
                .filter(|text| parse(text).definition().is_some());
            let kept = found.iter().filter(|record| record.definition().is_some());
            assert_eq!(kept.count(), definitions.count(), "{name}");
        }
    }
}

#[test]
fn a_dropped_step_vanishes_with_its_values_and_leaves_the_rest() {
    let step = |line: u64| format!(r#"{{"Step":{{"path_id":0,"line":{line}}}}}"#);
    let value = |i: u64| {
        let value = format!(r#"{{"kind":"Int","i":{i},"type_id":0}}"#);
        format!(r#"{{"Value":{{"variable_id":0,"value":{value}}}}}"#)
    };
    let (name, log) = (
        r#"{"VariableName":"v"}"#,
        r#"{"Event":{"kind":0,"metadata":"","content":"x"}}"#,
    );
    let asm = r#"{"Asm":["x"]}"#;
    let drop = r#""DropLastStep""#;
    let (one, two, three) = (step(1), step(2), step(3));
    let (a, b) = (value(1), value(2));
    let (found, counts) = filtered(&[&one, &a, &two, name, &b, log, asm, drop, &three, &a]);
    assert_eq!(found, [&one, &a, name, log, asm, &three, &a]);
    assert_eq!(counts.left_out(), 0);
    // What needs a step goes with the only one; the second one has nothing to drop.
    let (found, counts) = filtered(&[&one, &a, asm, name, drop, drop]);
    assert_eq!(found[0], name);
    assert!(found[1].contains("2 records left out"), "{found:?}");
    assert_eq!((counts.misplaced, found.len()), (2, 2));
}

#[test]
fn the_newest_step_is_held_back_with_its_values() {
    let mut filter = ReplayFilter::new(OutputForm::Json);
    for element in [
        r#"{"Step":{"path_id":0,"line":1}}"#,
        r#"{"VariableName":"v"}"#,
    ] {
        push(&mut filter, element);
        assert!(filter.certain().is_empty() && filter.uncertain().is_empty());
    }
    push(
        &mut filter,
        r#"{"Event":{"kind":0,"metadata":"","content":"x"}}"#,
    );
    assert_eq!(lines(filter.uncertain()).len(), 3);
    assert!(filter.certain().is_empty());
    push(&mut filter, r#"{"Step":{"path_id":0,"line":2}}"#);
    assert_eq!(lines(filter.certain()).len(), 3);
    assert!(filter.uncertain().is_empty());
}

#[test]
fn every_kind_of_record_and_value_passes_but_for_the_drop_of_a_step() {
    let elements: Vec<_> = EVERY_EVENT.lines().collect();
    let (found, counts) = filtered(&elements);
    assert_eq!(counts.left_out(), 0);
    let at = elements
        .iter()
        .position(|line| *line == r#""DropLastStep""#)
        .unwrap();
    let kept = [&elements[..at - 1], &elements[at + 1..]].concat();
    assert_eq!(found, kept);
    for length in 0..elements.len() {
        assert!(opens(&filtered(&elements[..length]).0), "{length}");
    }
}

/// Payloads that published types refuse, and for each whether one record stands in its place.
const REFUSED: &[(&str, bool)] = &[
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"New","type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Int","i":9223372036854775808,"type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Int","i":"5","type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Int","i":-0,"type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Int","i":1}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Int","i":1,"i":1,"type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Float","f":"x","type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"Char","c":"ab","type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"String","text":"\ud800","type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"None","type_id":0,"x":"\ud800"}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"None","type_id":0,"x":1e999}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"BigInt","b":"AQ","negative":true,"type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"kind":"BigInt","b":"AR==","negative":true,"type_id":0}}}"#,
        false,
    ),
    (
        r#"{"Value":{"variable_id":0,"value":{"type_id":0,"elements":[{"kind":"X"}],"kind":"Tuple"}}}"#,
        false,
    ),
    (r#"{"Event":{"kind":14,"metadata":"","content":""}}"#, false),
    (r#"{"Asm":[1]}"#, false),
    (r#"{"BindVariable":{"variable_id":-1,"place":5}}"#, false),
    (r#"{"DropVariable":"a"}"#, false),
    (r#"{"ThreadStart":18446744073709551616}"#, false),
    (
        r#"{"Type":{"kind":34,"lang_type":"T","specific_info":{"kind":"None"}}}"#,
        true,
    ),
    (
        r#"{"Type":{"kind":0,"lang_type":"T","specific_info":{"kind":"X"}}}"#,
        true,
    ),
    (
        r#"{"Call":{"function_id":0,"args":[{"variable_id":0,"value":{"kind":"X"}}]}}"#,
        true,
    ),
    (r#"{"Return":{"return_value":{"kind":"X"}}}"#, true),
    (r#"{"NewKind":{"a":1}}"#, false),
    (
        r#"{"Assignment":{"to":0,"pass_by":"Value","from":{"kind":"Simple","value":1}}}"#,
        false,
    ),
];

#[test]
fn payloads_that_published_types_refuse_are_left_out_or_replaced() {
    for (element, is_replaced) in REFUSED {
        let refused = serde_json::from_str::<TraceLowLevelEvent>(element);
        assert!(refused.is_err(), "{element}");
        let mut filter = ReplayFilter::new(OutputForm::Json);
        push(&mut filter, r#"{"Call":{"function_id":0,"args":[]}}"#);
        push(&mut filter, r#"{"Step":{"path_id":0,"line":1}}"#);
        push(&mut filter, element);
        filter.release();
        let found = lines(filter.certain());
        assert!(opens(&found), "{element}: {found:?}");
        assert_eq!(found.len(), 2 + usize::from(*is_replaced), "{element}");
        assert_eq!(filter.counts().left_out(), 1, "{element}");
    }
}

#[test]
fn forms_of_other_writers_become_those_of_the_published_types() {
    let value = |json: &str| format!(r#"{{"Value":{{"variable_id":0,"value":{json}}}}}"#);
    let float = |f: &str| format!(r#"{{"kind":"Float","f":{f},"type_id":0}}"#);
    let assignment =
        |from: &str| format!(r#"{{"Assignment":{{"to":2,"pass_by":"Reference","from":{from}}}}}"#);
    let tuple = |a: &str, b: &str| {
        let text = r#"{"kind":"String","text":"\"f\":1, \\","type_id":0}"#;
        format!(r#"{{"kind":"Tuple","elements":[{text},{a},{b}],"type_id":0}}"#)
    };
    let argument = |json: &str| {
        let argument = format!(r#"{{"variable_id":0,"value":{json}}}"#);
        format!(r#"{{"Call":{{"function_id":0,"args":[{argument}]}}}}"#)
    };
    let returned = |json: &str| format!(r#"{{"Return":{{"return_value":{json}}}}}"#);
    let cell = |json: &str| format!(r#"{{"CellValue":{{"place":1,"value":{json}}}}}"#);
    let early = |f: &str| format!(r#"{{"f":{f},"kind":"Float","type_id":0}}"#);
    for (given, want) in [
        (value(&float("1.5")), value(&float(r#""1.5""#))),
        (value(&float("-2E+10")), value(&float(r#""-2E+10""#))),
        (value(&float("null")), value(&float(r#""NaN""#))),
        (value(&early("0")), value(&early(r#""0""#))),
        (
            value(&tuple(&float("1.0"), &float(r#""inf""#))),
            value(&tuple(&float(r#""1.0""#), &float(r#""inf""#))),
        ),
        (argument(&float("3")), argument(&float(r#""3""#))),
        (returned(&float("3")), returned(&float(r#""3""#))),
        (cell(&float("3")), cell(&float(r#""3""#))),
        // As this project converts the binary form 0, as the format is described, and as readers
        // take it.
        (
            assignment(r#"{"kind":"Simple","variable_id":7}"#),
            assignment(r#"["Compound",7]"#),
        ),
        (
            assignment(r#"{"kind":"Simple","0":7}"#),
            assignment(r#"["Compound",7]"#),
        ),
        (
            assignment(r#"{"kind":"Compound","variable_ids":[7,8]}"#),
            assignment(r#"["Compound",7,8]"#),
        ),
        (
            assignment(r#"{"kind":"Compound","0":[]}"#),
            assignment(r#"["Compound"]"#),
        ),
        (
            assignment(r#"["Compound",1]"#),
            assignment(r#"["Compound",1]"#),
        ),
    ] {
        let step = r#"{"Step":{"path_id":0,"line":1}}"#;
        let (found, counts) = filtered(&[step, &given]);
        assert_eq!(found, [step, &want], "{given}");
        assert!(opens(&found));
        assert_eq!(counts.left_out(), 0, "{given}");
    }
}

#[test]
fn a_value_that_is_nested_too_deeply_for_readers_is_left_out() {
    let nested = |depth: usize| {
        let begin = r#"{"kind":"Tuple","elements":["#.repeat(depth);
        let end = r#"],"type_id":0}"#.repeat(depth);
        let inner = r#"{"kind":"None","type_id":0}"#;
        format!(r#"{{"Value":{{"variable_id":0,"value":{begin}{inner}{end}}}}}"#)
    };
    for depth in 1..80 {
        let element = nested(depth);
        let is_read =
            serde_json::from_str::<Vec<TraceLowLevelEvent>>(&format!("[{element}]")).is_ok();
        let (found, counts) = filtered(&[&element]);
        assert_eq!(counts.left_out() == 0, is_read, "{depth}");
        assert!(opens(&found));
    }
}

#[test]
fn lost_definitions_are_filled_in_and_open_calls_returned_from() {
    let mut filter = ReplayFilter::new(OutputForm::Json);
    filter.begin_packet(0, 0);
    for element in [
        r#"{"Path":"/a"}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Step":{"path_id":0,"line":1}}"#,
    ] {
        push(&mut filter, element);
    }
    filter.begin_packet(4, 2);
    assert_eq!(filter.counts().lost, 0);
    filter.begin_packet(10, 1);
    filter.push(&Record::Path("/d".into()), Some(3));
    // A packet that comes once more says nothing new.
    filter.begin_packet(10, 1);
    filter.push(&Record::Path("/d".into()), Some(3));
    filter.finish();
    let found = lines(filter.certain());
    assert!(opens(&found));
    assert_eq!(
        found[4..8],
        [
            r#"{"Return":{"return_value":{"kind":"None","type_id":0}}}"#,
            r#"{"Path":"<lost path 1>"}"#,
            r#"{"Path":"<lost path 2>"}"#,
            r#"{"Path":"/d"}"#,
        ]
    );
    assert!(found[8].contains("6 lost, 2 definitions filled in"));
    assert_eq!(found.len(), 9);
    assert_eq!(filter.take_paths().len(), 4);
}

#[test]
fn a_definition_that_cannot_be_parsed_keeps_its_position() {
    for kind in ["Path", "Function", "Type", "VariableName", "Variable"] {
        let mut filter = ReplayFilter::new(OutputForm::Json);
        let payload = Json::parse("{}").unwrap();
        let kind = kind.into();
        filter.push(&Record::Other { kind, payload }, None);
        let found = lines(filter.certain());
        assert!(opens(&found) && found.len() == 1, "{found:?}");
    }
}

fn element() -> impl Strategy<Value = String> {
    let fixed: Vec<String> = EVERY_EVENT.lines().map(str::to_owned).collect();
    let refused = REFUSED.iter().map(|(element, _)| (*element).to_owned());
    let common = [
        r#"{"Step":{"path_id":0,"line":1}}"#,
        r#"{"Step":{"path_id":18446744073709551615,"line":1}}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Return":{"return_value":{"kind":"None","type_id":0}}}"#,
        r#""DropLastStep""#,
    ];
    let common = common.map(str::to_owned).to_vec();
    prop_oneof![
        2 => proptest::sample::select(fixed),
        1 => proptest::sample::select(refused.collect::<Vec<_>>()),
        2 => proptest::sample::select(common),
    ]
}

proptest! {
    #[test]
    fn any_order_of_records_and_gaps_opens_at_any_time(
        elements in proptest::collection::vec((element(), 0..12_u64, 0..4_u64), 0..60)
    ) {
        let mut filter = ReplayFilter::new(OutputForm::Json);
        let mut first_record = 0;
        for (element, lost, depth) in &elements {
            if let Some(lost) = lost.checked_sub(9) {
                first_record += lost;
                filter.begin_packet(first_record, *depth);
            }
            push(&mut filter, element);
            first_record += 1;
            let mut visible = lines(filter.certain());
            visible.extend(lines(filter.uncertain()));
            prop_assert!(opens(&visible));
        }
        filter.finish();
        prop_assert!(opens(&lines(filter.certain())));
    }
}
