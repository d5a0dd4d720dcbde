//! Which events match the filter of a page: one bit for each event of the packet log. A thread
//! decodes the packets again, first those of the history, then new ones, so that neither decoding
//! nor other pages wait.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use ctf::decode::Event;
use ctf::metadata::Trace;
use parking_lot::{Mutex, RwLock};
use viewer::filter::{Filter, UndeclaredNames};
use viewer::sink::{Origin, SinkError};
use viewer::time::Nanoseconds;

use super::packet_log::PacketLog;
use super::replay::{Events, Replay};
use super::row::EventPlace;

/// Time between two looks for new packets.
const POLL_INTERVAL: Duration = Duration::from_millis(40);
/// Packets that are fetched at a time.
const MAX_BATCH: usize = 64;
/// Traces that are decoded at a time. With one more, all are begun again when they have packets.
const MAX_TRACES: usize = 256;
/// Number of bytes of a hint that are shown.
const MAX_HINT_BYTES: usize = 1000;
/// Bytes of metadata that are decoded at a time. With more, all are begun again when they have
/// packets.
const MAX_REPLAYED_METADATA_BYTES: usize = 32 << 20;
/// Bytes of memory of the packets that are remembered. With more, the oldest are forgotten.
const MAX_MATCHES_BYTES: usize = 16 << 20;
/// Memory of a packet besides its bits, about.
const PACKET_OVERHEAD: usize = 32;

/// The matching events, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The number of the first packet in `packets`.
    first: u32,
    packets: VecDeque<Box<[u64]>>,
    /// The memory of all packets, about.
    bytes: usize,
}

/// The memory of a packet, about.
fn cost(bits: &[u64]) -> usize {
    size_of_val(bits) + PACKET_OVERHEAD
}

impl Matches {
    /// Whether an event matches, as far as that is known.
    pub(super) fn contains(&self, place: EventPlace) -> bool {
        // The numbers of packets wrap around.
        let packet = place.packet.wrapping_sub(self.first);
        let packet = usize::try_from(packet).unwrap_or(usize::MAX);
        let Some(bits) = self.packets.get(packet) else {
            return false;
        };
        let word = usize::try_from(place.event / 64).unwrap_or(usize::MAX);
        bits.get(word)
            .is_some_and(|word| word >> (place.event % 64) & 1 == 1)
    }

