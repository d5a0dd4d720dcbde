//! Filters, applied to events that are visited field by field.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::Scope;

use super::*;
use crate::attach::TraceKey;
use crate::test_support::{labels, plain};

fn facts(class: u64, name: &str) -> Facts<'_> {
    Facts {
        class: (TraceKey(0), 0, class),
        declared: 1,
        name: Some(name),
        names: &ClassNames::NONE,
        own_name: None,
        log_level: Some(4),
        trace: "host/kernel",
        stream: "channel0_1",
        time: Some(1_500),
        has_json_args: true,
    }
}

/// An event with a bit of everything.
fn walk(to: &mut FieldMatcher<'_>) -> Result<(), FieldError> {
    let number = NumberFormat {
        bits: 32,
        ..plain()
    };
    let labels = labels(&[("READ", 1, 1), ("ANY", 0, 9), ("true", 1, 1)]);
    let labelled = NumberFormat {
        labels: Some(&labels),
        ..number
    };
    to.begin_scope(Scope::PacketContext);
    to.begin_structure();
    to.member("cpu_id");
    to.unsigned(3, number);
    to.end_structure();
    to.end_scope();
    to.begin_scope(Scope::CommonContext);
    to.begin_structure();
    to.member("vpid");
    to.signed(5, number);
    to.member("size");
    to.unsigned(1, number);
    to.end_structure();
    to.end_scope();
    to.begin_scope(Scope::Payload);
    to.begin_structure();
    to.member("prev_tid");
    to.signed(-7, number);
    to.member("size");
    to.unsigned(u64::MAX, number);
    to.member("comm");
    to.text(b"bash*");
    to.member("ratio");
    to.float(0.5, 64);
    to.member("mode");
    to.unsigned(1, labelled);
    to.member("on");
    to.boolean(true);
    to.member("a");
    to.begin_structure();
    to.member("b");
    to.begin_structure();
    to.member("c");
    to.unsigned(11, number);
    to.end_structure();
    to.member("list");
    to.begin_array(3);
    for index in 0..3 {
        to.element(index);
        to.begin_structure();
        to.member("x");
        to.unsigned(index * 10, number);
        to.end_structure();
    }
    to.end_array();
    to.end_structure();
    to.member("numbers");
    to.begin_array(2);
    to.element(0);
    to.unsigned(100, number);
    to.element(1);
    to.unsigned(101, number);
    to.end_array();
    to.member("choice");
    to.begin_variant(Some("text"));
    to.text(b"chosen");
    to.end_variant();
    to.member("absent");
    to.begin_optional(false);
    to.end_optional();
    to.member("odd name");
    to.unsigned(1, number);
    to.member("ctx");
    to.begin_structure();
    to.member("x");
    to.unsigned(77, number);
    to.end_structure();
    to.end_structure();
    to.end_scope();
    Ok(())
}

fn holds(text: &str) -> bool {
    let mut filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let facts = facts(0, "sched_switch");
    let holds = filter.decide(facts, walk).unwrap();
    // The decision of the class and what was known of the first event change nothing.
    assert_eq!(filter.decide(facts, walk).unwrap(), holds, "{text}");
    holds
}

#[test]
fn filter_comparisons_match_the_values_of_fields() {
    for text in [
        r#"$name == "sched_switch""#,
        r#"$name == "sched_*""#,
        r#"$name != "sched_*_x""#,
        r#""sched_?witch" == $name"#,
        r#"$trace == "host/*" && $stream == "channel0_1""#,
        "$time >= 1500 && $time < 1501 && $time > 1499.5",
        r#"$loglevel == 4 && $loglevel == "WARNING" && $loglevel == "TRACE_WARNING""#,
        "$loglevel <= 4",
        "prev_tid == -7 && prev_tid < 0 && prev_tid <= -7 && prev_tid != 7",
        "0 > prev_tid && -0x7 == prev_tid",
        "size == 18446744073709551615 && size == 0xFFFFFFFFFFFFFFFF",
        "size > 18446744073709551614 && size > 1e3",
        "ctx.size == 1 && $payload.size > 1",
        "vpid == 5 && ctx.vpid == 5 && $ctx.vpid == 5",
        "cpu_id == 3 && ctx.cpu_id == 3 && $packet.cpu_id == 3",
        r#"comm == "bash\*" && comm == "b*" && comm != "c*" && comm > "bas" && comm < "bat""#,
        "ratio == 0.5 && ratio < 1 && ratio > 0 && ratio == 5e-1 && ratio == 50e-2",
        r#"mode == "READ" && mode == "A*" && mode == 1 && mode != "WRITE" && mode > 0"#,
        "mode == true && mode != false && on == true && on == 1 && on != false",
        "a.b.c == 11 && a.list[2].x == 20 && numbers[1] == 101",
        r#"choice == "chosen""#,
        "exists(prev_tid) && exists(a) && exists(a.b) && exists(numbers) && exists(numbers[1])",
        "!exists(nothing) && !exists(absent) && !exists(numbers[2]) && !exists(a.c)",
        "exists(choice) && !exists($packet.vpid) && !exists(ctx.prev_tid)",
        "`odd name` == 1 && `ctx`.x == 77 && $payload.ctx.x == 77",
        "!(prev_tid > 0) && !!(prev_tid < 0)",
        "prev_tid > 0 || size > 0 && ratio > 0",
        "(prev_tid > 0 || size > 0) && ratio > 0",
    ] {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("!({text})")), "not: {text}");
    }
}

