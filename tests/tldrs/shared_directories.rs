//! Directories that other users may write to: their links are not followed, their files neither
//! used nor replaced. Only root can create files of another user; otherwise the tests check less
//! and print so.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use tests::Lab;
use tests::tldrs::{DaemonPaths, Tldrs, run_tldrs};

use crate::{array, events};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Creates a directory with the mode of `/tmp`.
fn create_shared_directory(lab: &Lab) -> PathBuf {
    let path = lab.path().join("shared");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
    path
}

/// Gives a file or link to another user. Returns whether that was possible, which is only for root.
fn give_to_other_user(path: &Path) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    } else {
        eprintln!("not root: {} stays a file of this user", path.display());
    }
    is_root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn export_replaces_no_file_of_another_user_and_takes_over_no_set_user_id_bit() {
    let (lab, mut tldrs) = Tldrs::start_in_new_lab();
    let path = create_shared_directory(&lab).join("trace.json");
    fs::write(&path, "[").unwrap();
    let is_foreign = give_to_other_user(&path);
    set_mode(&path, 0o6777);
    let export = format!("OPEN t\n{}EMIT_TEF {}\n", events(&["a"]), path.display());
    tldrs.send(&export);
    if is_foreign {
        tldrs.wait_for_log("that file belongs to user 65534, not 0");
        assert_eq!(fs::read(&path).unwrap(), b"[");
        assert_eq!(path.metadata().unwrap().uid(), NOBODY);
    } else {
        tldrs.wait_for_file(&path, &array(&["a"]));
        assert_eq!(mode(&path), 0o755);
    }
    tldrs.stop();
}

#[test]
fn export_at_exit_follows_no_symlink_of_another_user() {
    let (lab, mut tldrs) = Tldrs::start_in_new_lab();
    let target = lab.path().join("target");
    fs::create_dir(&target).unwrap();
    let link = create_shared_directory(&lab).join("out");
    symlink(&target, &link).unwrap();
    let is_foreign = give_to_other_user(&link);
    let path = link.join("t.json");
    let request = format!("EMIT_TEF_AT_EXIT {}\n", path.display());
    tldrs.send(&format!("OPEN t\n{request}{}", events(&["a"])));
    if is_foreign {
        tldrs.wait_for_log("a symbolic link in the path belongs to user 65534");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    } else {
        tldrs.wait_for_file(&target.join("t.json"), &array(&["a"]));
    }
    tldrs.stop();
}

#[test]
fn files_that_another_user_has_put_into_the_trace_directory_are_not_used() {
    let lab = Lab::new();
    let DaemonPaths { data, out, .. } = DaemonPaths::in_lab(&lab);
    let stolen = out.join("stolen.json");
    let record = format!(
        r#"{{"id":"x","clients":1,"wishes":[{{"path":"{}","uid":0,"gid":0}}]}}"#,
        stolen.display()
    );
    let (trace, planted) = (data.join("x.jsonl"), data.join(".x.state.json"));
    fs::write(&trace, events(&["planted"])).unwrap();
    fs::write(&planted, record).unwrap();
    let is_foreign = give_to_other_user(&trace) && give_to_other_user(&planted);
    let mut tldrs = Tldrs::start(&lab);
    if is_foreign {
        tldrs.wait_for_log("record of the trace not used");
        tldrs.send(&format!("OPEN x\n{0}OPEN y\n{0}", events(&["a"])));
        tldrs.wait_for_trace("y", &events(&["a"]));
        tldrs.wait_for_trace("x", &events(&["planted"]));
    } else {
        tldrs.wait_for_export("stolen.json", &array(&["planted"]));
    }
    tldrs.stop();
    assert_eq!(stolen.exists(), !is_foreign);
}

#[test]
fn get_tef_writes_to_no_file_and_through_no_symlink_of_another_user() {
    let lab = Lab::new();
    let trace = lab.path().join("t.jsonl");
    fs::write(&trace, events(&["a"])).unwrap();
    let shared = create_shared_directory(&lab);
    let get_tef = |output: &Path| {
        let words = ["get-tef", trace.to_str().unwrap(), "--for=any", "-o"];
        run_tldrs(&lab, &[&words[..], &[output.to_str().unwrap()]].concat())
    };
    let (precious, file, link) = (
        lab.path().join("precious"),
        shared.join("file"),
        shared.join("link"),
    );
    fs::write(&precious, "do not lose me").unwrap();
    fs::write(&file, "theirs").unwrap();
    symlink(&precious, &link).unwrap();
    if give_to_other_user(&file) && give_to_other_user(&link) {
        for path in [&file, &link] {
            let ended = get_tef(path);
            assert!(!ended.status.success());
            assert!(ended.stderr.concat().contains("belongs to user 65534"));
        }
        assert_eq!(fs::read(&precious).unwrap(), b"do not lose me");
        assert_eq!(fs::read(&file).unwrap(), b"theirs");
    }
    // Files of the same user and of the system are written to as usual.
    let own = lab.path().join("own");
    fs::write(&own, "longer than the text that replaces it".repeat(9)).unwrap();
    symlink(&own, lab.path().join("link")).unwrap();
    for path in [&own, &lab.path().join("link"), &shared.join("new")] {
        assert!(get_tef(path).status.success());
        assert_eq!(fs::read_to_string(path).unwrap(), array(&["a"]));
    }
    assert!(get_tef(Path::new("/dev/null")).status.success());
    let ended = get_tef(Path::new("/dev/stdout"));
    assert!(ended.status.success());
    assert_eq!(ended.stdout_bytes, array(&["a"]).into_bytes());
    assert!(!get_tef(&trace).status.success());
    assert_eq!(fs::read_to_string(&trace).unwrap(), events(&["a"]));
}
