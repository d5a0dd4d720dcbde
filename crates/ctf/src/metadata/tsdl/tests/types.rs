//! Types, names, and references to them.

use super::*;
use crate::model::{Base, Length, Origin, Scope, Selection};

#[test]
fn one_leading_underscore_of_a_field_name_is_removed_for_display_only() {
    let members = members("u8 __n; u8 _a[__n]; u8 b;");
    let names: Vec<(&str, &str)> = (members.iter())
        .map(|member| (&*member.name, &*member.written))
        .collect();
    assert_eq!(names, [("_n", "__n"), ("a", "_a"), ("b", "b")]);
}

#[test]
fn a_tsdl_name_is_a_type_only_in_type_position() {
    let members = members(
        "typealias integer { size = 16; } := u8; u8 wide; u32 u64; u64 u32; struct { u8 u8; } s;",
    );
    assert_eq!(integer(&members[0].class).bits, 16);
    assert_eq!(integer(&members[1].class).bits, 32);
    assert_eq!(integer(&members[2].class).bits, 64);
    assert_eq!(&*inner(&members[3].class).members[0].name, "u8");
}

#[test]
fn a_tsdl_type_is_visible_in_its_scope_only() {
    let error = refused(&format!(
        "{TYPES}{TRACE}event {{ name = a; fields := struct {{ typedef u8 mine; mine a; }}; }};
        event {{ name = b; fields := struct {{ mine a; }}; }}"
    ));
    assert!(error.contains("there is no type `mine`"), "{error}");
}

#[test]
fn tsdl_types_are_found_by_all_words_of_their_name_and_pointers_are_hexadecimal() {
    let members = members(
        "typealias integer { size = 7; } := unsigned long long;
        typealias integer { size = 9; } := const struct page *;
        typealias integer { size = 11; } := const char;
        typealias integer { size = 13; } := void *;
        typedef u32 pair[2], one;
        long unsigned long a; const struct page *b; const char c; void *d[2]; pair e; const one f;",
    );
    assert_eq!(integer(&members[0].class).bits, 7);
    let pointer = integer(&members[1].class);
    assert_eq!((pointer.bits, pointer.base), (9, Base::Hexadecimal));
    assert_eq!(integer(&members[2].class).bits, 11);
    let FieldClass::Array { element, .. } = &members[3].class else {
        panic!("{:?}", members[3]);
    };
    assert_eq!(
        (integer(element).bits, integer(element).base),
        (13, Base::Hexadecimal)
    );
    assert!(matches!(
        members[4].class,
        FieldClass::Array {
            length: Length::Static(2),
            ..
        }
    ));
    assert_eq!(integer(&members[5].class).bits, 32);
}

#[test]
fn array_lengths_in_several_brackets_apply_from_the_right() {
    let members = members("u8 grid[2][3]; integer { size = 8; encoding = UTF8; } lines[2][u];");
    let FieldClass::Array {
        element, length, ..
    } = &members[0].class
    else {
        panic!("{:?}", members[0]);
    };
    assert_eq!(*length, Length::Static(2));
    assert!(matches!(
        **element,
        FieldClass::Array {
            length: Length::Static(3),
            ..
        }
    ));
    let FieldClass::Array { element, .. } = &members[1].class else {
        panic!("{:?}", members[1]);
    };
    assert!(matches!(
        &**element,
        FieldClass::Text { length: Length::Dynamic(reference), .. }
            if reference.origin == Origin::Innermost
    ));
}

#[test]
fn only_tsdl_arrays_of_bytes_with_an_encoding_are_text() {
    let members = members(
        "integer { size = 8; encoding = ASCII; signed = true; } a[2];
        integer { size = 8; encoding = none; } b[2];
        integer { size = 8; align = 1; encoding = UTF8; } c[2];
        integer { size = 16; encoding = UTF8; } d[2];
        integer { size = 8; encoding = UTF8; } e;",
    );
    let texts: Vec<bool> = (members.iter())
        .map(|member| matches!(member.class, FieldClass::Text { .. }))
        .collect();
    assert_eq!(texts, [true, false, false, false, false]);
}

#[test]
fn an_enumeration_label_without_value_has_the_next_one() {
    let members = members("enum : u8 { A, B, int = 10, D, R = 20 ... 30, E, A = 7, } e;");
    let labels = integer(&members[0].class).labels.clone().unwrap();
    let shown: Vec<(&str, &[(i128, i128)])> = (labels.as_slice().iter())
        .map(|label| (&*label.name, &*label.ranges))
        .collect();
    assert_eq!(
        shown,
        [
            ("A", &[(0, 0), (7, 7)][..]),
            ("B", &[(1, 1)]),
            ("int", &[(10, 10)]),
            ("D", &[(11, 11)]),
            ("R", &[(20, 30)]),
            ("E", &[(31, 31)]),
        ]
    );
}

#[test]
fn a_variant_takes_its_tag_where_it_is_defined_or_where_it_is_used() {
    let members = members(
        "variant v { u8 _a; u32 b; };
        enum : u8 { _a, b } tag;
        variant v <tag> x; variant v <stream.event.header.id> y; variant <s.tag> { u8 b; } z;",
    );
    let variants: Vec<_> = (members[1..].iter())
        .map(|member| match &member.class {
            FieldClass::Variant(variant) => variant,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(variants[0].selector.origin, Origin::Innermost);
    assert_eq!(variants[0].options[0].name.as_deref(), Some("a"));
    assert_eq!(variants[0].options[0].ranges, Selection::Label("_a".into()));
    let absolute = &variants[1].selector;
    assert_eq!(absolute.origin, Origin::Root(Scope::EventHeader));
    assert_eq!(absolute.path, [Some("id".into())]);
    assert_eq!(
        variants[2].selector.path,
        [Some("s".into()), Some("tag".into())]
    );
}
