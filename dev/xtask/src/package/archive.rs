//! The archive of static programs: one folder that is laid out as `/usr`.

use std::fs;
use std::path::{Path, PathBuf};

use super::libraries::{Catalogue, notice};
use super::programs::{self, Programs};
use super::{NAME, Release, files, sbom};
use crate::stage;

/// Files of the workspace and the directory in the archive that they go to. A folder stands for all
/// files in it.
const FILES: [(&str, &str); 15] = [
    ("README.md", DOCUMENTS),
    ("CHANGELOG.md", DOCUMENTS),
    ("LICENSE-APACHE", DOCUMENTS),
    ("LICENSE-MIT", DOCUMENTS),
    ("doc", "share/doc/lttng-live/doc"),
    ("relayd/monitoring", "share/doc/lttng-live/monitoring"),
    ("relayd/systemd/relayd.service", SYSTEM_UNITS),
    ("relayd/systemd/relayd-control.socket", SYSTEM_UNITS),
    ("relayd/systemd/relayd-data.socket", SYSTEM_UNITS),
    ("relayd/systemd/relayd-live.socket", SYSTEM_UNITS),
    ("consumer/systemd/system", SYSTEM_UNITS),
    ("consumer/systemd/user", "lib/systemd/user"),
    ("tldrs/systemd/system", SYSTEM_UNITS),
    ("tldrs/systemd/user", "lib/systemd/user"),
    ("dev/packaging/collector/root/etc/relayd.conf", SETTINGS),
];

const DOCUMENTS: &str = "share/doc/lttng-live";
const SYSTEM_UNITS: &str = "lib/systemd/system";

/// Settings that administrators copy to `/etc`.
const SETTINGS: &str = "share/doc/lttng-live/etc";

/// The licence of the C library in static programs. The compiler brings it.
const C_LIBRARY: &str = "The programs contain musl, the C library: Copyright (c) 2005-2020 Rich Felker, et al., under the \
                         terms of LICENSE-MIT.\n\n";

/// The tree of files that is packed.
#[derive(Debug)]
pub(super) struct Tree {
    /// Name of the archive without its suffix, and of its only folder.
    name: String,
    /// The directory with that folder.
    parent: PathBuf,
    /// The libraries of all programs, as SPDX.
    bill: String,
}

impl Tree {
    /// Lays out programs, pages, units and documents.
    pub(super) fn stage(release: &Release, programs: &Programs) -> anyhow::Result<Self> {
        let machine = programs.target.machine();
        let name = format!("{NAME}-{}-{machine}-linux-musl", release.version);
        let parent = release.staging.join("archive");
        let root = parent.join(&name);
        for program in programs::ALL {
            programs.install(program, &root.join("bin").join(program))?;
        }
        let sources = Path::new(stage::WORKSPACE).canonicalize()?;
        for (source, target) in FILES {
            install(&sources.join(source), &root.join(target))?;
        }
        install(
            &sources.join("dev/packaging/agent/root/etc"),
            &root.join(SETTINGS),
        )?;
        install(
            &sources.join("dev/packaging/tldrs/root/etc"),
            &root.join(SETTINGS),
        )?;
        let users = root.join("lib/sysusers.d/relayd.conf");
        files::install(
            &sources.join("relayd/systemd/relayd.sysusers"),
            &users,
            files::DATA,
        )?;
        install_pages(programs, &release.staging.join("static-pages"), &root)?;
        let catalogue = Catalogue::new(&programs.target)?;
        let mut all = Vec::new();
        for program in programs::ALL {
            all.extend(catalogue.of(program)?);
        }
        // Programs have most libraries in common: each is named once.
        all.sort_by_key(|library| (&library.name, &library.version));
        all.dedup_by_key(|library| (&library.name, &library.version));
        let text = format!("{C_LIBRARY}{}", notice(&all, "LICENSE-APACHE")?);
        files::write(&root.join(DOCUMENTS).join("LIBRARIES"), text, files::DATA)?;
        let bill = sbom::document(release, &catalogue, &root.join("bin"))?;
        files::write(&root.join(DOCUMENTS).join(sbom::NAME), &bill, files::DATA)?;
        // After all files have been written, so that equal sources give equal archives.
        files::normalize(&root, release.epoch)?;
        Ok(Self { name, parent, bill })
    }

    /// Writes the archive, and the list of libraries beside it.
    pub(super) fn pack(&self, release: &Release) -> anyhow::Result<()> {
        stage::announce("packing the archive of static programs");
        let tar = release.output.join(format!("{}.tar", self.name));
        // `append_tar` would add to it.
        if tar.exists() {
            fs::remove_file(&tar)?;
        }
        files::append_tar(&tar, &self.parent, &[&self.name], 0, release.epoch)?;
        files::compress(&tar, release.level)?;
        let bill = release.output.join(format!("{}.spdx.json", self.name));
        files::write(&bill, &self.bill, files::DATA)
    }
}

/// Copies a file, or all files of a folder, into a directory.
fn install(source: &Path, target: &Path) -> anyhow::Result<()> {
    match source.file_name().filter(|_| source.is_file()) {
        Some(name) => files::install(source, &target.join(name), files::DATA),
        None => files::install_tree(source, target),
    }
}

/// Installs the man pages and completions of all programs.
fn install_pages(programs: &Programs, pages: &Path, root: &Path) -> anyhow::Result<()> {
    programs.write_pages(pages)?;
    for page in files::list(&pages.join("man"))? {
        let section = page.extension().unwrap_or_default().to_string_lossy();
        let target = root.join(format!("share/man/man{section}")).join(&page);
        files::install(&pages.join("man").join(&page), &target, files::DATA)?;
    }
    for completion in files::list(&pages.join("completions"))? {
        let name = completion.to_string_lossy();
        let target = match (name.strip_suffix(".bash"), name.strip_suffix(".fish")) {
            (Some(program), _) => format!("bash-completion/completions/{program}"),
            (None, Some(_)) => format!("fish/vendor_completions.d/{name}"),
            (None, None) => format!("zsh/site-functions/{name}"),
        };
        let source = pages.join("completions").join(&completion);
        files::install(&source, &root.join("share").join(target), files::DATA)?;
    }
    Ok(())
}
