//! The image for containers, in the OCI image layout: a directory of files that are named by their
//! SHA-256. No daemon takes part in building it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::programs::{self, Programs};
use super::{NAME, Release, files};
use crate::stage;

/// User and group of the programs, who owns the directory of traces. The number is that of images
/// without a system.
const USER: u32 = 65_532;

/// The programs run as a user of their own; Kubernetes needs the number.
const USERS: &str =
    "root:x:0:0:root:/:/usr/bin/false\nrelayd:x:65532:65532:relay:/var/lib/relayd:/usr/bin/false\n";
const GROUPS: &str = "root:x:0:\nrelayd:x:65532:\n";

/// The directory of traces.
const TRACES: &str = "var/lib/relayd";

/// The directory of port files and sockets.
const RUN: &str = "run/lttng";

/// Writes the image as a directory, and as an archive of it.
pub(super) fn build(release: &Release, programs: &Programs) -> anyhow::Result<()> {
    stage::announce("packing the image for containers");
    let root = release.staging.join("image");
    for name in programs::ALL {
        programs.install(name, &root.join("usr/bin").join(name))?;
    }
    let documents = root.join("usr/share/doc").join(NAME);
    let archive = release.staging.join("archive");
    for file in files::list(&archive)? {
        let name = file.file_name().unwrap_or_default();
        let is_licence = ["LICENSE-MIT", "LICENSE-APACHE", "LIBRARIES"]
            .iter()
            .any(|licence| name == *licence);
        if is_licence {
            files::install(&archive.join(&file), &documents.join(name), files::DATA)?;
        }
    }
    let layout = release
        .output
        .join(format!("{NAME}-{}-oci", release.version));
    // Blobs of an earlier run would become part of the image.
    if layout.exists() {
        fs::remove_dir_all(&layout)?;
    }
    write(release, &root, &layout)?;
    let archive = layout.with_file_name(format!("{NAME}-{}-oci.tar", release.version));
    if archive.exists() {
        fs::remove_file(&archive)?;
    }
    files::append_tar(
        &archive,
        &layout,
        &["blobs", "index.json", "oci-layout"],
        0,
        release.epoch,
    )
}

/// Writes the layout of an image with the files below `root`.
fn write(release: &Release, root: &Path, layout: &Path) -> anyhow::Result<()> {
    files::write(&root.join("etc/passwd"), USERS, files::DATA)?;
    files::write(&root.join("etc/group"), GROUPS, files::DATA)?;
    files::normalize(root, release.epoch)?;
    let layer = release.staging.join("layer.tar");
    if layer.exists() {
        fs::remove_file(&layer)?;
    }
    files::append_tar(&layer, root, &["etc", "usr"], 0, release.epoch)?;
    let writable = release.staging.join("writable");
    for directory in [TRACES, RUN, "tmp"] {
        fs::create_dir_all(writable.join(directory))?;
    }
    files::normalize(&writable, release.epoch)?;
    let entries = [TRACES, RUN, "tmp"];
    // Apart, because these belong to the user of the programs and all else to root.
    files::append_tar(&layer, &writable, &entries, USER, release.epoch)?;
    // Before compression, as the image format asks for.
    let diff = files::sha256(&layer)?;
    files::compress(&layer, release.level)?;
    let date = release.date()?;
    let blobs = layout.join("blobs/sha256");
    let layer = add_blob(&blobs, &release.staging.join("layer.tar.gz"))?;
    let config = configuration(release, &date, &diff);
    let config = add_json(release, &blobs, &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor(&config, "application/vnd.oci.image.config.v1+json"),
        "layers": [descriptor(&layer, "application/vnd.oci.image.layer.v1.tar+gzip")],
    });
    let manifest = add_json(release, &blobs, &manifest)?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", manifest.digest),
            "size": manifest.bytes,
            "platform": { "architecture": release.architecture, "os": "linux" },
            "annotations": {
                "org.opencontainers.image.ref.name": release.version,
                "io.containerd.image.name": format!("localhost/{NAME}:{}", release.version),
            },
        }],
    });
    files::write(&layout.join("index.json"), index.to_string(), files::DATA)?;
    let version = json!({ "imageLayoutVersion": "1.0.0" });
    files::write(&layout.join("oci-layout"), version.to_string(), files::DATA)?;
    files::normalize(layout, release.epoch)
}

/// The configuration of a container of the image: its command, and the SHA-256 of its layer before
/// compression.
fn configuration(release: &Release, date: &str, diff: &str) -> Value {
    json!({
        "created": date,
        "architecture": release.architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": [
                "PATH=/usr/bin",
                format!("HOME=/{TRACES}"),
                format!("LTTNG_RUNDIR=/{RUN}"),
            ],
            "Cmd": ["relayd", format!("--output=/{TRACES}"), "--live-port=tcp://0.0.0.0:5344"],
            "ExposedPorts": { "5342/tcp": {}, "5343/tcp": {}, "5344/tcp": {} },
            "Volumes": { format!("/{TRACES}"): {} },
            "WorkingDir": format!("/{TRACES}"),
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff}")] },
        "history": [{ "created": date, "created_by": "cargo xtask package image" }],
    })
}

/// A file of the layout.
struct Blob {
    digest: String,
    bytes: u64,
}

/// Moves a file to the blobs.
fn add_blob(blobs: &Path, file: &Path) -> anyhow::Result<Blob> {
    let digest = files::sha256(file)?;
    files::install(file, &blobs.join(&digest), files::DATA)?;
    let bytes = fs::metadata(file)?.len();
    fs::remove_file(file)?;
    Ok(Blob { digest, bytes })
}

fn add_json(release: &Release, blobs: &Path, value: &Value) -> anyhow::Result<Blob> {
    let file = release.staging.join("blob.json");
    files::write(&file, value.to_string(), files::DATA)?;
    add_blob(blobs, &file)
}

fn descriptor(blob: &Blob, kind: &str) -> Value {
    json!({
        "mediaType": kind,
        "digest": format!("sha256:{}", blob.digest),
        "size": blob.bytes,
    })
}
