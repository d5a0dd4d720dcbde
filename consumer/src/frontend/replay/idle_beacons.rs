//! Beacons for the idle streams of a live session, so that viewers need not wait for packets of
//! them.

use std::time::{Duration, Instant};

use wire::Timestamp;

use super::source::{PacketSource, PacketTimes, SourcePacket};
use crate::queue::{Step, StreamKey};

/// Beacons for the streams of a session.
pub(super) struct IdleBeacons {
    period: Duration,
    next: Option<Instant>,
    streams: Vec<StreamProgress>,
    /// For each trace the last begin of a packet, in nanoseconds and in cycles.
    begins: Vec<Option<(i64, u64)>>,
    /// For each trace the last end of a packet, in nanoseconds and in cycles.
    ends: Vec<Option<(i64, u64)>>,
    /// The last end of a packet of all traces, in nanoseconds.
    end: Option<i64>,
}

/// The progress of one stream by its beacons and packets.
#[derive(Clone, Copy, Default)]
struct StreamProgress {
    /// Whether a packet was sent since the last beacons.
    had_packet: bool,
    /// The watermark, in cycles: the time of the last beacon, or the end of the last packet.
    known: u64,
}

impl IdleBeacons {
    /// Makes beacons that are due once in a period.
    pub(super) fn new(period: Duration, source: &PacketSource) -> Self {
        Self {
            period,
            next: None,
            streams: vec![StreamProgress::default(); source.streams.len()],
            begins: vec![None; source.traces.len()],
            ends: vec![None; source.traces.len()],
            end: None,
        }
    }

    /// Records that a packet was sent.
    pub(super) fn record_packet(&mut self, packet: &SourcePacket, trace: usize) {
        if let Some(stream) = self.streams.get_mut(packet.stream) {
            stream.had_packet = true;
            stream.known = stream.known.max(packet.times.end_cycles.unwrap_or(0));
        }
        let PacketTimes {
            begin,
            end,
            begin_cycles,
            end_cycles,
        } = packet.times;
        let set_max = |known: Option<&mut Option<(i64, u64)>>, time: Option<(i64, u64)>| {
            if let Some(known) = known {
                *known = (*known).max(time);
            }
        };
        set_max(self.begins.get_mut(trace), begin.zip(begin_cycles));
        set_max(self.ends.get_mut(trace), end.zip(end_cycles));
        self.end = self.end.max(end);
    }

    /// Returns when beacons are due next.
    pub(super) fn next_due(&mut self, now: Instant) -> Instant {
        *self.next.get_or_insert(now + self.period)
    }

    /// Makes beacons for all streams without a packet since the last beacons. `time` is the present
    /// time of the traces, in nanoseconds; `waiting` is the packet that is sent next.
    pub(super) fn make_due_beacons(
        &mut self,
        source: &PacketSource,
        waiting: &SourcePacket,
        time: Option<i64>,
        now: Instant,
    ) -> Vec<Step> {
        self.next = Some(now + self.period);
        let mut steps = Vec::new();
        for (place, stream) in self.streams.iter_mut().enumerate() {
            let of = source.streams.get(place);
            let begin = of.and_then(|of| *self.begins.get(of.trace)?);
            if std::mem::take(&mut stream.had_packet) {
                continue;
            }
            let (Some(of), Some((since, cycles))) = (of, begin) else {
                continue;
            };
            // The watermark advances from the last begin of a packet in the trace, but not beyond
            // the begin of the stream's own next packet: a beacon says that no event before its
            // time will follow.
            let passed = time.map_or(0, |time| time.saturating_sub(since).max(0).unsigned_abs());
            let mut until = cycles.saturating_add(cycles_of(passed, of.frequency));
            let next = if place == waiting.stream {
                Some(waiting.times.begin_cycles)
            } else {
                source.peek(place).map(|next| next.begin)
            };
            if let Some(begin) = next {
                until = until.min(begin.unwrap_or(0));
            }
            if until > stream.known {
                stream.known = until;
                steps.push(beacon(place, until));
            }
        }
        steps
    }

    /// Makes the beacons at the end: no stream has events until the end of the last packet of all
    /// traces.
    pub(super) fn make_last_beacons(&self, source: &PacketSource) -> Vec<Step> {
        let mut steps = Vec::new();
        for (place, stream) in source.streams.iter().enumerate() {
            let ended = self.ends.get(stream.trace).copied().flatten();
            if let (Some((end, cycles)), Some(last)) = (ended, self.end) {
                let missing = last.saturating_sub(end).max(0).unsigned_abs();
                let until = cycles.saturating_add(cycles_of(missing, stream.frequency));
                // One cycle later, so that events at the very end are before the watermark as well.
                steps.push(beacon(place, until.saturating_add(1)));
            }
        }
        steps
    }
}

fn beacon(place: usize, until: u64) -> Step {
    Step::Beacon {
        stream: StreamKey::from_index(place),
        until: Timestamp(until),
    }
}

/// Converts nanoseconds to cycles of a clock of that frequency in Hz; 1 GHz if absent.
fn cycles_of(nanoseconds: u64, frequency: Option<u64>) -> u64 {
    let cycles = u128::from(nanoseconds) * u128::from(frequency.unwrap_or(1_000_000_000));
    u64::try_from(cycles / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_become_cycles_by_the_clock() {
        assert_eq!(cycles_of(1_500_000_000, Some(1000)), 1500);
        assert_eq!(cycles_of(7, None), 7);
        assert_eq!(cycles_of(u64::MAX, Some(u64::MAX)), u64::MAX);
    }
}
