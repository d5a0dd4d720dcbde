//! What a viewer says on its push connection: whether it wants beacons. Most notifications of an idle session
//! are beacons, and a viewer that holds no event back does not need them.

use bytes::BufMut;
use thiserror::Error;
use wire::{Field, wire_enum};

use crate::push::NotificationHeader;

wire_enum! {
    /// Whether a viewer wants beacons: the `until` of a [`Quiet`](crate::push::Quiet).
    pub BeaconInterest {
        /// It does: it holds something back until it is certain that nothing earlier comes. So it is
        /// at first.
        Subscribed = 1,
        /// It does not, until it says otherwise.
        Unsubscribed = 2,
    }
}

/// A viewer has said what it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the viewer has said {code}, with {size} bytes")]
pub struct BeaconInterestError {
    /// What it said.
    code: u32,
    /// What it announced.
    size: u32,
}

impl BeaconInterest {
    /// Appends it as it is sent: a header with nothing behind it.
    pub fn encode(self, to: &mut impl BufMut) {
        NotificationHeader {
            code: self.code(),
            size: 0,
        }
        .write(to);
    }
}

/// The relay's end of what a viewer says.
#[derive(Debug, Default)]
pub struct BeaconInterestReader {
    /// The beginning of something.
    received: Vec<u8>,
}

impl BeaconInterestReader {
    /// Takes bytes as they come, however they are cut, and gives what the viewer has said last: what
    /// it said before that is no longer so.
    ///
    /// # Errors
    /// If it has said anything else. The push connection is to be closed.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<Option<BeaconInterest>, BeaconInterestError> {
        self.received.extend_from_slice(bytes);
        let mut from = &self.received[..];
        let mut last = None;
        while let Ok(NotificationHeader { code, size }) = NotificationHeader::read(&mut from) {
            match BeaconInterest::from_code(code) {
                Ok(beacon_interest) if size == 0 => last = Some(beacon_interest),
                _ => return Err(BeaconInterestError { code, size }),
            }
        }
        let taken = self.received.len() - from.len();
        self.received.drain(..taken);
        Ok(last)
    }
}
