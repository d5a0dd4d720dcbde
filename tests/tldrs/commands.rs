//! The commands for stored traces: `dir`, `list`, `get-tef` and `clear`.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tests::disk::SmallDisk;
use tests::process::CompletedProcess;
use tests::tldrs::{Tldrs, run_tldrs};
use tests::{Lab, binaries};

use crate::{array, event, events};

/// Writes a trace file whose modification time is `age` seconds ago.
fn write_trace(directory: &Path, name: &str, text: &str, age: u64) {
    fs::create_dir_all(directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(age))
        .unwrap();
}

/// Returns the standard output of a command that succeeded.
fn stdout_text(ended: CompletedProcess) -> String {
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    String::from_utf8(ended.stdout_bytes).unwrap()
}

#[test]
fn case_33_traces_are_listed_exported_and_removed() {
    let lab = Lab::new();
    let data = lab.directory("data");
    let d = data.to_str().unwrap();
    write_trace(&data, "b-second.jsonl", &events(&["b"]), 10);
    write_trace(&data, "a-first.jsonl", &events(&["a", "a2"]), 5);
    write_trace(&data, "notes.txt", "mine\n", 0);
    write_trace(&data, "a-first.rejected.jsonl", "{}\n", 0);
    fs::create_dir(data.join("subdir")).unwrap();
    let run = |words: &[&str]| run_tldrs(&lab, words);
    let any = ["--for", "any"];
    let get_tef = |words: &[&str]| run(&[&["get-tef"], words, &any].concat());

    assert_eq!(stdout_text(run(&["dir", "-d", d])), format!("{d}\n"));
    let listed = format!("{d}/a-first.jsonl\n{d}/b-second.jsonl\n");
    assert_eq!(stdout_text(run(&["list", "-d", d])), listed);
    let a = array(&["a", "a2"]);
    for name in [&format!("{d}/a-first.jsonl"), "a-first.jsonl", "a-first"] {
        assert_eq!(stdout_text(get_tef(&[name, "-d", d])), a, "{name}");
    }
    let newest = "latest is the newest, not the last by name";
    assert_eq!(stdout_text(get_tef(&["latest", "-d", d])), a, "{newest}");
    let object = stdout_text(run(&["get-tef", "latest", "-d", d]));
    let named = stdout_text(run(&["get-tef", "latest", "-d", d, "--for", "perfetto"]));
    assert_eq!(object, named, "Perfetto is the default");
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(object["traceEvents"].as_array().unwrap().len(), 2);
    let out = lab.path().join("a.json");
    let out = out.to_str().unwrap();
    assert_eq!(
        stdout_text(get_tef(&["a-first.jsonl", "-d", d, "-o", out])),
        ""
    );
    assert_eq!(fs::read_to_string(out).unwrap(), a);
    for words in [
        &["get-tef", "a-firs", "-d", d][..],
        &["get-tef", "nosuch"],
        &["list", "-d", "/nosuch"],
    ] {
        let ended = run(words);
        assert_eq!(ended.status.code(), Some(1), "{words:?}");
        assert!(ended.stdout_bytes.is_empty() && !ended.stderr.is_empty());
    }
    let trace = format!("{d}/a-first.jsonl");
    assert_eq!(
        run(&["get-tef", &trace, "-o", &trace]).status.code(),
        Some(1)
    );
    assert_eq!(
        stdout_text(get_tef(&[&trace])),
        a,
        "an export must not overwrite its trace"
    );
    let removed = format!("removed {d}/a-first.jsonl\nremoved {d}/b-second.jsonl\n");
    assert_eq!(stdout_text(run(&["clear", "-d", d])), removed);
    assert_eq!(stdout_text(run(&["list", "-d", d])), "");
    assert_eq!(run(&["get-tef", "latest", "-d", d]).status.code(), Some(1));
    assert!(
        data.join("notes.txt").exists(),
        "other files are not removed"
    );
    assert!(!data.join("a-first.rejected.jsonl").exists());
}

