//! The only message of a viewer on its push connection: whether it wants beacons. Most
//! notifications of an idle session are beacons, and a viewer that holds no event back does not
//! need them.

use bytes::BufMut;
use thiserror::Error;
use wire::{Field, wire_enum};

use crate::push::NotificationHeader;

wire_enum! {
    /// Whether a viewer wants beacons: the `until` of a [`Quiet`](crate::push::Quiet).
    pub BeaconInterest {
        /// The viewer wants beacons: it holds events back until no earlier ones can come. The
        /// initial state.
        Subscribed = 1,
        /// The viewer wants no beacons.
        Unsubscribed = 2,
    }
}

/// An invalid message of a viewer. The push connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("invalid message on a push connection: code {code}, {size} bytes")]
pub struct BeaconInterestError {
    /// Code of the message.
    code: u32,
    /// Announced size in bytes.
    size: u32,
}

impl BeaconInterest {
    /// Appends the message: a header without a body.
    pub fn encode(self, to: &mut impl BufMut) {
        NotificationHeader {
            code: self.code(),
            size: 0,
        }
        .write(to);
    }
}

/// Decodes a viewer's messages at the relay's end.
#[derive(Debug, Default)]
pub struct BeaconInterestReader {
    /// The bytes of an incomplete message.
    received: Vec<u8>,
}

impl BeaconInterestReader {
    /// Adds received bytes, however they are split, and returns the last complete message, which
    /// replaces all before.
    ///
    /// # Errors
    /// If a message is invalid. The push connection is to be closed.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<Option<BeaconInterest>, BeaconInterestError> {
        self.received.extend_from_slice(bytes);
        let mut from = &self.received[..];
        let mut last = None;
        while let Ok(NotificationHeader { code, size }) = NotificationHeader::read(&mut from) {
            match BeaconInterest::from_code(code) {
                // Neither message has a body.
                Ok(beacon_interest) if size == 0 => last = Some(beacon_interest),
                _ => return Err(BeaconInterestError { code, size }),
            }
        }
        let consumed = self.received.len() - from.len();
        // Cheap: what is left is shorter than a header.
        self.received.drain(..consumed);
        Ok(last)
    }
}
