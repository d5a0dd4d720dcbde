//! Replays captured conversations of an LTTng 2.15 producer to `relayd`: the replies and the files
//! must be the same. Debian has no such producer; `data/README.md` says how the captures were made.

use std::path::Path;

use tests::capture_proxy::Capture;
use tests::relay::Relay;
use tests::tree::files;

fn assert_same_tree(name: &str) {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name);
    let (_lab, relay) = Relay::start_in_new_lab();
    Capture::load(&recorded).replay(&relay);
    let tree = std::fs::read_to_string(recorded.join("tree.hex")).unwrap();
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'))
        .collect();
    let files = files(&relay.output, "");
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(files.keys().collect::<Vec<_>>(), sorted);
    for name in names {
        let want = wire::hex::section(&tree, name).unwrap();
        assert!(files[name] == want, "{name} differs");
    }
}

#[test]
fn a_live_session_is_recorded_as_by_lttng_relayd_2_15() {
    assert_same_tree("producer-2.15-live");
}

#[test]
fn a_ctf_2_session_is_recorded_and_rotated_as_by_lttng_relayd_2_15() {
    assert_same_tree("producer-2.15-ctf2");
}
