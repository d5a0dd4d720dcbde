//! Viewer lag: the viewers attached to a session, and how far each of them lags. Viewers store
//! their read positions; nothing is compared until the status endpoint is scraped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use wire::Bytes;

use super::published::{Lag, Published};
use crate::limits::MAX_FILE_CALLS_OF_SESSION;

/// The viewers attached to a session.
#[derive(Debug)]
pub struct ViewerLag {
    viewers: Mutex<Vec<Weak<ViewerPositions>>>,
    /// A permit for each file call that may block.
    file_calls: Arc<Semaphore>,
}

/// The read positions of one attached viewer, each with its stream.
#[derive(Debug, Default)]
pub struct ViewerPositions(Mutex<Vec<(Arc<Published>, Weak<ReadPosition>)>>);

/// The read position of a viewer in one stream.
#[derive(Debug, Default)]
pub struct ReadPosition {
    packets: AtomicU64,
    end: AtomicU64,
}

/// The lag of several viewers, summed up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lags {
    /// Number of viewers that are attached.
    pub viewers: u64,
    /// Sum of all viewers.
    pub sum: Lag,
    /// Maximum of all viewers, separately for packets and bytes.
    pub most: Lag,
}

impl Default for ViewerLag {
    fn default() -> Self {
        Self {
            viewers: Mutex::default(),
            file_calls: Arc::new(Semaphore::new(MAX_FILE_CALLS_OF_SESSION)),
        }
    }
}

impl ViewerLag {
    /// A permit for each file call that may block which viewers of the session may have in flight.
    #[must_use]
    pub fn file_calls(&self) -> &Arc<Semaphore> {
        &self.file_calls
    }

    /// Adds a viewer, which counts until its positions are dropped.
    #[must_use]
    pub fn add_viewer(&self) -> Arc<ViewerPositions> {
        let positions = Arc::default();
        let mut viewers = self.viewers.lock();
        viewers.retain(|positions| positions.strong_count() > 0);
        viewers.push(Arc::downgrade(&positions));
        positions
    }

    /// The lag of all viewers of the session.
    #[must_use]
    pub fn lags(&self) -> Lags {
        let mut lags = Lags::default();
        // Collected first: the table is not locked while streams are. Viewers that have gone are
        // removed by the next one.
        let viewers: Vec<_> = self
            .viewers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for positions in viewers {
            let lag = positions.lag();
            lags.add_all(&Lags {
                viewers: 1,
                sum: lag,
                most: lag,
            });
        }
        lags
    }
}

impl ViewerPositions {
    /// Adds a stream that the viewer reads from this position on. Returns the position, which the
    /// viewer keeps up to date.
    #[must_use]
    pub fn add_stream(
        &self,
        published: &Arc<Published>,
        packets: u64,
        end: Bytes,
    ) -> Arc<ReadPosition> {
        let place = Arc::<ReadPosition>::default();
        place.set(packets, end);
        let mut streams = self.0.lock();
        streams.retain(|(_, place)| place.strong_count() > 0);
        streams.push((Arc::clone(published), Arc::downgrade(&place)));
        place
    }

    fn lag(&self) -> Lag {
        let mut lag = Lag::default();
        for (published, place) in self.0.lock().iter() {
            if let Some(place) = place.upgrade() {
                let packets = place.packets.load(Ordering::Relaxed);
                let end = place.end.load(Ordering::Relaxed);
                let behind = published.lag_behind(packets, Bytes(end));
                lag.packets += behind.packets;
                lag.bytes += behind.bytes;
            }
        }
        lag
    }
}

impl ReadPosition {
    /// Sets the number of packets that were announced to the viewer, and the end of the last one in
    /// the stream.
    pub fn set(&self, packets: u64, end: Bytes) {
        // Two stores without a lock: a scrape in between sees a lag that is off by one packet.
        self.packets.store(packets, Ordering::Relaxed);
        self.end.store(end.0, Ordering::Relaxed);
    }
}

impl Lags {
    /// Adds the lag of other viewers to the sums and the maximum.
    pub fn add_all(&mut self, others: &Self) {
        self.viewers += others.viewers;
        self.sum.packets += others.sum.packets;
        self.sum.bytes += others.sum.bytes;
        self.most.packets = self.most.packets.max(others.most.packets);
        self.most.bytes = self.most.bytes.max(others.most.bytes);
    }
}
