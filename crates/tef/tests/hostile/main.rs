//! Lines that nobody who means well would send.

mod must;

use proptest::prelude::*;

#[test]
fn lines_that_once_failed_are_checked_and_written_back() {
    for line in [
        &b"{\"a\":\"\\ud800\\"[..],
        b"{\"a\":\"\\ud800\\u\"}",
        b"{\"ph\":\"\\",
        b"{\"ph\":\"\\\"\"}",
        b"{\"ph\":\"X\",\"ts\":-}",
        b"{\"ph\":\"X\",\"ts\":1e}",
        b"{\"ph\":\"X\",\"\":1,\"\\u0000\":2}",
        b"{\"ph\":\"b\",\"id2\":{\"local\":1,\"local\":2}}",
        b"{\"ph\":\"\xff\"},",
        b"{\"ph\":\"X\" , \"q\" : nan } ,",
    ] {
        must::line(line);
    }
}

#[test]
fn the_time_to_repair_a_line_is_proportional_to_its_length() {
    let mut line = b"{\"a\":[".to_vec();
    for _ in 0..200_000 {
        line.extend_from_slice(b"nan,\"\\ud800\xff\",");
    }
    line.extend_from_slice(b"1]}");
    must::line(&line);
    let members: Vec<_> = (0..200_000).map(|n| format!("\"{n}\":{n}")).collect();
    must::line(format!("{{{}}}", members.join(",")).as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_between_braces_are_checked_without_a_panic(
        line in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\u0dDc8 -1.eEnaifph\xff\x00"[..]), 0..60),
    ) {
        must::line(&[b"{\"ph\":\"X\",", &*line, b"}"].concat());
        must::line(&line);
    }
}
