//! Replays captured conversations of real producers with `lttng-relayd` to `relayd`: the replies
//! and the files must be the same. The captures are in `../shared/captures` or `$CAPTURES`; without
//! them the test does nothing.

use std::fs;
use std::path::{Path, PathBuf};

use tests::capture_proxy::Capture;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::tree::{Node, tree};

/// Returns the directories of the captures, if there are any.
fn captures() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let directory = std::env::var_os("CAPTURES").map_or(beside, PathBuf::from);
    let Ok(entries) = fs::read_dir(&directory) else {
        println!("{} does not exist: nothing to replay", directory.display());
        return Vec::new();
    };
    let mut captures: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    captures.retain(|path| path.join("control.c2s").is_file());
    captures.sort();
    captures
}

/// Returns the paths and contents of files: captures do not keep permissions.
fn contents(directory: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let content = |(name, node): (String, Node)| (name, node.contents);
    tree(directory).into_iter().map(content).collect()
}

#[test]
fn every_captured_conversation_gets_the_same_answers_and_leaves_the_same_tree() {
    for capture in captures() {
        let name = capture.file_name().unwrap().to_string_lossy();
        println!("{name}");
        let lab = Lab::new();
        let relay = Relay::start_with_env(&lab, "TZ", "UTC");
        Capture::load(&capture).replay(&relay);
        let (want, got) = (contents(&capture.join("output")), contents(&relay.output));
        let names = |tree: &[(String, _)]| {
            tree.iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&got), names(&want), "{name}");
        for ((path, want), (_, got)) in want.iter().zip(&got) {
            assert!(want == got, "{name}: {path} differs");
        }
    }
}
