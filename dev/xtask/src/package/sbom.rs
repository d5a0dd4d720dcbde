//! The software bill of materials: what the static programs are made of, as SPDX 2.3.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::libraries::{Catalogue, Library};
use super::{Release, files, programs};

/// Name of the document in archives.
pub(super) const NAME: &str = "lttng-live.spdx.json";

/// The document: the programs of a directory with their digests, their libraries, and which program
/// contains which.
pub(super) fn document(
    release: &Release,
    catalogue: &Catalogue,
    directory: &Path,
) -> anyhow::Result<String> {
    let mut packages = Vec::new();
    let mut relations = Vec::new();
    let mut libraries = BTreeMap::new();
    let mut digests = String::new();
    for name in programs::ALL {
        let digest = files::sha256(&directory.join(name))?;
        digests.push_str(&digest);
        packages.push(program(release, name, &digest));
        relations.push(relation(
            "SPDXRef-DOCUMENT",
            "DESCRIBES",
            &id("program", name, ""),
        ));
        for library in catalogue.of(name)? {
            let to = id("crate", &library.name, &library.version);
            relations.push(relation(&id("program", name, ""), "CONTAINS", &to));
            libraries.insert(to, library);
        }
    }
    packages.extend(libraries.values().map(|library| describe(library)));
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("{}-{}", super::NAME, release.version),
        // A name of its own for each content: the digests of all programs begin it.
        "documentNamespace": format!("urn:{}:{}:{}", super::NAME, release.version, digest_of(&digests)),
        "creationInfo": {
            "created": release.date()?,
            "creators": ["Tool: cargo-xtask-package"],
        },
        "packages": packages,
        "relationships": relations,
    });
    Ok(format!("{document:#}\n"))
}

/// The first characters of the digests of all programs.
fn digest_of(digests: &str) -> String {
    let each = digests.as_bytes().chunks(64);
    let begins = each.filter_map(|digest| digest.get(..16));
    begins.map(String::from_utf8_lossy).collect()
}

fn program(release: &Release, name: &str, digest: &str) -> Value {
    json!({
        "SPDXID": id("program", name, ""),
        "name": name,
        "versionInfo": release.version,
        "packageFileName": format!("bin/{name}"),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "MIT OR Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
        "checksums": [{ "algorithm": "SHA256", "checksumValue": digest }],
    })
}

fn describe(library: &Library) -> Value {
    let Library { name, version, .. } = library;
    let homepage = match library.repository.as_str() {
        "" => "NOASSERTION",
        repository => repository,
    };
    json!({
        "SPDXID": id("crate", name, version),
        "name": name,
        "versionInfo": version,
        "downloadLocation": format!("https://static.crates.io/crates/{name}/{name}-{version}.crate"),
        "homepage": homepage,
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": library.license,
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
        "checksums": [{ "algorithm": "SHA256", "checksumValue": library.checksum }],
        // A `+` in a version would mean a space in a URL.
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")),
        }],
    })
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

/// The name of an element: letters, digits, dots and hyphens only.
fn id(kind: &str, name: &str, version: &str) -> String {
    let text = format!("SPDXRef-{kind}-{name}-{version}");
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    text.trim_end_matches('-').chars().map(allowed).collect()
}
