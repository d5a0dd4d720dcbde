//! Every limit in one place, each with its reason. `relay-proto` and `viewer-proto` limit what a
//! peer may announce; these limit what a peer can make the relay keep.

mod fleet;

use std::time::Duration;

pub use fleet::*;

// Sessions.

/// Maximum number of open streams of a session: more than any host has channels times CPUs.
pub const MAX_STREAMS: usize = 65_536;

/// Maximum number of open streams of all sessions together, of which each takes about two
/// kilobytes: sixteen times as many as one session may open.
pub const MAX_STREAMS_IN_ALL: usize = 1 << 20;

/// Number of streams of a data connection at which closed ones are removed for the first time; then
/// each time that their number has doubled. Fewer streams cost little.
pub const MIN_PRUNED_STREAMS: usize = 256;

/// Maximum number of open metadata streams of a session: a trace for each process that is traced at
/// one time. Their files stay open while there is room for them.
pub const MAX_METADATA_STREAMS: usize = 4096;

/// Maximum metadata of one trace in bytes, its padding included. Viewers take no more, and each
/// reads all of it; that of the largest kernel traces is some megabytes.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Longest packet in bytes. Viewers refuse longer ones, and no tracer has sub-buffers of that size.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Number of packets of a stream without an index from which the relay reads no more packets, and
/// number of its indexes without a packet from which it reads no more commands. A producer that
/// pipelines small packets has thousands in the buffers of its sockets, and the two connections are
/// read independently.
pub const MAX_PENDING_PACKETS: usize = 4096;

/// Maximum number of packets of a stream that wait to be complete or for packets before them. Twice
/// [`MAX_PENDING_PACKETS`]: only a producer whose indexes are in another order than its packets has
/// as many.
pub const MAX_JOINED_PACKETS: usize = 2 * MAX_PENDING_PACKETS;

/// Default memory in bytes for early packets of all sessions together (`--reorder-memory`). One
/// stream may take 32 MiB of it (`--reorder-bytes`); producers that send out of order at all are a
/// packet or two early.
pub const REORDER_MEMORY: u64 = 512 << 20;

/// Divisor of the memory for early packets: no session may take more than this part of it, so that
/// one alone cannot shorten the time for which early packets of the others wait.
pub const SESSIONS_IN_REORDER_MEMORY: u64 = 4;

/// Bytes that an early packet counts besides its payload: its entry in the reorder window, and the
/// allocation.
pub const EARLY_PACKET_BYTES: u64 = 128;

/// Number of pending packets of a stream from which entries are written at once. Larger batches,
/// beyond some kilobytes, would not make each entry cheaper.
pub const MAX_READY_ENTRIES: usize = 256;

/// Maximum number of packets of one read that are handled together. More would save little, and a
/// pwritev(2) takes 1024 pieces, of which a packet needs two if it has padding.
pub const MAX_PACKETS_TOGETHER: usize = 256;

/// Runs of lost packets that a stream remembers, to distinguish a late index from a wrong one.
pub const MAX_GAPS: usize = 64;

/// Number of ended streams that stay listed for viewers that attach later; it may be slightly
/// exceeded. With buffers per process, every process leaves some ended streams.
pub const MAX_ENDED_STREAMS: usize = 16_384;

/// Tracefiles of a stream that viewers can read. Older ones stay on disk; without
/// `--tracefile-count` their number is not limited.
pub const MAX_TRACEFILES: usize = 65_536;

/// Beacons of a session that are written to disk per second, in turns. Viewers on the network get
/// them from memory at once; only readers on the host of the relay follow the directory.
pub const BEACONS_ON_DISK: usize = 256;

/// Interval at which the relay looks for periodic work: beacons, idle files, lingering sessions,
/// heartbeats of busy workers. An idle relay has no such work.
pub const TICK: Duration = Duration::from_secs(1);

/// Time for which viewers are held back at the beginning of a stream whose metadata has not
/// arrived, and after which a trace is announced whose metadata has no stream class. Three periods
/// of the live timer are added, because LTTng sends metadata once in a period.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a session without a producer and without a data connection lingers for packets in
/// flight.
pub const DRAIN_GRACE: Duration = Duration::from_secs(10);

