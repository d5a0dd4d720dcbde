//! Viewer lag: the viewers attached to a session, and how far each of them is behind. Viewers store their read
//! positions; nothing is compared until the status endpoint is scraped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use wire::Bytes;

use super::published::Published;
use crate::limits::MAX_FILE_CALLS_OF_SESSION;

/// The viewers attached to a session.
#[derive(Debug)]
pub struct ViewerLag {
    watchers: Mutex<Vec<Weak<ViewerPositions>>>,
    /// A permit for each file call that may block.
    file_calls: Arc<Semaphore>,
}

/// One of them, and the streams of the session that it reads.
#[derive(Debug, Default)]
pub struct ViewerPositions(Mutex<Vec<(Arc<Published>, Weak<ReadPosition>)>>);

/// Where a viewer is in a stream.
#[derive(Debug, Default)]
pub struct ReadPosition {
    packets: AtomicU64,
    end: AtomicU64,
}

/// How far viewers are behind what is there for them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Packets that they have not been told of.
    pub packets: u64,
    /// About so many bytes.
    pub bytes: u64,
}

/// The lag of all viewers of something.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lags {
    /// How many viewers there are.
    pub viewers: u64,
    /// That of all together.
    pub sum: Lag,
    /// The greatest there is, packets and bytes each for itself.
    pub most: Lag,
}

impl Default for ViewerLag {
    fn default() -> Self {
        Self {
            watchers: Mutex::default(),
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

    /// A viewer watches, until it is dropped.
    #[must_use]
    pub fn add_viewer(&self) -> Arc<ViewerPositions> {
        let positions = Arc::default();
        let mut watchers = self.watchers.lock();
        watchers.retain(|positions| positions.strong_count() > 0);
        watchers.push(Arc::downgrade(&positions));
        positions
    }

    /// How far they are behind.
    #[must_use]
    pub fn lags(&self) -> Lags {
        let mut lags = Lags::default();
        // Those that have gone are forgotten when the next one comes.
        let watchers: Vec<_> = self
            .watchers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for positions in watchers {
            lags.add(positions.lag());
        }
        lags
    }
}

impl ViewerPositions {
    /// The viewer reads a stream. Gives where it is to note its place.
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
    /// The viewer has been told of so many packets, of which the last ends there in the stream.
    pub fn set(&self, packets: u64, end: Bytes) {
        self.packets.store(packets, Ordering::Relaxed);
        self.end.store(end.0, Ordering::Relaxed);
    }
}

impl Lags {
    fn add(&mut self, lag: Lag) {
        self.viewers += 1;
        self.sum.packets += lag.packets;
        self.sum.bytes += lag.bytes;
        self.most.packets = self.most.packets.max(lag.packets);
        self.most.bytes = self.most.bytes.max(lag.bytes);
    }

    /// Those of these viewers and of others.
    pub fn add_all(&mut self, others: &Self) {
        self.viewers += others.viewers;
        self.sum.packets += others.sum.packets;
        self.sum.bytes += others.sum.bytes;
        self.most.packets = self.most.packets.max(others.most.packets);
        self.most.bytes = self.most.bytes.max(others.most.bytes);
    }
}
