//! Metadata that breaks a rule of CTF and that other readers read, and clocks that are far
//! from 1970.

use std::fs;
use std::path::PathBuf;

use tests::lab::Lab;
use tests::test_live;

/// Returns a trace of two events, 7 and 8 cycles after the zero of a clock of 1 GHz.
fn written(lab: &Lab, name: &str, before: &str, offset_seconds: i64) -> PathBuf {
    let directory = lab.directory(name);
    let metadata = format!(
        "{before}/* CTF 1.8 */
trace {{ major = 1; minor = 8; byte_order = le; }};
clock {{ name = c; freq = 1000000000; offset_s = {offset_seconds}; absolute = true; }};
stream {{ event.header := struct {{ integer {{ size = 8; map = clock.c.value; }} timestamp; }}; }};
event {{ name = e; }};
"
    );
    fs::write(directory.join("metadata"), metadata).unwrap();
    fs::write(directory.join("events_0"), [7, 8]).unwrap();
    directory
}

#[test]
fn metadata_that_breaks_a_rule_is_reported_once_and_refused_with_strict() {
    let lab = Lab::new();
    let unusual = written(&lab, "session/unusual", "\n", 0);
    let is_warning = |line: &&String| line.contains("white space before `/* CTF 1.8`");
    let shown = test_live::read(&lab, &[], &unusual);
    assert_eq!(shown.status.code(), Some(0), "{:#?}", shown.stderr);
    assert_eq!(shown.stdout.len(), 2);
    assert_eq!(shown.stderr.iter().filter(is_warning).count(), 1);

    written(&lab, "session/usual", "", 0);
    let strict = test_live::read(&lab, &["--strict"], unusual.parent().unwrap());
    assert_eq!(strict.status.code(), Some(1));
    assert_eq!(strict.stdout.len(), 2, "the other trace is shown");
    assert_eq!(strict.stderr.iter().filter(is_warning).count(), 1);
}

#[test]
fn times_of_a_clock_too_far_from_1970_are_shown_as_seconds() {
    let lab = Lab::new();
    let far = written(&lab, "far", "", 1_351_530_929_945_824_323);
    for (options, want) in [
        (&["--no-delta"][..], "[1351530929945824323.000000007] e: "),
        (&["--sink", "log"], "1351530929945824323.000000007 e"),
        (
            &["--sink", "details"],
            "[7 cycles, 1,351,530,929,945,824,323,000,000,007 ns from origin]",
        ),
        (
            &["--sink", "json"],
            "{\"time\":1351530929945824323000000007,",
        ),
        (&["info"], "begin      unknown"),
    ] {
        let shown = test_live::read(&lab, options, &far).expect_success();
        assert!(shown[0].starts_with(want), "{shown:#?}");
    }
}
