//! Builds what administrators install: Debian packages, an archive of static programs, and an image
//! for containers.
//!
//! `dev/packaging/` has what only packages contain: control files, maintainer scripts, settings.
//! Equal sources and equal programs give equal bytes: every time is that of the release
//! ([`Release::epoch`]), every list is sorted.

mod archive;
mod deb;
mod files;
mod image;
mod libraries;
mod programs;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::{packages, stage};

/// Name of the source package, of the archive and of the image.
const NAME: &str = "lttng-live";

/// Debian revision unless another is asked for.
const REVISION: &str = "0local1";

/// Directory of the packages in the workspace unless another is asked for.
const OUTPUT: &str = "target/package";

/// The level at which kept packages are compressed.
const MAX_LEVEL: u8 = 9;

/// How Debian packages are compressed that are kept, and that are not, and the level of both and of
/// gzip.
const KEPT: (&str, u8) = ("xz", MAX_LEVEL);
const FAST: (&str, u8) = ("gzip", 1);

/// Options of the job: what is built, and where.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to build [default: all]
    #[arg(value_enum)]
    formats: Vec<Format>,
    /// Package the programs in DIR (relayd, consumer, tldrs, test-live, and man, which writes the
    /// man pages), instead of building them; tarball and image take static programs only
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// Write to DIR [default: target/package]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Debian revision of the packages, after the version; those of Debian itself begin with 1 and
    /// replace all that begin with 0
    #[arg(long, value_name = "REVISION", default_value = REVISION)]
    revision: String,
    /// Compress little: for packages that are not kept
    #[arg(long)]
    fast: bool,
}

/// A form in which the programs are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Debian packages: lttng-live-collector, lttng-live-agent, lttng-live-viewer and tldrs
    Deb,
    /// Static programs for any Linux, with man pages, units and licences; a list of their libraries
    /// (SPDX)
    Tarball,
    /// An image for containers, as a directory in the OCI image layout, and as an archive of it
    Image,
}

/// The properties that all packages of one run have in common.
#[derive(Debug)]
struct Release {
    /// Version of the workspace.
    version: String,
    /// The Debian revision of the packages.
    revision: String,
    /// Debian's name of the architecture, such as amd64, which is also that of container images.
    architecture: String,
    /// How the contents of Debian packages are compressed.
    compression: &'static str,
    /// The level of that and of gzip, 1 to 9.
    level: u8,
    /// Name and address of who answers for the packages.
    maintainer: String,
    /// The time of all files, in seconds since 1970.
    epoch: u64,
    /// Directory of the packages.
    output: PathBuf,
    /// Directory of files on their way into packages. It is emptied when a run begins.
    staging: PathBuf,
}

/// Builds everything with the profile `release`. Returns the directory of the packages.
///
/// # Errors
/// As [`run`].
pub(crate) fn build_all() -> anyhow::Result<String> {
    let options = Options {
        formats: Vec::new(),
        binaries: None,
        output: None,
        revision: REVISION.to_owned(),
        fast: false,
    };
    run(&options)?;
    let packages = Path::new(stage::WORKSPACE).canonicalize()?.join(OUTPUT);
    Ok(packages.display().to_string())
}

/// Builds the formats that are asked for.
///
/// # Errors
/// If a program cannot be built, a file is missing, or a tool of Debian fails.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let formats = match options.formats.as_slice() {
        [] => Format::value_variants(),
        formats => formats,
    };
    // First of all: the programs take minutes to build.
    packages::require(&["dpkg-shlibdeps", "strip", "readelf"])?;
    let release = Release::new(options)?;
    let target = programs::Target::of_this_machine()?;
    if formats.contains(&Format::Deb) {
        let programs = programs::Programs::new(&target, options.binaries.as_deref())?;
        deb::build_all(&release, &programs)?;
    }
    if formats.contains(&Format::Tarball) || formats.contains(&Format::Image) {
        let programs = programs::Programs::new(&target.to_static(), options.binaries.as_deref())?;
        programs.require_static()?;
        let tree = archive::Tree::stage(&release, &programs)?;
        if formats.contains(&Format::Tarball) {
            tree.pack(&release)?;
        }
        if formats.contains(&Format::Image) {
            image::build(&release, &programs)?;
        }
    }
    files::write_checksums(&release.output)?;
    // Only after success: what is there shows why a package could not be made.
    fs::remove_dir_all(&release.staging)?;
    stage::announce(&format!("packages are in {}", release.output.display()));
    Ok(())
}

impl Release {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let workspace = Path::new(stage::WORKSPACE).canonicalize()?;
        let output = match &options.output {
            Some(output) => output.clone(),
            None => workspace.join(OUTPUT),
        };
        fs::create_dir_all(&output)
            .with_context(|| format!("cannot create {}", output.display()))?;
        let output = output.canonicalize()?;
        let staging = output.join("staging");
        // An earlier run may have failed, and left its files.
        if staging.exists() {
            fs::remove_dir_all(&staging)?;
        }
        fs::create_dir(&staging)?;
        let (compression, level) = if options.fast { FAST } else { KEPT };
        let architecture = files::output(Command::new("dpkg").arg("--print-architecture"))?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: options.revision.clone(),
            architecture: architecture.trim().to_owned(),
            compression,
            level,
            maintainer: maintainer(),
            epoch: epoch(&workspace)?,
            output,
            staging,
        })
    }

    /// The version with the Debian revision.
    fn debian_version(&self) -> String {
        format!("{}-{}", self.version, self.revision)
    }

    /// The time of the release, as in 2026-01-02T03:04:05Z.
    fn date(&self) -> anyhow::Result<String> {
        let time = format!("--date=@{}", self.epoch);
        let date =
            files::output(Command::new("date").args(["--utc", &time, "+%Y-%m-%dT%H:%M:%SZ"]))?;
        Ok(date.trim().to_owned())
    }
}

/// Returns who answers for the packages: DEBFULLNAME and DEBEMAIL, as for Debian's own tools.
fn maintainer() -> String {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let name = variable("DEBFULLNAME", "lttng-live maintainers");
    format!("{name} <{}>", variable("DEBEMAIL", "packages@example.org"))
}

/// `SOURCE_DATE_EPOCH`, or the date of the newest entry of Debian's changelog.
fn epoch(workspace: &Path) -> anyhow::Result<u64> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return epoch.parse().context("SOURCE_DATE_EPOCH is no number");
    }
    let path = workspace.join("dev/packaging/changelog");
    let changelog = files::read(&path)?;
    let mut trailers = changelog.lines().filter(|line| line.starts_with(" -- "));
    let date = trailers.next().and_then(|line| line.rsplit_once("  "));
    let (_, date) = date.with_context(|| format!("no date in {}", path.display()))?;
    let seconds = files::output(
        Command::new("date")
            .arg(format!("--date={date}"))
            .arg("+%s"),
    )?;
    seconds.trim().parse().context("date prints no number")
}
