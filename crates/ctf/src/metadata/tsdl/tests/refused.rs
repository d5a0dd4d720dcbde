//! Texts that are refused.

use super::*;

/// Each of `cases` is the fields of an event, and column and text of the error.
fn assert_fields_refused(cases: &[(&str, &str)]) {
    for (fields, want) in cases {
        let text = format!(
            "{} {} env {{ t = \"x\"; }}; event {{ name = e; fields := struct {{\n{fields} }}; }};",
            TYPES.replace('\n', " "),
            TRACE.trim()
        );
        let error = refused(&text);
        let want = format!("metadata, line 2, column {want}");
        assert!(error.starts_with(&want), "{fields}\n  {error}\n  {want}");
    }
}

#[test]
fn each_invalid_tsdl_declarator_is_refused_with_its_position() {
    assert_fields_refused(&[
        ("u8 a[-1];", "6: -1 is no length"),
        ("u8 a[];", "6: a length"),
        ("u8 a[\"x\"];", "6: a length"),
        ("u8 a[env.t];", "6: `env.t` is a text"),
        ("u8 a[stream.event];", "6: `stream.event` names no field"),
        ("u8 a : 3;", "6: bit fields"),
        ("u8 a; u32 a;", "11: the name `a` is given twice"),
        ("u8 int;", "1: a name is expected after this type"),
        (
            "u8 event;",
            "4: a name that is no keyword is expected, not the keyword `event`",
        ),
        ("nosuch a;", "1: there is no type `nosuch`"),
        ("u8 *a;", "1: there is no type `u8 *`"),
        (
            "struct { u8 b; } *a;",
            "18: a pointer to a type without a name",
        ),
        ("u8;", "1: a name is expected after this type"),
        ("u8 a", "6: `;` is expected, not `}`"),
    ]);
}

#[test]
fn each_invalid_tsdl_compound_type_is_refused_with_its_position() {
    assert_fields_refused(&[
        ("struct s a;", "8: there is no `struct s`"),
        ("struct s { struct s b; } a;", "19: there is no `struct s`"),
        (
            "struct s { }; struct s { };",
            "22: the struct `s` is declared twice",
        ),
        ("struct { } align(3) a;", "18: alignment 3"),
        ("enum { a } e;", "1: an enum without a type"),
        (
            "enum : struct { } { a } e;",
            "1: the type of an enum must be an integer",
        ),
        ("enum : u8 { a = 2 ... 1 } e;", "13: `a` begins with 2"),
        ("enum : u8 { } e;", "13: a label"),
        ("variant { u8 a; } v;", "1: a variant without a tag"),
        ("variant <t> { } v;", "1: a variant without options"),
        (
            "variant <t> { u8 a; u8 a; } v;",
            "24: the name `a` is given twice",
        ),
    ]);
}

#[test]
fn each_invalid_tsdl_scalar_type_is_refused_with_its_position() {
    assert_fields_refused(&[
        ("integer { align = 8; } a;", "1: `integer` has no `size`"),
        (
            "integer { size = 0; } a;",
            "18: `size` must be 1 to 64 bits, not 0",
        ),
        (
            "integer { size = 65; } a;",
            "18: `size` must be 1 to 64 bits, not 65",
        ),
        (
            "integer { size = 8; size = 8; } a;",
            "21: `size` is given twice",
        ),
        (
            "integer { size = 8; align = 0; } a;",
            "29: `align` must be a power of two",
        ),
        ("integer { size = 8; base = 7; } a;", "28: `base` must be"),
        (
            "integer { size = 8; signed = maybe; } a;",
            "30: `signed` must be",
        ),
        (
            "integer { size = 8; byte_order = pdp; } a;",
            "34: `byte_order` must be",
        ),
        (
            "integer { size = 8; encoding = latin1; } a;",
            "32: `encoding` must be",
        ),
        ("integer { size = 8; map = x; } a;", "27: `map` must be"),
        (
            "integer { size = 8; map = clock.x.value; } a;",
            "27: there is no clock `x`",
        ),
        (
            "floating_point { exp_dig = 8; mant_dig = 23; } a;",
            "42: `mant_dig` must be 24",
        ),
        (
            "floating_point { exp_dig = 5; mant_dig = 11; } a;",
            "28: `exp_dig` must be 8 or 11",
        ),
        ("string { encoding = latin1; } a;", "21: `encoding` must be"),
        ("u8 a[typedef];", "6: `typedef` names no field"),
        (
            "variant <variant> { u8 a; } v;",
            "10: `variant` names no field",
        ),
        (
            "typealias u8 := trace; u8 a;",
            "17: the name of a type is expected, not the keyword `trace`",
        ),
    ]);
}

