//! The archive of static programs and the image for containers: their form with programs that take
//! no time to build, and the released ones when the variable PACKAGES names their directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tests::process::Process;
use tests::{Lab, peers};

use crate::built;
use crate::policy::check_sums;

/// A program that prints who runs it, and its arguments.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(int n, char **arguments) {
    printf("%d", (int)getuid());
    while (n--) printf(" %s", *arguments++);
    return 0;
}
"#;

/// The user of the image.
const USER: &str = "65532";

#[test]
fn archive_and_image_built_twice_have_equal_bytes_and_sums() {
    let lab = Lab::new();
    let first = packages();
    let second = lab.directory("second");
    build(&lab, &second);
    for output in [first, &second] {
        check_sums(output);
    }
    let [first, second] =
        [first, &second].map(|output| fs::read(output.join("SHA256SUMS")).unwrap());
    assert_eq!(String::from_utf8(first), String::from_utf8(second));
}

#[test]
fn archive_has_programs_pages_units_and_a_bill_of_materials() {
    let lab = Lab::new();
    let archive = find(packages(), "-linux-musl.tar.gz");
    let root = lab.directory("root");
    unpack(&archive, &root, &["--strip-components=1"]);
    for file in [
        "bin/relayd",
        "lib/systemd/system/relayd.service",
        "lib/sysusers.d/relayd.conf",
        "share/man/man8/relayd.8",
        "share/doc/lttng-live/LICENSE-MIT",
        "share/doc/lttng-live/LIBRARIES",
        "share/doc/lttng-live/etc/relayd.conf",
    ] {
        assert!(root.join(file).is_file(), "{file} is missing");
    }
    let bill = fs::read_to_string(root.join("share/doc/lttng-live/lttng-live.spdx.json")).unwrap();
    assert_eq!(
        bill,
        fs::read_to_string(find(packages(), ".spdx.json")).unwrap()
    );
    check_bill(&serde_json::from_str(&bill).unwrap(), &root);
}

/// Returns the directory of an archive and an image, which are built once for all tests.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let directory = built::scratch("archives");
        build(&Lab::new(), &directory);
        directory
    })
}

/// Builds an archive and an image of programs that do nothing.
fn build(lab: &Lab, output: &Path) {
    let programs = static_programs(lab);
    for format in ["tarball", "image"] {
        built::package(format, &programs, output, &[]);
    }
}

/// Checks that each element has what SPDX 2.3 requires, and that relations lead to elements.
fn check_bill(bill: &Value, root: &Path) {
    assert_eq!(bill["spdxVersion"], "SPDX-2.3");
    let packages = bill["packages"].as_array().unwrap();
    let names: Vec<_> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    for name in [
        "relayd",
        "consumer",
        "tldrs",
        "test-live",
        "tokio",
        "rustls",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
    let ids: Vec<_> = packages.iter().map(|package| &package["SPDXID"]).collect();
    for package in packages {
        let name = &package["name"];
        let sum = package["checksums"][0]["checksumValue"].as_str().unwrap();
        assert_eq!(sum.len(), 64, "{name}");
        let license = package["licenseDeclared"].as_str().unwrap();
        spdx::Expression::parse(license).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(file) = package["packageFileName"].as_str() {
            assert_eq!(sum, sha256(&root.join(file)));
        }
        assert_eq!(
            ids.iter().filter(|id| **id == &package["SPDXID"]).count(),
            1,
            "{name}"
        );
    }
    for relation in bill["relationships"].as_array().unwrap() {
        assert!(ids.contains(&&relation["relatedSpdxElement"]), "{relation}");
    }
}

#[test]
fn image_is_a_layout_of_files_by_their_digests_and_runs_as_its_user() {
    let lab = Lab::new();
    let image = Image::unpack(&lab, packages());
    let Some(mut command) = image.command(&lab, &image.arguments()) else {
        return;
    };
    let printed = command.output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed.starts_with(&format!("{USER} relayd --output=/var/lib/relayd")),
        "{printed}"
    );
}

