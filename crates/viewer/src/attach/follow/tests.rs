use tokio::sync::mpsc::channel;

use super::*;

#[test]
fn following_a_directory_without_traces_fails() {
    let directory = tempfile::tempdir().unwrap();
    for path in [
        directory.path().to_owned(),
        directory.path().join("missing"),
    ] {
        let (sender, mut events) = channel(1);
        let handle = spawn(path, FollowOptions::default(), sender).unwrap();
        assert!(matches!(
            events.blocking_recv(),
            Some(SourceEvent::Failed(_))
        ));
        assert!(events.blocking_recv().is_none());
        handle.join();
    }
}

#[test]
fn stopping_ends_a_directory_source_that_waits_for_traces() {
    let directory = tempfile::tempdir().unwrap();
    let options = FollowOptions {
        wait: true,
        ..FollowOptions::default()
    };
    let (sender, mut events) = channel(1);
    let handle = spawn(directory.path().to_owned(), options, sender).unwrap();
    handle.stop();
    assert!(events.blocking_recv().is_none());
    handle.join();
}

#[test]
fn a_dropped_receiver_ends_a_directory_source() {
    let directory = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; stream {};";
    for name in ["a", "b", "c"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
        std::fs::write(directory.path().join(name).join("metadata"), text).unwrap();
    }
    let (sender, mut events) = channel(1);
    let path = directory.path().to_owned();
    let handle = spawn(path, FollowOptions::default(), sender).unwrap();
    assert!(matches!(
        events.blocking_recv(),
        Some(SourceEvent::Trace { .. })
    ));
    drop(events);
    handle.join();
}

#[test]
fn a_trace_whose_metadata_is_empty_cut_or_malformed_is_reported_as_missing() {
    let directory = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; stream {};";
    for (name, text) in [
        ("good", text),
        ("empty", ""),
        ("cut", &text[..40]),
        ("malformed", "trace { major = 1; minor = ; };"),
    ] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
        std::fs::write(directory.path().join(name).join("metadata"), text).unwrap();
    }
    let options = FollowOptions {
        silence: Some(Duration::ZERO),
        ..FollowOptions::default()
    };
    let (sender, mut events) = channel(16);
    let handle = spawn(directory.path().to_owned(), options, sender).unwrap();
    let (mut traces, mut missing) = (0, Vec::new());
    while let Some(event) = events.blocking_recv() {
        match event {
            SourceEvent::Trace { .. } => traces += 1,
            SourceEvent::Missing(what) => missing.push(what),
            _ => {}
        }
    }
    missing.sort();
    assert_eq!(traces, 1);
    for (what, name) in missing.iter().zip(["cut", "empty", "malformed"]) {
        assert!(what.contains(&format!("{name}/metadata")), "{missing:?}");
    }
    assert_eq!(missing.len(), 3);
    handle.join();
}
