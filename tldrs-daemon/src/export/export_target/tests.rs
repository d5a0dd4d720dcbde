use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use super::*;

const OTHER: u32 = 65_534;

struct Scene {
    directory: tempfile::TempDir,
    me: ExportOwner,
}

impl Scene {
    fn new() -> Self {
        let me = ExportOwner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let directory = tempfile::tempdir().unwrap();
        Self { directory, me }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn other(&self) -> ExportOwner {
        ExportOwner {
            uid: self.me.uid + 1,
            gid: self.me.gid,
        }
    }

    /// Makes it a file of another user than the requester that is returned. Only root can change the owner
    /// of a file; without root the requester is another user instead.
    fn not_the_owner_of(&self, path: &Path) -> ExportOwner {
        if self.me.uid != 0 {
            return self.other();
        }
        let mode = path.symlink_metadata().unwrap().mode();
        lchown(path, Some(OTHER), Some(OTHER)).unwrap();
        if path.symlink_metadata().unwrap().is_file() {
            // Giving it away has taken the bits that set a user or group.
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777)).unwrap();
        }
        self.me
    }

    fn export(
        &self,
        rules: &ExportRules,
        path: &Path,
        owner: ExportOwner,
    ) -> Result<(), ExportRefusal> {
        let target = rules.export_target(path, owner)?;
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
    let rules = ExportRules::new(scene.me.uid, None);
    let path = scene.path("t.json");
    fs::write(&path, " \n{\"traceEvents\":[").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    // Left behind by a daemon that was killed.
    fs::write(scene.path("t.json.tmp.0"), "").unwrap();
    scene.export(&rules, &path, scene.me).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"[]\n");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(scene.names(), ["t.json", "t.json.tmp.0"]);
}

#[test]
fn file_that_does_not_look_like_a_trace_is_not_replaced() {
    let scene = Scene::new();
    let rules = ExportRules::new(scene.me.uid, None);
    let path = scene.path("precious.txt");
    fs::write(&path, "do not lose me\n").unwrap();
    let refusal = scene.export(&rules, &path, scene.me).unwrap_err();
    assert!(matches!(refusal, ExportRefusal::NoTrace), "{refusal}");
    let link = scene.path("link.json");
    symlink(scene.path("target"), &link).unwrap();
    for path in [&link, &scene.directory.path().to_owned()] {
        let refusal = scene.export(&rules, path, scene.me).unwrap_err();
        assert!(matches!(refusal, ExportRefusal::NoRegularFile), "{refusal}");
    }
    assert_eq!(scene.names(), ["link.json", "precious.txt"]);
}

#[test]
fn export_path_that_is_relative_or_lacks_directory_or_name_is_refused() {
    let scene = Scene::new();
    let rules = ExportRules::new(scene.me.uid, None);
    let refused = |path: &Path| scene.export(&rules, path, scene.me).unwrap_err();
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
    let rules = ExportRules::new(scene.me.uid, None);
    let path = scene.path("t.json");
    for (mode, want) in [(0o6777, 0o755), (0o6755, 0o755), (0o666, 0o644)] {
        fs::write(&path, "[").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        scene.export(&rules, &path, scene.me).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, want, "{mode:o}");
    }
    fs::hard_link(&path, scene.path("second name")).unwrap();
    scene.export(&rules, &path, scene.me).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn export_of_another_group_gives_it_no_permissions_of_the_group_before() {
    let scene = Scene::new();
    if scene.me.uid != 0 {
        return eprintln!("not root: cannot make a file of a group that this user is not in");
    }
    let rules = ExportRules::new(scene.me.uid, None);
    let path = scene.path("t.json");
    fs::write(&path, "[").unwrap();
    chown(&path, None, Some(OTHER)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    scene.export(&rules, &path, scene.me).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn file_of_another_user_is_not_replaced_in_any_directory() {
    let scene = Scene::new();
    let planted = scene.path("t.json");
    fs::write(&planted, "[").unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o6777)).unwrap();
    let requester = scene.not_the_owner_of(&planted);
    let rules = ExportRules::new(requester.uid, None);
    for mode in [0o1777, 0o777, 0o755] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(scene.directory.path(), permissions).unwrap();
        let refusal = scene.export(&rules, &planted, requester).unwrap_err();
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
    let requester = scene.not_the_owner_of(&link);
    let rules = ExportRules::new(requester.uid, None);
    let path = link.join("t.json");
    let refusal = scene.export(&rules, &path, requester).unwrap_err();
    assert!(
        matches!(refusal, ExportRefusal::LinkOfOther { .. }),
        "{refusal}"
    );

    let root = scene.path("root");
    fs::create_dir(&root).unwrap();
    let rules = ExportRules::new(requester.uid, Some(root.clone()));
    fs::remove_dir(&root).unwrap();
    fs::rename(&link, &root).unwrap();
    let other = ExportOwner {
        uid: requester.uid + 1,
        gid: requester.gid,
    };
    let path = root.join("t.json");
    let refusal = scene.export(&rules, &path, other).unwrap_err();
    assert!(
        matches!(refusal, ExportRefusal::LinkOfOther { .. }),
        "{refusal}"
    );
}