/// Time for which a viewer that has lost its connection is expected back. If the session ends
/// meanwhile, it stays listed. `test-live` tries to reconnect at least every 10 s.
pub const VIEWER_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Maximum number of ended sessions that stay listed for lost viewers. Beyond that the oldest are
/// no longer listed.
pub const MAX_ENDED_SESSIONS: usize = 256;

// Resumable sessions, and their logs.

/// Default of the longest time for which a resumable session is kept without a connection
/// (`--resume-timeout`).
pub const RESUME_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest log of a resumable session in bytes: that of [`MAX_STREAMS`] streams with the longest
/// names.
pub const MAX_SESSION_LOG_BYTES: u64 = 64 << 20;

/// Maximum number of resumable sessions that are kept without a connection: as many as can be
/// connected.
const MAX_DETACHED_SESSIONS: usize = MAX_CONNECTIONS;

/// Maximum number of resumable sessions that are kept without a connection by a relay whose pool
/// has this many descriptors. Each takes two of them, for its log and its directory: a quarter of
/// the pool.
#[must_use]
pub fn max_detached_sessions(pool: usize) -> usize {
    (pool / 8).clamp(1, MAX_DETACHED_SESSIONS)
}

/// Maximum number of bytes of the logs of all sessions without a connection. The memory for a
/// session is about twice as large as its log, which may have [`MAX_SESSION_LOG_BYTES`].
pub const MAX_DETACHED_LOG_BYTES: u64 = 256 << 20;

/// Maximum number of session logs that are read at the start.
pub const MAX_SESSION_LOGS: usize = 65_536;

/// Length of a session log in bytes up to which it is not compacted. Each tracefile adds some fifty
/// bytes.
pub const MIN_COMPACTED_LOG_BYTES: u64 = 64 << 10;

/// Highest session or stream number that is restored from a log. Higher ones were not given by a
/// relay, and are replaced.
pub const MAX_RESTORED_NUMBER: u64 = 1 << 48;

// Index files.

/// Number of attempts of the writer of an index file to lock it, [`LOCK_RETRY_INTERVAL`] apart,
/// while readers hold the lock. They hold it while they read a few kilobytes; the writer does not
/// wait for one that holds it longer.
pub const LOCK_TRIES: u32 = 10;
/// Interval between two attempts to lock an index file, of which there are [`LOCK_TRIES`].
pub const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// Entries of an index file that are read at once for a viewer: two kilobytes.
pub const ENTRIES_READ: usize = 32;

/// Earlier tracefiles of a stream that stay open for a viewer, because it has the indexes of their
/// packets and may still request these: as many as the indexes that it may request at once, in case
/// each tracefile has one packet.
pub const MAX_TRACEFILES_OWED: usize = 64;

/// Maximum number of removed tracefiles that are skipped at once for a viewer, each with some
/// system calls. Then the reply is to ask again, and other viewers are served.
pub const MAX_SKIPPED_TRACEFILES: usize = 16;

// Connections.

/// Connections per port. Each takes a file descriptor and a few kilobytes.
pub const MAX_CONNECTIONS: usize = 8192;

/// Connections per port from one address, or for IPv6 from one network: half of all, so that no
/// peer alone can exhaust them. Not less, because a whole cluster may share one address.
pub const MAX_CONNECTIONS_OF_ONE: usize = MAX_CONNECTIONS / 2;

/// Number of ports whose connections share the file descriptors: control, data, live and HTTP.
const PORTS: u64 = 4;

/// File descriptors that are left to the relay itself: event loops, listening sockets, log.
const OWN_DESCRIPTORS: u64 = 64;

/// Maximum number of connections of all ports of a process that may have `allowed` open files, of
/// which `pool` are trace files. At least an eighth of `allowed`: all files of a pool are rarely
/// open.
#[must_use]
pub fn max_connections(allowed: u64, pool: u64) -> usize {
    let left = allowed.saturating_sub(pool + OWN_DESCRIPTORS);
    let max = left.max(allowed / 8).min(PORTS * MAX_CONNECTIONS as u64);
    usize::try_from(max).unwrap_or(usize::MAX)
}

/// Longest time for which connections are evicted for another. Then the other is refused: all
/// workers hang.
pub const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which an evicted connection may take to be closed before the next one is evicted too:
/// its worker hangs.
pub const EVICTION_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between two records of the log about refused connections of a port.
pub const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// File calls that may block, of all viewers together. Each occupies a thread until the disk has
/// answered.
pub const MAX_FILE_CALLS: usize = 256;

