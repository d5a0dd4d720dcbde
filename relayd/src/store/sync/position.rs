//! Which position of a stream is durable, from the positions that were written when somebody asked.

use std::collections::VecDeque;

use super::{SyncStatus, Syncer};

/// The durable position of one stream. It is found out when it is asked for, so that streams about
/// which nobody asks cost nothing.
#[derive(Debug, Default)]
pub struct DurablePosition {
    durable: u64,
    /// The written positions of earlier questions, each with the round after which it is durable.
    /// At most two: of the round that runs, and of the next.
    pending: VecDeque<(u64, u64)>,
}

impl DurablePosition {
    /// The durable position of a stream of which everything before `written` has been written.
    /// After a failed sync the position does not advance.
    pub fn advance(&mut self, written: u64, syncer: &Syncer, status: &SyncStatus) -> u64 {
        let next = syncer.pending_round();
        let completed = syncer.completed_round();
        let mut durable = self.durable;
        while let Some((round, position)) = self.pending.front()
            && *round <= completed
        {
            durable = durable.max(*position);
            self.pending.pop_front();
        }
        match next {
            None => durable = durable.max(written),
            Some(round) => {
                // One question for each round is enough, the last, which covers the most.
                self.pending.retain(|(pending, _)| *pending != round);
                self.pending.push_back((round, written));
            }
        }
        // After the rounds were looked at: a round that has failed is completed only after the
        // failure is set.
        if !status.has_failed() {
            self.durable = durable;
        }
        self.durable
    }
}
