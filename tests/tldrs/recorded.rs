//! Replays the conversations that were recorded with the reference, if the recordings lie beside
//! the workspace or in a directory above.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tests::tldrs::{DaemonPaths, Tldrs, run_tldrs};
use tests::{Lab, wait_until};

/// The contents of files by their paths in the directory of the test.
type Files = BTreeMap<String, String>;

/// Cases that need files which the recordings do not contain; `commands.rs` and `differences.rs`
/// cover them.
const NOT_REPLAYED: &[&str] = &["18-emit-tef-relative-path", "33-cli", "36-xdg-data-dirs"];

/// The maximum of recorded pauses, which were made for the reference to flush. The rest keeps
/// exports in order.
const MAX_PAUSE: Duration = Duration::from_millis(60);

fn recordings() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = |above: &Path| above.join("shared/captures/tldrs");
    workspace.ancestors().map(shared).find(|path| path.is_dir())
}

#[test]
fn recorded_conversations_have_their_expected_results() {
    let Some(recordings) = recordings() else {
        eprintln!("no recordings: nothing replayed");
        return;
    };
    let mut cases: Vec<_> = fs::read_dir(recordings)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    cases.sort();
    assert!(cases.len() >= 36);
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        if !NOT_REPLAYED.contains(&name) {
            eprintln!("{name}");
            replay(&case, name);
        }
    }
}

struct Replay<'a> {
    case: &'a Path,
    lab: &'a Lab,
    options: Vec<String>,
    daemon: Option<Tldrs>,
    clients: HashMap<String, UnixStream>,
}

fn replay(case: &Path, name: &str) {
    let lab = Lab::new();
    let places = DaemonPaths::in_lab(&lab);
    let recipe: Value = serde_json::from_slice(&fs::read(case.join("case.json")).unwrap()).unwrap();
    if name.starts_with("20-") {
        fs::write(places.out.join("precious.txt"), "do not lose me\n").unwrap();
    }
    let mut replay = Replay {
        case,
        lab: &lab,
        options: Vec::new(),
        daemon: None,
        clients: HashMap::new(),
    };
    if let Some(file) = recipe["serve"]["into_file"].as_str() {
        replay.options = vec!["--into-file".to_owned(), replay.expand_paths(file)];
    }
    replay.start();
    for step in recipe["steps"].as_array().unwrap() {
        replay.step(step);
    }
    let expected = expected(name, &recorded(case), &lab);
    replay.clients.clear();
    for (path, text) in &expected {
        wait_until(&format!("{name}: {path} is {text}"), || {
            fs::read_to_string(lab.path().join(path)).is_ok_and(|found| {
                // The reference writes the lines of several clients in another order.
                found == *text || name.starts_with("29-") && sorted(&found) == sorted(text)
            })
        });
    }
    if let Some(daemon) = replay.daemon.take() {
        daemon.stop();
    }
    assert_eq!(
        files(lab.path()).into_keys().collect::<Vec<_>>(),
        expected.into_keys().collect::<Vec<_>>(),
        "{name}"
    );
}

impl Replay<'_> {
    fn expand_paths(&self, text: &str) -> String {
        let lab = self.lab.path().to_str().unwrap();
        text.replace("@OUT@", "@TMP@/out").replace("@TMP@", lab)
    }

    fn start(&mut self) {
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        self.daemon = Some(Tldrs::start_with(self.lab, &options));
    }

    fn step(&mut self, step: &Value) {
        let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
        match step["op"].as_str().unwrap() {
            "connect" => {
                let client = self.daemon.as_ref().unwrap().connect();
                self.clients.insert(text("client"), client);
            }
            "send" => {
                let bytes = fs::read(self.case.join(text("file"))).unwrap();
                let client = self.clients.get_mut(&text("client")).unwrap();
                let bytes = replaced(bytes, self.lab);
                if let Err(error) = client.write_all(&bytes) {
                    // The daemon may have exited, since the case sends DIE.
                    let has_ended = self.case.ends_with("25-die");
                    assert!(has_ended, "{}: {error}", self.case.display());
                }
            }
            "close" => drop(self.clients.remove(&text("client"))),
            "sleep_ms" => {
                let pause = Duration::from_millis(step["ms"].as_u64().unwrap());
                std::thread::sleep(pause.min(MAX_PAUSE));
            }
            "signal_daemon" => self.signal(&text("signal")),
            "start_daemon" => self.start(),
            "wait_exit" => {
                let ended = self.daemon.take().unwrap().wait_for_exit();
                assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.stderr);
            }
            "run_cli" => {
                let words = step["argv"].as_array().unwrap().iter();
                let words: Vec<_> = words
                    .map(|word| self.expand_paths(word.as_str().unwrap()))
                    .collect();
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                let ended = run_tldrs(self.lab, &words);
                assert_eq!(ended.status.code().map(i64::from), step["exit"].as_i64());
            }
            "observe_connection" | "observe_file" | "note" => {}
            other => panic!("{other}: no such step"),
        }
    }

    fn signal(&mut self, name: &str) {
        let daemon = self.daemon.take().unwrap();
        match name {
            "SIGKILL" => daemon.kill(),
            "SIGTERM" => {
                daemon.signal(Signal::TERM);
                assert!(daemon.wait_for_exit().status.success());
            }
            other => panic!("{other}: no such signal"),
        }
    }
}

