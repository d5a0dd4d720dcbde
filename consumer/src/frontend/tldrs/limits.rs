//! Every limit of the daemon in one place, each with its reason.

use std::time::Duration;

// What clients may ask for.

/// Longest line, unless `--max-line` says otherwise: real events are shorter than a kilobyte.
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 << 20;

/// Longest line that may be asked for: what is read at once is kept in memory.
pub const MAX_LINE_BYTES: usize = 1 << 30;

/// Clients at the same time. Each takes a file descriptor and a few kilobytes.
pub const DEFAULT_MAX_CLIENTS: usize = 4096;

/// Traces open at the same time. Each takes a file descriptor.
pub const DEFAULT_MAX_TRACES: usize = 4096;

/// Bytes of all lines of which the end has not come: when there are more, the line that would add to
/// them is skipped as if it were too long.
pub const MAX_UNFINISHED_BYTES: usize = 256 << 20;

/// Exports of one trace that wait. A later one to the same path takes the place of an earlier.
pub const MAX_EXPORTS: usize = 256;

/// Exports that one trace is asked to make when its last client has gone.
pub const MOST_WISHES: usize = 256;

/// Bytes of an export's path. Longer ones lead nowhere: the system takes no more (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;

/// Bytes of refused lines that are kept of a trace. They are there to find what is wrong with a
/// program, and the first ones tell that.
pub const MAX_REJECTED_BYTES: u64 = 16 << 20;

/// Bytes of one refused line that are kept.
pub const REJECTED_LINE_BYTES: usize = 4 << 10;

/// Bytes of refused lines that are kept of what was read at once.
pub const REJECTED_BYTES_AT_ONCE: usize = 64 << 10;

/// Refused lines of a client that are logged one by one. Then only their number is, at the end.
pub const LOGGED_REFUSALS: u64 = 8;

/// Bytes of a trace's file name without its endings; file systems take 255 of all together.
pub const NAME_BYTES: usize = 200;

// Sockets.

/// Connections that the system keeps until they are accepted: a build starts many programs at once.
pub const BACKLOG: i32 = 4096;

/// Pause after the system has refused a connection for want of file descriptors or memory.
pub const REFUSED: Duration = Duration::from_millis(100);

// Reading.

/// Room for one read. What is read is checked and written while it is in the processor's cache: with
/// four times as much, which is what the system keeps of a client, it costs half as much again. Only
/// those clients have such a buffer that are being read from.
pub const READ_BYTES: usize = 64 << 10;

/// Buffers that are kept for the next read.
pub const SPARE_BUFFERS: usize = 8;

/// A read that brings less than this could have waited for more.
pub const SMALL_READ: usize = 32 << 10;

/// After so many small reads in a row, each within a beat of the one before, a client is read from
/// on the beat.
pub const SMALL_READS: u32 = 4;

/// The beat. A client that writes every event on its own fills what the system keeps of it, some 280
/// events, in a quarter of a millisecond at best, and must not be held up by it.
pub const BEAT: Duration = Duration::from_micros(200);

/// A client of which a read brings more than this is read from again without waiting for the beat:
/// a hundred events at a time are worth a read.
pub const PLENTY: usize = 8 << 10;

/// A client of which a beat brings no more than this is read from less often, up to every
/// [`MOST_BEATS`], and at every beat again when there is more.
pub const LITTLE_IN_A_BEAT: usize = 2 << 10;
/// See [`LITTLE_IN_A_BEAT`]. Less than a millisecond: nobody notices.
pub const MOST_BEATS: u32 = 4;

/// After so many reads on the beat without a byte a client is waited for again.
pub const SILENT_READS: u32 = 4;

// Forwarding.

/// Bytes of a trace that wait to be forwarded. Then the policy applies.
pub const FORWARD_BYTES: usize = 4 << 20;

/// Things that wait to be forwarded: many of them are small when events come one by one.
pub const FORWARD_ARRIVALS: usize = 4096;

/// Traces that wait until somebody forwards them.
pub const FORWARD_TRACES: usize = 64;

// Files.

/// How often it is tried again to write to a disk that is full.
pub const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How much later than what it tells the record beside a trace is written.
pub const RECORD_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of a record that are read. Exports that are wished for and those that are due,
/// [`MOST_WISHES`] of each, take 12 MiB if every byte of their paths is written as an escape.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;

/// How much of a file that is to be replaced is looked at.
pub const LOOK_BYTES: usize = 4 << 10;

// Stopping.

/// How long clients are read from that have more to say when the daemon stops.
pub const DRAIN: Duration = Duration::from_millis(800);

/// How long clients have for all that is left to do for them, forwarding too, when the daemon stops.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long exports may take when the daemon stops; what has been wished for and is not done then is
/// done at the next start. Service managers wait 90 seconds.
pub const LAST_EXPORTS: Duration = Duration::from_secs(60);
