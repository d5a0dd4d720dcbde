//! The regression suite of LTTng itself, with `relayd` in the place of `lttng-relayd`.
//!
//! Debian's source package of LTTng is fetched and built once, into `target/peers`. The suite takes
//! every program from its build tree; `relayd` is mounted over `lttng-relayd` there. Each test has
//! namespaces of its own: the suite uses the default ports, and ends daemons by their names.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::{packages, stage};

/// The tests that are run.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// A test in tests/regression/tools of LTTng, such as clear/test_ust [default: all in which a
    /// relay takes part]
    #[arg(value_name = "TEST")]
    tests: Vec<String>,
}

/// Debian's packages without which LTTng cannot be built or its suite cannot run.
const PACKAGES: [&str; 13] = [
    "bash",
    "bc",
    "bison",
    "dpkg-dev",
    "flex",
    "gcc",
    "iproute2",
    "liblttng-ust-dev",
    "libpopt-dev",
    "libxml2-dev",
    "make",
    "pkg-config",
    "procps",
];

/// The tests in which a relay takes part and only programs in user space are traced; in
/// `tests/regression/tools`. `streaming/test_high_throughput_limits` is left out: with either
/// relay, at 50 kbit/s it takes longer than is allowed.
const TESTS: [&str; 13] = [
    "base-path/test_ust",
    "clear/test_ust",
    "health/test_thread_ok",
    "live/test_lttng_ust",
    "live/test_ust",
    "live/test_ust_tracefile_count",
    "regen-metadata/test_ust",
    "relayd-grouping/test_ust",
    "rotation/test_ust",
    "save-load/test_load",
    "snapshots/test_ust_streaming",
    "streaming/test_ust",
    "working-directory/test_relayd_working_directory",
];

/// Results that fail with every relay on a host without LTTng's kernel modules: the test of the
/// health sockets traces the kernel as well if it runs as root.
const KERNEL_FAILURES: [&str; 2] = [
    "Enable kernel event sched_switch for session health_thread_ok",
    "Start tracing for session health_thread_ok",
];

/// Runs a test; its arguments are the relay, the root of the build tree and the test.
const IN_NAMESPACES: &str = r#"set -e
ip link set lo up
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount --bind "$1" "$2/src/bin/lttng-relayd/lttng-relayd"
cd "$2/tests/regression"
exec timeout --kill-after=60 1200 bash "tools/$3"
"#;

/// Runs the tests one after the other.
///
/// # Errors
/// If LTTng cannot be fetched or built, this process is not root, or a test fails. The output of
/// each test is in `target/peers/lttng/log`.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let directory = directory()?;
    let tree = match source(&directory)? {
        Some(tree) => tree,
        None => fetch(&directory)?,
    };
    build(&tree)?;
    let log = directory.join("log");
    fs::create_dir_all(&log)?;
    stage::build("suite of LTTng: relayd", &["--bin=relayd"])?;
    let relay = stage::built("relayd")?;
    let mut tests: Vec<_> = options.tests.iter().map(String::as_str).collect();
    if tests.is_empty() {
        tests.extend(TESTS);
    }
    let mut failed = Vec::new();
    for test in tests {
        stage::announce(&format!("suite of LTTng: {test}"));
        let log = log.join(test.replace('/', "-"));
        // A test that fails does not keep the others from running.
        let output = run_test(&directory, &tree, &relay, test)?;
        fs::write(&log, &output)?;
        if let Err(error) = verdict(&output) {
            eprintln!("{error:#}; see {}", log.display());
            failed.push(test);
        }
    }
    ensure!(failed.is_empty(), "suite of LTTng: {}", failed.join(", "));
    Ok(())
}

fn directory() -> anyhow::Result<PathBuf> {
    let directory = Path::new(stage::WORKSPACE).join("target/peers/lttng");
    fs::create_dir_all(&directory)?;
    // The suite needs a path without `..`.
    Ok(directory.canonicalize()?)
}

/// The unpacked source package, if it is there.
fn source(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let entries = fs::read_dir(directory)?.filter_map(Result::ok);
    let mut paths = entries.map(|entry| entry.path());
    Ok(paths.find(|path| path.join("configure").is_file()))
}