#[test]
fn a_filter_comparison_with_a_missing_or_mistyped_field_is_false() {
    for text in [
        "nothing == 1",
        "nothing != 1",
        "nothing < 1",
        "absent != 1",
        "numbers[2] != 1",
        r#"prev_tid != "x""#,
        "comm != 1",
        "a == 1",
        "a != 1",
        "numbers != 1",
        "ctx.prev_tid != 1",
        "$packet.vpid == 5",
        r#"mode < "X""#,
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn a_filter_on_names_is_decided_without_decoding_fields() {
    for (text, want) in [
        (r#"$name == "sched_*""#, true),
        (r#"$name == "x" && prev_tid > 0"#, false),
        (r#"$loglevel > 2 || prev_tid > 0"#, true),
        (r#"$stream == "other" && prev_tid > 0"#, false),
        ("prev_tid > 0 && $time < 0", false),
    ] {
        let mut filter = Filter::parse(text).unwrap();
        let decided = filter.decide(facts(0, "sched_switch"), |_| panic!("decoded for {text}"));
        assert_eq!(decided, Ok(want), "{text}");
    }
}

#[test]
fn a_filter_decides_once_for_each_event_class_or_once_for_each_event() {
    let mut filter = Filter::parse(r#"$name == "a" || x == 1"#).unwrap();
    let with = |value: u64| {
        move |to: &mut FieldMatcher<'_>| {
            to.begin_scope(Scope::Payload);
            to.begin_structure();
            to.member("x");
            to.unsigned(value, plain());
            to.end_structure();
            to.end_scope();
            Ok(())
        }
    };
    for (class, name, value, want) in [
        (0, "a", 0, true),
        (1, "b", 0, false),
        (1, "b", 1, true),
        (1, "b", 2, false),
        (0, "a", 2, true),
    ] {
        assert_eq!(filter.decide(facts(class, name), with(value)), Ok(want));
    }
}

#[test]
fn filter_properties_of_an_event_without_name_time_or_level_do_not_exist() {
    let bare = Facts {
        name: None,
        log_level: None,
        time: None,
        ..facts(0, "")
    };
    for text in [r#"$name != "x""#, "$time != 1", "$loglevel != 1"] {
        let mut filter = Filter::parse(text).unwrap();
        assert_eq!(filter.decide(bare, walk), Ok(false), "{text}");
    }
}

#[test]
fn a_filter_syntax_error_is_reported_with_its_column() {
    for (text, column, what) in [
        ("", 1, "expected a field"),
        ("prev_tid", 9, "expected a comparison"),
        ("prev_tid >", 11, "expected a field, a number or a text"),
        ("prev_tid = 1", 10, "equality is written =="),
        ("a == 1 & b == 2", 8, "both is written &&"),
        ("a == 'x'", 6, "texts stand between"),
        ("a == b", 3, "expected a number, a text, true or false"),
        ("1 == 2", 1, "the name of a field on one side"),
        (r#"é == "x"#, 6, "no closing"),
        (r#"a == "\x""#, 7, r"\x means nothing"),
        ("a == 1 b == 2", 8, "expected && or ||"),
        ("(a == 1", 8, "expected )"),
        ("$nam == 1", 1, "$nam is none of"),
        ("$ == 1", 1, "is none of"),
        ("$name == 1", 1, "only compared with a text"),
        (r#"$time == "x""#, 1, "only compared with a number"),
        (r#"a < "x*""#, 3, "have no order"),
        ("a < true", 3, "have no order"),
        ("a == 18446744073709551616", 6, "64 bits"),
        ("a == 0x", 6, "no number"),
        ("a == 0x-1", 6, "no number"),
        ("a == --1", 6, "no number"),
        ("a == 1.2.3", 6, "no number"),
        ("a == 12ab", 6, "no number"),
        ("a[-1] == 1", 3, "expected a place"),
        ("a[1 == 1", 5, "expected ]"),
        ("a. == 1", 4, "expected the name of a field"),
        ("exists($name)", 8, "expected the name of a field"),
        ("exists(1)", 8, "expected the name of a field"),
        ("`a == 1", 1, "no closing `"),
        ("a == 1 ; b", 8, "means nothing here"),
    ] {
        let error = Filter::parse(text).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
}

#[test]
fn a_filter_syntax_error_is_marked_below_the_text() {
    let error = Filter::parse("(é\t= 1)").unwrap_err();
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1..], ["  (é = 1)", "     ^"]);
    let far = format!("{} ]", "a == 1 && ".repeat(100));
    let shown = Filter::parse(&far).unwrap_err().to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1].chars().nth(lines[2].len() - 1), Some(']'));
    assert!(lines[1].len() < 130);
}

#[test]
fn a_filter_syntax_error_changes_no_terminal() {
    for text in ["a == \"\\\n\"", "a == \"\\\u{1b}[2J\"", "\u{1b}"] {
        let shown = Filter::parse(text).unwrap_err().to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown:?}");
        assert!(!lines.concat().contains(char::is_control), "{shown:?}");
    }
}

#[test]
fn filters_beyond_the_depth_and_length_limits_are_refused() {
    for text in ["(".repeat(60_000), "!".repeat(60_000), "!(".repeat(30_000)] {
        let error = Filter::parse(&text).unwrap_err();
        assert!(error.what.contains("levels"), "{error}");
    }
    assert!(Filter::parse(&format!("{}a == 1{}", "(".repeat(63), ")".repeat(63))).is_ok());
    let many = vec!["a==1"; 2000].join("||");
    assert!(
        Filter::parse(&many)
            .unwrap_err()
            .what
            .contains("comparisons")
    );
    assert!(
        Filter::parse(&" ".repeat(70_000))
            .unwrap_err()
            .what
            .contains("bytes")
    );
}

#[test]
fn every_prefix_of_a_filter_is_parsed_or_refused_at_its_end() {
    let text =
        r#"!($name == "s\*?*" || ctx.a[2].`b c` >= -0x1F) && exists(x.y) && 1.5e3 < $packet.z"#;
    assert!(Filter::parse(text).is_ok());
    for end in 0..text.len() {
        // Only that it ends, and says where.
        if let Err(error) = Filter::parse(&text[..end]) {
            assert!(error.column <= end + 1, "{error}");
        }
    }
}

#[test]
fn filters_reach_into_the_json_arguments_of_sent_events() {
    let json = r#"{"n":3,"f":0.5,"s":"io","on":true,"no":null,"o":{"list":[{"x":-7}]}}"#;
    let decide = |text: &str, json: &str, has_json_args| {
        let mut filter = Filter::parse(text).unwrap();
        assert!(filter.collect.needs_args());
        let facts = Facts {
            has_json_args,
            ..facts(0, "tef:begin")
        };
        let decided = filter.decide(facts, |to| {
            for scope in [Scope::CommonContext, Scope::Payload] {
                to.begin_scope(scope);
                to.begin_structure();
                to.member("name");
                to.text(b"{\"n\":9}");
                to.member("args");
                to.text(json.as_bytes());
                to.member("rest");
                to.text(b"{\"n\":9}");
                to.end_structure();
                to.end_scope();
            }
            Ok(())
        });
        decided.unwrap()
    };
    for text in [
        "args.n > 2",
        "args.n == 3 && args.f < 1 && args.s == \"i*\" && args.on == true",
        "args.o.list[0].x == -7 && $payload.args.n > 2",
        "exists(args.n) && exists(args.o) && exists(args.o.list) && !exists(args.no)",
        "args == \"*0.5*\" && args.n > 2",
        "!(args.n > 3) && !(args.s > 2) && !exists(args.m) && !exists(args.n.n)",
        "!(ctx.args.n > 2) && !(rest.n > 2) && !(name.n > 2) || !exists(args.n)",
    ] {
        assert!(decide(text, json, true), "{text}");
    }
    for json in ["", "[3]", "{\"n\":3", "{\"m\":3}", "{\"n\":3}}"] {
        assert!(!decide("args.n > 2", json, true), "{json}");
    }
    assert!(!decide("args.n > 2", json, false));
}

#[test]
fn arguments_that_no_event_has_are_described_with_similar_ones() {
    for (text, want) in [
        ("args.count > 2", &[][..]),
        (
            "args.coumt > 2 || args.count > 2",
            &["no event has a field args.coumt; did you mean count?"],
        ),
        ("args.o.x > 2", &["no event has a field args.o.x"]),
        ("comm == \"x\"", &[]),
    ] {
        let mut filter = Filter::parse(text).unwrap();
        let visit = |to: &mut FieldMatcher<'_>| {
            to.begin_scope(Scope::Payload);
            to.begin_structure();
            to.member("args");
            to.text(b"{\"count\":1,\"o\":{\"deep\":1}}");
            to.end_structure();
            Ok(())
        };
        assert!(!filter.decide(facts(0, "tef:begin"), visit).unwrap());
        assert_eq!(filter.describe_missing(), want, "{text}");
    }
}

/// The events of a packet that a filter lets through, by their place, and the descriptions of what
/// none of them had.
fn selected(text: &str) -> (Vec<usize>, Vec<String>) {
    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { u8 id; }; };
        event { id = 0; name = \"tef:begin\"; fields := struct { string _name; u8 _n; }; };
        event { id = 1; name = \"tef:end\"; fields := struct { string _name; }; };
        event { id = 2; name = \"app:span:enter\"; fields := struct { string _name; }; };
        event { id = 3; name = \"p:frame_begin\"; fields := struct {}; };
        event { id = 4; name = \"p:frame_end\"; fields := struct {}; };";
    let metadata = ctf::Metadata::read(METADATA.as_bytes()).unwrap();
    let packet = b"\0parse\0\x05\0load\0\x01\x01\0\x02image\0\x03\x04";
    let (trace, mut decoder) = (metadata.trace(), ctf::decode::StreamDecoder::new());
    decoder.begin_packet(trace, packet).unwrap();
    let origin = crate::test_support::TestOrigin::new("t", "s");
    let mut filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let mut selected = Vec::new();
    let mut place = 0;
    while decoder.advance(trace, packet).unwrap() {
        let event = decoder.event(trace, packet).unwrap();
        if filter.matches(&event, origin.origin()) {
            selected.push(place);
        }
        place += 1;
    }
    assert_eq!(place, 6);
    (selected, filter.describe_missing())
}

#[test]
fn the_name_in_a_filter_is_the_one_that_is_shown() {
    for (text, want) in [
        (r#"$name == "parse""#, &[0][..]),
        (r#"$name == "*a*""#, &[0, 1, 3, 4, 5]),
        (r#"$name != "parse""#, &[1, 2, 3, 4, 5]),
        (r#"$name == "load" && n == 1"#, &[1]),
        (r#"$name == "load" && n == 5"#, &[]),
        // The class of what was sent is its phase, which is shown where there is no name.
        (r#"$name == "tef:*""#, &[0, 1, 2]),
        (r#"$name == "tef:begin" && n > 2"#, &[0]),
        (r#"$name == "*begin""#, &[4]),
        (r#"$name == "*end""#, &[2, 5]),
        (r#"$name == "image""#, &[3]),
        (r#"$name == "app:span:enter""#, &[3]),
        (r#"$name == "p:frame""#, &[4, 5]),
        (r#"$name == "p:frame_end""#, &[5]),
        (r#"$name > "o""#, &[0, 2, 4, 5]),
    ] {
        assert_eq!(selected(text).0, want, "{text}");
    }
}

#[test]
fn sent_names_in_a_filter_that_no_event_has_are_described_with_similar_ones() {
    for (text, want) in [
        (
            r#"$name == "pars""#,
            &[r#"no event is named "pars"; did you mean parse?"#][..],
        ),
        (
            r#"$name == "app:span:entr""#,
            &[r#"no event is named "app:span:entr"; did you mean app:span:enter?"#],
        ),
        (r#"$name == "parse" && n == 9"#, &[]),
        (r#"$name == "*x*""#, &[r#"no event is named "*x*""#]),
    ] {
        let (selected, missing) = selected(text);
        assert!(selected.is_empty(), "{text}");
        assert_eq!(missing, want, "{text}");
    }
}
