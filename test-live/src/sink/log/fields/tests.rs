//! Fields that are visited one by one, and their text.

use ::tef::json_args::visit_object;
use viewer::test_support::{labels, plain};

use super::*;

const SHOWN_AND_INTERNAL: Omitted = Omitted::ShownAndInternal {
    captured: "message",
    has_cpus: true,
    has_span_ids: false,
};

pub(in crate::sink::log) fn scope(
    to: &mut LogFields,
    scope: Scope,
    members: impl FnOnce(&mut LogFields),
) {
    to.begin_scope(scope);
    to.begin_structure();
    members(to);
    to.end_structure();
    to.end_scope();
}

pub(in crate::sink::log) fn number(to: &mut LogFields, name: &str, value: u64) {
    to.member(name);
    to.unsigned(value, plain());
}

pub(in crate::sink::log) fn text(to: &mut LogFields, name: &str, value: &str) {
    to.member(name);
    to.text(value.as_bytes());
}

fn payload(members: impl FnOnce(&mut LogFields)) -> String {
    let mut fields = LogFields::default();
    fields.begin_event(SHOWN_AND_INTERNAL);
    scope(&mut fields, Scope::Payload, members);
    fields.payload
}

#[test]
fn fields_are_keys_and_values_with_those_of_contexts_last() {
    let mut fields = LogFields::default();
    for _ in 0..2 {
        fields.begin_event(SHOWN_AND_INTERNAL);
        scope(&mut fields, Scope::PacketContext, |to| {
            number(to, "packet_size", 1);
            number(to, "cpu_id", 3);
        });
        scope(&mut fields, Scope::CommonContext, |to| {
            number(to, "vpid", 10);
            number(to, "vtid", 11);
            number(to, "pid", 10);
            number(to, "tid", 12);
            text(to, "procname", "app");
            number(to, "_internal", 1);
            number(to, "perf", 12);
        });
        scope(&mut fields, Scope::Payload, |to| {
            number(to, "vpid", 5);
            number(to, "_list_length", 0);
            text(to, "message", "say hi");
            text(to, "path", "/a b");
            number(to, "v", 7);
        });
        fields.push_other_ids();
        assert_eq!(
            fields.texts(),
            [" vpid=5 path=\"/a b\" v=7", " cpu_id=3 perf=12 tid=12"]
        );
        assert_eq!(fields.captured(), "say hi");
        let head = &fields.head;
        assert_eq!(
            (head.vpid, head.vtid, head.pid, head.tid, head.cpu),
            (Some(10), Some(11), Some(10), Some(12), Some(3))
        );
        assert_eq!((&*head.procname, &*head.hostname), ("app", ""));
    }
}

#[test]
fn nested_fields_are_in_braces_and_empty_structures_are_left_out() {
    let empty = |to: &mut LogFields| {
        to.begin_structure();
        to.end_structure();
    };
    let written = payload(|to| {
        to.member("a");
        to.begin_structure();
        number(to, "x", 1);
        to.member("nothing");
        empty(to);
        to.member("l");
        to.begin_array(2);
        to.element(0);
        number_only(to, 7);
        to.element(1);
        to.begin_structure();
        number(to, "_y", 8);
        to.end_structure();
        to.end_array();
        to.end_structure();
        to.member("empty");
        to.begin_structure();
        to.member("empty");
        empty(to);
        to.end_structure();
        to.member("none");
        to.begin_array(0);
        to.end_array();
        to.member("absent");
        to.begin_optional(false);
        to.end_optional();
        to.member("_hidden");
        to.begin_array(1);
        to.element(0);
        to.begin_structure();
        number(to, "x", 1);
        to.end_structure();
        to.end_array();
        to.member("some");
        to.begin_optional(true);
        to.begin_variant(Some("v"));
        number_only(to, 9);
        to.end_variant();
        to.end_optional();
    });
    assert_eq!(written, " a={x=1,l=[7,{_y=8}]} none=[] some=9");
}

fn number_only(to: &mut LogFields, value: u64) {
    to.unsigned(value, plain());
}

#[test]
fn numbers_have_their_base_and_their_labels() {
    let labels = labels(&[("low", 0, 9), ("five", 5, 5), ("two words", 11, 11)]);
    let labelled = NumberFormat {
        labels: Some(&labels),
        ..plain()
    };
    let based = |base| NumberFormat {
        base,
        bits: 16,
        labels: None,
    };
    let written = payload(|to| {
        to.member("a");
        to.unsigned(5, labelled);
        to.member("b");
        to.signed(-1, labelled);
        to.member("c");
        to.unsigned(11, labelled);
        to.member("d");
        to.unsigned(255, based(Base::Hexadecimal));
        to.member("e");
        to.signed(-1, based(Base::Hexadecimal));
        to.member("f");
        to.unsigned(8, based(Base::Octal));
        to.member("g");
        to.float(f64::from(0.1f32), 32);
        to.member("h");
        to.bit_array(1 << 5, 8, Some(&labels));
        to.member("i");
        to.blob(&[0, 0xAB], "");
        to.member("j");
        to.boolean(true);
    });
    assert_eq!(
        written,
        " a=low|five b=-1 c=\"two words\" d=0xff e=0xffff f=010 g=0.1 h=low|five i=00ab j=true"
    );
}

#[test]
fn hostile_texts_and_names_are_escaped() {
    let written = payload(|to| {
        text(to, "a\u{1b}[2J", "b\u{9b}31m\n");
        to.member("c");
        to.text(b"\xFF\x07");
    });
    assert_eq!(
        written,
        r#" "a\u{1b}[2J"="b\u{9b}31m\n" c="#.to_owned() + "\"\u{fffd}\\u{7}\""
    );
}

#[test]
fn all_members_of_json_are_shown_as_they_are() {
    let mut fields = LogFields::default();
    fields.begin_event(Omitted::Nothing);
    fields.begin_scope(Scope::Payload);
    let json = r#"{"n":3,"_x":null,"message":"m","vpid":-1,"o":{"l":[1,"a b"],"e":{}},"f":2.0}"#;
    assert!(visit_object(json, &mut fields));
    fields.push_text("cat", "io");
    assert_eq!(
        fields.payload,
        r#" n=3 _x=null message=m vpid=-1 o={l=[1,"a b"]} f=2.0 cat=io"#
    );
}
