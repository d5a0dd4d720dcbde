//! `doc/kubernetes.md` and its manifests. There is no Kubernetes here: containers are machines that
//! have what the manifests say, command, arguments, variables, user, volumes, and addresses that
//! those of a pod share.

use std::path::{Path, PathBuf};

use tests::lab::Lab;
use tests::machine::{Machine, SharedDirectory};
use tests::network::{Host, Network};
use tests::page::Page;
use tests::process::Process;
use tests::{binaries, wait_until};

use crate::manifests::{Container, Workload, documents};

/// The user of all containers, as the manifests say.
const USER: u32 = 65_532;

/// Sends the begin and the end of a span as an application does that is built with trace-tef-tldrs.
const SEND: &str = r#"
perl -MIO::Socket::UNIX -e '
  my $agent = IO::Socket::UNIX->new($ENV{TRACE_TEF_TLDR_SOCKET}) or die "no agent: $!";
  print $agent qq(OPEN work\n{"ph":"B","name":"NAME","ts":0,"pid":1,"tid":1}\n{"ph":"E","ts":9,"pid":1,"tid":1}\n);'
"#;

#[test]
fn manifests_name_only_what_they_declare_and_restrict_every_container() {
    let relay = || Workload::read("relay.yaml", "StatefulSet");
    let app = || Workload::read("app.yaml", "Deployment");
    relay().check();
    app().check();
    relay().with_patch("relay-tls.yaml").check();
    app().with_patch("app-tls.yaml").check();
    // What the patch does not mean to change.
    let words = |workload: &Workload, name: &str| -> Vec<String> {
        let command = workload.container(name).command();
        let words = command.split(' ').map(str::to_owned);
        words
            .filter(|w| !w.contains("tls") && !w.contains("-url=") && !w.contains("-port="))
            .collect()
    };
    assert_eq!(
        words(&relay(), "relayd"),
        words(&relay().with_patch("relay-tls.yaml"), "relayd")
    );
    assert_eq!(
        words(&app(), "agent"),
        words(&app().with_patch("app-tls.yaml"), "agent")
    );
}

#[test]
fn ports_of_the_manifests_are_those_that_the_programs_use_by_default() {
    let relay = Workload::read("relay.yaml", "StatefulSet");
    let ports = relay.container("relayd").ports();
    let expected = [
        ("control", 5342),
        ("data", 5343),
        ("http", 5345),
        ("live", 5344),
    ];
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), expected);
    let service = documents("relay.yaml").remove(0);
    assert_eq!(service["kind"], "Service");
    for port in service["spec"]["ports"].as_array().unwrap() {
        let (name, number) = (
            port["name"].as_str().unwrap(),
            port["port"].as_u64().unwrap(),
        );
        assert!(expected.contains(&(name, number)), "{port}");
        assert_eq!(port["targetPort"], name);
    }
    let lab = Lab::new();
    let mut check = lab.command(binaries::relayd());
    let settings = Process::start(check.args(["check-config", "--output=/srv/traces"])).wait();
    for (name, number) in &expected[..2] {
        let line = format!("{name}-port=tcp://0.0.0.0:{number}");
        assert!(settings.stdout.contains(&line), "{:?}", settings.stdout);
    }
}

/// The volumes of all pods, as directories of the test.
struct Volumes<'a>(&'a Lab);

impl Volumes<'_> {
    /// Returns the volumes of a container and where it has them.
    fn of(&self, container: &Container<'_>) -> Vec<(PathBuf, String)> {
        let mounts = container.mounts().into_iter();
        mounts
            .map(|(name, path)| {
                let directory = self.0.path().join(format!("volume-{name}"));
                if !directory.exists() {
                    std::fs::create_dir(&directory).unwrap();
                    // As with fsGroup.
                    std::os::unix::fs::chown(&directory, Some(0), Some(USER)).unwrap();
                    set_mode(&directory, 0o2775);
                }
                (directory, path.to_owned())
            })
            .collect()
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Starts the machine of a container.
pub(crate) fn machine(
    lab: &Lab,
    network: &Network,
    host: Host,
    container: &Container<'_>,
) -> Machine {
    let volumes = Volumes(lab).of(container);
    let shared: Vec<SharedDirectory<'_>> = volumes
        .iter()
        .map(|(directory, path)| (directory.as_path(), path.as_str()))
        .collect();
    let machine = Machine::start_with(lab, network, host, &shared);
    machine.run("mount -o remount,bind,ro /");
    // Not writable, as the root of the image: what is left are the volumes.
    machine.run("chmod 0755 /run /srv /tmp /var/tmp /root /dev/shm");
    machine.with_user(USER)
}

/// Waits until a probe of a container succeeds.
pub(crate) fn wait_for_probe(machine: &Machine, container: &Container<'_>, name: &str) {
    let (command, path) = container.probe(name);
    wait_until(name, || match (&command, path) {
        (Some(command), _) => machine.try_run(command).status.success(),
        (None, Some(path)) => machine.get(5345, path).starts_with("HTTP/1.1 200"),
        (None, None) => machine
            .try_run("exec 3<>/dev/tcp/127.0.0.1/5342")
            .status
            .success(),
    });
}

fn start_relay(machine: &Machine, container: &Container<'_>) -> Process {
    let process = machine.start_script(&container.command());
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        wait_for_probe(machine, container, probe);
    }
    process
}

