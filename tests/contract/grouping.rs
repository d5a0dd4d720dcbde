//! `--group-output-by-session` for producers before LTTng 2.11, which send the whole path with each
//! stream.

use relay_proto::Minor;
use tests::lab::Lab;
use tests::producer::{Producer, live_session, stream};
use tests::relay::Relay;
use tests::tree::files;

/// Session names, and the stream path that an old producer sends for each.
const OLD_PATHS: [(&str, &str); 7] = [
    ("plain", "/host/plain-20200101-101010//ust/uid"),
    ("undated", "/host/undated//ust/uid"),
    (
        "auto-20200101-101010",
        "/host/auto-20200101-101010//ust/uid",
    ),
    ("based", "/host/my/base//ust/uid"),
    ("auto-20200202-202020", "/host/base//ust/uid"),
    ("like", "/host/likewise//ust/uid"),
    ("more", "/host/more-20200101-101010-rest//ust/uid"),
];

/// Returns the paths of the tracefiles that a relay creates, with `NOW` for dates of this run.
fn tracefile_paths(relay: &Relay) -> Vec<String> {
    for (name, path) in OLD_PATHS {
        let mut producer = Producer::connect(relay, Minor(10));
        let mut session = live_session(name);
        session.recording = None;
        producer.create_session(session);
        let mut request = stream("chan_0", path);
        request.chunk = None;
        producer.add_stream(request);
    }
    let created = files(&relay.output, "/chan_0").into_keys();
    created.map(|name| replace_date(&name)).collect()
}

/// Replaces a date that is not one of [`OLD_PATHS`].
fn replace_date(name: &str) -> String {
    let is_now = |at: usize| {
        let date = name.as_bytes().get(at..at + 15).unwrap_or_default();
        !date.starts_with(b"2020")
            && date.get(8) == Some(&b'-')
            && date.iter().filter(|byte| byte.is_ascii_digit()).count() == 14
    };
    match (0..name.len()).find(|at| is_now(*at)) {
        Some(at) => format!("{}NOW{}", &name[..at], &name[at + 15..]),
        None => name.to_owned(),
    }
}

#[test]
fn streams_grouped_by_session_are_placed_as_by_the_reference() {
    let by_session = &["--group-output-by-session"];
    let (lab, other) = (Lab::new(), Lab::new());
    let ours = tracefile_paths(&Relay::start_with(&lab, by_session));
    let theirs = tracefile_paths(&Relay::start_reference_with(&other, by_session));
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), OLD_PATHS.len());
    assert!(
        ours.iter()
            .any(|name| name.contains("undated/host-NOW/ust"))
    );
}