/// File calls that may block, of the viewers of one session: a session whose disk hangs leaves the
/// others theirs.
pub const MAX_FILE_CALLS_OF_SESSION: usize = 8;

/// Timeout of a viewer that waits for file calls of others to return before it can make its own.
/// Then its connection is closed.
pub const FILE_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Threads of the live port: for file calls that may block, the event loops, and the overlap when a
/// permit passes from one call to the next.
pub const MAX_LIVE_THREADS: usize = 2 * MAX_FILE_CALLS;

/// Number of missed heartbeats after which a worker gets no new connections, because it probably
/// hangs in a file call. A disk that is only slow writes a megabyte in less time.
pub const MAX_MISSED_HEARTBEATS: u32 = 3;

/// Maximum number of workers that are started to replace those that hang. Each is a thread.
pub const MAX_REPLACEMENT_WORKERS: usize = 16;

/// Timeout of a [`TICK`]. A longer one hangs in a file call, and the next begins without waiting
/// for it.
pub const TICK_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of sessions that a relay which drains turns away, or sends away: more than it can
/// have. Further ones are served.
pub const MAX_TURNED_AWAY: usize = 1 << 16;

/// Interval at which `relayd drain` asks the relay how far it is.
pub const DRAIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of an answer of the relay to `relayd drain`.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes of that answer.
pub const MAX_STATUS_BYTES: u64 = 64 << 10;

/// Maximum number of rejected commands on a connection before it is closed. Each is logged. Real
/// producers give up after the first.
pub const MAX_REFUSALS: usize = 100;

/// Backlog of listen(2): a whole cluster may connect at once.
pub const BACKLOG: u32 = 4096;

/// Timeout of the handshake of a peer. Not for data connections, which real producers open long
/// before they use them.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the rest of a command that has begun, and of the next bytes of a packet or of
/// metadata. Between packets and commands a connection may be silent for days.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the rest of a viewer's command that has begun. Commands are short.
pub const VIEWER_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a peer that does not read the next bytes of a reply.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for which the reply to a viewer waits for a packet that is arriving. Timers have a
/// resolution of 1 ms, so that it may be twice as long.
pub const MAX_PACKET_WAIT: Duration = Duration::from_millis(1);

/// A packet that was waited for longer is late. On an idle machine a packet takes a tenth of a
/// millisecond.
pub const LATE_PACKET_WAIT: Duration = Duration::from_micros(300);

/// Replies to a viewer that do not wait, although they could, after one that has waited for a late
/// packet.
pub const PACKET_WAIT_COOLDOWN: u32 = 256;

/// Bytes of replies that are collected before they are sent.
pub const REPLY_BYTES: usize = 64 << 10;

/// Maximum number of bytes that are read at once on a data connection: several packets, if as many
/// have arrived. While a socket is read, the kernel acknowledges what was read, and a producer on
/// the same host sends more in the time of the reader: few large reads cost less than one for each
/// packet. Larger ones would not fit a second-level cache.
pub const DATA_READ_BYTES: usize = 1 << 20;

/// Smallest packet, in bytes, whose bytes go to its tracefile through a pipe: that saves a copy,
/// and takes a call more.
pub const MIN_SPLICED_PACKET: usize = 64 << 10;

/// Interval between reads of a data connection whose small packets are coalesced. Viewers get these
/// packets later by this time, and a producer whose relay is killed loses the acknowledged packets
/// of this time.
pub const COALESCE_INTERVAL: Duration = Duration::from_millis(1);

/// Largest packet, in bytes, that is coalesced. Each larger one is worth a read of its own.
pub const MAX_COALESCED_PACKET: u32 = 32 << 10;

/// Reads in a row that each brought a small packet, after which packets are coalesced.
pub const COALESCE_AFTER_READS: u32 = 8;

/// Time without packets after which a data connection is not active any more, at the latest twice
/// as long, and after which the index of its next packet is not polled for.
pub const ACTIVITY_WINDOW: Duration = Duration::from_millis(2);

/// Time for which a worker polls its sockets for the index of a packet that begins to arrive,
/// before it reads the packet. A producer sends some hundred KiB in this time.
pub const SPIN_DURATION: Duration = Duration::from_micros(50);