/// Stops a program as the kubelet does, by SIGTERM to the first process of its container.
pub(crate) fn stop(machine: &Machine, name: &str, process: Process) {
    machine.run(&format!(
        "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm 2>/dev/null)\" = {name} ]; then kill ${{p#/proc/}}; fi; done"
    ));
    let ended = process.wait();
    assert!(ended.status.success(), "{name}: {:?}", ended.stderr);
}

#[test]
fn sidecar_hands_over_everything_at_its_end_also_when_the_relay_was_replaced_meanwhile() {
    run_pods(
        &Workload::read("relay.yaml", "StatefulSet"),
        &Workload::read("app.yaml", "Deployment"),
        |_, _| {},
    );
}

#[test]
fn sidecar_and_relay_speak_tls_with_the_secrets_that_the_page_makes() {
    let mut page = Page::open("doc/kubernetes.md");
    let certificates = page.commands("relayd certs");
    page.assert_all_used(&["kubectl"]);
    run_pods(
        &Workload::read("relay.yaml", "StatefulSet").with_patch("relay-tls.yaml"),
        &Workload::read("app.yaml", "Deployment").with_patch("app-tls.yaml"),
        |lab, relay| {
            // `kubectl create secret generic` has the files that the pods see.
            relay.run(&format!(
                "cd /tmp; {certificates}\nchmod 0444 relayd-certs/*"
            ));
            let secret = lab.path().join("volume-tls");
            let archive = relay
                .shell("tar -c -C /tmp/relayd-certs .")
                .output()
                .unwrap();
            let file = lab.path().join("certs.tar");
            std::fs::write(&file, archive.stdout).unwrap();
            let unpacked = std::process::Command::new("tar")
                .arg("-xf")
                .arg(&file)
                .arg("-C")
                .arg(&secret)
                .status();
            assert!(unpacked.unwrap().success());
        },
    );
}

/// Runs the pods of both manifests: the application writes, the relay is replaced, the application
/// writes more, and the agent is stopped. `prepare` is called with the machine of the relay before
/// anything is started.
fn run_pods(relay: &Workload, app: &Workload, prepare: impl Fn(&Lab, &Machine)) {
    let lab = Lab::new();
    set_mode(lab.path(), 0o755);
    let Some(network) = Network::create() else {
        return;
    };
    let _ = (
        binaries::relayd(),
        binaries::consumer(),
        binaries::test_live(),
    );
    let _ = binaries::ring_app();
    let (relay, agent, app) = (
        relay.container("relayd"),
        app.container("agent"),
        app.container("app"),
    );
    let maker = Machine::start_with(&lab, &network, Host::Collector, &[]);
    // The volume must be there for the secret.
    let _ = Volumes(&lab).of(&relay);
    prepare(&lab, &maker);
    let relay_machine = machine(&lab, &network, Host::Collector, &relay);
    let agent_machine = machine(&lab, &network, Host::Traced, &agent);
    let app_machine = machine(&lab, &network, Host::Traced, &app);

    let relay_process = start_relay(&relay_machine, &relay);
    let agent_process = agent_machine.start_script(&agent.command());
    wait_for_probe(&agent_machine, &agent, "startupProbe");
    agent_machine.run(&agent.command().replacen("'serve'", "'doctor'", 1));
    let write = |name: &str| app_machine.run(&(app.environment() + &SEND.replace("NAME", name)));
    write("first");
    let ring = "/opt/examples/app --requests 3";
    app_machine.run(&format!("{}{ring}", app.environment()));
    stop(&relay_machine, "relayd", relay_process);
    write("second");
    let relay_process = start_relay(&relay_machine, &relay);
    let read = "test-live --sink json --no-follow /srv/traces/app-0";
    wait_until("the agent has continued its sessions", || {
        let events = relay_machine.try_run(read).stdout;
        events.iter().any(|event| event.contains("\"second\""))
    });
    write("third");
    stop(&agent_machine, "consumer", agent_process);
    stop(&relay_machine, "relayd", relay_process);

    let lines = relay_machine.run(read);
    for name in ["first", "second", "third"] {
        let begins = lines
            .iter()
            .filter(|line| line.contains(&format!("\"{name}\"")));
        assert_eq!(begins.count(), 1, "{name}: {lines:#?}");
    }
    let requests = lines.iter().filter(|line| line.contains("request done"));
    assert_eq!(requests.count(), 3, "{lines:#?}");
}
