//! Exports, besides those of the recorded conversations.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use tests::Lab;
use tests::tldrs::Tldrs;

use crate::{array, events};

#[test]
fn export_replaces_an_older_one_and_keeps_its_mode() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let path = tldrs.out.join("t.json");
    fs::write(&path, "[").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    tldrs.send(&format!(
        "OPEN t\n{}EMIT_TEF @OUT@/t.json\n",
        events(&["a"])
    ));
    tldrs.wait_for_export("t.json", &array(&["a"]));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn last_of_many_exports_to_one_path_remains() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let names: Vec<_> = (0..500).map(|name| name.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut commands = "OPEN t\n".to_owned();
    for line in events(&names).lines() {
        commands += line;
        commands += "\nEMIT_TEF @OUT@/t.json\n";
    }
    tldrs.send(&commands);
    tldrs.wait_for_export("t.json", &array(&names));
    tldrs.stop();
}

#[test]
fn each_pending_export_is_made_once() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    for path in ["one", "two", "one", "missing/three"] {
        let request = tldrs.expand_paths(&format!("OPEN t\nEMIT_TEF_AT_EXIT @OUT@/{path}.json\n"));
        write!(client, "{request}").unwrap();
    }
    write!(client, "{}", events(&["a"])).unwrap();
    drop(client);
    tldrs.wait_for_export("one.json", &array(&["a"]));
    tldrs.wait_for_export("two.json", &array(&["a"]));
    let log = tldrs.log();
    tldrs.stop();
    let exported = log
        .iter()
        .filter(|line| line.contains("exported") && line.contains("one.json"));
    assert!(exported.count() <= 1, "{log:#?}");
}

#[test]
fn stored_lines_are_the_same_with_sync() {
    let lab = Lab::new();
    let tldrs = Tldrs::start_with(&lab, &["--sync"]);
    tldrs.send(&format!(
        "OPEN t\nEMIT_TEF_AT_EXIT @OUT@/t.json\n{}",
        events(&["a", "b"])
    ));
    tldrs.wait_for_trace("t", &events(&["a", "b"]));
    tldrs.wait_for_export("t.json", &array(&["a", "b"]));
}
