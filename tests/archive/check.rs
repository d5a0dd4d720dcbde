//! `relayd archive check`.

use std::process::{Command, Output};
use std::time::Instant;

use tests::binaries;
use tests::certificates::Certificates;
use tests::lab::Lab;
use tests::relay::{free_addresses, port_options};

use crate::servers::{BUCKET, KEYS, RcloneServer, S3sServer};

/// A check of the bucket of a server.
fn check(lab: &Lab, endpoint: &str) -> Command {
    let mut command = lab.command(binaries::relayd());
    command.args(["archive", "check", &format!("s3://{BUCKET}/fleet")]);
    command.args(["--archive-endpoint", endpoint]);
    command.env("AWS_ACCESS_KEY_ID", KEYS.0);
    command.env("AWS_SECRET_ACCESS_KEY", KEYS.1);
    command
}

/// Expects status 1, nothing on standard output, and one line that ends so.
fn expect_refusal(ended: &Output, end: &str) {
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.starts_with("relayd archive: "), "{printed}");
    assert!(printed.trim_end().ends_with(end), "{printed}");
}

#[test]
fn a_directory_can_hold_an_archive() {
    let lab = Lab::new();
    let url = format!("file://{}/new/archive", lab.path().display());
    for _ in 0..2 {
        let mut command = lab.command(binaries::relayd());
        let ended = command.args(["archive", "check", &url]).output().unwrap();
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert!(
            ended.status.success() && ended.stderr.is_empty(),
            "{printed}"
        );
        let first = format!("{url} can be used: ");
        assert!(printed.starts_with(&first), "{printed}");
        for call in ["create, 16 at once", "create ", "read ", "list ", "delete "] {
            let has_call = printed.lines().any(|line| line.starts_with(call));
            assert!(has_call, "{call}: {printed}");
        }
        assert!(!printed.contains("warning"), "{printed}");
    }
    let format = lab.path().join("new/archive/format");
    assert_eq!(
        std::fs::read_to_string(format).unwrap(),
        "{\"version\":1}\n"
    );
}

#[test]
fn doctor_says_what_would_keep_relays_from_sharing_an_archive() {
    let lab = Lab::new();
    let archive = lab.path().join("archive");
    let url = format!("file://{}", archive.display());
    let doctor = |options: &[&str]| {
        let mut command = lab.command(binaries::relayd());
        command.arg("doctor").args(port_options(free_addresses()));
        command.args(["--archive", &url]).args(options);
        let ended = command.output().unwrap();
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success(), "{printed}");
        printed
    };
    let printed = doctor(&[]);
    for want in [
        "can be used",
        "its clock agrees with that of this host",
        "no relay has a log there",
    ] {
        assert!(printed.contains(&format!("{url}: {want}")), "{printed}");
    }
    let written = Instant::now();
    for boot in ["0", "1"] {
        let log = archive.join("log").join(boot.repeat(32));
        std::fs::create_dir_all(&log).unwrap();
        std::fs::write(log.join("0000000000"), "").unwrap();
    }
    let warning = "packets are acknowledged before they are there";
    let printed = doctor(&[]);
    let (_, age) = printed
        .split_once("logs of 2 runs of relays; the newest object is ")
        .expect(&printed);
    let (age, _) = age.split_once(" s old").expect(&printed);
    // Of whole seconds by another clock.
    let longest = written.elapsed().as_secs() + 1;
    assert!(age.parse::<u64>().unwrap() <= longest, "{printed}");
    assert!(printed.contains(warning), "{printed}");
    let printed = doctor(&["--durability=archive"]);
    assert!(!printed.contains(warning), "{printed}");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let lab = Lab::new();
    let server = RcloneServer::start(&lab, None);
    let ended = check(&lab, server.url()).output().unwrap();
    // A busy server has an internal error for some of them.
    expect_refusal(&ended, "of 16 racing creates of one object succeeded");
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(printed.contains("ignores create-only puts: "), "{printed}");
    // Neither objects of the probe are left, nor is the bucket marked.
    let bucket = lab.path().join("rclone").join(BUCKET);
    let left = tests::tree::files(&bucket, "");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_store_that_checks_conditions_before_it_writes_is_refused() {
    let lab = Lab::new();
    let server = S3sServer::start(&lab);
    let ended = check(&lab, &server.url()).output().unwrap();
    expect_refusal(&ended, "racing creates of one object succeeded");
}

#[test]
fn certificates_of_a_store_are_verified() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let server = RcloneServer::start(&lab, Some(&certificates));
    let others = Certificates::create(&lab, "others");
    for (trusted, want) in [
        (&others, "invalid peer certificate: UnknownIssuer"),
        // It is trusted, and then refused as a store.
        (&certificates, "racing creates of one object succeeded"),
    ] {
        let mut command = check(&lab, server.url());
        command.env_remove("SSL_CERT_DIR");
        command.env("SSL_CERT_FILE", trusted.file("ca.pem"));
        expect_refusal(&command.output().unwrap(), want);
    }
}

#[test]
fn keys_are_read_from_the_file_that_the_tools_of_aws_share() {
    let lab = Lab::new();
    let server = S3sServer::start_atomic(&lab);
    let file = lab.path().join("keys");
    let (key, secret) = KEYS;
    let keys = format!("[fleet]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
    std::fs::write(&file, keys).unwrap();
    let check_with = |profile: &str| {
        let mut command = check(&lab, &server.url());
        command.env_remove("AWS_ACCESS_KEY_ID");
        command.env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_SHARED_CREDENTIALS_FILE", &file);
        command.env("AWS_PROFILE", profile).output().unwrap()
    };
    let checked = check_with("fleet");
    assert!(checked.status.success(), "{checked:?}");
    expect_refusal(
        &check_with("other"),
        "the profile other has no pair of keys",
    );
}

#[test]
fn a_wrong_command_line_is_refused() {
    let lab = Lab::new();
    for (arguments, want) in [
        (&["check", "s3://"][..], "the name of the bucket is missing"),
        (
            &["check", "file:///proc/none"],
            "cannot open the archive in /proc/none",
        ),
        (&["check"], "required arguments"),
        (&["chekc", "s3://bucket"], "unrecognized subcommand"),
    ] {
        let mut command = lab.command(binaries::relayd());
        let ended = command.arg("archive").args(arguments).output().unwrap();
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{printed}");
        assert!(printed.contains(want), "{printed}");
    }
}
