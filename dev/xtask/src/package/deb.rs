//! Debian packages: a tree of files and its control files, packed by dpkg-deb.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::libraries::{Catalogue, notice};
use super::programs::{self, LIBC, Programs};
use super::{NAME, Release, files};
use crate::stage;

/// A Debian package and what is in it.
struct Package {
    /// The folder of the package in `dev/packaging/`, which has its control file and its scripts.
    folder: &'static str,
    /// Name of the package.
    name: &'static str,
    /// The program in it.
    program: &'static str,
    /// Libraries for traced programs, in a directory of the package's name. What is linked into
    /// them is also in the program.
    libraries: &'static [&'static str],
    /// Section of the manual that its pages are in.
    section: char,
    /// Files of the workspace and where they go. A folder stands for all files in it.
    files: &'static [(&'static str, &'static str)],
}

const PACKAGES: [Package; 4] = [
    Package {
        folder: "collector",
        name: "lttng-live-collector",
        program: "relayd",
        libraries: &[],
        section: '8',
        files: &[
            ("relayd/systemd/relayd.service", SYSTEM_UNITS),
            ("relayd/systemd/relayd-control.socket", SYSTEM_UNITS),
            ("relayd/systemd/relayd-data.socket", SYSTEM_UNITS),
            ("relayd/systemd/relayd-live.socket", SYSTEM_UNITS),
            (
                "relayd/monitoring",
                "usr/share/doc/lttng-live-collector/examples",
            ),
        ],
    },
    Package {
        folder: "agent",
        name: "lttng-live-agent",
        program: "consumer",
        libraries: &programs::LIBRARIES,
        section: '1',
        files: &[
            ("consumer/systemd/system", SYSTEM_UNITS),
            ("consumer/systemd/user", USER_UNITS),
        ],
    },
    Package {
        folder: "viewer",
        name: "lttng-live-viewer",
        program: "test-live",
        libraries: &[],
        section: '1',
        files: &[],
    },
    Package {
        folder: "tldrs",
        name: "tldrs",
        program: "tldrs",
        libraries: &[],
        section: '1',
        files: &[
            ("tldrs/systemd/system", SYSTEM_UNITS),
            ("tldrs/systemd/user", USER_UNITS),
        ],
    },
];

/// Units of the system and of users, where Debian 12 has them.
const SYSTEM_UNITS: &str = "lib/systemd/system";
const USER_UNITS: &str = "usr/lib/systemd/user";

/// Maintainer scripts, and other files that dpkg reads.
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// Where Debian has the Apache License.
const APACHE: &str = "/usr/share/common-licenses/Apache-2.0";

/// Threads that compress a package: the bytes depend on whether there are several.
const THREADS: &str = "--threads-max=2";

/// Builds all packages, one after the other.
pub(super) fn build_all(release: &Release, programs: &Programs) -> anyhow::Result<()> {
    stage::announce("packing the Debian packages");
    let pages = release.staging.join("pages");
    programs.write_pages(&pages)?;
    let catalogue = Catalogue::new(&programs.target)?;
    for package in &PACKAGES {
        let builder = Builder {
            release,
            package,
            root: release.staging.join(package.name),
            sources: Path::new(stage::WORKSPACE).canonicalize()?,
        };
        builder.install_program(programs)?;
        builder.install_pages(&pages)?;
        builder.install_documents(&catalogue)?;
        builder.pack()?;
    }
    Ok(())
}

/// A package on its way.
struct Builder<'a> {
    release: &'a Release,
    package: &'a Package,
    /// The tree of its files.
    root: PathBuf,
    /// The root of the workspace.
    sources: PathBuf,
}

