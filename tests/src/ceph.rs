//! A real Ceph on loopback: a monitor, a manager, three OSDs, and a gateway with the interface of
//! S3, as processes of the test that any user may start.

use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::lab::Lab;
use crate::peers;
use crate::process::Process;
use crate::relay::free_addresses;

/// The keys of the gateway's user.
pub const KEYS: (&str, &str) = ("a-key", "a-secret");

/// The bucket of that user.
pub const BUCKET: &str = "traces";

/// The number of OSDs. Each of them has a copy of every object; two are enough to write.
pub const OSDS: usize = 3;

/// The time within which a daemon has to do what it is asked for. A start of all takes half a
/// minute on two idle processors.
const TIMEOUT: Duration = Duration::from_secs(300);

const USER: &str = "relay";

/// The daemons, in the order in which they are started, and what each may do.
const CAPABILITIES: &[(&str, &[(&str, &str)])] = &[
    ("mon.", &[("mon", "allow *")]),
    (
        "client.admin",
        &[("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *")],
    ),
    ("mgr.x", &[("mon", "allow profile mgr"), ("osd", "allow *")]),
    ("osd.0", OSD),
    ("osd.1", OSD),
    ("osd.2", OSD),
    (
        "client.rgw.x",
        &[
            ("mon", "allow rw"),
            ("osd", "allow rwx"),
            ("mgr", "allow rw"),
        ],
    ),
];

const OSD: &[(&str, &str)] = &[
    ("mon", "allow profile osd"),
    ("osd", "allow *"),
    ("mgr", "allow profile osd"),
];

/// A running Ceph with a bucket. All its daemons are killed when the value is dropped.
#[derive(Debug)]
pub struct Ceph {
    gateway: Option<Process>,
    osds: [Option<Process>; OSDS],
    /// Manager and monitor.
    others: Vec<Process>,
    address: SocketAddr,
    lab: Lab,
}