#[test]
fn programs_that_need_shared_libraries_are_refused() {
    let lab = Lab::new();
    let mut xtask = Command::new(tests::binaries::xtask());
    xtask
        .args(["package", "tarball", "--binaries"])
        .arg(built::programs());
    let ended = xtask.arg("--output").arg(lab.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{printed}");
    assert!(printed.contains("needs shared libraries"), "{printed}");
}

#[test]
fn released_programs_record_and_show_a_trace() {
    let Some(packages) = std::env::var_os("PACKAGES").map(PathBuf::from) else {
        eprintln!("PACKAGES names no directory of released packages: test skipped");
        return;
    };
    check_sums(&packages);
    let lab = Lab::new();
    let image = Image::unpack(&lab, &packages);
    // Ports of its own: other tests may have those of the image.
    let free = |port: &str| format!("--{port}-port=tcp://127.0.0.1:0");
    let mut arguments = image.arguments();
    arguments.extend(["-v".to_owned(), free("control"), free("data"), free("live")]);
    let Some(mut command) = image.command(&lab, &arguments) else {
        return;
    };
    let mut relay = Process::start(&mut command);
    let [control, data, _] =
        relay.wait_for_stderr("the relay listens", tests::relay::parse_listening_addresses);
    let root = lab.directory("archive");
    unpack(
        &find(&packages, "-linux-musl.tar.gz"),
        &root,
        &["--strip-components=1"],
    );
    let trace = tests::traces::with_numbered_events(&lab, "released", 100, 1000);
    let replay = lab
        .command(root.join("bin/consumer"))
        .args([
            "replay",
            "--live=20000",
            "--session=released",
            "--hostname=host",
        ])
        .arg(format!("--ctrl-url=tcp://{control}"))
        .arg(format!("--data-url=tcp://{data}"))
        .arg(&trace)
        .stdin(Stdio::null())
        .status();
    assert!(replay.unwrap().success());
    let recorded = image.root.join("var/lib/relayd");
    let shown = |program: PathBuf, directory: &Path| {
        let shown = lab.command(program).arg(directory).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    let expected = shown(tests::binaries::test_live().to_owned(), &trace);
    assert!(!expected.is_empty());
    assert_eq!(shown(root.join("bin/test-live"), &recorded), expected);
}

/// An image that is unpacked.
struct Image {
    root: PathBuf,
    config: Value,
}

impl Image {
    /// Unpacks the image in a directory of packages, and checks every digest on the way.
    fn unpack(lab: &Lab, packages: &Path) -> Self {
        let layout = lab.directory("layout");
        unpack(&find(packages, "-oci.tar"), &layout, &[]);
        assert_eq!(
            json(&layout.join("oci-layout"))["imageLayoutVersion"],
            "1.0.0"
        );
        let index = json(&layout.join("index.json"));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap();
            let path = layout.join("blobs/sha256").join(digest);
            assert_eq!(sha256(&path), digest);
            assert_eq!(
                fs::metadata(&path).unwrap().len(),
                descriptor["size"].as_u64().unwrap()
            );
            path
        };
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let root = lab.directory("image");
        for (layer, diff) in manifest["layers"]
            .as_array()
            .unwrap()
            .iter()
            .zip(config["rootfs"]["diff_ids"].as_array().unwrap())
        {
            let plain = lab.path().join("layer.tar");
            let file = fs::File::create(&plain).unwrap();
            let gunzip = Command::new("gzip")
                .arg("-dc")
                .arg(blob(layer))
                .stdout(file)
                .status();
            assert!(gunzip.unwrap().success());
            assert_eq!(diff.as_str().unwrap(), format!("sha256:{}", sha256(&plain)));
            unpack(&plain, &root, &[]);
        }
        Self {
            root,
            config: config["config"].clone(),
        }
    }

    /// Returns the command line of the image.
    fn arguments(&self) -> Vec<String> {
        let words = self.config["Cmd"].as_array().unwrap().iter();
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns a command in the image, with its user and variables. Only root may: otherwise prints
    /// that and returns `None`.
    fn command(&self, lab: &Lab, arguments: &[String]) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can change the root directory: test skipped");
            return None;
        }
        assert_eq!(self.config["User"], format!("{USER}:{USER}"));
        // What every runtime of containers mounts.
        let mounts = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec /usr/sbin/chroot \"$@\"";
        for directory in ["proc", "dev"] {
            fs::create_dir_all(self.root.join(directory)).unwrap();
        }
        let mut command = lab.command("/usr/bin/unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "/bin/sh",
                "-c",
                mounts,
            ])
            .arg(&self.root)
            .arg(format!("--userspec={USER}:{USER}"))
            .arg(&self.root)
            .args(arguments);
        command.env_clear();
        for variable in self.config["Env"].as_array().unwrap() {
            let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
            command.env(name, value);
        }
        Some(command)
    }
}

/// Returns the four programs, which do nothing, and the real one that writes man pages.
fn static_programs(lab: &Lab) -> PathBuf {
    let directory = lab.directory("programs");
    let source = lab.path().join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new(peers::program("cc"));
    cc.arg("-static")
        .arg("-o")
        .arg(directory.join("relayd"))
        .arg(&source);
    assert!(cc.status().unwrap().success());
    for name in ["consumer", "tldrs", "test-live"] {
        fs::copy(directory.join("relayd"), directory.join(name)).unwrap();
    }
    fs::copy(built::programs().join("man"), directory.join("man")).unwrap();
    directory
}

/// Returns the file of a directory whose name ends so.
fn find(directory: &Path, suffix: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let found = entries.find_map(|entry| {
        let path = entry.unwrap().path();
        path.to_str()?.ends_with(suffix).then_some(path)
    });
    found.unwrap_or_else(|| panic!("no *{suffix} in {}", directory.display()))
}

fn unpack(archive: &Path, directory: &Path, options: &[&str]) {
    let mut tar = Command::new("tar");
    tar.arg("--extract")
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(directory);
    assert!(
        tar.args(options).status().unwrap().success(),
        "{}",
        archive.display()
    );
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn sha256(path: &Path) -> String {
    let printed = Command::new("sha256sum").arg(path).output().unwrap();
    let line = String::from_utf8(printed.stdout).unwrap();
    line.split(' ').next().unwrap().to_owned()
}
