//! The libraries can be published: metadata, licences, a README with an example that is compiled,
//! and packages that cargo can make. `cargo xtask test --long` also compiles the packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::{manifests, root};

/// The packages, each after those that it depends on. `dev/xtask/src/test.rs` has the same list.
const PUBLISHED: [&str; 7] = [
    "wire",
    "ctf",
    "tef",
    "relay-proto",
    "viewer-proto",
    "trace-ring-core",
    "trace-ring",
];

/// Categories of crates.io, which refuses others.
const CATEGORIES: [&str; 6] = [
    "development-tools::debugging",
    "development-tools::profiling",
    "encoding",
    "network-programming",
    "os::linux-apis",
    "parser-implementations",
];

/// Limits of crates.io for keywords.
const MAX_KEYWORDS: usize = 5;
const MAX_KEYWORD_LENGTH: usize = 20;

#[test]
fn published_packages_have_the_metadata_that_crates_io_asks_for() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "documentation", "rust_version"] {
            let text = package[field].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{name} has no {field}");
        }
        assert_eq!(package["readme"], "README.md", "{name}");
        let list = |field: &str| -> Vec<String> {
            let list = package[field].as_array().unwrap().iter();
            list.map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let keywords = list("keywords");
        assert!((1..=MAX_KEYWORDS).contains(&keywords.len()), "{name}");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_+".contains(c);
        for word in &keywords {
            assert!(
                word.len() <= MAX_KEYWORD_LENGTH && word.chars().all(is_plain),
                "{name}: {word}"
            );
        }
        let categories = list("categories");
        assert!(!categories.is_empty(), "{name} has no category");
        for category in categories {
            assert!(CATEGORIES.contains(&&*category), "{name}: {category}");
        }
    }
}

#[test]
fn published_packages_depend_on_published_ones_by_version() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        for dependency in dependencies.filter(|dependency| !dependency["path"].is_null()) {
            let on = dependency["name"].as_str().unwrap();
            assert!(PUBLISHED.contains(&on), "{name} depends on {on}");
            let version = &dependency["req"];
            assert_ne!(version, "*", "{name} depends on {on} by its path only");
        }
    }
}

#[test]
fn the_readme_of_a_published_package_shows_an_example_that_is_compiled() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap();
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        let library = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let is_doctest = library.contains("#[doc = include_str!(\"../README.md\")]");
        assert!(
            is_doctest || shows_example(&readme, &folder.join("examples")),
            "{name}: the README has no example that is compiled"
        );
        assert!(readme.contains("```rust"), "{name}: {readme}");
    }
}

/// Whether a README has the code of one of the examples.
fn shows_example(readme: &str, examples: &Path) -> bool {
    let files = fs::read_dir(examples)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut sources = files.filter(|path| path.extension().is_some_and(|e| e == "rs"));
    sources.any(|path| {
        let source = fs::read_to_string(&path).unwrap();
        let lines = source.lines().skip_while(|line| line.starts_with("//!"));
        let code: Vec<&str> = lines.collect();
        readme.contains(code.join("\n").trim())
    })
}

#[test]
fn cargo_packages_the_published_packages_with_licences_and_sources() {
    let directory = tempfile::tempdir().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["package", "--offline", "--allow-dirty", "--no-verify"])
        .arg("--target-dir")
        .arg(directory.path())
        .args(PUBLISHED.iter().map(|name| format!("--package={name}")))
        .current_dir(root());
    let packaged = cargo.output().unwrap();
    let errors = String::from_utf8_lossy(&packaged.stderr);
    assert!(packaged.status.success(), "{errors}");
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let version = package["version"].as_str().unwrap();
        let stem = format!("{name}-{version}");
        let archive = directory.path().join(format!("package/{stem}.crate"));
        let listed = Command::new("tar").arg("-tzf").arg(&archive).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let files: BTreeSet<&str> = listed.lines().collect();
        for file in [
            "Cargo.toml",
            "README.md",
            "LICENSE-MIT",
            "LICENSE-APACHE",
            "src/lib.rs",
        ] {
            let path = format!("{stem}/{file}");
            assert!(files.contains(&*path), "{path} is not in {files:?}");
        }
        assert!(!listed.contains("/tests/data/"), "{name}: {files:?}");
    }
}

/// Returns the published packages, as cargo describes them: those that do not say `publish =
/// false`.
fn published() -> Vec<Value> {
    // Packages with `publish = false` have an empty list of registries.
    let published: Vec<Value> = manifests()
        .into_iter()
        .filter(|package| package["publish"].is_null())
        .collect();
    let names = published
        .iter()
        .map(|package| package["name"].as_str().unwrap());
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(names, BTreeSet::from(PUBLISHED));
    published
}
