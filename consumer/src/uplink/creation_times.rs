//! Unique creation times for the sessions of this process. Relays name a session's directory by its
//! name and the second of its creation: two sessions of one name in one second would overwrite each
//! other. `relayd` also refuses a time that another process has used.

use std::collections::HashMap;

use parking_lot::Mutex;
use wire::EpochSeconds;

/// The last creation time of each host and session name, in seconds since the epoch.
#[derive(Debug, Default)]
pub(super) struct CreationTimes(Mutex<HashMap<(String, String), u64>>);

impl CreationTimes {
    /// Returns the creation time for a session of this host and name: now, or a second after the
    /// last.
    pub(super) fn next_creation_time(&self, host: &str, name: &str, now: u64) -> EpochSeconds {
        let mut creation_times = self.0.lock();
        // Bounds the table: a time in the past cannot be assigned again.
        creation_times.retain(|_, last| *last >= now);
        let key = (host.to_owned(), name.to_owned());
        let next = creation_times
            .get(&key)
            .map_or(now, |last| now.max(last + 1));
        creation_times.insert(key, next);
        EpochSeconds(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_name_have_different_creation_seconds() {
        let creation_times = CreationTimes::default();
        let at = |host, name, now| creation_times.next_creation_time(host, name, now).0;
        assert_eq!(at("h", "a", 10), 10);
        assert_eq!(at("h", "a", 10), 11);
        assert_eq!(at("h", "b", 10), 10);
        assert_eq!(at("g", "a", 10), 10);
        assert_eq!(at("h", "a", 11), 12);
        assert_eq!(at("h", "a", 9), 13);
        assert_eq!(at("h", "a", 20), 20);
    }
}