#[test]
fn each_invalid_tsdl_block_is_refused_with_its_position() {
    for (text, want) in [
        ("", "1: the metadata has no `trace`"),
        (
            "trace { major = 1; minor = 8; };",
            "1: `trace` has no `byte_order`",
        ),
        (
            "trace { minor = 8; byte_order = le; };",
            "1: `trace` has no `major`",
        ),
        (
            "trace { major = 1; minor = 7; byte_order = le; };",
            "28: `minor` must be 8",
        ),
        (
            "trace { major = 1; byte_order = native; };",
            "33: `byte_order` must be",
        ),
        (
            "trace { byte_order = le; uuid = \"x\"; major = 1; minor = 8; };",
            "33: `uuid` must be",
        ),
        ("{T}{T}", "1: a second `trace`"),
        ("{T}clock { freq = 1; };", "1: `clock` has no `name`"),
        ("{T}clock { name = a; freq = 0; };", "26: `freq` must be"),
        (
            "{T}clock { name = a; }; clock { name = a; };",
            "37: the clock `a` is declared twice",
        ),
        (
            "{T}env { a = 1; a = 2; };",
            "14: `a` is given twice in one `env`",
        ),
        (
            "{T}stream { id = -1; };",
            "15: `id` must be an integer of 0 or above, not -1",
        ),
        ("{T}event { id = 1; };", "1: `event` has no `name`"),
        (
            "{T}event { name = a; fields = 1; };",
            "28: `fields` must be a structure, after `:=`, not 1",
        ),
        (
            "{T}event { name = a; fields := string; };",
            "29: `fields` must be a structure, not another type",
        ),
        (
            "{T}event { name = a; b; };",
            "19: a name is expected after this type",
        ),
        ("{T}}", "1: `}` without its `{`"),
        (
            "{T}env { a = 1; } event { name = a; };",
            "16: `;` is expected after the `env` block, not `event`",
        ),
        (
            "{T}env { a = ]; };",
            "11: a number, a text or a name is expected, not `]`",
        ),
        (
            "{T}typealias string := ;",
            "21: the name of a type is expected, not `;`",
        ),
        (
            "{T}stream { packet.context := struct { string timestamp_end; }; };",
            "28: `timestamp_end` must be an unsigned",
        ),
        (
            "{T}stream { event.header := struct { integer { size = 8; signed = true; } id; }; };",
            "26: `id` must be an unsigned",
        ),
    ] {
        let line = if text.contains("{T}") { 2 } else { 1 };
        let text = text.replace("{T}", TRACE);
        let error = refused(&text);
        let want = format!("metadata, line {line}, column {}", want);
        assert!(error.starts_with(&want), "{text}\n  {error}\n  {want}");
    }
}

#[test]
fn a_packet_header_without_the_required_fields_is_refused() {
    for (fields, want) in [
        (
            "u64 magic;",
            "`magic` must be an unsigned integer of 32 bits",
        ),
        ("u8 a; u32 magic;", "`magic` must be the first member"),
        ("u8 uuid[15];", "`uuid` must be an array of 16 bytes"),
        ("u32 uuid[16];", "`uuid` must be an array of 16 bytes"),
        (
            "string stream_id;",
            "`stream_id` must be an unsigned integer",
        ),
    ] {
        let error = refused(&format!(
            "{TYPES} trace {{ major = 1; minor = 8; byte_order = le;
            packet.header := struct {{ {fields} }}; }};"
        ));
        assert!(error.contains(want), "{fields}: {error}");
    }
}

#[test]
fn tsdl_text_that_ends_within_a_declaration_is_refused() {
    let text = &BACKWARDS[..BACKWARDS.find("\ncallsite").unwrap()];
    for cut in 0..text.len() {
        in_pieces(&text.as_bytes()[..cut], cut).unwrap_err();
    }
}

#[test]
fn nesting_of_tsdl_types_is_limited_in_every_notation() {
    let deep = |open: &str, close: &str| format!("{TRACE}{}{}", open.repeat(9000), close);
    for text in [
        deep("struct { ", ""),
        deep("enum : ", "string { a };"),
        deep("typealias ", ""),
    ] {
        refused(&text);
    }
    let brackets = format!("{TYPES}{TRACE}typedef u8 t{};", "[1]".repeat(9000));
    assert!(refused(&brackets).contains("128 types within each other"));
    let mut chain = format!("{TYPES}{TRACE}struct s0 {{ u8 a; }};\n");
    for n in 1..200 {
        chain += &format!("struct s{n} {{ struct s{} a; }};\n", n - 1);
    }
    assert!(refused(&chain).contains("128 types within each other"));
}

#[test]
fn pending_tsdl_declarations_are_limited() {
    let waiting = "struct s { };".repeat(limits::MAX_PENDING_TOKENS / 5 + 1);
    assert!(refused(&waiting).contains("too many declarations are pending"));
}

#[test]
fn tsdl_types_that_double_at_every_step_are_refused_before_memory_is_allocated() {
    let mut text = format!("{TYPES}{TRACE}struct s0 {{ u8 a; }};\n");
    for n in 1..100 {
        text += &format!("struct s{n} {{ struct s{0} a; struct s{0} b; }};\n", n - 1);
    }
    assert!(refused(&text).contains("fields within one type"));
    let huge =
        format!("{TYPES}{TRACE}typedef u8 a[2147483648]; typedef a b[18446744073709551615];");
    parsed(&huge);
}

#[test]
fn tsdl_text_with_one_byte_changed_never_panics() {
    for place in 0..BACKWARDS.len() {
        for byte in *b"{};.-0a\"\xff" {
            let mut text = BACKWARDS.as_bytes().to_vec();
            text[place] = byte;
            let _either = in_pieces(&text, text.len());
        }
    }
}