impl Builder<'_> {
    /// The package's folder in `dev/packaging/`.
    fn folder(&self) -> PathBuf {
        self.sources.join("dev/packaging").join(self.package.folder)
    }

    /// The program, its libraries, its units and its settings.
    fn install_program(&self, programs: &Programs) -> anyhow::Result<()> {
        let program = self.package.program;
        programs.install(program, &self.root.join("usr/bin").join(program))?;
        for library in self.package.libraries {
            programs.install(library, &self.library(library))?;
        }
        for (source, target) in self.package.files {
            let (source, target) = (self.sources.join(source), self.root.join(target));
            match source.file_name().filter(|_| source.is_file()) {
                Some(name) => files::install(&source, &target.join(name), files::DATA)?,
                None => files::install_tree(&source, &target)?,
            }
        }
        let own = self.folder().join("root");
        if own.is_dir() {
            files::install_tree(&own, &self.root)?;
        }
        Ok(())
    }

    /// The path of a library in the tree.
    fn library(&self, name: &str) -> PathBuf {
        self.root.join("usr/lib").join(self.package.name).join(name)
    }

    /// Man pages and completions.
    fn install_pages(&self, pages: &Path) -> anyhow::Result<()> {
        let (program, section) = (self.package.program, self.package.section);
        let manual = self.root.join(format!("usr/share/man/man{section}"));
        for page in files::list(&pages.join("man"))? {
            let name = page.to_string_lossy();
            let rest = name.strip_prefix(program);
            if rest.is_some_and(|rest| rest.starts_with(['-', '.'])) {
                let installed = manual.join(&*name);
                files::install(&pages.join("man").join(&page), &installed, files::DATA)?;
                // Debian's policy asks for it (12.1).
                files::compress(&installed, super::MAX_LEVEL)?;
            }
        }
        let share = self.root.join("usr/share");
        let mut names = vec![program];
        if program == "relayd" {
            // lttng-tools has no completions for it.
            names.push("lttng-relayd");
        }
        for name in names {
            for (file, target) in [
                (
                    format!("{name}.bash"),
                    format!("bash-completion/completions/{name}"),
                ),
                (
                    format!("_{name}"),
                    format!("zsh/vendor-completions/_{name}"),
                ),
                (
                    format!("{name}.fish"),
                    format!("fish/vendor_completions.d/{name}.fish"),
                ),
            ] {
                let source = pages.join("completions").join(file);
                files::install(&source, &share.join(target), files::DATA)?;
            }
        }
        Ok(())
    }

    /// Installs licences and changelogs.
    fn install_documents(&self, catalogue: &Catalogue) -> anyhow::Result<()> {
        let documents = self.root.join("usr/share/doc").join(self.package.name);
        let own = files::read(&self.sources.join("LICENSE-MIT"))?;
        let libraries = catalogue.of(self.package.program)?;
        let copyright = format!(
            "This package is made from the sources of {NAME} {}.\n\nIt is licensed under either of the Apache License, \
             Version 2.0, in\n{APACHE}\non Debian systems, or the MIT license, at your option:\n\n{own}\n{}",
            self.release.version,
            notice(&libraries, APACHE)?
        );
        files::write(&documents.join("copyright"), copyright, files::DATA)?;
        let changelog = documents.join("changelog");
        files::install(&self.sources.join("CHANGELOG.md"), &changelog, files::DATA)?;
        files::compress(&changelog, super::MAX_LEVEL)?;
        let debian = files::read(&self.sources.join("dev/packaging/changelog"))?
            .replace("@VERSION@", &self.release.debian_version())
            .replace("@UPSTREAM@", &self.release.version)
            .replace("@MAINTAINER@", &self.release.maintainer);
        let changelog = documents.join("changelog.Debian");
        files::write(&changelog, debian, files::DATA)?;
        files::compress(&changelog, super::MAX_LEVEL)?;
        let readme = self.folder().join("README.Debian");
        if readme.is_file() {
            files::install(&readme, &documents.join("README.Debian"), files::DATA)?;
        }
        let overrides = self.folder().join("lintian-overrides");
        if overrides.is_file() {
            let target = self.root.join("usr/share/lintian/overrides");
            files::install(&overrides, &target.join(self.package.name), files::DATA)?;
        }
        Ok(())
    }

    /// Writes the control files, and packs the package.
    fn pack(&self) -> anyhow::Result<()> {
        let control = self.root.join("DEBIAN");
        let listed = files::list(&self.root)?;
        let settings = listed.iter().filter(|file| file.starts_with("etc"));
        let settings: String = settings
            .map(|file| format!("/{}\n", file.display()))
            .collect();
        let mut sums = Command::new("md5sum");
        sums.current_dir(&self.root).arg("--");
        // Without settings, which administrators change.
        sums.args(listed.iter().filter(|file| !file.starts_with("etc")));
        let sums = files::output(&mut sums)?;
        let fields = self.fields(&listed)?;
        files::write(&control.join("md5sums"), sums, files::DATA)?;
        files::write(&control.join("control"), fields, files::DATA)?;
        if !settings.is_empty() {
            files::write(&control.join("conffiles"), settings, files::DATA)?;
        }
        for script in SCRIPTS {
            let source = self.folder().join(script);
            if source.is_file() {
                files::install(&source, &control.join(script), files::PROGRAM)?;
            }
        }
        let triggers = self.folder().join("triggers");
        if triggers.is_file() {
            files::install(&triggers, &control.join("triggers"), files::DATA)?;
        }
        // After all files have been written, so that equal sources give equal packages.
        files::normalize(&self.root, self.release.epoch)?;
        let file = format!(
            "{}_{}_{}.deb",
            self.package.name,
            self.release.debian_version(),
            self.release.architecture
        );
        let mut pack = Command::new("dpkg-deb");
        let Release {
            compression, level, ..
        } = self.release;
        pack.args(["--root-owner-group", THREADS])
            .args([format!("-Z{compression}"), format!("-z{level}")])
            .arg("--build")
            .arg(&self.root)
            .arg(self.release.output.join(file))
            .env("SOURCE_DATE_EPOCH", self.release.epoch.to_string());
        files::output(&mut pack)?;
        Ok(())
    }

    /// The control file: that of `dev/packaging/`, and what only the builder knows.
    fn fields(&self, listed: &[PathBuf]) -> anyhow::Result<String> {
        let text = files::read(&self.folder().join("control"))?;
        let text = text.replace("@SHLIBS@", &self.shared_libraries()?);
        let (name, rest) = text.split_once('\n').context("control file is empty")?;
        let mut bytes = 0;
        for file in listed {
            bytes += fs::metadata(self.root.join(file))?.size().div_ceil(1024);
        }
        let Release {
            architecture,
            maintainer,
            ..
        } = self.release;
        let version = self.release.debian_version();
        Ok(format!(
            "{name}\nSource: {NAME}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
             Installed-Size: {bytes}\n{rest}"
        ))
    }

    /// The packages that have the shared libraries which program and libraries need, with their
    /// least versions.
    fn shared_libraries(&self) -> anyhow::Result<String> {
        let directory = self.release.staging.join("shlibdeps");
        let control = "Source: lttng-live\n\nPackage: lttng-live\nArchitecture: any\n";
        files::write(&directory.join("debian/control"), control, files::DATA)?;
        // By this directory dpkg-shlibdeps knows the root of a package.
        fs::create_dir_all(self.root.join("DEBIAN"))?;
        let mut shlibdeps = Command::new("dpkg-shlibdeps");
        shlibdeps.current_dir(&directory).arg("-O");
        shlibdeps.arg(self.root.join("usr/bin").join(self.package.program));
        shlibdeps.args(self.package.libraries.iter().map(|name| self.library(name)));
        let found = files::output(&mut shlibdeps)?;
        let libraries = found.trim().strip_prefix("shlibs:Depends=");
        let libraries = libraries.context("dpkg-shlibdeps names no package")?;
        let libraries = libraries
            .split(", ")
            .map(|library| match library.starts_with("libc6 ") {
                true => LIBC,
                false => library,
            });
        Ok(libraries.collect::<Vec<_>>().join(", "))
    }
}
