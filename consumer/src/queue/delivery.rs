//! Receipts for packets: whether somebody else than the frontend keeps them now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What has become of the packets of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// At least one of them is in memory only.
    Pending,
    /// The spool has all of them on disk, or without a spool, a relay has acknowledged them.
    Delivered,
    /// All have left the queue, and at least one of them was given up.
    Lost,
}

/// The receipt for all packets that are sent while it is [set](super::SessionSender::set_receipt).
/// A frontend whose source still has the events releases them there when they are delivered.
#[derive(Debug, Clone, Default)]
pub struct DeliveryReceipt(Arc<AtomicBool>);

impl DeliveryReceipt {
    /// Returns what has become of the packets. The receipt must not be set any more.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        // Each packet that is still queued or in flight holds a reference. No new ones can come,
        // since the receipt is not set any more.
        if Arc::strong_count(&self.0) > 1 {
            return Delivery::Pending;
        }
        // The last packet may have been dropped on another thread; its store is visible here.
        if self.0.load(Ordering::Acquire) {
            Delivery::Lost
        } else {
            Delivery::Delivered
        }
    }

    /// Returns the part of the receipt that goes with one packet.
    pub(super) fn of_packet(&self) -> PacketReceipt {
        PacketReceipt {
            is_lost: Arc::clone(&self.0),
            is_delivered: false,
        }
    }
}

/// Travels with a packet. If it is dropped without a delivery, the packet is lost.
#[derive(Debug)]
pub(super) struct PacketReceipt {
    is_lost: Arc<AtomicBool>,
    is_delivered: bool,
}

impl PacketReceipt {
    pub(super) fn set_delivered(&mut self) {
        self.is_delivered = true;
    }
}

impl Drop for PacketReceipt {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.is_lost.store(true, Ordering::Release);
        }
    }
}
