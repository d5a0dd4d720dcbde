//! Hostile bytes on a viewer's connections: invariants that hold for any input.

#[path = "../fake/mod.rs"]
mod fake;
mod must;

use proptest::prelude::*;
use viewer_proto::beacon_interest::BeaconInterest;

proptest! {
    #[test]
    fn server_keeps_its_invariants_for_any_bytes_after_the_handshake(
        minor in 0..17u32,
        cut: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut sent = must::conversation(minor);
        sent.extend(bytes);
        must::converse(cut, &sent);
    }

    #[test]
    fn server_keeps_its_invariants_for_changed_bytes_of_a_valid_conversation(
        cut: u8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = must::conversation(15);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        must::converse(cut, &bytes);
    }

    #[test]
    fn server_keeps_its_invariants_for_any_bytes_on_a_push_connection(
        cut: u8,
        bytes in prop::collection::vec(0..4u8, 0..100),
    ) {
        must::listen(cut, &bytes);
    }
}

#[test]
fn valid_conversations_are_answered_completely() {
    for minor in [0, 4, 15, 99] {
        let bytes = must::conversation(minor);
        assert!(must::converse(0, &bytes) > 40, "{minor}");
        must::converse(7, &bytes);
    }
    let mut sent = Vec::new();
    for beacon_interest in [BeaconInterest::Unsubscribed, BeaconInterest::Subscribed]
        .into_iter()
        .cycle()
        .take(20)
    {
        beacon_interest.encode(&mut sent);
    }
    assert!(must::listen(8, &sent) > 20);
    must::listen(3, &sent);
}
