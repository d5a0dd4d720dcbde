use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use std::path::PathBuf;

use super::*;

const OTHER: u32 = 65_534;

struct Scene {
    directory: tempfile::TempDir,
    uid: u32,
}

impl Scene {
    fn new() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let directory = tempfile::tempdir().unwrap();
        Self { directory, uid }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes it a file of another user than the user that is returned. Only root can change the
    /// owner of a file; without root another user is returned instead.
    fn not_the_owner_of(&self, path: &Path) -> u32 {
        if self.uid != 0 {
            return self.uid + 1;
        }
        let mode = path.symlink_metadata().unwrap().mode();
        lchown(path, Some(OTHER), Some(OTHER)).unwrap();
        if path.symlink_metadata().unwrap().is_file() {
            // Giving it away has taken the bits that set a user or group.
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777)).unwrap();
        }
        self.uid
    }

    fn export(&self, path: &Path) -> Result<(), ExportRefusal> {
        let target = ExportTarget::open(path, self.uid)?;
        let mut draft = target.create_draft().unwrap();
        draft.file().write_all(b"[]\n").unwrap();
        draft.publish(true).unwrap();
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn export_replaces_a_trace_and_keeps_its_mode() {
    let scene = Scene::new();
    let path = scene.path("t.json");
    fs::write(&path, " \n{\"traceEvents\":[").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    // Left by a daemon that was killed.
    fs::write(scene.path("t.json.tmp.0"), "").unwrap();
    scene.export(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"[]\n");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(scene.names(), ["t.json", "t.json.tmp.0"]);
}

#[test]
fn file_that_does_not_look_like_a_trace_is_not_replaced() {
    let scene = Scene::new();
    let path = scene.path("precious.txt");
    fs::write(&path, "do not lose me\n").unwrap();
    let refusal = scene.export(&path).unwrap_err();
    assert!(matches!(refusal, ExportRefusal::NoTrace), "{refusal}");
    let link = scene.path("link.json");
    symlink(scene.path("target"), &link).unwrap();
    for path in [&link, &scene.directory.path().to_owned()] {
        let refusal = scene.export(path).unwrap_err();
        assert!(matches!(refusal, ExportRefusal::NoRegularFile), "{refusal}");
    }
    assert_eq!(scene.names(), ["link.json", "precious.txt"]);
}

#[test]
fn export_path_that_is_relative_or_lacks_directory_or_name_is_refused() {
    let scene = Scene::new();
    let refused = |path: &Path| scene.export(path).unwrap_err();
    assert!(matches!(
        refused(&scene.path("missing/t.json")),
        ExportRefusal::Directory(_)
    ));
    assert!(matches!(
        refused(Path::new("t.json")),
        ExportRefusal::Relative
    ));
    assert!(matches!(refused(Path::new("/")), ExportRefusal::NoName));
    assert!(matches!(refused(&scene.path("t/")), ExportRefusal::NoName));
    assert!(matches!(refused(&scene.path("..")), ExportRefusal::NoName));
}

#[test]
fn export_takes_over_no_set_user_id_bit_and_only_its_owner_may_write_it() {
    let scene = Scene::new();
    let path = scene.path("t.json");
    for (mode, want) in [(0o6777, 0o755), (0o6755, 0o755), (0o666, 0o644)] {
        fs::write(&path, "[").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        scene.export(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, want, "{mode:o}");
    }
    fs::hard_link(&path, scene.path("second name")).unwrap();
    scene.export(&path).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn export_of_another_group_gives_it_no_permissions_of_the_group_before() {
    let scene = Scene::new();
    if scene.uid != 0 {
        return eprintln!("not root: cannot make a file of a group that this user is not in");
    }
    let path = scene.path("t.json");
    fs::write(&path, "[").unwrap();
    chown(&path, None, Some(OTHER)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    scene.export(&path).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn file_of_another_user_is_not_replaced_in_any_directory() {
    let scene = Scene::new();
    let planted = scene.path("t.json");
    fs::write(&planted, "[").unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o6777)).unwrap();
    let uid = scene.not_the_owner_of(&planted);
    for mode in [0o1777, 0o777, 0o755] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(scene.directory.path(), permissions).unwrap();
        let refusal = ExportTarget::open(&planted, uid).unwrap_err();
        assert!(
            matches!(refusal, ExportRefusal::FileOfOther { .. }),
            "{refusal}"
        );
    }
    assert_eq!(fs::read(&planted).unwrap(), b"[");
}

#[test]
fn symlink_of_another_user_leads_no_export_elsewhere() {
    let scene = Scene::new();
    fs::create_dir(scene.path("target")).unwrap();
    let link = scene.path("link");
    symlink("target", &link).unwrap();
    let uid = scene.not_the_owner_of(&link);
    let refusal = ExportTarget::open(&link.join("t.json"), uid).unwrap_err();
    assert!(
        matches!(refusal, ExportRefusal::LinkOfOther { .. }),
        "{refusal}"
    );
}

#[test]
fn draft_names_cannot_be_occupied_in_advance() {
    let scene = Scene::new();
    for number in 0..=64 {
        fs::write(scene.path(&format!("t.json.tmp.{number}")), "").unwrap();
    }
    let path = scene.path("t.json");
    scene.export(&path).unwrap();
    assert_eq!(scene.names().len(), 66);
}
