//! The libraries that are linked into programs: names and versions, and the licences that ask to be
//! shipped with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::files;
use super::programs::Target;
use crate::stage;

/// A library of crates.io.
#[derive(Debug, Clone)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) version: String,
    /// The licence of the library, as an SPDX expression.
    pub(super) license: String,
    /// Where it is developed; empty if it does not say.
    pub(super) repository: String,
    /// SHA-256 of its file on crates.io, from Cargo.lock.
    pub(super) checksum: String,
    /// The directory of the library's sources.
    directory: PathBuf,
}

/// All libraries that cargo knows for the workspace, by name and version.
#[derive(Debug)]
pub(super) struct Catalogue {
    libraries: BTreeMap<(String, String), Library>,
    target: Target,
}

impl Catalogue {
    /// Asks cargo for the libraries of a platform.
    pub(super) fn new(target: &Target) -> anyhow::Result<Self> {
        let mut cargo = peers::cargo::command();
        cargo.args(["metadata", "--format-version=1", "--locked"]);
        let platform = format!("--filter-platform={}", target.triple());
        let metadata: Value = serde_json::from_str(&files::output(cargo.arg(platform))?)?;
        let checksums = checksums(&files::read(
            &Path::new(stage::WORKSPACE).join("Cargo.lock"),
        )?);
        let packages = metadata.get("packages").and_then(Value::as_array);
        let mut libraries = BTreeMap::new();
        for package in packages.context("cargo metadata lists no packages")? {
            // A package of the workspace has no source.
            if package.get("source").is_none_or(Value::is_null) {
                continue;
            }
            let text = |field| {
                let text = package.get(field).and_then(Value::as_str);
                text.unwrap_or_default().to_owned()
            };
            let key = (text("name"), text("version"));
            let manifest = PathBuf::from(text("manifest_path"));
            let library = Library {
                name: key.0.clone(),
                version: key.1.clone(),
                // Some packages write the old form `MIT/Apache-2.0`.
                license: text("license").replace('/', " OR "),
                repository: text("repository"),
                checksum: checksums.get(&key).cloned().unwrap_or_default(),
                directory: manifest.parent().unwrap_or(Path::new("/")).to_owned(),
            };
            libraries.insert(key, library);
        }
        Ok(Self {
            libraries,
            target: target.clone(),
        })
    }

    /// The libraries that are linked into a program, sorted by name and version.
    pub(super) fn of(&self, program: &str) -> anyhow::Result<Vec<&Library>> {
        let mut cargo = peers::cargo::command();
        cargo.args(["tree", "--locked", "--prefix=none", "--format={p}"]);
        // Without what only builds use: it is not in the programs.
        cargo.arg("--edges=normal,no-proc-macro");
        cargo.arg(format!("--package={program}"));
        cargo.arg(format!("--target={}", self.target.triple()));
        let tree = files::output(&mut cargo)?;
        let mut found = BTreeSet::new();
        // Packages of the workspace have a path after their name.
        for line in tree.lines().filter(|line| !line.contains(" (/")) {
            let mut words = line.split(' ');
            if let (Some(name), Some(version)) = (words.next(), words.next()) {
                let version = version.trim_start_matches('v');
                found.insert((name.to_owned(), version.to_owned()));
            }
        }
        let mut libraries = Vec::new();
        for key in found {
            let library = self.libraries.get(&key);
            libraries.push(library.with_context(|| format!("cargo metadata has no {key:?}"))?);
        }
        if libraries.is_empty() {
            bail!("cargo tree lists no library of {program}");
        }
        Ok(libraries)
    }
}

/// The checksums in Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    // By hand, because a parser of TOML would make this program slower to compile.
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let mut lines = package.lines();
            let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|text| text.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The notice for these libraries: what they are, and all texts of their licences. `apache` is
/// where the reader finds the text of the Apache License, which many have in common.
pub(super) fn notice(libraries: &[&Library], apache: &str) -> anyhow::Result<String> {
    let mut text = String::from(
        "The programs contain these libraries of https://crates.io, as object code, and the standard library of Rust\n\
         (MIT OR Apache-2.0, the Rust project developers):\n\n",
    );
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for library in libraries {
        let Library { name, version, .. } = library;
        text.push_str(&format!("  {name} {version}: {}\n", library.license));
        for license in library.license_texts(apache)? {
            let users = texts.entry(license).or_default();
            users.push(format!("{name} {version}"));
        }
    }
    text.push_str(&format!("\nThe Apache License 2.0 is in {apache}\n"));
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    for (license, users) in texts {
        let users = users.join(", ");
        text.push_str(&format!("\n{}\n{users}:\n\n{license}\n", "-".repeat(72)));
    }
    Ok(text)
}

impl Library {
    /// The texts that its licences ask to be shipped. A full text of the Apache License is left
    /// out.
    fn license_texts(&self, apache: &str) -> anyhow::Result<Vec<String>> {
        let mut texts = Vec::new();
        let mut names: Vec<_> = fs::read_dir(&self.directory)
            .with_context(|| format!("cannot read {}", self.directory.display()))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        for name in names {
            let upper = name.to_uppercase();
            let prefixes = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
            let is_license = prefixes.iter().any(|prefix| upper.starts_with(prefix));
            if !is_license || upper.contains("APACHE") || !self.directory.join(&name).is_file() {
                continue;
            }
            let bytes = fs::read(self.directory.join(&name))?;
            let lines = String::from_utf8_lossy(&bytes);
            let lines = lines.lines().map(|line| line.trim_end().to_owned());
            let text = without_apache(&lines.collect::<Vec<_>>(), apache);
            texts.push(text.trim_matches('\n').to_owned());
        }
        Ok(texts)
    }
}

/// A licence with a reference in place of the terms of the Apache License.
fn without_apache(lines: &[String], apache: &str) -> String {
    let mut text = Vec::new();
    let mut is_apache = false;
    for line in lines {
        if line.contains("Version 2.0, January 2004") {
            is_apache = true;
            // The line before has the title.
            text.pop();
            text.push(format!("Apache License 2.0, see {apache}"));
        }
        if !is_apache {
            text.push(line.clone());
        }
        is_apache = is_apache && !line.contains("END OF TERMS AND CONDITIONS");
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_libraries_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\n\
                    version = \"2.0.0\"\nsource = \"registry\"\nchecksum = \"0f\"\ndependencies = [\n \"a\",\n]\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("b".to_owned(), "2.0.0".to_owned())], "0f");
    }

    #[test]
    fn notices_refer_to_the_apache_licence_instead_of_repeating_it() {
        let license = "Dual\n\n  Apache License\n  Version 2.0, January 2004\nterms\nEND OF TERMS AND CONDITIONS\nMIT";
        let lines: Vec<_> = license.lines().map(str::to_owned).collect();
        assert_eq!(
            without_apache(&lines, "A"),
            "Dual\n\nApache License 2.0, see A\nMIT"
        );
    }
}