#[test]
fn clear_removes_what_the_options_select_and_a_dry_run_nothing() {
    let lab = Lab::new();
    let data = lab.directory("data");
    let d = data.to_str().unwrap();
    for (name, age) in [("new", 0), ("hours", 3 * 3600), ("days", 3 * 86400)] {
        write_trace(&data, &format!("{name}.jsonl"), &events(&["a"]), age);
    }
    fs::write(data.join(".days.state.json"), "{}\n").unwrap();
    fs::write(data.join(".other.state.json"), "{}\n").unwrap();
    let clear =
        |words: &[&str]| stdout_text(run_tldrs(&lab, &[&["clear", "-d", d], words].concat()));
    let would = format!("would remove {d}/days.jsonl\nwould remove {d}/hours.jsonl\n");
    assert_eq!(clear(&["--dry-run", "--keep", "1"]), would);
    assert_eq!(clear(&["--older-than", "1w"]), "");
    let removed = format!("removed {d}/days.jsonl\n");
    assert_eq!(clear(&["--yes", "--older-than", "1d"]), removed);
    assert!(!data.join(".days.state.json").exists());
    assert!(
        data.join(".other.state.json").exists(),
        "its trace is not removed"
    );
    assert_eq!(
        clear(&["--keep", "1"]),
        format!("removed {d}/hours.jsonl\n")
    );
    let ended = run_tldrs(&lab, &["clear", "--older-than", "soon"]);
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn serve_creates_the_directory_of_traces() {
    let lab = Lab::new();
    let (data, socket) = (lab.path().join("new/data"), lab.path().join("s"));
    let mut command = lab.command(binaries::tldrs());
    command
        .args(["serve", "-d"])
        .arg(&data)
        .arg("--socket")
        .arg(&socket);
    let daemon = tests::process::Process::start(&mut command);
    tests::wait_until("the daemon listens", || socket.exists());
    assert!(data.is_dir());
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().status.success());
}

#[test]
fn case_36_only_your_own_traces_are_removed() {
    let lab = Lab::new();
    let (home, share) = (lab.directory("home"), lab.directory("share"));
    write_trace(&home.join("tldrs"), "mine.jsonl", "{\"mine\":1}\n", 10);
    write_trace(&share.join("tldrs"), "system.jsonl", "{\"system\":1}\n", 0);
    let run = |words: &[&str]| {
        let mut command = lab.command(binaries::tldrs());
        command
            .args(words)
            .env("XDG_DATA_HOME", &home)
            .env("XDG_DATA_DIRS", &share);
        tests::process::Process::start(&mut command).wait()
    };
    let (mine, system) = (
        home.join("tldrs/mine.jsonl").display().to_string(),
        share.join("tldrs/system.jsonl").display().to_string(),
    );
    assert_eq!(
        stdout_text(run(&["dir"])),
        format!("{}/tldrs/\n", home.display())
    );
    assert_eq!(stdout_text(run(&["list"])), format!("{mine}\n{system}\n"));
    for (name, text) in [
        ("mine.jsonl", "mine"),
        ("mine", "mine"),
        ("system", "system"),
    ] {
        let got = stdout_text(run(&["get-tef", name, "--for", "any"]));
        assert_eq!(got, format!("[{{\"{text}\":1}}]\n"));
    }
    assert_eq!(
        stdout_text(run(&["get-tef", "latest", "--for", "any"])),
        "[{\"system\":1}]\n"
    );
    assert_eq!(stdout_text(run(&["clear"])), format!("removed {mine}\n"));
    assert_eq!(stdout_text(run(&["list"])), format!("{system}\n"));
}

