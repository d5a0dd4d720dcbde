//! The rules of `.cargo/deny.toml`, as far as they can be checked without a network: licences,
//! sources, banned and duplicate packages. `cargo deny check` checks the same file, and known
//! vulnerabilities as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, LicenseReq};

use crate::source::root;

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_crates_io() {
    let rules = rules();
    let allowed = names(&rules["licenses"]["allow"]);
    let sources = names(&rules["sources"]["allow-registry"]);
    let dependencies = dependencies();
    assert!(dependencies.len() > 50, "cargo metadata lists too few");
    for package in dependencies {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("");
        // Some packages write the old form `MIT/Apache-2.0`.
        let licence = licence.replace('/', " OR ");
        let expression = Expression::parse(&licence).unwrap_or_else(|e| panic!("{name}: {e}"));
        let is_allowed = |licence: &LicenseReq| allowed.contains(&licence.to_string());
        assert!(
            expression.evaluate(is_allowed),
            "{name}: {licence} is not allowed"
        );
        let source = package["source"].as_str().unwrap();
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        assert!(sources.contains(registry), "{name} comes from {source}");
    }
}

#[test]
fn no_dependency_is_banned_or_there_in_two_versions() {
    let rules = rules();
    let bans = &rules["bans"];
    let crates = |list: &str| -> BTreeSet<String> {
        let list = bans[list].as_array().unwrap().iter();
        // `name@version`, or only a name.
        let specs = list.map(|entry| entry["crate"].as_str().unwrap());
        let names = specs.map(|spec| spec.split('@').next().unwrap_or(spec));
        names.map(str::to_owned).collect()
    };
    let (banned, skipped) = (crates("deny"), crates("skip"));
    let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
    for package in dependencies() {
        let text = |field: &str| package[field].as_str().unwrap().to_owned();
        let (name, version) = (text("name"), text("version"));
        assert!(!banned.contains(&name), "{name} is banned");
        versions.entry(name).or_default().insert(version);
    }
    for (name, versions) in &versions {
        assert!(
            versions.len() == 1 || skipped.contains(name),
            "{name} is there in several versions: {versions:?}"
        );
    }
    for name in skipped {
        let is_needed = versions
            .get(&name)
            .is_some_and(|versions| versions.len() > 1);
        assert!(
            is_needed,
            "{name} is skipped, but there in one version only"
        );
    }
}

fn rules() -> toml::Table {
    let rules = fs::read_to_string(root().join(".cargo/deny.toml")).unwrap();
    rules.parse().unwrap()
}

fn names(list: &toml::Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Returns all packages outside the workspace that are compiled for Linux, as cargo describes them.
fn dependencies() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .arg("--filter-platform=x86_64-unknown-linux-gnu")
        .current_dir(root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let compiled = reachable(&metadata);
    let is_compiled = |package: &&Value| compiled.contains(package["id"].as_str().unwrap());
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter(|package| !package["source"].is_null())
        .filter(is_compiled)
        .cloned()
        .collect()
}

/// Returns the ids of the packages that the workspace reaches. The list of packages names those for
/// other platforms too, and even the graph has nodes that nothing leads to.
fn reachable(metadata: &Value) -> BTreeSet<&str> {
    fn text(value: &Value) -> &str {
        value.as_str().unwrap()
    }
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap().iter();
    let nodes: BTreeMap<_, _> = nodes
        .map(|node| (text(&node["id"]), &node["deps"]))
        .collect();
    let members = metadata["workspace_members"].as_array().unwrap();
    let mut next: Vec<_> = members.iter().map(text).collect();
    let mut found = BTreeSet::new();
    while let Some(package) = next.pop() {
        if found.insert(package) {
            let used = nodes[package].as_array().unwrap().iter();
            next.extend(used.map(|used| text(&used["pkg"])));
        }
    }
    found
}
