//! The clocks of the programs that send events to a `tldrs` daemon.

use std::collections::HashMap;

use parking_lot::Mutex;
use viewer::attach::TraceKey;

/// Largest number of clients that are remembered. With one more, all are forgotten.
const MAX_CLIENTS: usize = 1 << 14;

/// What is added to the times of each client, in nanoseconds, for the clock of all other events. It
/// stays what it was for the first event: then the spans of a client stay nested, and its events
/// are found again where they are shown.
#[derive(Debug, Default)]
pub(super) struct ClientClocks(Mutex<HashMap<(TraceKey, u32), i64>>);

impl ClientClocks {
    /// The offset of a client; `or_else` if it is not known yet.
    pub(super) fn offset_or_insert_with(
        &self,
        trace: TraceKey,
        client: u32,
        or_else: impl FnOnce() -> i64,
    ) -> i64 {
        let mut offsets = self.0.lock();
        if let Some(offset) = offsets.get(&(trace, client)) {
            return *offset;
        }
        // All at once: later events of a client may be moved by another offset, which is rare.
        if offsets.len() >= MAX_CLIENTS {
            offsets.clear();
        }
        *offsets.entry((trace, client)).or_insert_with(or_else)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_a_client_stays_what_it_was_first() {
        let clocks = ClientClocks::default();
        let (one, other) = (TraceKey::fresh(), TraceKey::fresh());
        assert_eq!(clocks.offset_or_insert_with(one, 1, || 5), 5);
        assert_eq!(clocks.offset_or_insert_with(one, 1, || 6), 5);
        assert_eq!(clocks.offset_or_insert_with(one, 2, || 7), 7);
        assert_eq!(clocks.offset_or_insert_with(other, 1, || 8), 8);
    }
}