#[test]
fn trace_that_is_open_is_cleared_only_by_force() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    let d = tldrs.data.to_str().unwrap();
    let mut client = tldrs.connect();
    let line = event("a", 1) + "\n";
    std::io::Write::write_all(&mut client, format!("OPEN t\n{line}").as_bytes()).unwrap();
    tldrs.wait_for_trace("t", &line);
    assert_eq!(run_tldrs(&lab, &["clear", "-d", d]).status.code(), Some(1));
    tldrs.wait_for_trace("t", &line);
    let emptied = stdout_text(run_tldrs(&lab, &["clear", "-d", d, "--force"]));
    assert_eq!(emptied, format!("emptied {d}/t.jsonl\n"));
    std::io::Write::write_all(&mut client, line.as_bytes()).unwrap();
    tldrs.wait_for_trace("t", &line);
    drop(client);
    tests::wait_until("the trace is closed", || {
        run_tldrs(&lab, &["clear", "-d", d]).status.success()
    });
    assert!(!tldrs.data.join(".t.state.json").exists());
}

#[test]
fn long_list_shows_the_record_of_a_trace() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let lines = "{\"a\":nan}\n{\"b\":inf}\n{\"c\":1}\n";
    std::io::Write::write_all(&mut client, format!("OPEN t\n{lines}HELLO\n").as_bytes()).unwrap();
    let d = tldrs.data.to_str().unwrap();
    let figures = || {
        let listed = run_tldrs(&lab, &["list", "--long", "-d", d]).expect_success();
        let line = listed.get(1)?.split_whitespace().skip(2);
        Some(line.map(str::to_owned).collect::<Vec<_>>())
    };
    let path = format!("{d}/t.jsonl");
    // The columns bytes, events, clients, repaired, refused, lost.
    let wanted = |clients| {
        Some(
            ["32", "3", clients, "2", "1", "0", &path]
                .map(str::to_owned)
                .to_vec(),
        )
    };
    tests::wait_until("the record is written", || figures() == wanted("1"));
    drop(client);
    tests::wait_until("the client is disconnected", || figures() == wanted("0"));
}

#[test]
fn lines_stored_by_another_daemon_are_exported_as_valid_json() {
    let lab = Lab::new();
    let data = lab.directory("data");
    write_trace(
        &data,
        "theirs.jsonl",
        "{not json}\n{\"a\":1}{\"b\":2}\n{\"v\":nan}\n{\"w\":1}\n",
        0,
    );
    let path = data.join("theirs.jsonl");
    let ended = run_tldrs(&lab, &["get-tef", path.to_str().unwrap(), "--for", "any"]);
    assert!(ended.stderr.join("").contains("left out 2 lines"));
    assert_eq!(stdout_text(ended), "[{\"v\":\"nan\"},\n{\"w\":1}]\n");
}

#[test]
fn help_is_on_standard_output_and_a_wrong_use_on_standard_error() {
    let lab = Lab::new();
    for words in [&["--help"][..], &["serve", "--help"]] {
        let help = stdout_text(run_tldrs(&lab, words));
        assert!(help.contains("Examples:") && help.contains("tldrs serve"));
    }
    for words in [
        &[][..],
        &["serve", "--no-such-option"],
        &["no-such-command"],
        &["get-tef"],
    ] {
        let ended = run_tldrs(&lab, words);
        assert_eq!(ended.status.code(), Some(2), "{words:?}");
        assert!(ended.stdout_bytes.is_empty() && !ended.stderr.is_empty());
    }
}

#[test]
fn export_to_a_full_disk_names_the_file_and_leaves_no_part_of_it() {
    let lab = Lab::new();
    let data = lab.directory("data");
    let d = data.to_str().unwrap();
    let many: Vec<String> = (0..20_000)
        .map(|number| format!("event {number}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    write_trace(&data, "many.jsonl", &events(&many), 0);
    let directory = lab.directory("disk");
    let Some(_disk) = SmallDisk::mount(&directory, 64) else {
        return;
    };
    for name in ["many.json", "many.json.gz", "many.pftrace"] {
        let out = directory.join(name);
        let command = match name {
            "many.pftrace" => "get-perfetto",
            _ => "get-tef",
        };
        let ended = run_tldrs(
            &lab,
            &[command, "many", "-d", d, "-o", out.to_str().unwrap()],
        );
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let printed = ended.stderr.concat();
        let reason = format!("{}: No space left on device", out.display());
        assert!(printed.contains(&reason), "{printed}");
        assert!(!out.exists(), "{name}");
    }
}
