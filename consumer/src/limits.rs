//! All limits and timeouts of the agent, each with its reason.

use std::time::Duration;

// What a session may have.

/// Metadata of all traces of a session, in bytes. It is kept, because a relay needs it again after
/// a reconnect. The largest metadata, that of tracers of whole kernels, has a few megabytes.
pub const MAX_METADATA_BYTES: usize = 64 << 20;

/// Longest packet, in bytes: relays and viewers refuse longer ones.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Tracefiles of a stream that a relay is asked to keep. Relays of LTTng allocate memory by the
/// number, for each stream, and crash if it is large. They also crash if the size of tracefiles is
/// limited and their number is not: then they are sent this number, after which the oldest file is
/// replaced.
pub const MAX_TRACEFILES: u64 = 65_536;

/// Host and base path together, in bytes: relays of LTTng crash with more than 4096.
pub const MAX_PATH_BYTES: usize = 3072;

/// Longest session name, in bytes. The relay appends a date to it, and makes a file name of that.
pub const MAX_NAME_BYTES: usize = 200;

/// Longest name of a host, in bytes: that of a file.
pub const MAX_HOST_BYTES: usize = 255;

/// Longest path of a trace, in bytes: what the protocol allows, less what the relay appends.
pub const MAX_TRACE_PATH_BYTES: usize = 254;
/// Longest name of a stream, in bytes; see [`MAX_TRACE_PATH_BYTES`].
pub const MAX_CHANNEL_BYTES: usize = 240;

/// Longest packet that the consumer makes for one event, in bytes: twice the default length of a
/// line of the `tldrs` daemon.
pub const MAX_EVENT_PACKET_BYTES: usize = 32 << 20;

/// Time between beacons of a stream while no stream of this process has events: viewers may be
/// merging it with streams of other hosts.
pub const IDLE_BEACON_INTERVAL: Duration = Duration::from_secs(1);

/// A trace that is opened again within this time after its last client has disconnected stays in
/// its session: a build starts its programs one after another.
pub const REOPEN_GRACE_PERIOD: Duration = Duration::from_secs(1);

// Commands and packets in flight to a relay.

/// Commands that are sent before the reply to the first of them. A relay handles one in some ten
/// microseconds, so this covers a round trip of a few milliseconds.
pub const MAX_COMMANDS_IN_FLIGHT: usize = 256;

/// Bytes of packets that may wait to be written. Beyond that, no further packet is queued for
/// writing.
pub const MAX_WRITE_BYTES: usize = 1 << 20;

/// Slices of one vectored write: a packet is two of them.
pub const MAX_WRITE_SLICES: usize = 64;

/// Bytes of commands that may wait to be written. Beyond that, no metadata is appended.
pub const MAX_BUFFERED_COMMAND_BYTES: usize = 256 << 10;

/// Largest piece in which metadata is sent, in bytes. A relay takes each into memory as a whole;
/// but viewers that ask between two pieces may get a part of a declaration, so most metadata should
/// be one piece.
pub const MAX_METADATA_PIECE_BYTES: usize = 1 << 20;

/// While packets remain to be sent, the relay is asked whether it has all packets of a stream after
/// this number of packets ...
pub const CONFIRM_AFTER_PACKETS: usize = 32;
/// ... or this number of bytes of the stream. When nothing remains to be sent, it is asked at once.
pub const CONFIRM_AFTER_BYTES: u64 = 4 << 20;

/// Time after which the relay is asked again if it did not have all packets.
pub const CONFIRM_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Time after which the relay is asked again if it had written all packets, but not made them
/// durable.
pub const DURABLE_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How long a relay is asked to keep a session without a connection, if this process holds its
/// packets in memory: when the process dies, nobody continues the session, and viewers should see
/// its end.
pub const RESUME_TIMEOUT_IN_MEMORY: Duration = Duration::from_secs(60);

/// Packets of a stream that are sent over QUIC from the oldest one that has not arrived. Relays
/// give a missing packet up when 64 later ones have arrived (`relayd --reorder-packets`).
pub const MAX_TRANSIT_PACKETS: usize = 32;

/// Bytes of those packets, of all streams of a session together. Relays give a missing packet up
/// when 32 MiB of later ones have arrived (`relayd --reorder-bytes`).
pub const MAX_TRANSIT_BYTES: usize = 16 << 20;

/// How long the end of a QUIC connection may take to reach the relay.
pub const QUIC_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Milliseconds between two samples of the clock beside that of a relay, unless configured
/// otherwise. At 100 ppm, clocks drift apart by 3 ms meanwhile, most of which readers correct.
pub const DEFAULT_CLOCK_INTERVAL_MS: u32 = 30_000;

// A relay that does not reply.

/// How long connecting to a relay may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long connecting to a relay may take while there are others to be tried: two lost datagrams
/// of TCP's handshake.
pub const CONNECT_TIMEOUT_WITH_OTHERS: Duration = Duration::from_secs(4);

