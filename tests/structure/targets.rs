//! Targets without unit tests have `test = false`, so that no test program is compiled for them.

use std::path::Path;

use crate::source::{manifests, root, sources};

#[test]
fn a_target_has_unit_tests_or_says_that_it_has_none() {
    for package in manifests() {
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if !["lib", "rlib", "bin"].contains(&kind) {
                continue;
            }
            let file = Path::new(target["src_path"].as_str().unwrap());
            let file = file.strip_prefix(root()).unwrap();
            let folder = file.parent().unwrap();
            let mut sources = sources(folder.to_str().unwrap());
            // The modules beside a program and a library are those of the library.
            if kind == "bin" && root().join(folder).join("lib.rs").exists() {
                sources.retain(|source| source.path == file);
            }
            let has_tests = sources
                .iter()
                .any(|source| source.text.contains("#[test]") || source.text.contains("proptest!"));
            assert_eq!(target["test"], has_tests, "{}", file.display());
        }
    }
}
