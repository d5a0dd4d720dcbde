//! Exports beside what the conversations show.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use tests::Lab;
use tests::tldrs::Tldrs;

use crate::{array, events};

#[test]
fn an_export_takes_the_place_of_an_older_one_and_keeps_its_mode() {
    let lab = Lab::new();
    let tldrs = Tldrs::start(&lab);
    let path = tldrs.out.join("t.json");
    fs::write(&path, "[").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    tldrs.say(&format!(
        "OPEN t\n{}EMIT_TEF @OUT@/t.json\n",
        events(&["a"])
    ));
    tldrs.exports("t.json", &array(&["a"]));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn of_many_exports_to_one_path_the_last_one_stays() {
    let lab = Lab::new();
    let tldrs = Tldrs::start(&lab);
    let names: Vec<_> = (0..500).map(|name| name.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut said = "OPEN t\n".to_owned();
    for line in events(&names).lines() {
        said += line;
        said += "\nEMIT_TEF @OUT@/t.json\n";
    }
    tldrs.say(&said);
    tldrs.exports("t.json", &array(&names));
    tldrs.stop();
}

#[test]
fn several_wishes_are_all_fulfilled_and_each_once() {
    let lab = Lab::new();
    let tldrs = Tldrs::start(&lab);
    let mut client = tldrs.connect();
    for path in ["one", "two", "one", "missing/three"] {
        let wish = tldrs.put(&format!("OPEN t\nEMIT_TEF_AT_EXIT @OUT@/{path}.json\n"));
        write!(client, "{wish}").unwrap();
    }
    write!(client, "{}", events(&["a"])).unwrap();
    drop(client);
    tldrs.exports("one.json", &array(&["a"]));
    tldrs.exports("two.json", &array(&["a"]));
    let log = tldrs.log();
    tldrs.stop();
    let exported = log
        .iter()
        .filter(|line| line.contains("exported") && line.contains("one.json"));
    assert!(exported.count() <= 1, "{log:#?}");
}

#[test]
fn what_is_stored_for_power_failures_is_the_same() {
    let lab = Lab::new();
    let tldrs = Tldrs::with(&lab, &["--sync"]);
    tldrs.say(&format!(
        "OPEN t\nEMIT_TEF_AT_EXIT @OUT@/t.json\n{}",
        events(&["a", "b"])
    ));
    tldrs.stores("t", &events(&["a", "b"]));
    tldrs.exports("t.json", &array(&["a", "b"]));
}
