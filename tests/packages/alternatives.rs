//! `/usr/bin/lttng-relayd`, which lttng-tools has as a file and the collector as an alternative, in
//! every order of their installations and removals.

use std::fs;

use crate::built::{NEW, OLD};
use crate::debian::{Debian, Init};

const COLLECTOR: &str = "lttng-live-collector";
const LTTNG: &str = "lttng-tools";

/// The program of lttng-tools while the collector is installed.
const DIVERTED: &str = "/usr/bin/lttng-relayd.lttng-tools";

#[test]
fn lttng_relayd_survives_every_order_of_installation_and_removal() {
    let Some(debian) = Debian::start(Init::None) else {
        return;
    };
    for first in [COLLECTOR, LTTNG] {
        for first_removed in [COLLECTOR, LTTNG] {
            let other = |package| if package == LTTNG { COLLECTOR } else { LTTNG };
            install(&debian, first, OLD);
            expect_alone(&debian, first);
            install(&debian, other(first), OLD);
            expect_both(&debian);
            debian.run(&format!("dpkg --remove {first_removed}"));
            expect_alone(&debian, other(first_removed));
            debian.run(&format!("dpkg --remove {}", other(first_removed)));
            expect_none(&debian);
        }
    }
}

#[test]
fn choice_of_lttng_relayd_survives_upgrades_of_both_packages_and_is_given_back() {
    let Some(debian) = Debian::start(Init::None) else {
        return;
    };
    install(&debian, LTTNG, OLD);
    let original = debian.run("sha256sum </usr/bin/lttng-relayd");
    install(&debian, COLLECTOR, OLD);
    assert_eq!(debian.run(&format!("sha256sum <{DIVERTED}")), original);

    debian.run("update-alternatives --set lttng-relayd /usr/bin/relayd");
    for upgrade in [COLLECTOR, LTTNG] {
        install(&debian, upgrade, NEW);
        assert_eq!(
            resolved(&debian),
            "/usr/bin/relayd",
            "after the upgrade of {upgrade}"
        );
        assert_eq!(page(&debian), "/usr/share/man/man8/relayd.8.gz");
    }
    let version = debian.run("lttng-relayd --help");
    assert!(version.contains("--reorder-packets"), "{version}");

    debian.run("update-alternatives --auto lttng-relayd");
    expect_both(&debian);
    let version = debian.run("lttng-relayd --help | head -n 30");
    assert!(!version.contains("--reorder-packets"), "{version}");

    debian.run("update-alternatives --set lttng-relayd /usr/bin/relayd");
    debian.run(&format!("dpkg --remove {COLLECTOR}"));
    expect_alone(&debian, LTTNG);
    assert_eq!(debian.run("sha256sum </usr/bin/lttng-relayd"), original);
    assert_eq!(debian.run("dpkg --audit; dpkg --verify lttng-tools"), "");
}

#[test]
fn diversion_of_the_administrator_is_left_alone() {
    let Some(debian) = Debian::start(Init::None) else {
        return;
    };
    let local = "dpkg-divert --local --rename --divert /usr/bin/lttng-relayd.mine --add /usr/bin/lttng-relayd";
    debian.run(local);
    let printed = debian.install(COLLECTOR, OLD);
    assert!(
        printed.contains("diverted already: it is left alone"),
        "{printed}"
    );
    assert!(!debian.path("/usr/bin/lttng-relayd").exists());
    debian.run(&format!("dpkg --remove {COLLECTOR}"));
    assert_eq!(
        debian.run("dpkg-divert --listpackage /usr/bin/lttng-relayd"),
        "LOCAL\n"
    );
}

fn install(debian: &Debian, package: &str, revision: &str) {
    match package {
        LTTNG => debian.install_lttng(),
        package => debian.install(package, revision),
    };
}

/// Returns the file to which the name `/usr/bin/lttng-relayd` leads.
fn resolved(debian: &Debian) -> String {
    debian
        .run("readlink -e /usr/bin/lttng-relayd")
        .trim()
        .to_owned()
}

/// Returns what the man page of lttng-relayd is.
fn page(debian: &Debian) -> String {
    debian
        .run("readlink -e /usr/share/man/man8/lttng-relayd.8.gz")
        .trim()
        .to_owned()
}

fn diversions(debian: &Debian) -> String {
    debian.run("dpkg-divert --list '*lttng-relayd*'")
}

fn expect_both(debian: &Debian) {
    assert_eq!(resolved(debian), DIVERTED);
    assert_eq!(
        page(debian),
        "/usr/share/man/man8/lttng-relayd.lttng-tools.8.gz"
    );
    debian.run("relayd --version; lttng-relayd --version");
}

fn expect_alone(debian: &Debian, package: &str) {
    if package == LTTNG {
        assert_eq!(resolved(debian), "/usr/bin/lttng-relayd");
        assert_eq!(page(debian), "/usr/share/man/man8/lttng-relayd.8.gz");
        expect_nothing_configured(debian);
    } else {
        assert_eq!(resolved(debian), "/usr/bin/relayd");
        assert_eq!(page(debian), "/usr/share/man/man8/relayd.8.gz");
        let registered = debian.run("update-alternatives --list lttng-relayd");
        assert_eq!(registered, "/usr/bin/relayd\n");
    }
    debian.run("lttng-relayd --version");
}

fn expect_none(debian: &Debian) {
    expect_nothing_configured(debian);
    let programs = fs::read_dir(debian.path("/usr/bin")).unwrap();
    let names = programs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.contains("relayd")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn expect_nothing_configured(debian: &Debian) {
    assert_eq!(diversions(debian), "");
    let (is_registered, printed) = debian.try_run("update-alternatives --list lttng-relayd");
    assert!(!is_registered, "{printed}");
    assert!(!debian.path("/etc/alternatives/lttng-relayd").is_symlink());
}
