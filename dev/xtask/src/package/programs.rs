//! The programs that are packaged: built, stripped, and with their man pages and completions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::files;
use crate::{packages, stage};

/// The programs of all packages.
pub(super) const ALL: [&str; 4] = ["relayd", "consumer", "tldrs", "test-live"];

/// Libraries for traced programs, which static programs cannot load.
pub(super) const LIBRARIES: [&str; 1] = ["libtrace_ring_functions.so"];

/// The package of [`LIBRARIES`].
const LIBRARY_PACKAGE: &str = "trace-ring-functions";

/// The platform on which rustc links with lld, which knows [`LINK_SMALL`].
const SMALL: &str = "x86_64-unknown-linux-gnu";

/// Relocations in the compact form that glibc reads since 2.36, and functions with the same code
/// once: 5 % of `relayd`.
const LINK_SMALL: &str = " -Clink-arg=-Wl,-z,pack-relative-relocs -Clink-arg=-Wl,--icf=all";

/// The package of the C library that reads [`LINK_SMALL`]'s relocations, of which dpkg-shlibdeps
/// knows nothing.
pub(super) const LIBC: &str = "libc6 (>= 2.36)";

/// A platform for which programs are built, as rustc names it: `x86_64-unknown-linux-gnu`.
#[derive(Debug, Clone)]
pub(super) struct Target {
    triple: String,
}

impl Target {
    /// The platform of the compiler itself.
    pub(super) fn of_this_machine() -> anyhow::Result<Self> {
        let mut rustc = Command::new("rustc");
        rustc.current_dir(stage::WORKSPACE);
        let version = files::output(rustc.args(["--version", "--verbose"]))?;
        let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
        let triple = triple.context("rustc does not name its platform")?;
        Ok(Self {
            triple: triple.to_owned(),
        })
    }

    /// The platform with the same machine and musl, a C library that is linked into programs.
    pub(super) fn to_static(&self) -> Self {
        Self {
            triple: self.triple.replace("-gnu", "-musl"),
        }
    }

    /// The machine, such as `x86_64`.
    pub(super) fn machine(&self) -> &str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// The name of the platform.
    pub(super) fn triple(&self) -> &str {
        &self.triple
    }

    fn is_static(&self) -> bool {
        self.triple.contains("-musl")
    }
}

/// A directory of programs for one platform.
#[derive(Debug)]
pub(super) struct Programs {
    directory: PathBuf,
    pub(super) target: Target,
}

impl Programs {
    /// Builds the programs with the profile `release`, unless there is a directory of programs
    /// already.
    pub(super) fn new(target: &Target, built: Option<&Path>) -> anyhow::Result<Self> {
        let directory = match built {
            Some(directory) => directory.to_owned(),
            None => build(target)?,
        };
        let libraries: &[&str] = if target.is_static() { &[] } else { &LIBRARIES };
        for name in ALL.iter().chain(&["man"]).chain(libraries) {
            let path = directory.join(name);
            if !path.is_file() {
                bail!("{} is missing", path.display());
            }
        }
        Ok(Self {
            directory,
            target: target.clone(),
        })
    }

    /// Fails unless all programs run without shared libraries.
    pub(super) fn require_static(&self) -> anyhow::Result<()> {
        for name in ALL {
            let path = self.directory.join(name);
            let headers = files::output(
                Command::new("readelf")
                    .args(["--program-headers", "--wide"])
                    .arg(&path),
            )?;
            // Only a program with shared libraries names a loader.
            if headers.contains("INTERP") {
                bail!("{} needs shared libraries", path.display());
            }
        }
        Ok(())
    }

    /// Installs a program or library without symbols and debug information.
    pub(super) fn install(&self, name: &str, path: &Path) -> anyhow::Result<()> {
        let mode = match LIBRARIES.contains(&name) {
            true => files::DATA,
            false => files::PROGRAM,
        };
        files::install(&self.directory.join(name), path, mode)?;
        // They name the compiler, and change with it.
        let sections = ["--remove-section=.comment", "--remove-section=.note"];
        stage::run(Command::new("strip").args(sections).arg(path))
    }

    /// Writes the man pages of all programs to `man/` and their completions to `completions/`, in a
    /// directory.
    pub(super) fn write_pages(&self, directory: &Path) -> anyhow::Result<()> {
        let mut man = Command::new(self.directory.join("man"));
        files::output(man.arg(directory))?;
        Ok(())
    }
}

/// Builds the programs, and returns their directory.
fn build(target: &Target) -> anyhow::Result<PathBuf> {
    let triple = target.triple();
    if target.is_static() {
        // Libraries with code in C.
        packages::require(&["musl-gcc"])?;
        stage::announce(&format!("rustup target add {triple}"));
        let mut rustup = Command::new("rustup");
        // There `rust-toolchain.toml` selects the toolchain.
        rustup.current_dir(stage::WORKSPACE);
        stage::run(rustup.args(["target", "add", triple]))?;
    }
    let mut cargo = peers::cargo::command();
    // With the versions in Cargo.lock: equal sources give equal programs.
    cargo.args(["build", "--release", "--locked", "--target", triple]);
    for name in ALL.iter().chain(&["man"]) {
        cargo.arg(format!("--package={name}"));
    }
    if !target.is_static() {
        cargo.arg(format!("--package={LIBRARY_PACKAGE}"));
    }
    // Takes long to compile: other builds have it only for tests.
    cargo.arg("--features=test-live/parquet");
    // Programs do not tell where they were built: equal sources give equal programs.
    let workspace = Path::new(stage::WORKSPACE).canonicalize()?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut flags = format!(
        "--remap-path-prefix={}=/usr/src/{}",
        workspace.display(),
        super::NAME
    );
    if let Some(home) = home {
        flags.push_str(&format!(
            " --remap-path-prefix={}=/usr/src/cargo",
            home.display()
        ));
    }
    if triple == SMALL {
        flags.push_str(LINK_SMALL);
    }
    cargo.env("RUSTFLAGS", flags);
    stage::announce(&format!("building all programs for {triple}"));
    stage::run(&mut cargo)?;
    let target_directory = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target_directory = target_directory.unwrap_or_else(|| workspace.join("target"));
    Ok(target_directory.join(triple).join("release"))
}