/// Packets in a row whose index does not come within [`SPIN_DURATION`], after which the next
/// packets are read at once.
pub const MAX_LATE_INDEXES: u32 = 4;

/// Packets that are read at once after [`MAX_LATE_INDEXES`].
pub const SPIN_COOLDOWN: u32 = 64;

/// Size in bytes of the pieces in which packets are read for a viewer: one is read while the viewer
/// receives the previous one.
pub const SENT_BYTES: usize = 64 << 10;

/// Maximum bytes of a packet that one sendfile(2) sends. Other viewers of the thread wait
/// meanwhile.
pub const MAX_SENDFILE_BYTES: usize = 256 << 10;

/// Largest packet, in bytes, that is collected with the replies around it. A larger one is worth a
/// system call of its own.
pub const MAX_COPIED_PACKET: usize = 16 << 10;

/// Maximum metadata in one reply, in bytes. The viewer asks for the rest at once.
pub const METADATA_BYTES: u64 = 256 << 10;

/// Bytes of messages that are collected for a push connection before they are sent; no more are
/// collected until the viewer has read them.
pub const PUSHED_BYTES: usize = 16 << 10;

/// Size in bytes of the send buffer of a push connection (`SO_SNDBUF`). By default the kernel would
/// keep megabytes, which would be out of date when the viewer reads them.
pub const PUSHED_BUFFER: usize = 64 << 10;

/// Minimum interval between messages to a push connection. The first leaves at once, the next after
/// this time, with all that has changed meanwhile: the beacons of many idle streams arrive
/// together, and one message for each would cost as much as one for all of them.
pub const PUSH_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of bytes that a viewer may send on its push connection in a
/// [`PUSH_INPUT_INTERVAL`]: 256 messages, each of which may cause every stream to be looked at.
/// `test-live` sends 20 at most.
pub const MAX_PUSH_INPUT: usize = 2 << 10;
/// Interval in which a viewer may send [`MAX_PUSH_INPUT`] bytes on its push connection.
pub const PUSH_INPUT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of checks whether a rotation has ended: nothing of a recording is pushed while it
/// enters another chunk. That takes the producer a few milliseconds.
pub const ROTATION_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of connections to the status endpoint: a few programs scrape it, each on one.
/// More would only cost others their file descriptors.
pub const MAX_HTTP_CONNECTIONS: usize = 64;

/// Longest head of an HTTP request in bytes. Ours are a line long; what browsers and proxies add
/// fits. No less is possible with the library.
pub const MAX_HTTP_HEAD: usize = 8 << 10;

/// Timeout of the head of an HTTP request, the first and each after it: a client that scrapes every
/// minute keeps its connection.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// Silence of a peer before the system probes whether it is still there.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
/// Interval of further probes after the first, which follows [`KEEP_ALIVE_IDLE`].
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// `TCP_USER_TIMEOUT` of producers' connections: a host that is gone is noticed at the first probe
/// that it leaves unanswered for as long as this, not after all nine. Restarts of network equipment
/// on the way are shorter.
pub const PRODUCER_USER_TIMEOUT: Duration = Duration::from_secs(60);

// QUIC.

/// Connections of the QUIC port: each of a producer or viewer stands for two connections of the TCP
/// ports.
pub const MAX_QUIC_CONNECTIONS: usize = MAX_CONNECTIONS / 2;

/// QUIC connections from one address, or for IPv6 from one network, for the same reason as
/// [`MAX_CONNECTIONS_OF_ONE`].
pub const MAX_QUIC_CONNECTIONS_OF_ONE: usize = MAX_QUIC_CONNECTIONS / 2;

/// Number of QUIC handshakes in progress from which each new peer has to prove its address first
/// (RFC 9000, 8.1.2): a flood with forged addresses then costs no memory. An honest peer loses a
/// round trip.
pub const MAX_UNVALIDATED_HANDSHAKES: usize = 64;

/// Bytes that peers may send before their connection is accepted, of all together.
pub const MAX_QUIC_INCOMING_BYTES: u64 = 4 << 20;

/// Packets that may arrive at the same time on a QUIC connection, each on its own stream. Fewer
/// than the default window of early packets has: a packet that is only late is not given up.
pub const MAX_PACKET_STREAMS: u32 = 32;

