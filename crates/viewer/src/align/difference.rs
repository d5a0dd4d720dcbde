//! Times that are shown as they are, while samples say that the clocks of their hosts differ.

use ctf::decode::Event;

use super::clock::Node;
use super::samples::{self, Samples};
use super::{AlignedHosts, Alignment};

/// Largest number of samples that are remembered, some of each pair of a host and a relay.
const MAX_SAMPLES: usize = 16 * samples::MAX_PAIRS;

/// Looks for samples among the events that are shown.
#[derive(Debug)]
pub struct DifferenceWatch {
    samples: Samples,
    hosts: AlignedHosts,
    reference: Option<(Node, i64)>,
}

impl Default for DifferenceWatch {
    fn default() -> Self {
        Self {
            samples: Samples::with_max(MAX_SAMPLES),
            hosts: AlignedHosts::default(),
            reference: None,
        }
    }
}

impl DifferenceWatch {
    /// Looks at an event. Returns what to tell users when it is a sample by which the clocks of
    /// hosts differ by much.
    #[inline]
    pub fn see(&mut self, event: &Event<'_>) -> Option<String> {
        if !samples::is_sample(event) {
            return None;
        }
        self.samples.add_event(event);
        // More samples of the same host say little that is new.
        if !std::mem::take(&mut self.samples.are_first) {
            return None;
        }
        let alignment = Alignment::new(&self.samples, self.reference.take());
        self.hosts.add(alignment.host(event.trace())?);
        self.reference = alignment.reference;
        self.hosts.notices(false).pop()
    }
}
