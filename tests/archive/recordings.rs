//! Recorded conversations of producers with a relay that archives them: the archive has what the
//! output has. Some are in `data`, others in `../shared/captures` or `$CAPTURES`, if that exists.

use std::fs;
use std::path::{Path, PathBuf};

use tests::babeltrace::Babeltrace;
use tests::capture_proxy::Capture;
use tests::lab::Lab;

use crate::system::{ArchiveDirectory, assert_same_text, start_relay, text};

/// How often commit objects are made: while the recording is replayed, and at the end only.
const INTERVALS: [&str; 2] = ["10ms", "1h"];

fn recordings() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("CAPTURES");
    let shared = shared.map_or(own.join("../../shared/captures"), PathBuf::from);
    let directories = [own.join("data"), shared].map(fs::read_dir);
    let entries = directories.into_iter().flatten().flatten();
    let mut recordings: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    recordings.retain(|path| path.join("control.c2s").is_file());
    recordings.sort();
    recordings
}

#[test]
fn an_archived_recording_is_shown_as_the_output_of_the_relay() {
    for recording in recordings() {
        let name = recording.file_name().unwrap().to_string_lossy();
        for interval in INTERVALS {
            println!("{name}, {interval}");
            let lab = Lab::new();
            let archive = ArchiveDirectory::new(&lab);
            let options = ["--archive-interval", interval, "--archive-part-age=50ms"];
            let relay = start_relay(&lab, &archive, &options);
            let output = relay.output.clone();
            Capture::load(&recording).replay(&relay);
            relay.stop().expect_success();
            let sessions = archive.sessions();
            assert_eq!(sessions.len(), 1, "{name}: {sessions:?}");
            let (host, session) = sessions.first().unwrap();
            let archived = text(&lab, archive.session_url(host, session));
            let recorded = text(&lab, &output);
            assert!(!recorded.is_empty(), "{name}");
            assert_same_text(&name, &archived, &recorded);
            // Babeltrace reads CTF 1 only.
            if !name.ends_with("ctf2") {
                let theirs = Babeltrace::Two.read_with(&["--clock-gmt"], &output);
                assert_same_text(&name, &recorded, &theirs.expect_success());
            }
        }
    }
}