/// How long the reply to the first command of a connection may take, for which a relay needs no
/// disk. The kernel of a relay that is stopped accepts connections; others may not be stopped.
pub const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long any other reply may take. A relay with a slow disk takes seconds.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// TCP keep-alive: time without traffic after which the kernel probes the relay. The loss of a
/// relay's host is noticed after a minute.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(20);
/// TCP keep-alive: time between two probes.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// TCP keep-alive: number of probes without an answer after which the connection is lost.
pub const KEEP_ALIVE_COUNT: u32 = 4;

/// How long after its start an agent looks for a relay if it has no session by then, which would
/// tell whether one can be reached: that of the clock is opened at once if so.
pub const FIRST_CONTACT_DELAY: Duration = Duration::from_secs(1);

/// Number of different failures to reach a relay that are logged as warnings until one is reached.
pub const MAX_REPORTED_FAILURES: usize = 64;

/// First delay before reconnecting. It doubles with each failure ...
pub const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// ... up to this, so that a restarted relay is found within half a minute.
pub const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(30);

/// A connection that has lasted this long resets the backoff: the next delay is
/// [`MIN_RECONNECT_DELAY`] again.
pub const STABLE_CONNECTION_TIME: Duration = Duration::from_secs(10);

// The agent.

/// Bytes of a session that wait for a relay, unless configured otherwise: some seconds of a busy
/// host, or a third of a second of a fast disk.
pub const DEFAULT_QUEUE_BYTES: u32 = 64 << 20;

/// Smallest packet that may be asked for, in bytes: one page, as with LTTng.
pub const MIN_PACKET_BYTES: u64 = 4096;

/// How long queued packets are still sent when the agent stops, unless configured otherwise.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a replay may be without a relay before it is given up, unless configured otherwise.
pub const DEFAULT_REPLAY_RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two redraws of a progress bar.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

// The spool.

/// Size of a spool in bytes, unless configured otherwise.
pub const DEFAULT_SPOOL_BYTES: u64 = 1 << 30;

/// Smallest spool, in bytes: some segments of the smallest size.
pub const MIN_SPOOL_BYTES: u64 = 1 << 20;

/// Largest segment, in bytes. Disk space is freed in segments, and a damaged one is lost as a
/// whole.
pub const MAX_SEGMENT_BYTES: u64 = 16 << 20;

/// A segment is at most this part of the spool, so that there are some to be freed or dropped.
pub const SEGMENTS_OF_A_SPOOL: u64 = 16;

/// A spooled session has at most this part of the spool in memory as well. Packets there cannot be
/// dropped.
pub const MEMORY_PART_OF_A_SPOOL: u64 = 4;

/// A segment of which everything is acknowledged is removed from this size on, in bytes. Each
/// removal costs some calls of the system, and a session that is acknowledged at once would remove
/// one for each packet.
pub const MIN_FREED_SEGMENT_BYTES: u64 = 256 << 10;

/// Open files of the spool. Those of idle sessions are closed.
pub const MAX_OPEN_SPOOL_FILES: usize = 128;

/// Bytes that are written to the spool, or read from it, for one session before it is another's
/// turn.
pub const SPOOL_TURN_BYTES: usize = 1 << 20;

/// Steps that are given to the spool together.
pub const MAX_SPOOL_BATCH_STEPS: usize = 1024;

/// Time between two attempts to write to or read from a disk that is full or has failed.
pub const SPOOL_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Failed attempts to read after which a segment is taken for damaged.
pub const MAX_SPOOL_READ_ATTEMPTS: u32 = 10;

/// Time between two records of what has been acknowledged. An acknowledgement in the last interval
/// before a crash is not known after it; such packets may be sent to a relay without the resume
/// extension twice.
pub const ACKNOWLEDGED_RECORD_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two syncs at the durability `interval`.
pub const SPOOL_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Recovered sessions that are sent at the same time. Each takes connections and memory.
pub const MAX_RECOVERED_SESSIONS: usize = 64;

// Shared-memory rings.

/// Time between two reads of the rings of a process. A ring of the default size holds a quarter of
/// a second of 100,000 events per second.
pub const RING_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Time between two reads of the rings of a process while one of them fills fast: an eighth of it
/// or more was unread.
pub const BUSY_RING_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time between two scans of the run directory, besides those when the system reports a new entry.
pub const RING_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two searches for directories that processes have left which died before they were
/// complete.
pub const RING_CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// Entries of a directory that are handled in one turn when files are removed.
pub const MAX_RING_DIRECTORY_ENTRIES: usize = 65_536;

/// Entries of the run directory that are looked at of each user: some more than processes that are
/// read. Every user may make as many as there are inodes; those of one hide none of another.
pub const MAX_RING_ENTRIES_OF_USER: usize = 1024;

/// The next scan of the run directory waits so many times as long as the last one took: a user who
/// fills it takes no more than a tenth of a processor.
pub const RING_SCAN_IDLE_RATIO: u32 = 9;

/// Processes whose rings are read at the same time. Each takes a session, with two connections.
/// Further ones are read when others have ended.
pub const MAX_RING_PROCESSES: usize = 1024;

/// Processes of the same user whose rings are read at the same time, unless there is only one user.
pub const MAX_RING_PROCESSES_OF_USER: usize = 512;

