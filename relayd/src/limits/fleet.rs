//! Limits of what viewers are shown from the archive: sessions of other relays, and ended ones.

use std::time::Duration;

use wire::Micros;

/// Open files of the copies of all sessions together.
pub const FLEET_FILES: usize = 256;

/// Age from which on the list of sessions is read again before viewers get it.
pub const FLEET_LIST_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which all days are listed, not only the last ones.
pub const FLEET_WHOLE_LIST_INTERVAL: Duration = Duration::from_secs(60);

/// Days after which a session is not shown by other relays than its own, though it has not ended.
pub const MAX_FLEET_DAYS: i64 = 31;

/// Largest number of sessions of the archive that are shown, the newest ones: viewers read the list
/// as a whole.
pub const MAX_FLEET_SESSIONS: usize = 10_000;

/// Largest number of sessions without a producer that are looked for at other relays at a time.
pub const MAX_SESSIONS_LOOKED_FOR: usize = 32;

/// Default time since their end for which sessions are shown (`--archive-list`).
pub const FLEET_LISTED_FOR: Duration = Duration::from_secs(86_400);

/// Time for which a viewer waits for the archive before it is answered without it.
pub const FLEET_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Ids of the relay's own sessions and streams are less than this.
pub const FIRST_FLEET_SESSION: u64 = 1 << 40;

/// Ids of streams that each copy of a session has for its own.
pub const FLEET_STREAM_IDS: u64 = 1 << 20;

/// Live timer of the copy of a session that is not live.
pub const FLEET_LIVE_TIMER: Micros = Micros(1_000_000);

/// Largest number of sessions of the archive that are copied at the same time because viewers are
/// attached to them. Each is looked for in the archive every [`FLEET_POLL_INTERVAL`].
pub const MAX_SESSION_COPIES: usize = 64;

/// Interval at which the archive is searched for what is new in a session that viewers watch.
pub const FLEET_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which the copy of a session is kept without a viewer.
pub const FLEET_COPY_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Blocks of a session that are fetched ahead of the one that is being written.
pub const FLEET_BLOCKS_AHEAD: usize = 4;

/// Part of the disk that copies leave free: one of this many, and no more than
/// [`FLEET_FREE_BYTES`].
pub const FLEET_FREE_PART: u64 = 20;

/// Bytes of the disk that copies leave free at most.
pub const FLEET_FREE_BYTES: u64 = 1 << 30;

/// Time for which the threads that copy sessions are waited for when the relay stops.
pub const FLEET_STOP_TIMEOUT: Duration = Duration::from_secs(2);
