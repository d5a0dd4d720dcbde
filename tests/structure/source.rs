//! The source files of the workspace, parsed.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file of the workspace.
pub struct Source {
    /// The path below the root of the workspace.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// The syntax tree of the text.
    pub tree: syn::File,
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

/// Parses all source files below a folder of the workspace, in the order of their paths.
pub fn sources(folder: &str) -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    find_sources(&root.join(folder), &mut paths);
    paths.sort();
    let sources = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let tree = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let path = path.strip_prefix(&root).unwrap().to_owned();
        Source { path, text, tree }
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