#[test]
fn draft_names_cannot_be_occupied_in_advance() {
    let scene = Scene::new();
    let rules = ExportRules::new(scene.me.uid, None);
    for number in 0..=64 {
        fs::write(scene.path(&format!("t.json.tmp.{number}")), "").unwrap();
    }
    let path = scene.path("t.json");
    scene.export(&rules, &path, scene.me).unwrap();
    assert_eq!(scene.names().len(), 66);
}

#[test]
fn export_of_another_user_reaches_no_directory_that_user_cannot_search() {
    let scene = Scene::new();
    let root = scene.path("root");
    let inner = root.join("private/open");
    fs::create_dir_all(&inner).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o777)).unwrap();
    let private = root.join("private");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let rules = ExportRules::new(scene.me.uid, Some(root));
    let path = inner.join("t.json");
    let refusal = scene.export(&rules, &path, scene.other()).unwrap_err();
    assert!(
        matches!(refusal, ExportRefusal::NoSearch { .. }),
        "{refusal}"
    );
    fs::set_permissions(&private, fs::Permissions::from_mode(0o711)).unwrap();
    rules.export_target(&path, scene.other()).unwrap();
}

#[test]
fn export_of_another_user_stays_below_the_emit_root() {
    let scene = Scene::new();
    let (me, other) = (scene.me, scene.other());
    let path = scene.path("t.json");
    let none = ExportRules::new(me.uid, None);
    let refusal = scene.export(&none, &path, other).unwrap_err();
    assert!(matches!(refusal, ExportRefusal::NoEmitRoot { .. }));

    let root = scene.path("root");
    fs::create_dir_all(root.join("deep")).unwrap();
    symlink(scene.directory.path(), root.join("out")).unwrap();
    let rules = ExportRules::new(me.uid, Some(root.clone()));
    let refused = |path: PathBuf| scene.export(&rules, &path, other).unwrap_err();
    assert!(matches!(
        refused(path),
        ExportRefusal::OutsideEmitRoot { .. }
    ));
    assert!(matches!(
        refused(root.join("../t.json")),
        ExportRefusal::Directory(_)
    ));
    assert!(matches!(
        refused(root.join("out/t.json")),
        ExportRefusal::Directory(_)
    ));
    fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(
        refused(root.join("deep/t.json")),
        ExportRefusal::DirectoryOfOther { .. }
    ));
    fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(root.join("deep/mine.json"), "[]").unwrap();
    assert!(matches!(
        refused(root.join("deep/mine.json")),
        ExportRefusal::FileOfOther { .. }
    ));
    if me.uid == 0 {
        let path = root.join("deep/t.json");
        scene.export(&rules, &path, other).unwrap();
        assert_eq!(path.metadata().unwrap().uid(), other.uid);
        scene.export(&rules, &path, other).unwrap();
    }
}
