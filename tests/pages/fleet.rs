//! `doc/fleet.md` and the manifest of a fleet: a relay of it is a machine that has what the
//! manifest says, with a directory in place of the bucket.

use tests::binaries;
use tests::lab::Lab;
use tests::network::{Host, Network};
use tests::page::Page;
use tests::process::Process;

use crate::kubernetes::{machine, set_mode, stop, wait_for_probe};
use crate::manifests::{Workload, documents};

const BUCKET: &str = "s3://BUCKET/traces";

#[test]
fn relay_of_the_manifest_starts_and_drains_before_it_is_stopped() {
    let fleet = Workload::read("fleet.yaml", "StatefulSet");
    fleet.check();
    let service = documents("fleet.yaml").remove(0);
    // Each relay has an address of its own.
    assert_eq!(service["spec"]["clusterIP"], "None");
    let relay = fleet.container("relayd");
    let lab = Lab::new();
    set_mode(lab.path(), 0o755);
    let Some(network) = Network::create() else {
        return;
    };
    let _ = binaries::relayd();
    let machine = machine(&lab, &network, Host::Collector, &relay);
    let command = relay.command();
    assert!(command.contains(BUCKET), "{command}");
    let process = machine.start_script(&command.replace(BUCKET, "file:///srv/traces/archive"));
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        wait_for_probe(&machine, &relay, probe);
    }
    assert_eq!(machine.run(&relay.pre_stop()), ["drained"]);
    assert!(machine.get(5345, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(machine.get(5345, "/healthz").starts_with("HTTP/1.1 200"));
    stop(&machine, "relayd", process);
}

#[test]
fn settings_of_the_page_are_those_of_a_relay() {
    let lab = Lab::new();
    Page::open("doc/fleet.md").assert_all_used(&["kubectl"]);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../doc/fleet.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, settings) = page.split_once("```ini\n[relayd]\n").unwrap();
    let (settings, _) = settings.split_once("```").unwrap();
    let file = lab.path().join("relayd.conf");
    std::fs::write(&file, format!("[relayd]\n{settings}")).unwrap();
    let mut command = lab.command(binaries::relayd());
    let checked = Process::start(command.arg("check-config").arg(&file)).wait();
    let (printed, faults) = (checked.stdout, checked.stderr);
    assert!(checked.status.success(), "{faults:?}");
    for setting in ["archive=s3://", "durability=archive", "http="] {
        let is_set = printed.iter().any(|line| line.starts_with(setting));
        assert!(is_set, "{setting}: {printed:?}");
    }
}
