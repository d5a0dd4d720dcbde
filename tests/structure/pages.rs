//! Pages name files that exist.

use std::fs;
use std::path::{Path, PathBuf};

use crate::source::root;

#[test]
fn every_path_that_a_page_names_exists() {
    let root = root();
    let mut paths = 0;
    for page in pages(&root) {
        let text = fs::read_to_string(&page).unwrap();
        let codes = text.split('`').skip(1).step_by(2);
        for path in codes.filter(|code| is_path(&root, code)) {
            paths += 1;
            let page = page.display();
            assert!(root.join(path).exists(), "{page}: `{path}` does not exist");
        }
    }
    assert!(
        paths > 100,
        "only {paths} paths found: the pages have another form"
    );
}

/// Returns the pages of the root and of `doc`.
fn pages(root: &Path) -> Vec<PathBuf> {
    let folders = [root.to_owned(), root.join("doc")].into_iter();
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// Whether code in a page is the path of a file of the workspace: its first part is a folder there.
fn is_path(root: &Path, code: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let Some((folder, _)) = code.split_once('/') else {
        return false;
    };
    // Cargo's output directory is not part of the tree.
    !matches!(folder, "" | ".." | "target")
        && code.chars().all(is_plain)
        && root.join(folder).is_dir()
}

#[test]
fn the_map_in_the_architecture_page_names_every_package() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = page
        .split("```")
        .nth(1)
        .expect("the page begins with a map");
    let named = named_folders(map);
    for folder in &named {
        let path = root().join(folder);
        assert!(path.is_dir(), "{} does not exist", folder.display());
    }
    for package in crate::source::packages() {
        let is_named = named.iter().any(|folder| *folder == Path::new(&package));
        assert!(is_named, "{package} is not in the map");
    }
}

/// Returns the folders that a map names: one at the beginning of each line, and below it those that
/// are indented.
fn named_folders(map: &str) -> Vec<PathBuf> {
    let mut wing = "";
    let mut folders = Vec::new();
    for line in map.lines().filter(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_wing = !line.starts_with(' ');
        if is_wing {
            wing = name;
        }
        let parent = if is_wing { "" } else { wing };
        folders.push(Path::new(parent).join(name));
    }
    folders
}