/// Bidirectional streams of a QUIC connection: a producer has one, a viewer two for each session
/// that it shows.
pub const MAX_COMMAND_STREAMS: u32 = 16;

/// Bytes of the QUIC connection of a producer that may arrive before they have been handled, out of
/// order or not. Enough at a tenth of a gigabit per second and 20 ms round-trip time.
pub const MIN_RECEIVE_WINDOW: u32 = 256 << 10;

/// Receive window of the QUIC connection of a producer while there is memory, in bytes: 64 packets
/// of a common size, or a gigabit per second at 64 ms.
pub const MAX_RECEIVE_WINDOW: u32 = 8 << 20;

/// Memory for the receive windows of all producers together. When it is reserved, further producers
/// get [`MIN_RECEIVE_WINDOW`].
pub const RECEIVE_WINDOW_MEMORY: u64 = 512 << 20;

/// Bytes of the QUIC connection of a viewer that may arrive before they have been handled: many
/// commands, each of some bytes.
pub const VIEWER_RECEIVE_WINDOW: u32 = 64 << 10;

/// Bytes that the relay keeps of what it sends on a QUIC connection until the peer has acknowledged
/// them: many replies to a producer; for a viewer, 6 MB/s at 20 ms round-trip time.
pub const MIN_SEND_WINDOW: u32 = 128 << 10;

/// Send window of the QUIC connection of a viewer while there is memory, in bytes: a gigabit per
/// second at 8 ms.
pub const MAX_SEND_WINDOW: u32 = 1 << 20;

/// Memory for the send windows of all viewers together. When it is reserved, further viewers get
/// [`MIN_SEND_WINDOW`].
pub const SEND_WINDOW_MEMORY: u64 = 64 << 20;

/// Bytes that are read from a stream of a QUIC connection at once.
pub const QUIC_READ_BYTES: usize = 128 << 10;

/// Bytes of packets that are handled for a QUIC connection before others of its worker get their
/// turn.
pub const QUIC_TURN_BYTES: usize = 2 << 20;

// Stopping.

/// Silence of a connection after which it has nothing more to send, when the relay stops.
pub const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_millis(50);

/// Time for which a relay that stops handles commands of producers that still send. Then they get
/// no more replies, and the relay receives the packets of those that they got.
pub const DRAIN_COMMANDS_TIMEOUT: Duration = Duration::from_millis(400);

/// Timeout of all connections together, when the relay stops.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(800);

/// Timeout of closing a session when the relay stops. Then another thread closes the remaining
/// sessions; when all others are closed, the session gets this time once more.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// Service.

/// Time without a heartbeat after which a set of threads is unhealthy. lttng-relayd takes as long.
pub const HEALTH_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of a client of the health socket, which serves one client at a time.
pub const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause after the system has refused a connection to the health socket.
pub const HEALTH_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Time for which a stopping relay waits until deleted chunks are unlinked. The next start
/// completes the rest.
pub const DELETION_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a relay that stops waits until everything that it has written is synced.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum depth below the output at which traces are searched for repair when the relay starts,
/// and are examined by retention.
pub const MAX_OUTPUT_DEPTH: usize = 128;

/// Maximum depth of a trace below the output, without the directories of chunks (`archives/NAME`)
/// and of index files: all that is accepted is found within [`MAX_OUTPUT_DEPTH`].
pub const MAX_TRACE_DEPTH: usize = MAX_OUTPUT_DEPTH - 8;

/// Maximum size of a metadata file that is repaired, in bytes. No reader of this project accepts
/// more.
pub const MAX_REPAIRED_METADATA: u64 = 64 << 20;

/// Maximum length of the header and context of a packet that the repair finds without an index
/// entry, in bytes. Those of LTTng have up to some hundred bytes.
pub const MAX_PACKET_HEAD: u64 = 64 << 10;

/// Maximum size of a packet that the repair reads into memory and decodes, in bytes. Larger ones
/// count as intact.
pub const MAX_CHECKED_PACKET: u64 = 64 << 20;

/// Maximum number of entries that the repair adds to an index file. Some hundred megabytes of
/// memory.
pub const MAX_REBUILT_ENTRIES: usize = 1 << 21;

// Throttling of viewers.

/// Time after a backlog of a worker for which viewers are slowed down. A producer that is busy
/// causes the next one sooner.
pub const BACKLOG_TIME: Duration = Duration::from_millis(10);