fn replaced(bytes: Vec<u8>, lab: &Lab) -> Vec<u8> {
    let lab = lab.path().to_str().unwrap();
    match String::from_utf8(bytes) {
        Ok(text) => text.replace("@OUT@", &format!("{lab}/out")).into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

fn recorded(case: &Path) -> Files {
    files(&case.join("result"))
}

/// Returns the traces and exports of a case, without the state, lock and reject files that the
/// daemon keeps beside them.
fn files(directory: &Path) -> Files {
    let mut found = Files::new();
    for part in ["data", "out", "cwd"] {
        let Ok(entries) = fs::read_dir(directory.join(part)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let beside = [".state.json", ".rejected.jsonl", ".lock"];
            let is_beside = beside.iter().any(|end| name.ends_with(end));
            if path.is_file() && !is_beside {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                found.insert(format!("{part}/{name}"), text);
            }
        }
    }
    found
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns the files that the daemon must leave: those of the reference, except for the intended
/// differences.
fn expected(name: &str, recorded: &Files, lab: &Lab) -> Files {
    let mut files = recorded.clone();
    let array = |lines: &str| format!("[{}]\n", lines.trim_end().replace('\n', ",\n"));
    let put = |files: &mut Files, path: &str, text: &str| {
        files.insert(path.to_owned(), text.to_owned());
    };
    let rename = |files: &mut Files, from: &str, to: &str| {
        let text = files.remove(from).unwrap();
        files.insert(to.to_owned(), text);
    };
    let x = |name: &str, ts: u32| crate::event(name, ts) + "\n";
    match name.split('-').next().unwrap() {
        // Events before any `OPEN` are stored, and the connection stays open.
        "04" => {
            let unnamed = format!("data/unnamed-{}.jsonl", std::process::id());
            put(&mut files, &unnamed, &x("early", 1));
            put(&mut files, "data/late.jsonl", &x("late", 2));
        }
        // No hidden files.
        "10" => rename(&mut files, "data/.hidden.jsonl", "data/%2Ehidden.jsonl"),
        // Trace names cannot lead out of the directory.
        "11" => {
            let out = lab.path().join("out/absolute").display().to_string();
            let absolute = format!("data/{}.jsonl", out.replace('/', "%2F"));
            rename(
                &mut files,
                "out/escaped.jsonl",
                "data/%2E.%2Fout%2Fescaped.jsonl",
            );
            rename(&mut files, "out/absolute.jsonl", &absolute);
            put(&mut files, "data/nosuchdir%2Fx.jsonl", &x("c3", 1));
        }
        // Only events are stored.
        "13" => put(
            &mut files,
            "data/bad.jsonl",
            &format!("{{\"v\":\"nan\"}}\n{}", x("ok", 1)),
        ),
        // Bytes that are not UTF-8 are replaced, and the connection stays open.
        "15" => {
            let lines = files["data/utf.jsonl"].clone()
                + "{\"ph\":\"i\",\"name\":\"\u{fffd}\u{fffd}\",\"ts\":2,\"pid\":1,\"tid\":1}\n"
                + &x("after", 3);
            put(&mut files, "data/utf.jsonl", &lines);
        }
        "17" => put(&mut files, "out/none.json", "[]\n"),
        "20" => put(&mut files, "out/precious.txt", "do not lose me\n"),
        "21" => put(
            &mut files,
            "out/trace.json",
            &array(&recorded["data/tr-1.jsonl"]),
        ),
        "23" => put(
            &mut files,
            "out/trace.json",
            &array(&recorded["data/tr-2.jsonl"]),
        ),
        "24" => put(
            &mut files,
            "out/x1.json",
            &array(&recorded["data/x1.jsonl"]),
        ),
        // The daemon exits at once.
        "25" => {
            let first = recorded["data/d2.jsonl"].lines().next().unwrap();
            put(&mut files, "data/d2.jsonl", &format!("{first}\n"));
        }
        // No event is lost.
        "31" | "32" => {
            let lines: String = (0..50)
                .map(|number| x(&format!("e{number}"), number))
                .collect();
            let path = recorded.keys().next().unwrap();
            put(&mut files, path, &lines);
        }
        // Values that are not JSON are repaired.
        "35" => {
            for text in files.values_mut() {
                *text = text.replace("{\"bad\":inf}", "{\"bad\":\"inf\"}");
            }
        }
        _ => {}
    }
    files
}
