//! The connections of a resumable session are lost while the relay lives.

use tests::relay::Relay;
use tests::resumable::ResumableProducer;
use tests::wait_until;

use super::{assert_same, recording, session_tree};

/// Every n-th byte is tried, from a random one on, unless `RESUME_EVERY_BYTE` is set, as
/// `cargo xtask test --long` does.
const SAMPLED_BYTES: usize = 8;

#[test]
fn session_that_loses_its_connections_at_any_byte_has_the_files_of_one_that_does_not() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let addresses = relay.addresses();
    let mut whole = ResumableProducer::new(recording("whole"));
    whole.send(addresses);
    assert_eq!((whole.connections, whole.resumed), (1, 0));
    let want = session_tree(&relay.output, "whole");
    let step = match std::env::var_os("RESUME_EVERY_BYTE") {
        Some(_) => 1,
        None => SAMPLED_BYTES,
    };
    let mut resumed = 0;
    for bytes in (fastrand::usize(1..=step)..).step_by(step) {
        let name = format!("cut-{bytes:05}");
        let mut producer = ResumableProducer::new(recording(&name));
        if producer.try_send(addresses, bytes).is_ok() {
            break;
        }
        producer.send(addresses);
        resumed += producer.resumed;
        assert_same(&session_tree(&relay.output, &name), &want, &name);
    }
    assert!(resumed > 1000 / step, "{resumed} of the sessions");
    let log = relay.log();
    let errors: Vec<_> = log.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    wait_until("no session is kept", || {
        !relay.output.join(".relayd").exists()
    });
}

#[test]
fn session_is_taken_over_from_connections_that_are_still_open() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let addresses = relay.addresses();
    ResumableProducer::new(recording("whole")).send(addresses);
    let want = session_tree(&relay.output, "whole");
    for bytes in (500..6000).step_by(61) {
        let name = format!("half-{bytes:05}");
        let mut producer = ResumableProducer::new(recording(&name));
        producer.leaves_open = true;
        if producer.try_send(addresses, bytes).is_ok() {
            break;
        }
        producer.send(addresses);
        assert_same(&session_tree(&relay.output, &name), &want, &name);
    }
    relay.wait_for_log(&["session resumed", "was_detached=false"]);
}