impl Ceph {
    /// Starts all daemons, and creates user and bucket.
    ///
    /// # Panics
    /// If Ceph is not installed, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_in(&std::env::temp_dir(), Ipv4Addr::LOCALHOST)
    }

    /// Starts Ceph as [`Self::start`] does, with its files in a directory, and with a gateway that
    /// hosts of other networks can reach at an address of this one.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_in(parent: &Path, gateway: Ipv4Addr) -> Self {
        // Not for the user of LTTng, whose directories a lab has, but for the user of the test.
        let lab = Lab::new_in(parent);
        let [monitor, mut address, _] = free_addresses();
        address.set_ip(gateway.into());
        let mut ceph = Self {
            gateway: None,
            osds: [const { None }; OSDS],
            others: Vec::new(),
            address,
            lab,
        };
        let fsid = uuid();
        ceph.write_configuration(&fsid, monitor);
        ceph.write_keys();
        ceph.start_monitor(&fsid, monitor);
        ceph.create_osds();
        (0..OSDS).for_each(|number| ceph.start_osd(number));
        ceph.start_gateway();
        let (key, secret) = KEYS;
        ceph.administer(&format!(
            "user create --uid={USER} --display-name={USER} --access-key={key} --secret-key={secret}"
        ));
        ceph.create_bucket();
        ceph
    }

    /// Returns the URL of the gateway.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of an archive in the bucket.
    #[must_use]
    pub fn archive(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Tells a program of this project where the gateway is, and the keys of it.
    pub fn configure<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("AWS_ENDPOINT_URL", self.endpoint())
            .env("AWS_ACCESS_KEY_ID", KEYS.0)
            .env("AWS_SECRET_ACCESS_KEY", KEYS.1)
    }

    /// Kills an OSD by SIGKILL.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill_osd(&mut self, number: usize) {
        kill(self.osds[number].take().expect("the OSD runs"));
    }

    /// Starts an OSD, which has been killed.
    pub fn start_osd(&mut self, number: usize) {
        let mut command = self.command("ceph-osd");
        command.args(["-f", "-i", &number.to_string()]);
        self.osds[number] = Some(Process::start(&mut command));
    }

    /// Kills the gateway by SIGKILL.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill_gateway(&mut self) {
        kill(self.gateway.take().expect("the gateway runs"));
    }

    /// Starts the gateway, and waits until it listens.
    pub fn start_gateway(&mut self) {
        let mut command = self.command("radosgw");
        let mut gateway = Process::start(command.args(["-f", "-n", "client.rgw.x"]));
        let address = self.address;
        wait_until("the gateway listens", || {
            assert!(gateway.is_running(), "{:#?}", gateway.stderr());
            TcpStream::connect(address).is_ok()
        });
        self.gateway = Some(gateway);
    }

    /// Waits until all OSDs run and each has a copy of every object.
    pub fn wait_until_clean(&self) {
        wait_until("all OSDs have all objects", || self.is_clean());
    }

    /// Whether all OSDs run and each has a copy of every object.
    ///
    /// # Panics
    /// If the monitor does not answer.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let mut command = self.command("ceph");
        command.args(["status", "--format=json", "--connect-timeout=20"]);
        let status: Value = serde_json::from_slice(&run(&mut command)).unwrap();
        let placement = &status["pgmap"];
        let states = placement["pgs_by_state"].as_array();
        let is_clean = |state: &Value| state["state_name"] == "active+clean";
        let are_clean = states.is_some_and(|states| states.iter().all(is_clean));
        are_clean && status["osdmap"]["num_up_osds"] == OSDS
    }

    /// Limits the number of objects that the user may have, or lifts the limit.
    pub fn set_max_objects(&self, objects: Option<u64>) {
        let of_user = format!("--quota-scope=user --uid={USER}");
        match objects {
            Some(objects) => {
                self.administer(&format!("quota set {of_user} --max-objects={objects}"));
                self.administer(&format!("quota enable {of_user}"));
            }
            None => self.administer(&format!("quota disable {of_user}")),
        }
    }

    /// Runs `radosgw-admin`.
    fn administer(&self, arguments: &str) {
        run(self.command("radosgw-admin").args(arguments.split(' ')));
    }

    /// A command of Ceph with the configuration of this one.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(peers::ceph_program(program));
        command.current_dir(self.lab.path());
        command.env("CEPH_CONF", self.lab.path().join("ceph.conf"));
        command
    }

    fn write_configuration(&self, fsid: &str, monitor: SocketAddr) {
        let directory = |name: &str| self.lab.directory(name).display().to_string();
        let (mon, mgr, rgw) = (directory("mon"), directory("mgr"), directory("rgw"));
        (0..OSDS).for_each(|number| drop(directory(&format!("osd.{number}"))));
        let (run, all) = (directory("run"), self.lab.path().display());
        // One protocol of messages instead of two needs half as many ports, which the daemons
        // choose. Without TCP_NODELAY each small answer of the gateway takes 40 ms longer. The disk
        // of a test may be almost full. All copies are on one host.
        let text = format!(
            "[global]
fsid = {fsid}
mon host = v2:{monitor}
public addr = 127.0.0.1
ms bind msgr1 = false
keyring = {all}/keyring
run dir = {run}
admin socket = {run}/$name.socket
log file = {run}/$name.log
mon data = {mon}
mon data avail warn = 2
mon data avail crit = 1
mgr data = {mgr}
mgr initial modules =
osd data = {all}/osd.$id
osd memory target = 939524096
osd crush chooseleaf type = 0
osd pool default size = {OSDS}
osd pool default min size = 2
osd pool default pg num = 8
osd pool default pg autoscale mode = off
bluestore block size = 8589934592
rgw data = {rgw}
rgw frontends = beast endpoint={} tcp_nodelay=1
",
            self.address
        );
        fs::write(self.lab.path().join("ceph.conf"), text).unwrap();
    }

    /// Writes the keys of all daemons.
    fn write_keys(&self) {
        let mut text = String::new();
        for (name, capabilities) in CAPABILITIES {
            let key = run(self.command("ceph-authtool").arg("--gen-print-key"));
            let key = String::from_utf8(key).unwrap();
            writeln!(text, "[{name}]\n\tkey = {}", key.trim()).unwrap();
            for (of, what) in *capabilities {
                writeln!(text, "\tcaps {of} = \"{what}\"").unwrap();
            }
        }
        fs::write(self.lab.path().join("keyring"), text).unwrap();
    }

    fn start_monitor(&mut self, fsid: &str, monitor: SocketAddr) {
        let address = format!("[v2:{monitor}]");
        let mut command = self.command("monmaptool");
        command.args([
            "--create", "--fsid", fsid, "--addv", "a", &address, "monitors",
        ]);
        run(&mut command);
        let mut command = self.command("ceph-mon");
        // The monitor takes the keys of all daemons from the file.
        run(command.args([
            "--mkfs",
            "-i",
            "a",
            "--monmap=monitors",
            "--keyring=keyring",
        ]));
        for (program, name) in [("ceph-mon", "a"), ("ceph-mgr", "x")] {
            let mut command = self.command(program);
            self.others
                .push(Process::start(command.args(["-f", "-i", name])));
        }
    }

    /// Lets the monitor know all OSDs, and makes their file systems.
    fn create_osds(&self) {
        let uuids = [(); OSDS].map(|()| uuid());
        // By one process: a start of the program takes a second.
        let mut ceph = self.command("ceph");
        ceph.arg("--connect-timeout=120").stdin(Stdio::piped());
        let mut ceph = Process::start(&mut ceph);
        let mut stdin = ceph.stdin().unwrap();
        for (number, uuid) in uuids.iter().enumerate() {
            writeln!(stdin, "osd new {uuid} {number}").unwrap();
        }
        drop(stdin);
        let _ = ceph.wait_within(TIMEOUT).expect_success();
        let made = uuids.iter().enumerate().map(|(number, uuid)| {
            let mut command = self.command("ceph-osd");
            command.args(["-i", &number.to_string(), "--mkfs", "--osd-uuid", uuid]);
            Process::start(&mut command)
        });
        for made in made.collect::<Vec<_>>() {
            let _ = made.wait_within(TIMEOUT).expect_success();
        }
    }

    /// Creates the bucket by rclone, because no program of Ceph does.
    fn create_bucket(&self) {
        let mut command = self.lab.command(peers::RCLONE.path());
        let settings = [
            ("TYPE", "s3"),
            ("PROVIDER", "Ceph"),
            ("ENDPOINT", &self.endpoint()),
            ("ACCESS_KEY_ID", KEYS.0),
            ("SECRET_ACCESS_KEY", KEYS.1),
        ];
        for (name, value) in settings {
            command.env(format!("RCLONE_CONFIG_CEPH_{name}"), value);
        }
        run(command.args(["--config=", "mkdir", &format!("ceph:{BUCKET}")]));
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        // At once, because an OSD that is stopped waits for the others.
        let osds = self.osds.iter().flatten();
        for process in osds.chain(&self.gateway).chain(&self.others) {
            process.signal(Signal::KILL);
        }
    }
}

fn kill(process: Process) {
    process.signal(Signal::KILL);
    let _ = process.wait();
}

/// Runs a command, which must succeed. Returns its standard output.
fn run(command: &mut Command) -> Vec<u8> {
    let ended = Process::start(command).wait_within(TIMEOUT);
    assert!(ended.status.success(), "{command:?}: {:#?}", ended.stderr);
    ended.stdout_bytes
}

fn uuid() -> String {
    let uuid = fs::read_to_string(Path::new("/proc/sys/kernel/random/uuid")).unwrap();
    uuid.trim().to_owned()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
