//! Packages of agent, viewer and tldrs, and what all packages leave when they are removed.

use crate::built::{NEW, OLD};
use crate::debian::{Debian, Init};

const ALL: [&str; 4] = [
    "lttng-live-collector",
    "lttng-live-agent",
    "lttng-live-viewer",
    "tldrs",
];

/// Files of the system and their contents, except for those that any installation of a package
/// changes.
const FILES: &str = "find / -xdev -type f ! -path '/var/lib/dpkg/*' ! -path '/var/log/*' ! -path '/var/cache/*' \
                     ! -path '/tmp/*' ! -path '/run/*' ! -name '*-' -exec sha256sum {} + | sort -k 2; \
                     find / -xdev ! -type f ! -path '/var/lib/dpkg/*' ! -path '/tmp/*' ! -path '/run/*' ! -path '/proc/*' | sort";

#[test]
fn purged_packages_leave_nothing_behind() {
    let Some(debian) = Debian::start(Init::None) else {
        return;
    };
    let before = debian.run(FILES);
    for package in ALL {
        debian.install(package, OLD);
    }
    for (program, package) in [
        ("relayd", ALL[0]),
        ("consumer", ALL[1]),
        ("test-live", ALL[2]),
        ("tldrs", ALL[3]),
    ] {
        debian.run(&format!("{program} --version"));
        let pages = debian.run(&format!("dpkg --listfiles {package} | grep /man/"));
        assert!(pages.contains(&format!("/{program}.")), "{pages}");
        debian.run(&format!(
            "test -f /usr/share/bash-completion/completions/{program}"
        ));
    }
    debian.run("relayd check-config /etc/relayd.conf");
    assert_eq!(debian.run("dpkg --audit; dpkg --verify"), "");
    for package in ALL {
        debian.install(package, NEW);
    }
    assert_eq!(debian.run("dpkg --audit; dpkg --verify"), "");
    debian.run(&format!("dpkg --purge {}", ALL.join(" ")));
    let after = debian.run(FILES);
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let added: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    assert!(
        added.is_empty() && lost.is_empty(),
        "added {added:#?}, lost {lost:#?}"
    );
}

#[test]
fn agent_stays_disabled_until_it_is_enabled_and_is_not_restarted_by_an_upgrade() {
    let Some(debian) = Debian::start(Init::Systemd) else {
        return;
    };
    debian.install("lttng-live-agent", OLD);
    assert_eq!(
        debian.try_run("systemctl is-enabled consumer").1,
        "disabled\n"
    );
    assert_eq!(
        debian.try_run("systemctl is-active consumer").1,
        "inactive\n"
    );
    let settings = "[relay]\nurl = \"net://127.0.0.1\"\n[spool]\ndirectory = \"/var/lib/consumer/spool\"\n[tldrs]\n";
    std::fs::write(debian.path("/etc/consumer.toml"), settings).unwrap();
    debian.run("systemctl enable --now consumer");
    let status = "consumer status --socket /run/consumer/consumer.socket";
    tests::wait_until("the agent answers", || debian.try_run(status).0);
    let process = "systemctl show --property=MainPID --value consumer";
    let before = debian.run(process);

    let printed = debian.install("lttng-live-agent", NEW);
    let goes_on = format!("consumer {} goes on with the program", before.trim());
    assert!(printed.contains(&goes_on), "{printed}");
    assert_eq!(debian.run(process), before);
    assert_eq!(debian.run("systemctl is-enabled consumer"), "enabled\n");
    assert_eq!(debian.run("cat /etc/consumer.toml"), settings);

    let printed = debian.run("dpkg --remove lttng-live-agent");
    assert!(
        printed.contains("Stopping consumer.service. This ends its sessions"),
        "{printed}"
    );
    assert_eq!(
        debian.try_run("systemctl is-active consumer").1,
        "inactive\n"
    );
    debian.run("dpkg --purge lttng-live-agent");
    assert!(!debian.path("/etc/consumer.toml").exists());
}

#[test]
fn unit_of_one_user_runs_the_program_of_the_package_or_of_cargo() {
    let Some(debian) = Debian::start(Init::Systemd) else {
        return;
    };
    debian.install("tldrs", OLD);
    debian.run("useradd --create-home --uid 1234 alice; install -d -o alice /run/user/1234");
    // What a login starts. This root has no program that logs users in.
    debian.run(
        "systemd-run --uid=alice --setenv=HOME=/home/alice --property=Delegate=yes \
         --setenv=XDG_RUNTIME_DIR=/run/user/1234 /usr/lib/systemd/systemd --user",
    );
    tests::wait_until("the manager of the user runs", || {
        debian.path("/run/user/1234/systemd/private").exists()
    });
    let of_user = |words: &str| {
        format!("runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/1234 systemctl --user {words}")
    };
    let runs = |program: &str| {
        let process = debian.run(&of_user("show --property=MainPID --value tldrs"));
        let link = format!("readlink /proc/{}/exe", process.trim());
        debian.try_run(&link).1.trim() == program
    };
    debian.run(&of_user("enable --now tldrs"));
    tests::wait_until("the packaged program runs", || runs("/usr/bin/tldrs"));

    // As a user who compiles it: the unit is copied.
    let unit = debian.run("cat /usr/lib/systemd/user/tldrs.service");
    debian.run("mkdir -p ~alice/.cargo/bin && mv /usr/bin/tldrs ~alice/.cargo/bin/");
    debian.run("dpkg --remove tldrs; rm -rf /usr/lib/systemd/user/tldrs.service");
    debian.run("mkdir -p ~alice/.config/systemd/user");
    let copy = "/home/alice/.config/systemd/user/tldrs.service";
    std::fs::write(debian.path(copy), unit).unwrap();
    debian.run("chown -R alice ~alice");
    debian.run(&of_user("daemon-reload"));
    debian.run(&of_user("enable --now tldrs"));
    debian.run(&of_user("restart tldrs"));
    tests::wait_until("the compiled program runs", || {
        runs("/home/alice/.cargo/bin/tldrs")
    });
}

#[test]
fn tldrs_serves_users_that_its_settings_name() {
    let Some(debian) = Debian::start(Init::Systemd) else {
        return;
    };
    debian.install("tldrs", OLD);
    assert_eq!(
        debian.try_run("systemctl is-enabled tldrs.socket").1,
        "disabled\n"
    );
    debian.run("useradd alice; echo 'TLDRS_OPTIONS=--allow-user=alice' >/etc/default/tldrs");
    debian.run("systemctl enable --now tldrs.socket; systemctl start tldrs");
    let arguments =
        "tr '\\0' ' ' </proc/$(systemctl show --property=MainPID --value tldrs)/cmdline";
    tests::wait_until("the daemon runs with its options", || {
        debian.run(arguments).contains("--allow-user=alice")
    });
    let printed = debian.run("dpkg --remove tldrs");
    assert!(printed.contains("Stopping tldrs.service"), "{printed}");
}