/// Fetches and unpacks Debian's source package. The package sources of this host stay as they are.
fn fetch(directory: &Path) -> anyhow::Result<PathBuf> {
    stage::announce("fetching the source of lttng-tools");
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("/etc/os-release does not name the release")?;
    let sources = directory.join("sources.list");
    fs::write(
        &sources,
        format!("deb-src http://deb.debian.org/debian {name} main\n"),
    )?;
    let lists = directory.join("lists");
    fs::create_dir_all(&lists)?;
    let apt_get = |arguments: &[&str]| {
        let mut apt_get = Command::new("apt-get");
        apt_get.current_dir(directory);
        // Lists of its own: this host may have no sources in its own, and they stay as they are.
        let settings = [
            ("Dir::Etc::sourcelist", sources.as_os_str()),
            ("Dir::Etc::sourceparts", OsStr::new("/dev/null")),
            ("Dir::State::lists", lists.as_os_str()),
        ];
        for (name, value) in settings {
            let mut setting = OsStr::new(name).to_owned();
            setting.push("=");
            setting.push(value);
            apt_get.arg("--option").arg(setting);
        }
        stage::run(apt_get.args(arguments))
    };
    apt_get(&["--quiet", "update"])?;
    apt_get(&["--quiet", "source", "lttng-tools"])?;
    source(directory)?.context("the source package of lttng-tools has no configure script")
}

/// Builds LTTng, unless it is built.
fn build(tree: &Path) -> anyhow::Result<()> {
    // The marker is made last of all, so that a build that was interrupted is done again.
    let done = tree.join("built");
    if done.is_file() {
        return Ok(());
    }
    stage::announce("building LTTng");
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        stage::run(
            command
                .current_dir(tree)
                .args(arguments)
                .stdout(Stdio::null()),
        )
    };
    run(
        "./configure",
        &["--quiet", "--disable-man-pages", "--disable-kmod"],
    )?;
    let jobs = std::thread::available_parallelism()?;
    run("make", &["--quiet", &format!("--jobs={jobs}")])?;
    Ok(fs::write(done, "")?)
}

/// Runs a test, and returns what it printed.
fn run_test(directory: &Path, tree: &Path, relay: &Path, test: &str) -> anyhow::Result<String> {
    let home = directory.join("home");
    // What killed daemons have left would be found by those of the next test.
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--pid", "--net", "--ipc", "--uts"])
        .args(["--fork", "--mount-proc", "sh", "-c", IN_NAMESPACES, "sh"])
        .args([relay, tree])
        .arg(test);
    // Directories of its own, so that the suite leaves no files in those of the user.
    for name in ["HOME", "LTTNG_HOME", "TMPDIR"] {
        unshare.env(name, &home);
    }
    let output = unshare
        .stdin(Stdio::null())
        .output()
        .context("cannot run unshare")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads the output of a test, which is in the Test Anything Protocol: a plan, `1..N`, and a line
/// for each of N results.
fn verdict(output: &str) -> anyhow::Result<()> {
    let plan = output.lines().find_map(|line| line.strip_prefix("1.."));
    let plan = plan.and_then(|plan| plan.trim().parse().ok());
    let plan: usize = plan.context("the test did not begin")?;
    let results =
        |result: &'static str| output.lines().filter(move |line| line.starts_with(result));
    let of_kernel = |line: &&str| KERNEL_FAILURES.iter().any(|known| line.ends_with(known));
    // Counted as results: the plan of the test has them too.
    let (known, failures): (Vec<_>, Vec<_>) = results("not ok").partition(of_kernel);
    if let Some(first) = failures.first() {
        bail!("{} of {plan} failed, first: {first}", failures.len());
    }
    let done = results("ok").count() + known.len();
    ensure!(done == plan, "the test ended after {done} of {plan}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_passes_only_if_all_that_it_planned_passed() {
        assert!(verdict("1..2\nok 1 - one\n# note\nok 2 # skip two\n").is_ok());
        let kernel = "not ok 2 - Enable kernel event sched_switch for session health_thread_ok";
        assert!(verdict(&format!("1..2\nok 1 - one\n{kernel}\n")).is_ok());
        for output in [
            "",
            "ok 1\n",
            "1..2\nok 1 - one\n",
            "1..2\nok 1 - one\nnot ok 2 - two\n",
        ] {
            assert!(verdict(output).is_err(), "{output:?}");
        }
    }
}