/// Processes of each user that are read even if all of [`MAX_RING_PROCESSES`] are those of others,
/// as long as there are not twice as many.
pub const MIN_RING_PROCESSES_OF_USER: usize = 16;

/// Rings of a process: two for each of 64 threads and for those that share a ring, with some
/// reserve.
pub const MAX_RINGS_OF_PROCESS: usize = 192;

/// Rings of all processes of a user: sixteen for each of its processes, each with a descriptor.
pub const MAX_RINGS_OF_USER: usize = 8192;

/// Memory for the event classes of all processes of a user, in bytes: with five fields a class,
/// 50,000 of them.
pub const MAX_RING_CLASS_BYTES_OF_USER: u64 = 128 << 20;

/// Memory for the event classes of all processes of all users, in bytes.
pub const MAX_RING_CLASS_BYTES: u64 = 512 << 20;

/// Memory for event classes that each user gets in any case, in bytes: with five fields a class,
/// for 400 of them.
pub const MIN_RING_CLASS_BYTES_OF_USER: u64 = 1 << 20;

/// Bytes that `consumer rings --print` reads from the rings of one user before those of others.
pub const RING_PRINT_TURN_BYTES: usize = 16 << 20;

/// Bytes that are read from a ring before it is another's turn, at least one sub-buffer.
pub const RING_TURN_BYTES: usize = 256 << 10;

/// Bytes per second that are read from the rings of one user, on average; the programs count what
/// they discard meanwhile. At forty bytes an event, these are three million events.
pub const MAX_RING_USER_BYTES_PER_SECOND: u64 = 128 << 20;

/// Metadata of a process that is read, in bytes. With the longest declarations, these are some
/// thousand classes.
pub const MAX_RING_META_BYTES: u64 = 16 << 20;

/// How far in the future the time of an event may be: later times are cut to the present.
pub const MAX_RING_TIME_LEAD: Duration = Duration::from_secs(1);

/// Time by which beacons and ends of packets are behind the present: an event gets its time before
/// it can be read.
pub const RING_WATERMARK_DELAY: Duration = Duration::from_millis(20);

/// How long the session of a dead process stays open, so that viewers find it.
pub const RING_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// How long processes that are still found are read when the agent stops. Programs may start
/// without end.
pub const RING_STOP_SCAN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the agent waits for another process that frees rings, as `consumer rings --print` does
/// for a moment.
pub const RING_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

// CodeTracer recordings.

/// Longest element of a recording that is read from a file, in bytes: a value with everything below
/// it.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// Longest element of a recording that is read from a connection, in bytes.
pub const MAX_RECORD_LINE_BYTES: usize = 16 << 20;

/// Longest packet of a recording: one element, and the fields around it.
pub const MAX_RECORD_PACKET_BYTES: usize = MAX_RECORD_BYTES + (1 << 20);

/// Bytes that are read from a recording at once.
pub const RECORDING_READ_BYTES: usize = 256 << 10;

/// Reads of a recording that wait to be parsed.
pub const MAX_QUEUED_READS: usize = 4;

/// Time between two reads of a recording that is still growing: small beside the interval of
/// packets.
pub const RECORDING_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks for metadata and sources that were not there when a growing recording was
/// opened.
pub const RECORDING_SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of packets of a recording, unless configured otherwise: with the other delays on the
/// way to a viewer's directory, well below a second.
pub const DEFAULT_RECORDING_LIVE_TIMER: Duration = Duration::from_millis(200);

/// Largest source file that is copied, in bytes, unless configured otherwise. A file is in memory
/// as a whole while its hash is computed.
pub const DEFAULT_SOURCE_BYTES: u64 = 16 << 20;

/// Largest file of metadata that is read, in bytes.
pub const MAX_RECORDING_METADATA_BYTES: u64 = 1 << 20;

/// Source files of a recording that are copied, and how many are remembered that were not there
/// yet.
pub const MAX_SOURCE_FILES: usize = 65_536;

/// Source files that are read at the same time, for all recordings together.
pub const MAX_SOURCE_READS: usize = 4;

/// Deepest directory of sources.
pub const MAX_SOURCE_DEPTH: usize = 64;

/// Connections that make a recording at the same time. For further ones, those that have not begun
/// one are closed, the oldest first; without any, they wait until others have ended.
pub const MAX_RECORDING_CONNECTIONS: usize = 256;

/// Age from which a connection that has not begun a recording may be closed for another one. The
/// first line of a recorder that connects at the same time as many others may still be in the
/// socket.
pub const MIN_SILENT_RECORDER_AGE: Duration = Duration::from_secs(10);

/// Bytes of incomplete lines of all connections together. Beyond that, the line that grows is
/// dropped.
pub const MAX_PENDING_LINE_BYTES: usize = 64 << 20;

// The status socket.

/// How long a client of the status socket may take to receive the answer.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest status that is read, in bytes: some thousand sessions.
pub const MAX_STATUS_BYTES: u64 = 16 << 20;

/// Connections to the status socket that are answered at the same time.
pub const MAX_STATUS_CONNECTIONS: usize = 16;
