//! Hostile bytes on a viewer's connections: what must hold of anything.

#[path = "../fake/mod.rs"]
mod fake;
mod must;

use proptest::prelude::*;
use viewer_proto::beacon_interest::BeaconInterest;

proptest! {
    #[test]
    fn any_bytes_behind_a_greeting_keep_the_rules(
        minor in 0..17u32,
        cut: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut sent = must::conversation(minor);
        sent.extend(bytes);
        must::converse(cut, &sent);
    }

    #[test]
    fn a_conversation_with_some_bytes_changed_keeps_the_rules(
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
    fn any_bytes_on_a_push_connection_keep_the_rules(
        cut: u8,
        bytes in prop::collection::vec(0..4u8, 0..100),
    ) {
        must::listen(cut, &bytes);
    }
}

#[test]
fn good_conversations_keep_the_rules() {
    for minor in [0, 4, 15, 99] {
        let bytes = must::conversation(minor);
        assert!(must::converse(0, &bytes) > 40, "{minor}");
        must::converse(7, &bytes);
    }
    let mut said = Vec::new();
    for beacon_interest in [BeaconInterest::Unsubscribed, BeaconInterest::Subscribed]
        .into_iter()
        .cycle()
        .take(20)
    {
        beacon_interest.encode(&mut said);
    }
    assert!(must::listen(8, &said) > 20);
    must::listen(3, &said);
}