/// Bytes per second that all viewers together are sent while a worker has a backlog.
pub const VIEWERS_RATE: u64 = 64 << 20;

/// Bytes per second that each viewer is sent while a worker has a backlog, however many viewers
/// there are: more than most sessions have.
pub const MIN_VIEWER_RATE: u64 = 1 << 20;

/// Time that a viewer that has read less than it might saves at most: what takes so long comes at
/// once.
pub const VIEWER_BURST: Duration = Duration::from_millis(20);

// Retention.

/// Interval at which the space of the output's file system is measured, and free memory is returned
/// to the system.
pub const SPACE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which old sessions are removed.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Time since the last write below which no session is removed: viewers may still read its end, and
/// its producer may be about to open its next stream.
pub const MIN_RETAINED_AGE: Duration = Duration::from_secs(60);

// A disk that is full.

/// Longest interval of attempts to write while producers are paused. An attempt costs each paused
/// connection a system call or two, and producers continue at most this late once the disk has
/// space.
pub const SPACE_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// First interval of attempts to continue a connection that is paused. It doubles with each
/// attempt, up to [`SPACE_RETRY_INTERVAL`]: a connection that waits for packets or indexes that
/// have been sent already waits briefly.
pub const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(1);

// Trace files.

/// Minimum size of the pool of trace files, as with lttng-relayd. Each thread that writes needs two
/// files at a time, and viewers need theirs.
pub const MIN_POOL: i64 = 100;

/// Time without a write after which a trace file is closed, at most twice as long. The next write
/// opens it again. Live streams that are busy write more often.
pub const IDLE_FILE_TIMEOUT: Duration = Duration::from_secs(5);

// Archive.

/// Default interval between commit objects (`--archive-interval`): at most 2.6 million requests a
/// month.
pub const ARCHIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Default time after which a session is written again as a part (`--archive-part-age`).
pub const ARCHIVE_PART_AGE: Duration = Duration::from_secs(900);

/// Interval of commit objects that have only beacons: viewers of other relays learn by them that
/// the streams of idle sessions have nothing for them.
pub const ARCHIVE_BEACON_INTERVAL: Duration = Duration::from_secs(5);

/// Number of `--archive-part-age` for which the log of a relay has not grown before other relays
/// move it to parts: a relay that runs deletes its objects long before.
pub const ARCHIVE_ORPHAN_AGES: u32 = 4;

/// Shortest mean time between two looks for such logs. Otherwise it is `--archive-part-age`.
pub const MIN_ARCHIVE_ORPHAN_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of packets, before compression, at which a commit object is complete, and at which one is
/// begun although the interval is not over.
pub const ARCHIVE_COMMIT_BYTES: u64 = 8 << 20;

/// Maximum number of commit objects that are on their way: at 100 ms each, 300 MB/s.
pub const MAX_ARCHIVE_COMMITS: usize = 4;

/// Bytes of packets, before compression, of a part. Larger ones would cost less requests, and as
/// much memory while they are sent.
pub const ARCHIVE_PART_BYTES: u64 = 64 << 20;

/// Maximum number of parts that are on their way.
pub const MAX_ARCHIVE_PARTS: usize = 2;

/// Bytes of packets at which a block is complete. A viewer reads whole blocks; larger ones are
/// hardly compressed better.
pub const ARCHIVE_BLOCK_BYTES: u64 = 256 << 10;

/// Runs of packets of the same length of a stream without indexes that may be in no part, of 24
/// bytes each. Packets of LTTng are as long as sub-buffers, or pages: a part has fewer of them.
pub const MAX_EXTENT_RUNS: usize = 65_536;

/// Interval at which the archiver looks for what has been published, if that between commit objects
/// is not shorter.
pub const ARCHIVE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of requests that open and end sessions at one time.
pub const MAX_ARCHIVE_REQUESTS: usize = 16;

/// Pause after the store has refused a request, until an operator has changed something.
pub const ARCHIVE_REFUSED_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a file could not be read for a part.
pub const ARCHIVE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Time for which the start of the relay waits for the probe of the store.
pub const ARCHIVE_PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for which shutdown waits for the archive.
pub const ARCHIVE_STOP_TIMEOUT: Duration = Duration::from_secs(30);
