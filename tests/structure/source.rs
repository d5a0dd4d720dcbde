//! The source files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One source file of the workspace.
pub struct Source {
    /// The path below the root of the workspace.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
}

impl Source {
    /// Parses the file, which takes a hundred times as long as to read it.
    pub fn tree(&self) -> syn::File {
        let tree = syn::parse_file(&self.text);
        tree.unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }
}

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// Returns the folders of all packages of the workspace, and of the fuzz targets.
pub fn packages() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    members.chain(["dev/fuzz"]).map(str::to_owned).collect()
}

/// Returns the packages of the workspace, as cargo describes them.
pub fn manifests() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Reads all source files below a folder of the workspace, in the order of their paths.
pub fn sources(folder: &str) -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    find_sources(&root.join(folder), &mut paths);
    paths.sort();
    let sources = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(&root).unwrap().to_owned();
        Source { path, text }
    });
    sources.collect()
}

fn find_sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            find_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
