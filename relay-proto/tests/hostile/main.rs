//! Hostile bytes on a control connection: invariants that hold for any input, tried with random
//! bytes and with changed bytes of a valid conversation.

mod must;

use proptest::prelude::*;
use relay_proto::{Command, CommandCode, ControlHeader, Minor, Version};
use wire::Field;

proptest! {
    #[test]
    fn server_keeps_its_invariants_for_any_bytes_after_the_handshake(
        minor in 1..=16u32,
        cut: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        must::converse(cut, &[greeting(minor), bytes].concat());
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
}

#[test]
fn valid_conversations_of_every_version_are_answered_completely() {
    for minor in 1..=16 {
        let bytes = must::conversation(minor);
        assert!(must::converse(0, &bytes) > 3, "{minor}");
        for cut in [1, 2, 3, 24, 31] {
            must::converse(cut, &bytes);
        }
    }
}

#[test]
fn commands_of_an_extension_that_the_relay_lacks_are_refused_whatever_their_length() {
    for length in [0, 8, 1 << 40] {
        let mut bytes = greeting(15);
        ControlHeader::new(CommandCode::MakeResumable, length).write(&mut bytes);
        bytes.extend([0; 8]);
        assert_eq!(must::converse(0, &bytes), 1);
    }
}

fn greeting(minor: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let version = Command::Version(Version { major: 2, minor });
    must::put(&version, Minor(minor), &mut bytes);
    bytes
}
