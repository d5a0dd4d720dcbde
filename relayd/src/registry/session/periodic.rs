//! The periodic work of a session: its beacons are written to disk, viewers are held back for
//! metadata no longer than its timeout, and a session whose files could not be synced fails. Most
//! sessions have none of it, which [`Session::has_periodic_work`] finds without a lock. If none
//! has, the relay looks at no session ([`PeriodicRequests`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tracing::{debug, warn};
use wire::StreamId;

use super::Session;
use crate::limits::BEACONS_ON_DISK;
use crate::registry::stream::SessionStream;

/// Whether any session may have periodic work, except that its files could not be synced. To look
/// at each session would take most of the processor time of a relay with many idle ones.
#[derive(Debug, Default, Clone)]
pub struct PeriodicRequests(Arc<AtomicBool>);

impl PeriodicRequests {
    /// Has the next tick look at all sessions.
    pub(in crate::registry) fn add(&self) {
        // After what is to be found there.
        self.0.store(true, Ordering::Release);
    }

    /// Whether the next tick has to look at all sessions.
    pub(in crate::registry) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes the requests so far, which are fulfilled by looking at all sessions afterwards.
    pub(in crate::registry) fn take(&self) {
        // Exchanged, so that everything that was requested before is seen.
        self.0.swap(false, Ordering::Acquire);
    }
}

/// The work of the next tick for one session.
#[derive(Debug)]
pub(super) struct PeriodicWork {
    requests: PeriodicRequests,
    /// A beacon has come that may not be on disk.
    has_new_beacon: AtomicBool,
    /// Number of streams whose beacons are still to be looked at since one came.
    streams_left: AtomicUsize,
    /// The stream whose beacon is written to disk next.
    next_stream: Mutex<StreamId>,
    /// Viewers may be held back for some stream.
    awaits_metadata: AtomicBool,
}

impl PeriodicWork {
    pub(super) fn new(requests: PeriodicRequests) -> Self {
        Self {
            requests,
            has_new_beacon: AtomicBool::new(false),
            streams_left: AtomicUsize::new(0),
            next_stream: Mutex::default(),
            awaits_metadata: AtomicBool::new(false),
        }
    }

    /// Has the next tick advance the timeouts for metadata. To be called with the table of streams
    /// locked.
    pub(super) fn request_timeouts(&self) {
        self.awaits_metadata.store(true, Ordering::Relaxed);
        self.requests.add();
    }
}

impl Session {
    /// Has the next [`do_periodic_work`](Self::do_periodic_work) write the beacon of some stream to
    /// disk.
    pub fn request_beacons(&self) {
        self.periodic.has_new_beacon.store(true, Ordering::Release);
        self.periodic.requests.add();
    }

    /// Whether [`do_periodic_work`](Self::do_periodic_work) has anything to do.
    #[must_use]
    pub fn has_periodic_work(&self) -> bool {
        let work = &self.periodic;
        work.has_new_beacon.load(Ordering::Relaxed)
            || work.streams_left.load(Ordering::Relaxed) > 0
            || work.awaits_metadata.load(Ordering::Relaxed)
            || (self.sync.has_failed() && !self.has_failed())
    }

    /// Writes beacons to disk, advances the timeouts for metadata, and fails the session if its
    /// files could not be synced. To be called every [`TICK`](crate::limits::TICK) in which there
    /// is such work.
    pub fn do_periodic_work(&self) {
        self.write_beacons();
        self.advance_metadata_timeouts();
        // The session logs it.
        let _ = self.check_synced();
    }

    /// Writes up to [`BEACONS_ON_DISK`] beacons to disk. The next call continues with the next
    /// stream.
    fn write_beacons(&self) {
        for stream in self.next_beacon_turn() {
            let SessionStream::Data(stream) = stream else {
                continue;
            };
            // Only tried: a disk that hangs in a write of this stream must not stop the others.
            let Some(mut writer) = stream.try_lock() else {
                // It is being written.
                self.request_beacons();
                continue;
            };
            if let Err(error) = writer.write_beacon() {
                // Quiet: the same fault pauses the producer, which is reported.
                if error.kind().is_transient() {
                    debug!(session = %self, %error, "beacon not written");
                } else {
                    warn!(session = %self, %error, "beacon not written");
                }
            }
        }
    }

    /// The streams whose beacons are written now.
    fn next_beacon_turn(&self) -> Vec<SessionStream> {
        // Only tracers with a live timer send beacons.
        if self.identity.live_timer.period().is_none() {
            self.periodic.has_new_beacon.store(false, Ordering::Relaxed);
            return Vec::new();
        }
        let streams = self.streams.lock();
        let work = &self.periodic;
        let mut next = work.next_stream.lock();
        let left = match work.has_new_beacon.swap(false, Ordering::Acquire) {
            // Of any stream, also of one that has had its turn.
            true => streams.len(),
            false => work.streams_left.load(Ordering::Relaxed).min(streams.len()),
        };
        let turn = streams.streams_from(*next).take(left.min(BEACONS_ON_DISK));
        let turn: Vec<_> = turn.cloned().collect();
        if let Some(last) = turn.last() {
            *next = StreamId(last.id().0 + 1);
        }
        work.streams_left
            .store(left - turn.len(), Ordering::Relaxed);
        turn
    }

    /// Advances the timeouts of streams whose metadata has not arrived, which hold viewers back no
    /// longer than that, and of traces whose metadata declares no stream class.
    fn advance_metadata_timeouts(&self) {
        if !self.periodic.awaits_metadata.load(Ordering::Relaxed) {
            return;
        }
        let mut streams = self.streams.lock();
        streams.tick();
        let awaits = streams.has_timeouts();
        self.periodic
            .awaits_metadata
            .store(awaits, Ordering::Relaxed);
        if !awaits {
            return;
        }
        let ready = streams.describe_overdue(false);
        if ready.is_empty() {
            // Viewers are not woken up for nothing.
            self.limit_watermark(&mut streams);
        } else {
            self.announce(streams, ready);
        }
    }
}