    pub(super) fn add(&mut self, number: u32, bits: Box<[u64]>) {
        let end = u32::try_from(self.packets.len()).unwrap_or(u32::MAX);
        if self.packets.is_empty() || number != self.first.wrapping_add(end) {
            // Packets in between were dropped before they were looked at.
            self.packets.clear();
            self.bytes = 0;
            self.first = number;
        }
        self.bytes += cost(&bits);
        self.packets.push_back(bits);
        while self.bytes > MAX_MATCHES_BYTES {
            let Some(oldest) = self.packets.pop_front() else {
                return;
            };
            self.bytes -= cost(&oldest);
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// The thread that applies the filters of a page, one after another: however many a page asks for,
/// it has one. It ends after this is dropped.
#[derive(Debug)]
pub(super) struct FilterThread {
    next: Arc<Mutex<NextFilter>>,
    thread: Thread,
}

/// What the thread does after the filter that it applies.
#[derive(Debug, Default)]
struct NextFilter {
    /// The latest filter that the thread has not begun to apply.
    filter: Option<Box<(Filter, Arc<FilterState>)>>,
    is_closed: bool,
}

/// The filter of a page, which is applied until this is dropped.
#[derive(Debug)]
pub(super) struct PageFilter {
    pub(super) state: Arc<FilterState>,
    thread: Thread,
}

/// What is known of the events that match a filter.
#[derive(Debug, Default)]
pub(super) struct FilterState {
    pub(super) matches: RwLock<Matches>,
    /// The number of packets that have been looked at.
    pub(super) progress: AtomicU64,
    /// Names in the filter that no event has so far, with similar ones; empty if there are none.
    pub(super) hint: Mutex<String>,
    /// Whether the page has dropped the filter.
    is_dropped: AtomicBool,
}

impl FilterThread {
    /// A thread for the packets of a log.
    ///
    /// # Errors
    /// If there can be no further thread.
    pub(super) fn start(log: Arc<PacketLog>) -> io::Result<Self> {
        let next = Arc::<Mutex<NextFilter>>::default();
        let shared = Arc::clone(&next);
        let thread = thread::Builder::new().name("filter".to_owned());
        let thread = thread.spawn(move || {
            loop {
                // Unlocked before the filter is applied, because a page may bring the next one
                // meanwhile.
                let next = {
                    let mut next = shared.lock();
                    if next.is_closed {
                        return;
                    }
                    next.filter.take()
                };
                match next {
                    Some(next) => {
                        let (filter, state) = *next;
                        apply(filter, &state, &log);
                    }
                    // A filter that comes right before is not missed: the thread then returns at
                    // once.
                    None => thread::park(),
                }
            }
        })?;
        let thread = thread.thread().clone();
        Ok(Self { next, thread })
    }

    /// Applies a filter to all packets, and to those that come, when the one before is dropped.
    pub(super) fn apply(&self, filter: Filter) -> PageFilter {
        let state = Arc::<FilterState>::default();
        let next = Box::new((filter, Arc::clone(&state)));
        self.next.lock().filter = Some(next);
        let thread = self.thread.clone();
        thread.unpark();
        PageFilter { state, thread }
    }
}

impl Drop for FilterThread {
    fn drop(&mut self) {
        self.next.lock().is_closed = true;
        self.thread.unpark();
    }
}

impl Drop for PageFilter {
    fn drop(&mut self) {
        self.state.is_dropped.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Applies a filter until the page drops it.
fn apply(filter: Filter, state: &FilterState, log: &PacketLog) {
    let mut stage = Matcher {
        undeclared: filter.undeclared_names(),
        filter,
        failed: None,
        has_matches: false,
        bits: Vec::new(),
        next: 0,
    };
    let mut replay = Replay::new(false);
    let mut number = 0;
    let is_dropped = || state.is_dropped.load(Ordering::Relaxed);
    // Whether there was a packet since the names were described.
    let mut has_news = false;
    while !is_dropped() {
        let (first, packets) = log.packets_from(number, MAX_BATCH);
        number = first;
        if packets.is_empty() {
            // New packets wake nobody, but a filter that is dropped wakes this thread.
            thread::park_timeout(POLL_INTERVAL);
        }
        let is_behind = packets.len() == MAX_BATCH;
        for packet in packets {
            if is_dropped() {
                return;
            }
            let is_large = replay.metadata_bytes() > MAX_REPLAYED_METADATA_BYTES;
            if is_large || replay.trace_count() > MAX_TRACES {
                replay = Replay::new(false);
            }
            (stage.next, stage.bits) = (0, Vec::new());
            // What cannot be decoded has been reported when it was decoded first, but the file of a
            // recording may have changed since.
            if let Err(error) = replay.add(&packet, &mut stage) {
                let (count, _) = stage.failed.take().unwrap_or_default();
                stage.failed = Some((count + 1, error.to_string()));
            }
            // Without spare room, because one is kept for each packet of the history.
            let bits = std::mem::take(&mut stage.bits).into_boxed_slice();
            state.matches.write().add(number, bits);
            number = number.wrapping_add(1);
            state.progress.fetch_add(1, Ordering::Relaxed);
            has_news = true;
        }
        // What no event has may be in packets that are still to be looked at.
        if !is_behind && std::mem::take(&mut has_news) {
            *state.hint.lock() = stage.hint();
        }
    }
}

/// Marks the events of one packet that match.
struct Matcher {
    filter: Filter,
    /// The names in the filter that no trace has declared.
    undeclared: UndeclaredNames,
    /// The number of packets that could not be decoded, and why the last one could not.
    failed: Option<(u64, String)>,
    has_matches: bool,
    bits: Vec<u64>,
    next: usize,
}

impl Matcher {
    /// What the command line would say of names that no event has.
    fn hint(&self) -> String {
        let mut descriptions = self.undeclared.describe();
        if let Some((packets, error)) = &self.failed {
            descriptions.insert(0, format!("not applied to {packets} packets: {error}"));
        }
        if !self.has_matches {
            descriptions.extend(self.filter.describe_missing());
        }
        let mut hint = descriptions.join("; ");
        hint.truncate(hint.floor_char_boundary(MAX_HINT_BYTES));
        hint
    }
}

impl Events for Matcher {
    fn declared(&mut self, trace: &Trace) {
        self.undeclared.add_declarations(trace);
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        let (word, bit) = (self.next / 64, self.next % 64);
        self.next += 1;
        if self.filter.matches(event, origin) {
            self.has_matches = true;
            if self.bits.len() <= word {
                self.bits.resize(word + 1, 0);
            }
            if let Some(word) = self.bits.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_match_by_packet_and_number_and_unknown_ones_do_not() {
        let mut matches = Matches::default();
        matches.add(7, Box::new([0b10, 1]));
        matches.add(8, Box::new([]));
        let contains = |packet, event| matches.contains(EventPlace { packet, event });
        assert!(contains(7, 1) && contains(7, 64));
        for (packet, event) in [(7, 0), (7, 65), (7, 1000), (6, 1), (8, 0), (9, 0)] {
            assert!(!contains(packet, event), "{packet} {event}");
        }
        matches.add(20, Box::new([1]));
        let contains = |packet, event| matches.contains(EventPlace { packet, event });
        assert!(contains(20, 0) && !contains(7, 1));
    }

    #[test]
    fn memory_of_matches_is_bounded_whatever_packets_have() {
        for words in [0, 1, 1 << 10, 1 << 20] {
            let mut matches = Matches::default();
            let packets = 3 * MAX_MATCHES_BYTES / cost(&vec![0; words]);
            for number in (0..).take(packets) {
                matches.add(number, vec![1; words].into());
                assert!(matches.bytes <= MAX_MATCHES_BYTES);
            }
            let kept: usize = matches.packets.iter().map(|bits| cost(bits)).sum();
            assert_eq!(kept, matches.bytes);
            let last = u32::try_from(packets - 1).unwrap();
            let place = EventPlace {
                packet: last,
                event: 0,
            };
            assert_eq!(matches.contains(place), words > 0);
        }
    }
}
