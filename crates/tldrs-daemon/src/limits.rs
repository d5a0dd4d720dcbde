//! All limits and timeouts of the daemon, each with its reason.

use std::time::Duration;

// What clients may ask for.

/// Longest line in bytes, unless `--max-line` says otherwise: real events are shorter than a
/// kilobyte.
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 << 20;

/// Smallest value of `--max-line`: an event without members.
pub const MIN_LINE_BYTES: usize = 2;

/// Largest value of `--max-line`: an unfinished line is kept in memory.
pub const MAX_LINE_BYTES: usize = 1 << 30;

/// Largest value of `--max-clients`: more than there are file descriptors.
pub const MAX_CLIENTS: u32 = 1_000_000;

/// Largest value of `--max-traces`, likewise.
pub const MAX_TRACES: u32 = 1_000_000;

/// Clients at the same time, unless `max-clients` says otherwise. Each takes a file descriptor and
/// a few kilobytes.
pub const DEFAULT_MAX_CLIENTS: usize = 4096;

/// Traces open at the same time, unless `max-traces` says otherwise. Each takes a file descriptor.
pub const DEFAULT_MAX_TRACES: usize = 4096;

/// Bytes of all unfinished lines of all clients. Beyond that, an unfinished line is skipped as if
/// it were too long.
pub const MAX_UNFINISHED_BYTES: usize = 256 << 20;

/// Queued exports of one trace. A later one to the same path replaces an earlier one.
pub const MAX_QUEUED_EXPORTS: usize = 256;

/// Exports that one trace is asked to make when its last client disconnects.
pub const MAX_PENDING_EXPORTS: usize = 256;

/// Bytes of an export's path: the system accepts no longer path (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;

/// Bytes of refused lines that are kept for each trace. They help to find the defect of a program,
/// and the first ones show it.
pub const MAX_REJECTED_BYTES: u64 = 16 << 20;

/// Bytes that are kept of one refused line.
pub const MAX_REJECTED_LINE_BYTES: usize = 4 << 10;

/// Bytes that are kept of the refused lines of one read.
pub const MAX_REJECTED_BYTES_PER_READ: usize = 64 << 10;

/// Refused lines of a client that are logged one by one. After that only their number is logged,
/// when the client disconnects.
pub const MAX_LOGGED_REFUSALS: u64 = 8;

/// Bytes of a trace's file name without its endings; file systems take 255 of all together.
pub const MAX_TRACE_NAME_BYTES: usize = 200;

// Sockets.

/// Connections that the system keeps until they are accepted: a build starts many programs at once.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Pause after `accept` has failed for want of file descriptors or memory.
pub const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

// Reading.

/// Bytes of one read. They are checked and written while they are in the processor's cache: with
/// four times as many bytes, which is what the system buffers for a client, processing costs half
/// as much again. Only clients that are being read from have such a buffer.
pub const READ_BYTES: usize = 64 << 10;

/// Read buffers that are kept for the next read.
pub const MAX_SPARE_BUFFERS: usize = 8;

/// A read of fewer bytes than this could have waited for more.
pub const SMALL_READ_BYTES: usize = 32 << 10;

/// After this number of small reads in a row, each within [`POLL_INTERVAL`] of the previous one,
/// reading from the client becomes polled.
pub const SMALL_READS_BEFORE_POLLING: u32 = 4;

/// Time between two ticks of the poll timer. A client that writes every event on its own fills its
/// socket buffer, some 280 events, in a quarter of a millisecond at best, and must not be blocked
/// by it.
pub const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// After a read of at least this number of bytes, a polled client is read from again without
/// waiting for a tick: a hundred events at a time are worth a read.
pub const READ_AGAIN_BYTES: usize = 8 << 10;

/// After a read of fewer bytes than this, a polled client is read from less often, down to once in
/// [`MAX_TICKS_PER_READ`] ticks; after a larger read, at every tick again.
pub const POLL_LESS_OFTEN_BYTES: usize = 2 << 10;
/// Largest number of ticks between two reads of a polled client; see [`POLL_LESS_OFTEN_BYTES`].
/// Together they take less than a millisecond, which is not noticeable.
pub const MAX_TICKS_PER_READ: u32 = 4;

/// After this number of polled reads without a byte, reading from the client becomes event-driven
/// again.
pub const MAX_EMPTY_READS: u32 = 4;

// Forwarding.

/// Bytes of a trace that wait to be forwarded. Beyond that, the policy `when_full` applies.
pub const FORWARD_CAPACITY_BYTES: usize = 4 << 20;

/// Items of a trace that wait to be forwarded. They are small, and many, when events arrive one by
/// one.
pub const FORWARD_QUEUE_CAPACITY: usize = 4096;

/// Opened traces that wait until the forwarder receives them.
pub const FORWARD_TRACE_CAPACITY: usize = 64;

// Files.

/// Pause between two attempts to write to a full disk.
pub const DISK_FULL_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Time from a change of a trace's record to its being saved.
pub const RECORD_SAVE_DELAY: Duration = Duration::from_secs(1);

/// Bytes of a record that are read. Pending exports and exports that are due,
/// [`MAX_PENDING_EXPORTS`] of each, take 12 MiB if every byte of their paths is written as an
/// escape.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Bytes at the beginning of a file to be replaced that are checked for looking like a trace.
pub const REPLACED_FILE_CHECK_BYTES: usize = 4 << 10;

// Stopping.

/// How long a stopping daemon still reads from clients that keep sending.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(800);

/// How long storing and forwarding what clients have sent may take when the daemon stops.
pub const CLIENT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long exports may take when the daemon stops; pending ones that are not done then are done at
/// the next start. Service managers wait 90 seconds.
pub const EXPORT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);
