//! Computes the events and packets that were lost between the packets of a stream.

use super::packet::PacketHead;

/// Events and packets that were lost before the packet that was begun last, or in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Lost events; `None` if there are none, or if packets do not count them.
    pub events: Option<LostEvents>,
    /// The number of packets missing before this one, at least 1; `None` if none is missing, if
    /// packets have no sequence number, for the first packet, and where the numbers begin again.
    pub packets: Option<u64>,
    /// The end of the packet before, in cycles: from there on the losses may have happened. `None`
    /// for the first packet, and if packets have no end time.
    pub previous_end: Option<u64>,
    previous: Option<PacketHead>,
}

/// The number of lost events, if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostEvents {
    /// The number of events lost since the packet before, at least 1.
    Count(u64),
    /// An unknown number: the first packet of the stream, or the first after a restart of the
    /// tracer, counts events that were lost before it or in it.
    Some,
}

impl Losses {
    /// Computes the losses between the previous packet and the one of this head.
    pub(crate) fn advance_to(&mut self, head: &PacketHead) {
        let previous = self.previous.replace(*head);
        self.previous_end = previous.and_then(|previous| previous.end);
        // The count includes events of packets that are missing: both kinds of loss may be
        // reported.
        let of_first = || {
            let discarded = head.discarded.filter(|discarded| discarded.value > 0);
            discarded.map(|_| LostEvents::Some)
        };
        self.events = match previous {
            None => of_first(),
            Some(previous) => match head.discarded.zip(previous.discarded) {
                None => None,
                Some((discarded, before)) => match discarded.since(before.value) {
                    Some(0) => None,
                    Some(count) => Some(LostEvents::Count(count)),
                    None => of_first(),
                },
            },
        };
        // The first packet may have any number: a snapshot begins in the middle of a stream.
        self.packets = previous.and_then(|previous| {
            let steps = head.sequence?.since(previous.sequence?.value)?;
            steps.checked_sub(1).filter(|lost| *lost > 0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Counter;
    use super::*;

    fn packet(sequence: u64, discarded: u64) -> PacketHead {
        packet_of(8, sequence, discarded)
    }

    fn packet_of(bits: u8, sequence: u64, discarded: u64) -> PacketHead {
        let counter = |value| Some(Counter { value, bits });
        PacketHead {
            stream_class: 0,
            stream_id: None,
            begin: None,
            end: Some(sequence * 10),
            content_bits: 64,
            packet_bits: 64,
            sequence: counter(sequence),
            discarded: counter(discarded),
            foreign_uuid: None,
            context_at: 0,
            events_at: 0,
        }
    }

    #[test]
    fn lost_event_counts_are_differences_of_wrapping_counters() {
        let mut losses = Losses::default();
        losses.advance_to(&packet(7, 250));
        assert_eq!(
            (losses.events, losses.packets),
            (Some(LostEvents::Some), None)
        );
        losses.advance_to(&packet(8, 250));
        assert_eq!((losses.events, losses.packets), (None, None));
        losses.advance_to(&packet(11, 4));
        assert_eq!(losses.events, Some(LostEvents::Count(10)));
        assert_eq!(losses.packets, Some(2));
        assert_eq!(losses.previous_end, Some(80));
    }

    #[test]
    fn counters_that_begin_again_are_no_losses_of_their_range() {
        let mut losses = Losses::default();
        losses.advance_to(&packet_of(32, 40, 7));
        for (sequence, discarded, want) in [
            (0, 0, (None, None)),
            (1, 2, (Some(LostEvents::Count(2)), None)),
            (0, 1, (Some(LostEvents::Some), None)),
            (3, 1, (None, Some(2))),
            (u64::from(u32::MAX), 1, (None, Some(0xFFFF_FFFB))),
            (1, 1, (None, Some(1))),
        ] {
            losses.advance_to(&packet_of(32, sequence, discarded));
            assert_eq!((losses.events, losses.packets), want, "{sequence}");
        }
    }
}
